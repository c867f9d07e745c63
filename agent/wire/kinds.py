"""Which kind of failure a refusal is: one list of rules, first match wins, and the status only where no rule fits.

A rule is for a kind of sentence, in the languages met, or for a typed code; never for one server's one string. The
order matters: what only looks like an overflow (money, rates, single fields, images, output limits) is told apart
first. Read only when a request was refused. The kinds are listed in `agent.wire.faults`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from agent.wire.overflow import is_overflow, unit_of
from agent.wire.refusal import Reading


class _Rule(NamedTuple):
    """Fits when `codes` is found among types and codes or `text` among the sentences, and `unless` in neither."""

    kind: str
    codes: str
    text: str
    unless: str = r"(?!)"


_NEVER = r"(?!)"
_SURELY = (
    r"(?:prompt|input|conversation|messages?)(?: \w+){0,3} (?:is|are) too (?:long|large)|context[ _](?:length|window)|"
    r"max_prefill_tokens"
)
"""Says of the prompt that it does not fit, whatever else is spoken of."""
_RULES = (
    _Rule(
        "tool_output",
        r"tool_use_failed|json_validate_failed|output_parse_failed",
        r"failed to (?:call a function|generate json|validate json)|tool call validation failed|error parsing tool call|"
        r"failed to parse input at pos \d|xml syntax error on line|output (?:that )?could not be parsed|"
        r"(?:failed|unable) to parse (?:the )?(?:model|assistant)\S* (?:output|response)",
    ),
    _Rule("field_limit", r"above_max_length", r"(?:string|array) too long|maximum length \d+, but got"),
    _Rule(
        "content_filter",
        r"content_?filter|data_?inspection|\b1301\b|base_resp_102[67]|moderation|content_policy|responsibleai|safety|prohibited_content",
        r"content (?:filter|management|policy|moderation)|inappropriate content|considered high risk|flagged|"
        r"safety (?:system|reasons|filter)|blocked by content|violat\w+ (?:\w+ ){1,3}(?:polic|guideline)|guardrail\w* (?:checks?|intervened|blocked)|"
        r"(?:input|output) (?:new_)?sensitive|sensitive (?:content|words?|information)|content exists risk|"
        r"blocked by (?:our |the )?(?:\w+ ){0,2}(?:guardrail|moderation|safety)|敏感|违规内容|(?:内容|输入|文本|提示)[^。]{0,8}违规|不安全|内容安全",
    ),
    _Rule(
        "media",
        r"image|media_type",
        r"\b(?:images?|media|multimodal|audio|video|mmproj|pdf)\b[^.]*"
        r"(?:exceed|not support|corrupt|invalid|too large|cannot|unsupported|limit|could not|failed)|"
        r"(?:not support\w*|unsupported|invalid)[^.]{0,20} (?:image|audio|video|vision|media|pdf)|"
        r"at most \d+ (?:images?|files?|videos?)|only supports? text|图片|图像|文件(?:大小|过大)|"
        r"\bimage_url\b|(?:support|process) (?:image|audio|video|file|vision)|too many (?:images|files|videos)|"
        r"(?:failed|unable) to (?:download|fetch|load|decode|process)[^.]{0,20} (?:image|audio|video|file|media)|"
        r"untagged enum \w*content|invalid type: sequence, expected a string",
        rf"\btokens\b|{_SURELY}",
    ),
    _Rule(
        "permission",
        _NEVER,
        r"extra usage is required|organization must be verified|requires terms acceptance|"
        r"(?:country|region|territory|location) (?:is |are )?not (?:supported|available|allowed)|"
        r"not available in your (?:country|region|location)|"
        r"long[- ]context[^.]*(?:not (?:yet )?available|requires? (?:a )?(?:higher )?(?:tier|plan|beta))",
    ),
    _Rule(
        "auth",
        r"base_resp_(?:1004|2049)",
        r"login fail|api[- ]?key (?:was |is )?not (?:found|valid|recogni[sz]ed)|(?:api key|security token)\b[^.]{0,40} (?:leaked|revoked|disabled|expired)",
    ),
    _Rule(
        "billing",
        r"insufficient_(?:\w+_)?(?:quota|balance|credit|funds)|exceeded_current_quota|billing|arrear|overdue|payment|"
        r"\b1113\b|\b1008\b|base_resp_1008|credit",
        r"insufficient (?:\w+ )?(?:balance|funds|credit|quota)|credit balance|more credits|good standing|overdue|arrears|"
        r"payment required|(?:out of|no|enough|purchase) credits|billing (?:hard )?limit|credits? (?:is|are) (?:depleted|used up)|"
        r"(?:balance|quota) is (?:insufficient|not enough)|check your (?:account )?balance|"
        r"account\b[^\n]{0,60} suspended[^\n]{0,120} (?:billing|pay|invoice|balance)|"
        r"exceeded your (?:current )?quota, please check|欠费|余额不足|充值|额度不足|额度已用尽|剩余额度|预扣费",
        r"usage limit|retry in \d|retry.?delay|per[ _]?minute|#token-limit",
    ),
    _Rule(
        "quota",
        r"usage_limit|quota_exceeded|budget_?exceeded|\b13(?:08|09|10)\b|base_resp_2056|perday|setlimitexceeded|freetieronly",
        r"usage limit|billing cycle|request allowance|per ?day|\d (?:\w+ )?(?:calls|requests|tokens) ?(?:per|/) ?(?:day|week|month)\b|\b[tr]pd\b|配额|用量上限|使用上限|套餐|"
        r"(?:daily|weekly|monthly|hourly|5-hour) (?:\w+ ){0,2}(?:limit|quota|allowance|allocation|cap)\b|"
        r"quota (?:has been |is )?(?:exceeded|exhausted|reached)|limits? of your (?:\w+ )?plan|(?:key|team|user|spend)\b[^\n]{0,60} over budget|exceeded ?budget|"
        r"(?:user|api key|key|account|team|organi[sz]ation|project)(?:'s)? token (?:limit|quota|budget)|(?:spend(?:ing)? cap|key limit exceeded|(?:spending|inference|budget) limit)|"
        r"service has been paused|used up (?:your|its|the) (?:\w+ ){0,2}(?:quota|allowance|allocation|credits?|limit)|budget has been exceeded|"
        r"limit_[rt]pd|free (?:tier|trial|quota)\b[^.]{0,40} (?:exhausted|exceeded)|(?:exhausted|exceeded) [^.]{0,20}free (?:tier|trial|quota)",
        r"per[ _]?(?:minute|second)|#token-limit|throttling\.",
    ),
    _Rule(
        "overloaded",
        r"overload|unavailable_error|\b1305\b|server_?busy",
        r"overload|at capacity|no capacity|capacity (?:exceeded|limits?)|unable to handle|no healthy upstream|"
        r"(?:server|service|system|model) is (?:currently |too )?busy|model is (?:still |currently )?loading|"
        r"experiencing high (?:traffic|demand|load)|capacity temporarily exceeded|负载已饱和|"
        r"loading model|no available (?:worker|channel|instance)|繁忙|过载|负载过高",
    ),
    _Rule(
        "rate_limit",
        r"rate_?limit|throttl|toomanyrequests|\b130[23]\b|base_resp_(?:1002|1039|1041|2045)|resource_exhausted",
        r"rate.?limit|too many requests|request limit (?:reached|exceeded)|#token-limit|(?:per|/) ?(?:min|minute|hour|second|sec)\b|\b[tr]p[mhs]\b|\bqp[sm]\b|throttl|slow down|"
        r"too many tokens, please|resource_exhausted|requests? burst|burst|token rate|last \d+ ?s(?:ec\w*)?\b|"
        r"频率|频繁|速率|限流|并发|请求次数|调用次数",
        _SURELY,
    ),
    _Rule(
        "schema",
        r"invalid_function_parameters|invalid_tool_schema",
        r"invalid schema|failed to parse tools|tools\[\d+\]\.function|tools\.\d+\.|input_schema|json ?schema",
        r"response_format",
    ),
    _Rule(
        "tool_history",
        _NEVER,
        r"roles? must alternate|should alternate|successive (?:user|assistant)|preced\w+ message|tool_result|"
        r"(?:assistant|message|response|not support)[^.]{0,60} prefill|prefill(?:ing|ed)?[^.]{0,60}(?:assistant|message|response|not support)|"
        r"tool_use.{0,4} (?:ids|block)|tool_call_id|must be (?:followed by|a response to)|must end with a user|"
        r"first message|reasoning_content|thought_signature|thinking block|tool call id|tool call arguments as json|"
        r"system message must be|must be at the beginning|last (?:message|role)|no user query|unexpected role|"
        r"expects? the `?tools=|no tool (?:call|output) found|number of function (?:calls?|response)|function call turn",
        _SURELY,
    ),
    _Rule(
        "overflow", _NEVER, r"max_\w*tokens\b[^\n]*?(?<![\w\-])-(?!1\b)\d+(?!\w)"
    ),  # computed from what the prompt left
    _Rule(
        "server",
        _NEVER,
        r"response (?:body|payload|size)[^.]{0,20}(?:too large|exceed)|memory (?:limit|refus)[^.]{0,30}(?:exceed|prefill)|memory_refusal",
        r"reduce (?:the )?(?:context|prompt)",
    ),
    _Rule(
        "bad_request",
        _NEVER,
        r"batch size|too large to process|header fields?|(?:^|\n)(?:\w+\.){0,3}budget_tokens|too many (?:tools|functions|stop)|"
        r"(?:tools?|functions?)\b[^.]{0,12}数量",
        r"exceeds? (?:the )?safe limit",
    ),
    _Rule(
        "bad_request",
        _NEVER,
        r"\b(?:temperature|top_[pk]|min_p|\w+_penalty|top_logprobs|logprobs|seed|n)\b[^.]{0,20}(?:超|must|should|exceed|too|out of|between)",
        r"context|prompt|tokens",
    ),
    _Rule(
        "not_found",
        r"model_?not_?found|decommissioned|deprecated",
        r"model\W(?!returned ).{0,60}(?:decommissioned|deprecated|retired|no longer (?:supported|available)|end of its life)|"
        r"models?[/ ]\S+ (?:is not found|was removed)|not a (?:valid|chat) model(?! param)|no models? (?:is |are )?loaded|"
        r"model\b.{0,60} (?:only|not) (?:supported|accessible|available) (?:in|via|on|through) (?:the )?\S*/|"
        r"model (?:id|identifier|name)s?\b.{0,90}(?:is invalid|not valid|isn.t supported|but you passed)|model (?:id|identifier|name) \S+ is not supported|"
        r"requested model (?:\S+ )?is not supported|not work with the specified model|no allowed providers",
    ),
    _Rule(
        "params",
        r"unsupported_(?:parameter|value)|unknown_parameter|extra_forbidden|unrecognized|invalid_parameter_combination",
        r"unsupported (?:parameter|value)|extra (?:inputs|fields)|not permitted|(?:does not|doesn.t|do not) support|"
        r"un(?:recognized|known|expected) (?:request )?(?:argument|field|parameter|name|keyword|key|property)|"
        r"(?:is|are) (?:not supported|unsupported)|additional propert|no endpoints found that support|tool choice requires|"
        r"must be 'json_schema'|to use 'response_format'|不支持",
        r"model is not supported|context|does not support .*(?:tokens|more than)",
    ),
)
_COMPILED = tuple((r.kind, re.compile(r.codes), re.compile(r.text), re.compile(r.unless)) for r in _RULES)
_OUT = re.compile(
    r"max_?(?:completion_?|output_?|new_?)?tokens(?![a-z_])|output tokens?|completion tokens?|max(?:imum)? output|"
    r"maximum tokens you requested|tokens to generate|generation length|output length|num_predict|输出长度"
)
_OUT_SPOKEN = re.compile(
    r"(?<!prompt )(?<!input )max tokens?(?: \(\d+\))? (?:is|are|must|should|can ?not|exceeds?|may)\b(?! \d+[,;]? (?:but|you))"
)
_NO_INPUT = re.compile(r"input (?:validation|should be)|(?:invalid|malformed|reformat your) input")
"""What speaks of an input, and of none that is too long."""
_IN = re.compile(
    r"\bprompt|\binputs?\b|\bmessages?\b|context|conversation|\+ ?`?max_|\+ completion|max_seq_len|上下文|输入"
)
_OUT_ITSELF = re.compile(
    r"(?:max_?(?:completion_?|output_?|new_?)?tokens|num_predict)[`'\"]?"
    r"(?: ?[(=:]? ?\d+\)?| value)? (?:must|exceeds?\b|should|can ?not|may not|is not less)"
)
"""The output limit is what the sentence is about; that it speaks of the context beside it does not matter."""
_BOUND = re.compile(
    r"exceed|must|range|too (?:large|high|big)|maximum|greater|cannot|invalid|less|lower|at least|at most|limit|[<>]|larger|"
    r"between|, but|should|非法|超|不能|不得|应在|范围"
)
_AUTH = re.compile(
    r"api[ _-]?key|unauthori[sz]ed|authenticat|invalid token|no (?:cookie )?auth|user not found|access token|credentials|"
    r"身份验证|无效的令牌|令牌已|鉴权"
)
_BAD_KEY = re.compile(r"invalid|incorrect|expired|missing|provide|无效|过期")
_GONE = re.compile(
    r"not[ _]?found|does not exist|no such|unknown model|invalid model|model_not|model is not supported|no route|"
    r"no matching route|cannot (?:get|post)|invalid url|un(?:known|expected) (?:url|endpoint)|no endpoints|not exist|不存在"
)
_TIMEOUT = re.compile(r"time[ds]?[- ]?out|deadline exceeded|超时")
_SAYS_LATER = {"novita"}
"""Providers known to answer an overflow with "try again later"."""
_EMPTY_OVERFLOWS = {"cerebras"}
"""Providers known to answer an overflow with nothing."""
_BY_STATUS = {
    401: "auth", 402: "billing", 403: "permission", 404: "not_found", 405: "not_found", 407: "auth", 408: "timeout",
    413: "overflow", 429: "rate_limit", 503: "overloaded", 504: "timeout", 529: "overloaded",
}  # fmt: skip


def kind_of(status: int | None, reading: Reading, provider: str = "", near_window: bool | None = None) -> str:
    """The kind of a refusal. `near_window`: whether our own estimate is close to the window, None for not known."""
    text, codes = reading.text, reading.codes
    if reading.page:
        return {401: "auth", 407: "auth", 413: "overflow", 429: "rate_limit"}.get(status or 0, "html")
    if not text and not codes:
        return _empty_kind(status, provider, near_window)
    kind = _ruled_kind(text, codes, f"{text} {reading.loc.lower()}")
    if kind == "rate_limit" and _is_oversized(text):
        return "rate_limit_size"
    if status == 401:  # it speaks of tokens of another kind
        return kind or "auth"
    if status == 402:  # what fits is a matter of money here
        return kind if kind in ("quota", "rate_limit", "permission", "auth") else "billing"
    if status == 429 and not re.search(r"context|prompt|inputs?(?! tokens?\b)", text):
        return kind or _status_kind(status, reading)  # sizes beside a 429 are a rate's
    return kind or _size_kind(text, codes, provider) or _status_kind(status, reading)


def _ruled_kind(text: str, codes: str, named: str) -> str | None:
    """The first rule that fits, or "output_cap" before the rule for parameters; None when no rule does."""
    for kind, in_codes, in_text, unless in _COMPILED:
        if unless.search(text) or unless.search(codes):
            continue
        if in_text.search(text) or in_codes.search(codes):
            return "output_cap" if kind == "params" and is_output_cap(named) else kind
    return "output_cap" if is_output_cap(named) else None


def _is_oversized(text: str) -> bool:
    """Whether one request alone is more than the rate allows: waiting does not help."""
    plain = text.replace(",", "")
    stated = re.search(r"limit:? (\d+)[^.]*requested:? (\d+)", plain)
    if stated:
        return int(stated[2]) > int(stated[1])
    return "request too large" in plain


def is_output_cap(text: str) -> bool:
    """Whether a text is about the output alone. "N output tokens, a prompt of M characters" is, when M surely fits."""
    chars = re.search(r"requested (\d+) output tokens and your prompt contains (\d+) characters", text)
    if chars:
        return int(chars[2]) * 2 <= int(chars[1])
    text = re.sub(r"[^\n]*(?:see|refer to|visit)[^\n]*https?://\S+|parameter=\w+", "", text)
    if _OUT_ITSELF.search(text):
        text = re.sub(r"`?context[ _](?:length|window|size)`?|than context", "", text)
    text = _NO_INPUT.sub("", text)
    return bool((_OUT.search(text) or _OUT_SPOKEN.search(text)) and _BOUND.search(text) and not _IN.search(text))


def _size_kind(text: str, codes: str, provider: str) -> str | None:
    """Overflow, or the limit of one field; None for neither."""
    if "try again later" in text and not re.search(r"\d{3}", text) and provider not in _SAYS_LATER:
        return None
    if not is_overflow(text, codes):
        return None
    if unit_of(text, codes) == "chars" and "characters_too_long" not in codes:
        largest = max((int(n) for n in re.findall(r"\d+", text.replace(",", ""))), default=0)
        return "overflow" if largest >= 16384 else "field_limit"  # an application's own limit is small
    return "overflow"


def _empty_kind(status: int | None, provider: str, near_window: bool | None) -> str:
    if provider in _EMPTY_OVERFLOWS and status in (400, 413) and near_window is not False:
        return "overflow"
    return _BY_STATUS.get(status or 0, "empty") if status not in (408, 503, 504, 529) else "empty"


def _status_kind(status: int | None, reading: Reading) -> str:
    """What the status says, where no sentence of the body was known."""
    text = f"{reading.text}\n{reading.codes}"
    if _GONE.search(text) and status in (None, 200, 400, 404, 410, 422):
        return "not_found"
    if status == 403 and not (_AUTH.search(text) and _BAD_KEY.search(text)):
        return "permission"
    if _AUTH.search(text) and status not in (404, 429) and ((status or 0) < 500 or _BAD_KEY.search(text)):
        return "auth"
    if status == 404 and reading.text:
        return "bad_request"
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if _TIMEOUT.search(text) and (status is None or status == 200 or status >= 500):
        return "timeout"
    if status == 200 and reading.prose:
        return "garbled"
    if status is None or status == 200 or status >= 500:
        return "server"
    return "bad_request"
