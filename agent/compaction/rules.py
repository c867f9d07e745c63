"""Rules: which sentences of a user say what must or may not be done, and which take such a rule back.

Both are kept for ever, word for word: a rule that outlives its end is as wrong as one that is forgotten. English and
Chinese, and the plainest words of some other languages. Pure; it errs towards keeping, since a sentence too many costs a
few tokens.
"""

from __future__ import annotations

import re

from agent.compaction.cutting import asks

_CONSTRAINT = re.compile(
    r"(?<!\bi )(?<!'ve )(?<!\bhe )(?<!\bshe )(?<!\bit )(?<!\bthey )(?<!\bhave )(?<!\bhad )(?<!n't )(?<!not )"
    r"\b(?:never|always|do not|don'?t|avoid|remember)\b"
    r"|\b(?:must(?: not|n't)?|only use|make sure|from now on|forbidden|keep in mind|under no circumstances"
    r"|without asking)\b"
    r"|(?<![要需用])不要|(?<![怪舍恨了])不得(?![不了])|不准|不许|别[再动改碰删用]|禁止|必须|务必|切勿|记住|记下|记一下|牢记|一律|以后都"
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
    r"|not allowed|you (?:can't|cannot|can not|may not|should ?n[o']t|should not)|(?:would|['’]d) (?:rather|prefer)"
    r"|(?:ask|check with) me (?:before|first)|only ever|at all times|no matter what|nothing (?:may|must|should)"
    r"|(?:has|have|must) (?:to )?(?:stay|remain)|no need to .{1,60}any ?(?:more|longer)|changed my mind"
    r"|(?:is|are) (?:fine|ok|okay|allowed|open) (?:again|now))\b"
    # German, French, Spanish
    r"|\b(?:niemals|(?<!noch )nie|(?<!noch )immer(?! noch| wieder| mehr)|keinesfalls|auf keinen fall|unter keinen umständen"
    r"|verboten|untersagt|tabu|ab (?:jetzt|sofort)|künftig|frage? mich|ohne rücksprache|vergiss nicht|bitte nicht"
    r"|(?:darfst?|dürfen) .{0,30}(?:nicht|nie|kein\w*)|lass .{1,60} in ruhe|fass .{1,60} nicht)\b"
    r"|\b(?:jamais|toujours|interdit\w*|il (?:ne )?faut|désormais|dorénavant|évite[zr]?|n['’]oublie[zr]?|en aucun cas"
    r"|sans (?:me |nous )?demander|demande[- ]moi|tu ne (?:dois|peux) pas)\b|^ne \w+ (?:pas|plus)\b"
    r"|\b(?:nunca|jamás|siempre|prohibid\w+|hay que|evita|a partir de ahora|bajo ningún\w*|pregúntame"
    r"|no (?:olvides|toques|añadas|uses|borres|cambies|modifiques|hagas|subas|escribas))\b"
    # Russian, Japanese, Korean
    r"|никогда|всегда|нельзя|запрещ|не (?:трогай|меняй|добавляй|удаляй|забудь|забывай|используй|пиши)|обязательно|впредь|отныне"
    r"|絶対に|必ず|(?:し|触ら|使わ|変え|消さ|書か)ないで|てはいけ|今後は"
    r"|절대|항상|반드시|금지|(?:하|지)면 안|지 ?마(?:세요|라|십시오)?|앞으로는"
    # and in Chinese
    r"|请勿|勿[动改删碰用]|不能[动改删碰用]|不可以[动改删碰用]|只能[用在改]|只[准许]",
    re.IGNORECASE,
)
"""The same, but in a question it is none ("must it stay so?")."""
_WORDS = (
    "never|always|do not|don|avoid|remember|must|only use|make sure|from now on|forbidden|mind|"
    "no circumst|without|lifted|forget|scrap|ignore|you can|you may|allowed|no longer|we can|we may|"
    "now be|hands off|off limits|off-limits|leave |stick |refrain|you should|rather|prefer|ask me|"
    "check with|only ever|at all times|no matter|nothing | stay| remain|no need|changed my| is fine|"
    " are fine| is ok| are ok| is open|are open|nie|immer|kein|verboten|untersagt|tabu|ab jetzt|"
    "ab sofort|künftig|mich|ohne rück|nicht|darf|dürfen|lass |fass |jamais|toujours|interdit|il faut|"
    "il ne faut|désormais|dorénavant|évite|oublie|en aucun|sans |demande|tu ne| pas| plus|nunca|jamás|"
    "siempre|prohibid|hay que|evita|a partir|bajo ning|pregúnta|olvides|toques|añadas|uses|borres|"
    "cambies|modifiques|hagas|subas|escribas|никогда|всегда|нельзя|запрещ|не |обязательно|впредь|отныне|"
    "絶対|必ず|ないで|てはいけ|今後|절대|항상|반드시|금지|면 안|지마|지 마|앞으로"
)
_MARKS = (*_WORDS.split("|"), *"不别禁必务切记一以取解作撤忘可允勿只")
"""One of these stands in every text that either matches: said first, since it is quick to tell."""


_PLAIN_MARKS = tuple(filter(str.isascii, _MARKS))


def may_constrain(text: str) -> bool:
    """Whether a text can hold a sentence that constrains."""
    folded = text.casefold()
    marks = _PLAIN_MARKS if folded.isascii() else _MARKS
    return any(mark in folded for mark in marks)


def constrains(sentence: str) -> bool:
    """Whether a sentence says what must or may not be done."""
    if not may_constrain(sentence):
        return False
    return bool(_CONSTRAINT.search(sentence)) or (not asks(sentence) and bool(_ASKED.search(sentence)))
