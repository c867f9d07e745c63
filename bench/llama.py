"""A real llama.cpp server on loopback, for what is measured and tested on one."""

from __future__ import annotations

from typing import Any

TEMPLATE = (
    "{% if tools %}<|im_start|>system\nTools: {{ tools | tojson }}<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content or '' }}"
    "{% for c in m.tool_calls or [] %}<tool_call>\n{{ c.function | tojson }}\n</tool_call>{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""A chat template with tools, which the built-in model's own has not."""


def serve(model: str, window: int, template: str = "") -> Any:
    """The server of a GGUF file, with `window` tokens; it stops when it is collected. Temperature 0 where a request
    says nothing else."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = model
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_parallel = 1
    params.n_ctx = window
    params.warmup = False
    params.verbosity = -1
    params.ui = False
    params.sampling.temp = 0.0
    if template:
        params.chat_template = template
    return xllamacpp.Server(params)
