"""Rules: which sentences of a user say what must or may not be done, and which take such a rule back.

Both are kept for ever, word for word: a rule that outlives its end is as wrong as one that is forgotten. English and
Chinese, and the plainest words of some other languages. Pure; it errs towards keeping, since a sentence too many costs a
few tokens.
"""

from __future__ import annotations

import re

from agent.compaction.cutting import asks

_CONSTRAINT = re.compile(
    r"(?<!\bi )(?<!'ve )(?<!\bhe )(?<!\bshe )(?<!\bit )(?<!\bthey )(?<!\bhave )(?<!\bhad )(?<!n't )(?<!not )(?<!\bas )(?<!than )"
    r"(?<!why )\b(?:never(?! (?:seen|heard|been|had|thought))|always|do not|don'?t(?! (?:worry|mind))|avoid|remember)\b"
    r"|\b(?:must(?: not|n't)?(?! (?:admit|say|confess|have)| be (?:an?|the|joking|kidding|ill|some)\b)|only use|make sure"
    r"|from now on|forbidden|keep in mind|under no circumstances|without asking)\b"
    r"|(?<![要需用我他她])不要(?![紧钱])|(?<![怪舍恨了])不得(?![不了])|不准|不许|别[再动改碰删用]|禁止|(?<![我他她])必须|务必|切勿"
    r"|记住|记下|记一下|牢记|一律|以后都"
    # what takes such a rule back stands as long as the rule
    r"|\b(?:lifted|forget (?:that|it|this|what i said)|never ?mind|scrap that|ignore (?:that|what i)"
    r"|(?:you|we) (?:can|may) now (?!see|say|tell|log)|now you (?:can|may)|(?:can|may) now be|you (?:can|may)\b.{1,60}\bagain"
    r"|allowed (?:again|now)|no longer (?:need|have to|applies|apply|holds?|required|forbidden|valid))\b"
    r"|(?:取消|解除|撤销)(?:这|那|上|之前|刚才|限制|禁令|规则|要求)|(?:限制|禁令|规则|要求|规定|禁止).{0,8}(?:取消|解除|撤销)"
    r"|已(?:经)?(?:取消|解除|撤销)|作废|不用再|不必再|忘掉|允许你"
    r"|可以(?:改|动|碰|删|用|编辑|修改).{0,30}了",
    re.IGNORECASE,
)
_ASKED = re.compile(
    # in other words: what to leave alone, to keep to, to ask first
    r"\b(?:hands off|off[- ]limits|leave .{1,60}? (?:alone|untouched|as (?:it is|is|they are))|stick (?:to|with)|refrain from"
    r"|(?:you(?: are|'re)|it is|that is) not allowed|you (?:may not|should ?n[o']t|should not)"
    r"|you (?:can't|cannot|can not)(?! (?:imagine|see|believe|know|have))"
    r"|(?:would|'d) (?:rather|prefer) (?:you|it if|if you|that you)|(?:ask|check with) me (?:before|first)|only ever|use only"
    r"|at all times|no matter what|nothing (?:in \S+ )?(?:may|must)|(?:has to|must) (?:stay|remain)|be careful not to"
    r"|(?:may|must|has to|have to) (?:never|always)|(?:never|always) (?:may|must|has to|have to)|don't want you to|no \w+, ever"
    r"|no need to .{1,60}any ?(?:more|longer)|changed my mind|\w+ing (?:.{1,40} )?is (?:fine|ok|okay|allowed) (?:again|now))\b"
    r"|^(?:only|just) (?:edit|use|change|touch|reply|answer|write)\b|^stop (?:using|adding|writing|pushing)\b"
    # German, French, Spanish
    r"|\b(?:keinesfalls|auf keinen fall|unter keinen umständen|verboten|untersagt|tabu|ab (?:jetzt|sofort)|künftig"
    r"|frage? mich (?:vorher|zuerst|erst|immer|bevor)|ohne rücksprache|vergiss nicht|bitte nicht"
    r"|(?:darfst?|dürfen) .{0,30}(?:nicht|nie|kein\w*)|lass .{1,60} in ruhe|fass .{1,60} nicht)\b"
    r"|\b(?:interdit\w*|désormais|dorénavant|évite[zr]?|n'oublie[zr]?|en aucun cas|sans (?:me |nous )?demander|demande[- ]moi"
    r"|tu ne (?:dois|peux) pas)\b|^ne \w+ (?:pas|plus|jamais)\b"
    r"|\b(?:prohibid\w+|evita|a partir de ahora|bajo ningún\w*|pregúntame"
    r"|no (?:olvides|toques|añadas|uses|borres|cambies|modifiques|hagas|subas|escribas))\b"
    # Russian, Japanese, Korean
    r"|нельзя|запрещ|не (?:трогай|меняй|добавляй|удаляй|забудь|забывай|используй|пиши)|обязательно|впредь|отныне"
    r"|絶対に|必ず|(?:し|触ら|使わ|変え|消さ|書か)ないで|てはいけ|今後は"
    r"|반드시|금지|(?:하|지)면 안|지 ?마(?:세요|라|십시오)?|앞으로는"
    # and in Chinese
    r"|请勿|勿[动改删碰用]|不能[动改删碰用]|不可以[动改删碰用]|(?<!我)只能(?:[用在]|改(?!天))|只[准许]",
    re.IGNORECASE,
)
"""Rules too, except in a question ("must it stay so?")."""
_EVER = re.compile(
    r"\b(?:niemals|(?<!noch )nie|(?<!noch )immer(?! noch| wieder| mehr)|jamais|toujours|il (?:ne )?faut|nunca|jamás|siempre"
    r"|hay que)\b|никогда|всегда|절대|항상",
    re.IGNORECASE,
)
_OF_SOMEBODY = re.compile(
    r"\b(?:ich|wir|er|sie|es (?:ist|war)|das (?:ist|war)|passiert|je|j'|nous|ça|c'est|il (?!ne faut|faut)|elle|yo|nos|me|he|ha|han"
    r"|ver|allée?)\b|(?<!\w)(?:я|мы|он|она)(?!\w)|감사",
    re.IGNORECASE,
)
"""With such a subject "always" or "never" states a fact, and is no rule."""
_TAG = re.compile(
    r"[,，]\s*(?:right|ok(?:ay)?|please|clear|alright|yes|understood|好吗|行吗|可以吗|明白吗)\s*[?？]$", re.IGNORECASE
)
_BULLET = re.compile(r"^(?:[-*+•>]|\d{1,3}[.)])\s+")
_WORDS = (
    "never|always|do not|don|avoid|remember|must|only|make sure|from now on|forbidden|mind|no circumst|without|lifted|forget|"
    "scrap|ignore|you can|you may|allowed|no longer|we can|we may|now be|hands off|off limits|off-limits|leave |stick |"
    "refrain|you should|rather|prefer|ask me|check with|at all times|no matter|nothing | stay| remain|careful|may never|"
    "has to|have to|want you|, ever|no need|is fine|is ok|just |stop |nie|immer|kein|verboten|untersagt|tabu|ab jetzt|"
    "ab sofort|künftig|mich|ohne rück|nicht|darf|dürfen|lass |fass |jamais|toujours|interdit|il faut|il ne faut|désormais|"
    "dorénavant|évite|oublie|en aucun|sans |demande|tu ne| pas| plus|nunca|jamás|siempre|prohibid|hay que|evita|a partir|"
    "bajo ning|pregúnta|olvides|toques|añadas|uses|borres|cambies|modifiques|hagas|subas|escribas|никогда|всегда|нельзя|"
    "запрещ|не |обязательно|впредь|отныне|絶対|必ず|ないで|てはいけ|今後|절대|항상|반드시|금지|면 안|지마|지 마|앞으로"
)
MARKS = (*_WORDS.split("|"), *"不别禁必务切记一以取解作撤忘可允勿只")
"""One of these stands in every text that one of them matches: said first, since it is quick to tell."""
_PLAIN_MARKS = tuple(filter(str.isascii, MARKS))
_PARTS = tuple({max(mark.split(), key=len) for mark in _PLAIN_MARKS})
"""Of each the longest word, or part of one: no text holds the mark without it."""
_harmless: set[str] = set()
"""ASCII words that hold none of the parts. Most of what is typed is made of few of them."""
MOST_HARMLESS = 20_000


def may_constrain(text: str) -> bool:
    """Whether a text can hold a sentence that constrains."""
    words = text.casefold().split()
    if text.isascii() and all(map(_is_harmless, words)):
        return False
    folded = " ".join(words)
    return any(mark in folded for mark in (_PLAIN_MARKS if text.isascii() else MARKS))


def _is_harmless(word: str) -> bool:
    if word in _harmless:
        return True
    if len(_harmless) < MOST_HARMLESS and not any(part in word for part in _PARTS):
        _harmless.add(word)
    return word in _harmless


def constrains(sentence: str) -> bool:
    """Whether a sentence says what must or may not be done, however it is typed: a curly apostrophe, a bullet before it, a
    question tag behind it."""
    if not may_constrain(sentence):
        return False
    plain = _TAG.sub("", _BULLET.sub("", " ".join(sentence.replace("’", "'").split())))
    if _CONSTRAINT.search(plain):
        return True
    if asks(plain):
        return False
    return bool(_ASKED.search(plain) or (_EVER.search(plain) and not _OF_SOMEBODY.search(plain)))
