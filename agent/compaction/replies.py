"""Replies: what a short answer of the user means, together with what it answers.

"Which colour?" and "teal" say nothing apart; "ok, do that" is only worth what was offered. Both are told as one line, the
question or the offer as it was written, an arrow, and the answer. In the languages that people answer in most. Pure.
"""

from __future__ import annotations

import re

from agent.compaction.cutting import LONG, SENTENCES, asks, cut

SHORT = 40
"""Bytes: a longer answer says by itself what it means."""
READ = 2_000
"""Characters of what is answered, from its end, that are looked at."""
_YES = re.compile(
    r"\W*(?:ok(?:ay)?|yes|yep|yeah|sure|agreed|sounds good|do (?:it|that|so)|go ahead|go for it|please do|👍"
    r"|ja|gern|mach das|oui|d'accord|vas-y|sí|vale|hazlo|да|давай|хорошо|はい|お願いします|네|좋아요|نعم|好的?|可以|行|同意|就这样)"
    r"(?:[\s,.!，。！]+(?:ok(?:ay)?|yes|please|do (?:it|that)|go ahead|go for it|please do|thanks|谢谢))*\W*",
    re.IGNORECASE,
)
_OFFERS = re.compile(
    r"\b(?:i|we) (?:suggest|propose|recommend|would|could|can|will|plan)\b|\bi'(?:d|ll)\b|\blet'?s\b|\b(?:how about|what if)\b"
    r"|ich würde|vorschlag|je propose|propongo|предлагаю|建议|提议|要不|我可以|提案|제안|أقترح",
    re.IGNORECASE,
)


def meant(before: str, answer: str) -> tuple[str, str]:
    """(what is answered, the answer); ("", "") where the answer is long, or answers nothing."""
    answer = answer.strip()
    if not before or not answer or "\n" in answer or len(answer.encode("utf-8", "replace")) > SHORT or asks(answer):
        return "", ""
    sentences = [sentence for sentence in map(str.strip, cut(before[-READ:], SENTENCES)) if sentence]
    asked = next((at for at in (-1, -2) if len(sentences) >= -at and asks(sentences[at])), 0)
    if asked:
        told = " ".join(sentences[asked:])
    else:
        offers = (sentence for sentence in reversed(sentences) if _OFFERS.search(sentence))
        told = next(offers, "") if _YES.fullmatch(answer) else ""
    return (told, answer) if told and len(told) <= LONG else ("", "")
