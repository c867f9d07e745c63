"""Rules: which sentences of a user say what must or may not be done, and which take such a rule back.

Both are kept for ever, word for word: a rule that outlives its end is as wrong as one that is forgotten. English and
Chinese. Pure; it errs towards keeping, since a sentence too many costs a few tokens.
"""

from __future__ import annotations

import re

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
_MARKS = (
    *("never", "always", "do not", "don", "avoid", "remember", "must", "only use", "make sure", "from now on"),
    *("forbidden", "mind", "no circumst", "without", "lifted", "forget", "scrap", "ignore", "you can", "you may"),
    *("allowed", "no longer", "we can", "we may", "now be"),
    *"不别禁必务切记一以取解作撤忘可允",
)
"""One of these stands in every text that `_CONSTRAINT` matches: said first, since it is quick to tell."""


def may_constrain(text: str) -> bool:
    """Whether a text can hold a sentence that constrains."""
    folded = text.casefold()
    return any(word in folded for word in _MARKS)


def constrains(sentence: str) -> bool:
    """Whether a sentence says what must or may not be done."""
    return may_constrain(sentence) and bool(_CONSTRAINT.search(sentence))
