"""Reading an overflow answer: is it one, in which unit, and which numbers does it state.

Servers say "the prompt does not fit" in a hundred sentences and several languages. The rules below are for kinds of
sentence: typed fields first, then the stated parts (prompt and completion), then numbers beside words for a limit or
for a size, and at last the plain fact that of two numbers the larger is what was sent. Numbers of bytes, characters,
messages or per minute are never tokens; a lower bound ("at least N") is never a size; an excess is added to its limit.

Pure text work on what `agent.wire.faults` has collected; knows nothing of HTTP.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from agent.wire.refusal import LEAST_SIZE

MOST_SIZE = 20_000_000
"""Tokens: no window is larger, and what is larger is the name of something."""


class Numbers(NamedTuple):
    """What an overflow answer states, in tokens. `have` is all that was asked for (prompt and completion where both
    count); `prompt` and `completion` its parts; `limit_is_input` when the limit is for the prompt alone."""

    have: int | None = None
    limit: int | None = None
    prompt: int | None = None
    completion: int | None = None
    limit_is_input: bool = False


# What an overflow is called by its type or code.
_CODES = re.compile(
    r"context_?(?:length|window|size|limit)?_?(?:is_)?exceed|exceed(?:s|ed)?_(?:max(?:imum)?_)?context|context_too_l|"
    r"(?:prompt|input|context|messages?|request)_?(?:is_)?too_?(?:long|large)|tokens?_(?:limit_)?(?:too_long|reached|exceeded)|"
    r"characters_too_long|token_(?:quantity|limit)_exceeded|too_many_(?:prompt_|input_)?tokens|outofcontext|"
    r"prompt_tokens_exceeded|input_tokens_exceeded|max_context|context_overflow|\b1261\b"
)  # fmt: skip
_OVER = (
    r"(?:exceed(?:s|ed|ing)?|too (?:long|large|big|many|high)|longer than|larger than|greater than|more than|over the|"
    r"out of|beyond|not fit|overflow(?:s|ed)?|surpass(?:es|ed)?|above the|maximum allowed|cannot exceed|must be (?:less|smaller|<=)|"
    r"must have less|only (?:supports?|accepts?|allows?)|(?:supports?|accepts?|allows?) (?:up to|at most|a maximum)|limited to)"
)  # fmt: skip
_PHRASES = re.compile(
    "|".join(
        (
            r"context[ _](?:length|window|size|limit)[^.]{0,80}" + _OVER,
            _OVER + r"[^.]{0,80}(?:context|model)[- _]?(?:length|window|size|max|limit|token limit|len)",
            r"(?:maximum|max) (?:context|model|input|prompt)[ _](?:length|window|size|len)",
            r"context length is (?:only )?\d|max(?:imum)? context\b",
            _OVER + r" (?:the |its |this |your )?(?:model.?s? )?context\b",
            r"context (?:window|length|size)[^.]{0,30}(?:full|reached|exhausted|used up)\b|context (?:is )?full",
            r"(?:prompt|input|request|conversation|messages?|history)[^.]{0,20}(?:longer|larger|bigger) than[^.]{0,30}"
            r"(?:model|window|context)",
            r"(?:request|prompt|input) token count[^.]{0,20}" + _OVER + r"|tokens? \d+ ?> ?\d",
            r"(?:length|size) of (?:the |your |all )?(?:messages|prompt|input|conversation|request)[^.]{0,40}" + _OVER,
            r"(?:conversation|chat|messages?)[^.]{0,30}" + _OVER + r"[^.]{0,30}(?:max|limit)",
            r"(?:sequence length|requested \d+ tokens)[^.]{0,30}" + _OVER,
            r"(?:^|\n)[^\w\n]*too many tokens(?: in (?:the |your )?(?:prompt|input|request|messages))?(?:: \d+)?\W*(?:\n|$)",
            r"max(?:imum)? tokens of \d+ (?:was |is |has been )?exceeded|too many (?:total )?(?:text )?bytes",
            r"(?:model|context|input|prompt) max(?:imum)? length exceeded|cannot truncate to \d+, required \d",
            r"conversation (?:has )?(?:reached |exceeded )?(?:its |the )?(?:conversation )?(?:length|limit)[^.]{0,20}(?:exceed|reached)|"
            r"(?:reached|exceeded) (?:its|the) conversation (?:length|limit)",
            r"prefill.{0,300}reduce (?:the )?(?:context|prompt)|context too large for|length of ['\"`]?/\S* must be",
            r"(?:prompt|input|context|conversation|messages?)(?: \w+){0,6}? (?:(?:is|are|was) )?too (?:long|large|big)",
            r"(?:prompt|input|request|message)s? tokens? (?:are |is )?too (?:long|many|high)|tokens too high",
            r"too many (?:input |prompt )?tokens[.:] ?(?:max|size|total|limit)|too many (?:input|prompt) tokens",
            r"(?:prompt|input)[^.]{0,60}" + _OVER + r"[^.]{0,60}(?:max|limit|length|token|n_ctx|context|\d)",
            r"tokens?[^.]{0,80}" + _OVER + r"[^.]{0,40}(?:max|limit|context|n_ctx|window|model|seq)",
            r"range of input length|max input (?:tokens|characters|length)|maxlength: ?\d+, actual",
            r"(?:exceed(?:s|ed)?|over|reached)[^.]{0,30}token limit|token limit[^.]{0,20}(?:exceed|reached|over)",
            r"reached (?:the )?(?:max\w* )?context[ _](?:length|window|size|limit)|context overflow",
            r"context limit is|context shift is disabled|out of (?:the )?context|context_?size|n_keep[^.]{0,30}n_ctx",
            r"max[_ ](?:seq[_ ]len|model[_ ]len|total[_ ]tokens|sequence[_ ]length)",
            r"reduce the (?:length|number|size|amount)[^.]{0,20} (?:messages|prompt|input|conversation|context|history)",
            r"(?:limit|max\w*)[^.]{0,20} bytes per request|body too large[^.]*\. max size: \d+ tokens",
            r"shorten (?:the|your) (?:prompt|input|conversation|messages?)",
            r"body[^.]{0,20}length limit exceeded",
            r"prompt[^.]{0,20}(?:demasiado larg|trop long|zu lang|longo demais|muito long|troppo lung|te lang|слишком длин)",
            r"(?:слишком много|trop de|demasiados|troppi|muitos|te veel) (?:токенов|jetons|tokens?)",
            r"kv (?:cache|memory)[^.]{0,40}(?:budget|exceed|full|too small)|exceeds the kv",
            r"inputs? tokens \+|input token count \+|prompt[^.]{0,20}\+ ?max_(?:new_)?tokens",
            r"(?:message|request|prompt|payload|body|entity|content)[^.]{0,30}(?:size|too large|larger)[^.]{0,40}"
            r"(?:exceed|limit|max|too large|larger)",
            r"(?:request|payload|entity|content|body)[^.]{0,20}too large|request exceeds the maximum (?:size|allowed)",
            r"(?:超长|超出|超过|超限|过长|太长|超了|過長|超過)",
            r"(?:上下文|输入|提示|令牌)[^。]{0,20}(?:限制|上限|最大)|最大上下文",
            r"コンテキスト(?:長|ウィンドウ)|最大トークン|トークン[^。]{0,24}超|長すぎ",
            r"컨텍스트[^.]{0,30}초과|토큰[^.]{0,30}초과|너무 [긴깁]",
            r"(?:kontextl[äa]nge|kontextfenster|eingabe)[^.]{0,60}(?:[üu]berschr|zu lang)|zu viele tokens",
            r"(?:contexte|entr[ée]e|invite)[^.]{0,60}(?:d[ée]pass|trop long)|d[ée]passe[^.]{0,40}contexte",
            r"(?:contexto|entrada)[^.]{0,60}(?:exced|excede|supera|demasiado larg|muito long)|(?:excede|supera)[^.]{0,40}contexto",
            r"(?:contesto|richiesta|l'input)[^.]{0,60}(?:super|ecced|troppo lung)|(?:super|ecced)[^.]{0,40}contesto",
            r"(?:контекст|запрос|промпт)[^.]{0,60}(?:превыша|слишком длин)|превыш[^.]{0,40}(?:контекст|токен)",
        )
    )
)  # fmt: skip
_LIMITED = re.compile(r"\bmax|limit|context|window|at most|not enough|allowed|only|fit")
"""Beside two sizes in tokens, any of these says enough."""
_BYTES = re.compile(
    r"\b(?:bytes?|[kmg]i?b)\b|payload|entity|total message size|message larger than max|exceeds the maximum size|"
    r"entity\.too\.large|content too large|request body(?! too large for)|"
    r"^\W*request[_ ]too[_ ]large\W*$"
)  # fmt: skip
_CHARS = re.compile(r"character|maxlength|字符|字数|\bchars?\b")


def is_overflow(text: str, codes: str) -> bool:
    """Whether this text (lower case) or these codes say that the prompt does not fit. Look-alikes (per-minute limits,
    output caps, single fields, media) must have been ruled out before."""
    text = _plain(text)
    if _CODES.search(re.sub(r"[ -]", "_", codes)) or _CODES.search(text) or _PHRASES.search(text):
        return True
    sizes = {int(n) for n in re.findall(_N, text) if int(n) >= LEAST_SIZE}
    return len(sizes) >= 2 and "token" in text and bool(_LIMITED.search(text))


def unit_of(text: str, codes: str = "") -> str:
    """The unit an overflow answer counts in: "tokens", "bytes" or "chars"."""
    if re.search(r"\d ?gi?b\b", text) and not re.search(r"context[ _](?:length|window)\D{0,20}\d", text):
        return "bytes"  # of memory: what is counted beside it is no window
    if re.search(r"length of ['\"`]?/", text):
        return "chars"  # of one field of the request
    if re.search(r"tokens?(?![a-z])|令牌|max_seq_len|n_ctx|context", text):
        chars = "characters_too_long" in codes or re.search(r"max input characters", text)
        return "chars" if chars else "tokens"
    if _CHARS.search(text):
        return "chars"
    return "bytes" if _BYTES.search(text) or "too_large" in codes else "tokens"


def read_numbers(text: str, typed: Mapping[str, int]) -> Numbers:
    """The token counts in an overflow answer: `text` in lower case, `typed` the whole numbers of its JSON by key."""
    text = _plain(text)
    bounded = bool(_LOWER_BOUND.search(text))
    prompt, completion, summed_limit = _parts(text)
    limit = _first(typed, _LIMIT_KEYS) or summed_limit
    have = _first(typed, _HAVE_KEYS)
    if have is None and prompt is not None and not bounded:
        have = prompt + (completion or 0)
    compared = _COMPARED.search(text) or _OF_ALL.search(text)
    if compared and have is None and limit is None:
        have, limit = int(compared[1]), int(compared[2])
    limit = limit or _search(_LIMITS, text)
    excess = _search(_EXCESS, text)
    if excess is not None:
        limit = None if limit == excess else limit
        have = limit + excess if limit else None
    if bounded:
        have = prompt = None
    else:
        have = have or _search(_HAVES, text)
        have, limit = _by_size(text, have, limit)
    have, limit = (n if n and n <= MOST_SIZE else None for n in (have, limit))
    return Numbers(have, limit, prompt, completion, completion is None and bool(_INPUT_LIMIT.search(text)))


_N = r"(?<![a-z0-9_.\-/])(\d+)(?![a-z0-9_\-/]|\.\d)"
"""A number by itself. Only Latin letters make it part of a name: Chinese, Japanese and Korean words touch their numbers."""
_LIMIT_KEYS = (
    "n_ctx", "max_context_length", "context_length", "context_window", "max_model_len", "max_context", "token_limit",
    "max_input_tokens", "max_tokens_allowed", "max_prompt_tokens", "context_size", "limit",
)  # fmt: skip
_HAVE_KEYS = (
    "n_prompt_tokens", "prompt_tokens", "input_tokens", "requested_tokens", "tokens_requested", "token_count",
    "num_tokens", "prompt_token_count", "actual",
)  # fmt: skip
_OF = r"(?:\s*(?:is|of|for|to|=|:|\(|only|at|<=|>=|was|are|about|approximately|exactly|:=|为|是)){0,3}\s*\(?\s*"
_LIMITS = tuple(
    re.compile(pattern)
    for pattern in (
        r"(?:maximum|max) context length(?: of [^\s]+)?(?: is|:| of)*\s*" + _N,
        r"context[ _](?:length|window|size|limit)(?: limit)?" + _OF + _N,
        r"(?:context|max(?:imum)? context)" + _OF + _N,
        r"\d out of (?:the )?" + _N,
        r"(?:超过|超出|超過)了? ?" + _N,
        r"max_(?:seq_len|model_len|total_tokens|num_tokens|context_len\w*|position_embeddings)\s*[=(:]*\s*(?:of|is)?\s*"
        r"(?:max_total_tokens=)?" + _N + r"(?!\)? must)",
        r"n_ctx\W{0,4}" + _N,
        r"(?:exceed(?:s|ed|ing)?|than|within|supports?|over) (?:the |its |a )?(?:model.s )?" + _N + r" tokens? context",
        r"\d \+ \d+ > " + _N,
        r"tokens of " + _N + r" (?:was |is |has been )?exceeded",
        r"cannot truncate to " + _N,
        r"(?:tokens?|\d) (?:>=?) (?:n_ctx: )?" + _N,
        r"with " + _N + r" maximum context",
        r"range of input length should be \[\d+, ?" + _N,
        r"(?:must be|<=|less than or equal to|smaller than|less than|fewer than|no more than|at most|up to|"
        r"cannot exceed|not exceed|only supports(?: up to)?)"
        r"(?: the)?(?: total)?(?: tokens?)?(?: limit)? ?(?:of )?" + _N,
        r"must have less than " + _N,
        r"maximum (?:allowed )?(?:input |prompt |model )?(?:length|tokens?|size)(?: allowed| of| is|:)*\s*\(?" + _N,
        r"(?:configured |token |model )?limit (?:for this model )?(?:of|is|:|was)\s*" + _N,
        r"(?:maximum|max(?!_\w*tokens\b)|limit|massim[oa])(?:(?![:;,] ?(?:input|prompt|request|current|given))[^\d.]){0,40}?\(?"
        + _N,
        r"(?:kontext(?:fenster|länge)|contexte|contexto|contesto|контекст\w*)[^\d.]{0,24}" + _N,
        r"(?:最大限制|上限|限制|最大|上下文长度|上下文窗口|최대)[^\d]{0,12}" + _N,
        r"> " + _N,
        r"exceeds? " + _N,
    )
)  # fmt: skip
_HAVES = tuple(
    re.compile(pattern)
    for pattern in (
        r"requested (?:about |a total of |approximately )?" + _N + r"(?! (?:output|completion))",
        r"resulted in " + _N,
        r"cannot truncate to \d+, required " + _N,
        r"(?:will take|would take|needs|need|uses|contains|has|have|got|sent|given:?|received) "
        + _N
        + r"(?: input| prompt)? tokens",
        r"(?:input|prompt|request)(?: input)? token count" + _OF + _N,
        r"token count of " + _N,
        r"input tokens " + _N,
        r"(?:prompt|input|inputs|request|messages?|conversation)(?: tokens?| length| size)?"
        + _OF
        + r"\(?(?:length )?"
        + _N
        + r"(?! max| limit)",
        r"length of prompt_tokens \(" + _N,
        r"max_total_tokens \(" + _N + r"\)? must",
        r"input_len=" + _N,
        r"tokens \(" + _N + r"\) (?:exceed|is)",
        r"(?:n_keep|n_tokens|n_prompt_tokens)\W{0,4}" + _N,
        r"given: " + _N + r"$",
        r"(?:当前|实际)\D{0,16}" + _N,
        r"\(" + _N + r" tokens",
    )
)  # fmt: skip
_SENT = re.compile(
    r"\)?(?: ?(?:tokens?|jetons?|トークン|个|개))*\)?(?: (?:is|are|was|were))* ?(?:greater|larger|longer|more than|exceeds\b|"
    r"beyond|too (?:long|large|big|many)|>|\+|plus\b|超过|超出|大于|を超|requested|demand|angefordert|solicitad|richiest|"
    r"запрош|out of\b|\((?:max|limit|massim|最大|최대))"
)
"""What follows a number that was sent, and is no limit, whatever stands before it."""
_REFUSED = re.compile(r"(?:not|n't) (?:support|accept|allow) (?:a |the )?$")
"""What stands before one, and so says that it is too many."""
_COMPARED = re.compile(_N + r"(?: tokens?)? ?(?:>=?|&gt;) ?(?:n_ctx:? ?)?(\d+)(?! ?-)")
_OF_ALL = re.compile(r"(?<![\w./\-])(\d+) ?/ ?(\d+) (?:prompt |input |context )?tokens?\b")
_EXCESS = (re.compile(r"(?:exceeded|exceeds|over|too long) by " + _N),)
_LOWER_BOUND = re.compile(r"at least \d+ (?:input )?tokens|contains \d+ characters|at least \d+ input")
_INPUT_LIMIT = re.compile(
    r"configured limit|input length|input token|prompt token count|max(?:imum)?[_ ](?:allowed )?(?:input|prompt)|"
    r"model token limit|inputs?`? must|request body too large"
)  # fmt: skip
_PROMPT_PARTS = re.compile(
    _N
    + r"(?: tokens?)? (?:(?:in|from|of) (?:the |your )?(?:input )?(?:messages?|prompt|text input|tool input|image input|"
    r"functions|tools|input)|`?inputs?`? tokens|input tokens|prompt tokens)"
)
_COMPLETION_PARTS = re.compile(
    _N
    + r"(?: tokens?)? (?:(?:in|for|of) (?:the )?(?:completion|output|response|answer)|output tokens|`?max_new_tokens|"
    r"completion tokens)"
)
_COMPOSED = re.compile(
    r"(?:prompt|input)(?: tokens?| length)*[ (]{1,2}"
    + _N
    + r"(?: tokens?)?\)? ?(?:\+|plus|and|[,，、]) ?(?:the )?`?max[_ ](?:\w+[_ ])?"
    r"tokens`?[ (=]{1,2}" + _N
)
_COMPOSED_BACK = re.compile(
    r"max[_ ](?:\w+[_ ])?tokens`?[ (=:]{1,2}" + _N + r"\)? (?:\+|plus|and) (?:the )?(?:prompt|input)"
    r"(?: tokens?| length)?(?: of)?[ (=:]{1,2}" + _N
)
_SUM = re.compile(r"\b(\d+) \+ (?:completion |output |max_tokens )?(\d+)(?: > (\d+))?")
_TOO_LARGE = re.compile(r"(?:max_tokens|max_completion_tokens|max_new_tokens)\W{1,3}(?:is )?too large: (\d+)")


def _plain(text: str) -> str:
    """Numbers without separators ("40,000", "1_048_576", "128k tokens"), so that one pattern reads them all."""
    text = re.sub(r"(?<=\d)[,_'\u00a0\u202f\u2009](?=\d{3}(?:[,_'\u00a0\u202f\u2009]\d{3})*(?!\d))", "", text)
    text = re.sub(r"(?<![\d.])(\d{1,3})((?:\.\d{3})+)(?= ?tokens?)", lambda m: m[1] + m[2].replace(".", ""), text)
    text = re.sub(r"(?<=\d)-(?=tokens?\b)", " ", text)
    text = re.sub(r"(?<=\d{3})\.0(?!\d)", "", text)
    return re.sub(
        r"(?<![\w.])(\d+(?:\.\d+)?) ?k(?= ?tokens?| context|\))", lambda m: str(int(float(m[1]) * 1000)), text
    )


def _parts(text: str) -> tuple[int | None, int | None, int | None]:
    """The prompt's and the completion's tokens where an answer tells them apart, and the limit of "A + B > C"."""
    summed = _SUM.search(text)
    if summed:
        return int(summed[1]), int(summed[2]), int(summed[3]) if summed[3] else None
    composed = _COMPOSED.search(text)
    if composed:
        return int(composed[1]), int(composed[2]), None
    composed = _COMPOSED_BACK.search(text)
    if composed:
        return int(composed[2]), int(composed[1]), None
    prompts = [int(m[1]) for m in _PROMPT_PARTS.finditer(text)]
    completion = [int(m[1]) for m in _COMPLETION_PARTS.finditer(text)]
    too_large = _TOO_LARGE.search(text)
    if too_large:
        completion = [int(too_large[1])]
    return (sum(prompts) if prompts else None), (completion[0] if completion else None), None


def _search(patterns: tuple[re.Pattern[str], ...], text: str) -> int | None:
    for pattern in patterns:
        for found in pattern.finditer(text):
            if patterns is _LIMITS and (_SENT.match(text, found.end(1)) or _REFUSED.search(text, 0, found.start())):
                continue
            if patterns is _LIMITS and int(found[1]) < LEAST_SIZE:
                continue
            if patterns is _EXCESS or not text[: found.start(1)].endswith((" by ", "at least ")):
                return int(found[1])
    return None


def _by_size(text: str, have: int | None, limit: int | None) -> tuple[int | None, int | None]:
    """Mend by what must hold: more was sent than fits. Of two bare numbers the smaller is the limit."""
    numbers = {int(n) for n in re.findall(_N, text) if LEAST_SIZE <= int(n) <= MOST_SIZE and not _is_code(text, n)}
    if limit and _is_code(text, str(limit)):
        limit = None
    if have and (have == limit or (limit and have < limit) or _is_code(text, str(have))):
        have = None
    if limit and not have:
        have = max((n for n in numbers if n > limit), default=None)
    elif have and not limit:
        limit = max((n for n in numbers if n < have), default=None)
    elif not have and len(numbers) == 2:
        limit, have = sorted(numbers)
    return have, limit


def _is_code(text: str, number: str) -> bool:
    """A code in brackets after what is exceeded ("... exceeds limit (2013)"), with no unit and no roundness of a size."""
    bracketed = re.search(rf"(?:limit|length|window|size|long|large|high) ?\({number}\)(?! ?(?:tokens?|max))", text)
    return bool(bracketed) and int(number) < 3000 and int(number) % 16 != 0 and int(number) % 100 != 0


def _first(typed: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    return next((typed[name] for name in names if typed.get(name)), None)
