"""The past: what a compaction knows of its session's life, read once.

What does not depend on the written summary is made while a model writes it (`ready`, called when the request is sent):
reading and waiting then take as long as the longer of the two, and when the answer comes there is hardly more to do
than to choose. Where no model is asked, or an answer is there at once, the same is done when it is wanted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

from agent.compaction import gleaned, plan, record, summary
from agent.compaction.frame import Frame
from agent.compaction.inert import defused
from agent.compaction.present import Present
from agent.compaction.statements import USER
from agent.errors import StorageError
from agent.log.entries import Entry
from agent.messages import text_of
from agent.session import Session
from agent.tokens import estimate, estimate_messages


class Past:
    """Of one session, during one compaction. `recall`: whether the model can look up what is left out; `role`: that of
    the summary message."""

    def __init__(self, session: Session, recall: bool, role: str) -> None:
        self.role = role
        self.unread = ""
        self._session = session
        self._recall = recall
        self._kept: tuple[Entry, ...] = ()
        self._beside: record.Record | None = None
        self._packed = b""
        self._marks: dict[int, str] = {}
        self._source: tuple[plan.Fold, summary.Source] | None = None

    def frame(self, cut: plan.Fold) -> Frame:
        """What the summary message says of the messages it stands for."""
        first, last, _ = cut.covers
        return Frame(first, last, f"{self._session.id}.archive", recall=self._recall)

    @cached_property
    def gathered(self) -> record.Gathered:
        """Everything that was stated; where an archive cannot be read what the others say, or the present file alone, and
        `unread` why."""
        try:
            found = gleaned.gather(self._session)
        except StorageError as error:
            self.unread = str(error)
            return gleaned.gather(self._session, archives=False)
        if lost := gleaned.missing(self._session):
            self.unread = f"Archive {', '.join(lost)} of session {self._session.id} is missing or damaged"
        return found

    def record_beside(self, kept: Sequence[Entry]) -> record.Record:
        """The record beside what is kept, to be cut to a budget."""
        if self._beside is None or list(map(id, kept)) != list(map(id, self._kept)):
            self._kept, self._beside = tuple(kept), _record(self.gathered, kept)
        return self._beside

    def source(self, cut: plan.Fold) -> summary.Source:
        """What a summary of the folded messages is judged against."""
        if self._source is None or self._source[0] is not cut:
            numbers = {entry.get("n", 0) for entry in cut.folded}
            told = self.gathered.of(numbers.__contains__)
            words = "\n".join(s.text for s in told.statements if s.kind == USER)
            self._source = cut, summary.Source(cut.size, record.matter(told), words)
        return self._source[1]

    @cached_property
    def pinned(self) -> int:
        """Estimated tokens of the pins, which every record holds."""
        return sum(map(estimate, gleaned.pins(self._session)))

    @cached_property
    def present(self) -> int:
        """Estimated tokens of the context as it is sent now, without tools."""
        return estimate_messages(self._session.view())

    def ready(self, cut: plan.Fold, budget: int) -> None:
        """Make what a compaction with this cut and a record of so many tokens will ask for."""
        _ = self.present, self.source(cut).cjk_share
        self.record_beside(cut.kept).ranked(budget)
        self._session.digest_ahead()
        self._marks = {id(entry): gleaned.mark(entry) for entry in cut.kept}
        self._packed = self._packed or gleaned.packed(self.gathered)

    def pins_left_out(self, entries: Iterable[Entry]) -> str:
        """How many pins stand in none of these messages, and which, in words; "" where all do."""
        pins = gleaned.pins(self._session)
        there = Present(_typed(entries, with_summary=True) if pins else "")
        lost = [pin for pin in pins if not there.tells(" ".join(defused(pin).split()))]
        shown = ", ".join(f'"{pin[:40]}"' for pin in lost[:3]) + (" ..." if len(lost) > 3 else "")
        return f"{len(lost)} of the pins: {shown}" if lost else ""

    def remember(self) -> None:
        """Leave it for the next compaction, beside the archive that was just made."""
        if "gathered" in vars(self) and not self.unread:
            packed = self._packed or gleaned.packed(self.gathered)
            gleaned.keep(self._session, self.gathered.last, packed, self._marks)


def _record(gathered: record.Gathered, kept: Sequence[Entry]) -> record.Record:
    whole = {entry.get("n") for entry in kept if not entry.get("pruned")}
    pieces = "\n".join(text_of(entry["message"]) for entry in kept if entry.get("pruned"))
    said = record.gather([{"message": {"role": "user", "content": pieces}}], gathered.of(whole.__contains__))
    present = "\n".join(text_of(entry["message"]) for entry in kept)
    return record.Record(gathered.of(lambda n: n not in whole), present, said, _typed(kept))


def _typed(entries: Iterable[Entry], *, with_summary: bool = False) -> str:
    """What the user typed in these messages, and what a summary says where that counts, too."""
    texts = [e["message"] for e in entries if (with_summary if e.get("summary") else plan.role(e) == "user")]
    return "\n".join(map(text_of, texts))
