"""The record: what code, not a model, carries through every compaction.

Made each time anew from what the originals of the whole life of a session state, so that the tenth record knows what the
first one knew; never from an earlier record. It is the best of these statements (`agent.compaction.statements`) that fit
a budget of tokens. Constraints, pins and the first prompt are kept before all else, then for a share of the room what the
user told. Of the rest what the user said weighs most, then changed files, errors, what one side said and another took up;
what stands elsewhere in the context is worth nothing, and neither is a line like hundreds of others; of two statements of
the same thing the later one is worth more.

Every word in it is a word of the originals. It does not know when or why a context is compacted. Pure.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Callable, Iterable
from math import inf
from operator import itemgetter

from agent import anchors
from agent.compaction.cutting import asks, is_code
from agent.compaction.listing import listed
from agent.compaction.present import Present
from agent.compaction.statements import CHANGED, COMMAND, ERROR, FACT, USER, Gathered, Statement
from agent.compaction.statements import gather as gather_all
from agent.log.entries import Entry

__all__ = ["Gathered", "Record", "gather", "matter", "thin"]

PINNED_SHARE = 0.6
"""At most this share of the budget goes to pins and constraints."""
FIRST_SHARE = 0.2
"""At most this share of what is left goes to the first prompt."""
FADING = 0.3
"""Each further fact of one statement counts for this much less: a line of code is full of names and says little."""
FORGOTTEN = 0.15
"""How much less the oldest statement counts than the newest. What is new stands in the context anyway, and what is old
nowhere else."""
CROWDED, CROWDED_USER = 0.4, 0.1
"""How much less each further statement of one message counts: the thirtieth address in a list says little more. It
weighs less on what the user typed."""
OVERHEAD = 8
"""Tokens a statement is charged beyond its own: a scrap that is cheap is not for that reason worth having."""
USER_SHARE = 0.2
"""Of the budget: what goes to the user's own words before everything else is weighed, facts in them or none."""
SPARE, SLACK = 0.5, 0.05
"""Shares of the budget. SPARE: how much more is ranked, since a summary may say some of it already. SLACK: how much may stay
unused."""
LEAST = 0.8
"""What tools gave back and is worth less is not kept although there were room: a record is not the better for being
full. What the user said is kept while there is room."""


# ---- what a statement is worth ----

_VARIES = re.compile(r"[A-Za-z0-9_]*\d[A-Za-z0-9_.:/-]*")


def _seen(statements: Iterable[Statement]) -> dict[str, float]:
    """For each thing that is stated, how much its spread makes it worth: what comes back matters, most of all what one
    side said and another took up; what is everywhere says little."""
    voices: dict[str, set[tuple[str, int]]] = {}
    for statement in statements:
        for key in statement.worth:
            voices.setdefault(key, set()).add((statement.kind, statement.n))
    spread = {}
    for key, found in voices.items():
        messages = len({n for _, n in found})
        kinds = len({kind for kind, _ in found})
        spread[key] = (1.0 + 0.5 * (kinds - 1)) * (1.3 if 1 < messages <= 12 else 1.0) / (1.0 + messages // 40)
    return spread


def _shape(statement: Statement) -> str:
    """What a statement looks like whatever it says: of what was said the part before its value ("the port is #"), of
    what tools gave back everything that holds no digit; a command that failed is like no other."""
    if statement.kind == COMMAND and " → exit " in statement.text and not statement.text.endswith(" → exit 0"):
        return statement.text
    if statement.kind == USER and statement.value:
        return statement.text[: statement.value] + "#"
    return _VARIES.sub("#", statement.text)


_by_value = itemgetter(1)


def _priced(gathered: Gathered) -> list[tuple[Statement, dict[str, float]]]:
    """The statements with their worth corrected for repetition, spread, recency, and later corrections; of each what is
    worth most comes first."""
    shaped = [_shape(statement) for statement in gathered.statements]
    shapes = Counter(shaped)
    latest = {shape: index for index, shape in enumerate(shaped)}
    spread = _seen(gathered.statements)
    priced = []
    for index, (statement, shape) in enumerate(zip(gathered.statements, shaped, strict=True)):
        factor = 1.0 - FORGOTTEN * (1.0 - statement.n / max(1, gathered.last))
        if statement.kind in (FACT, ERROR):
            if shapes[shape] > 2:
                factor /= shapes[shape] ** 0.5
            if is_code(statement.text):
                factor *= 0.3
        if latest[shape] != index and "#" in shape:
            factor *= 0.5
        if asks(statement.text):
            factor *= 0.4
        worth = {key: value * factor * spread[key] for key, value in statement.worth.items()}
        if len(worth) > 1:
            worth = dict(sorted(worth.items(), key=_by_value, reverse=True))
        priced.append((statement, worth))
    return priced


OF_ONE = 3
"""Facts of one statement that a summary is checked against: of a long list it may name a few."""


def matter(gathered: Gathered, most: int = 12) -> list[str]:
    """The facts that matter most, folded for comparison: what a summary is checked against. Whole sentences are none."""
    best: dict[str, tuple[float, Statement]] = {}
    for statement, worth in _priced(gathered):
        if statement.kind in (USER, CHANGED, ERROR):
            for key, value in worth.items():
                if len(key) >= 3 and value > best.get(key, (0.0,))[0]:
                    best[key] = value, statement
    found: list[str] = []
    told: Counter[str] = Counter()
    for key, (_, statement) in sorted(best.items(), key=lambda each: -each[1][0]):
        if len(found) == most:
            break
        if told[statement.text] < OF_ONE and (statement.kind == CHANGED or key in _facts(statement.text)):
            told[statement.text] += 1
            found.append(key)
    return found


def _facts(text: str) -> set[str]:
    return {anchors.fold(anchor.text) for anchor in anchors.find(text)}


# ---- a bounded number of statements ----

MOST = 24_000
"""Statements that are held at once, at most: far more than a record holds, far fewer than a long session makes."""


READ_WHOLE = 1_600_000
"""Characters of a session, the newest, that are read line by line: more than any context holds. What is older was read
when it was new, except in a session that was brought here whole."""


def gather(entries: Iterable[Entry], known: Gathered | None = None, size: int = 0) -> Gathered:
    """The statements of the given originals, in order of n, after those `known` of the messages before; of very many
    only those worth most. `size` is the number of characters of the entries, where they may be more than READ_WHOLE.
    """
    return gather_all(entries, known, lambda found: thin(found, MOST // 2), MOST, size - READ_WHOLE)


def thin(gathered: Gathered, most: int) -> None:
    """Leave the best `most` statements, by worth for each token; what is kept before all else is among them."""
    first = next((s.n for s in gathered.statements if s.kind == USER and s.n), 0)

    def gain(pair: tuple[Statement, dict[str, float]]) -> float:
        statement, worth = pair
        kept = statement.kept_first or (statement.n == first and statement.kind == USER)
        return inf if kept else _sum(worth.values()) / (statement.cost + OVERHEAD)

    gains = list(map(gain, _priced(gathered)))
    best = heapq.nlargest(most, range(len(gains)), key=gains.__getitem__)
    gathered.statements = [gathered.statements[index] for index in sorted(best)]


def _sum(worths: Iterable[float]) -> float:
    """What facts are worth together, the largest first."""
    total, share = 0.0, 1.0
    for worth in worths:
        total += worth * share
        share *= FADING
    return total


# ---- choosing ----


class Record:
    """A record before its budget is known: the statements it is chosen from, each with its worth and its price.

    What occurs in `present` (text that stands in the context anyway) is worth nothing. `said` are the statements of that
    text, where they are known, `typed` the part of it that the user typed: only there pins and rules are looked for.
    """

    def __init__(
        self, gathered: Gathered, present: str = "", said: Gathered | None = None, typed: str | None = None
    ) -> None:
        if said is None:
            said = gather([{"message": {"role": "user", "content": present}}])
        self.present = Present(present)
        self.typed = self.present if typed is None else Present(typed)
        self.said = {key for statement in said.statements for key in statement.worth}
        self.priced = _priced(gathered)
        self.costs = [statement.cost for statement in gathered.statements]
        gains = [self.gain(index, set()) for index in range(len(self.priced))]
        self.best = sorted((-gain, index) for index, gain in enumerate(gains) if gain > 0)
        """Each that is worth something, best first: (minus its gain where nothing is said yet, index)."""
        told = list(enumerate(gathered.statements))
        self._pins = [index for index, statement in told if statement.n == 0]
        self._rules = [index for index, statement in told if statement.kept_first]
        first = next((s.n for s in gathered.statements if s.kind == USER and s.n), 0)
        self._prompt = [index for index, s in told if s.n == first and s.kind == USER] if first else []
        self._ranked: dict[tuple[int, bool], list[int]] = {}
        self._folded: dict[int, str] = {}

    def gain(self, index: int, said: set[str]) -> float:
        """What a statement would add for each token it costs, beside what is `said`."""
        statement, worth = self.priced[index]
        new = _sum([value for key, value in worth.items() if key not in said])
        return new / (self.costs[index] + OVERHEAD) if new >= LEAST or statement.kind == USER else 0.0

    def folded(self, index: int) -> str:
        """The text of a statement, folded; of a pin or a rule as it is, since there every mark may matter."""
        found = self._folded.get(index)
        if found is None:
            statement = self.priced[index][0]
            fold = anchors.spaced if statement.kept_first else anchors.fold
            found = self._folded[index] = fold(statement.text)
        return found

    def ranked(self, budget: int, *, strictly: bool = False) -> list[int]:
        """Which statements are taken, those first that come first whatever they are worth, then the best: more than go
        into the budget, since some will be said by a summary. Found once for each budget, before there is one."""
        if (budget, strictly) not in self._ranked:
            choice = _Choice(self, budget - OVERHEAD)
            self._first(choice, budget, strictly)
            choice.take_best(int(budget * USER_SHARE), _told_by_user)
            choice.left += int(budget * SPARE)
            choice.take_best()
            self._ranked[budget, strictly] = list(choice.chosen)
        return self._ranked[budget, strictly]

    def within(self, budget: int, written: str = "", *, strictly: bool = False) -> str:
        """The statements worth most within `budget` tokens, grouped, in order of n. "" when there is no room.

        What the user pinned is in it whatever it costs; `strictly`: as many pins as fit, the shortest first. `written` is
        more text that will stand in the context.
        """
        ranked, choice = self.ranked(budget, strictly=strictly), _Choice(self, budget - OVERHEAD, written)
        self._first(choice, budget, strictly)
        for index in ranked:
            if choice.left <= OVERHEAD:
                break
            statement, worth = self.priced[index]
            said = set(filter(choice.written.holds, worth))
            if not said or statement.kept_first or self.gain(index, said) > 0:
                choice.take(index, choice.left)
        if choice.left > max(OVERHEAD, int(budget * SLACK)):
            choice.take_best()  # the summary says much of it: what else is there?
        return listed([choice.chosen[i] for i in sorted(choice.chosen)])

    def _first(self, choice: _Choice, budget: int, strictly: bool) -> None:
        """Take what comes before all else: pins, rules (the newest first) and the first prompt, each within its share."""
        for index in sorted(self._pins, key=self.costs.__getitem__):
            choice.take(index, most=choice.left if strictly else None)
        most = int(budget * PINNED_SHARE)
        for index in reversed(self._rules):
            most -= choice.take(index, most)
        most = int(choice.left * FIRST_SHARE)
        for index in self._prompt:
            most -= choice.take(index, most)


class _Choice:
    """The statements taken so far, in that order."""

    def __init__(self, record: Record, budget: int, written: str = "") -> None:
        self.record = record
        self.left = budget
        self.chosen: dict[int, Statement] = {}
        self.taken: Counter[tuple[int, bool]] = Counter()
        """How many statements of each source."""
        self.said = set(record.said)
        self.written = Present(written)

    def take(self, index: int, most: int | None) -> int:
        """Take a statement unless it costs more than `most` (None: whatever it costs) or says what was said; the tokens
        it took."""
        (statement, worth), cost = self.record.priced[index], self.record.costs[index]
        same = self.record.folded(index)
        if index in self.chosen or same in self.said or (most is not None and cost > min(most, self.left)):
            return 0
        typed = self.record.typed
        if statement.kept_first:
            there = typed.quotes(statement.text) if statement.n else typed.tells(statement.text)
        else:
            there = self._holds(same)
        if there:
            return 0
        self.chosen[index] = statement
        self.taken[_source(statement)] += 1
        self.said.update(worth)
        self.said.add(same)
        self.left -= cost
        return cost

    def take_best(self, most: int | None = None, wanted: Callable[[Statement], bool] = lambda _: True) -> None:
        """Fill what is left, or `most` tokens of it, with the best of what is wanted.

        A gain only ever falls, so the best of old gains is looked at again. That more of one message counts less holds for
        all that is left of it alike: of each message only the best is in the race.
        """
        floor = 0 if most is None else max(0, self.left - most)
        of_each: dict[tuple[int, bool], list[tuple[float, int]]] = {}
        for gain, index in self.record.best:
            statement = self.record.priced[index][0]
            if index not in self.chosen and wanted(statement):
                of_each.setdefault(_source(statement), []).append((gain, index))  # sorted is a heap
        race = [(left[0][0] / self._crowd(source), source) for source, left in of_each.items()]
        heapq.heapify(race)
        while race and self.left - floor > OVERHEAD:
            source = race[0][1]
            left = of_each[source]
            was, index = left[0]
            now = self._gain(index) if self.record.costs[index] <= self.left - floor else 0.0
            if 0 < now < -was - 1e-9:
                heapq.heapreplace(left, (-now, index))
            else:
                heapq.heappop(left)
                if now > 0:
                    self.take(index, self.left)
            if left:
                heapq.heapreplace(race, (left[0][0] / self._crowd(source), source))
            else:
                heapq.heappop(race)

    def _gain(self, index: int) -> float:
        keys = self.record.priced[index][1]
        self.said.update([key for key in keys if key not in self.said and self._holds(key)])
        return self.record.gain(index, self.said)

    def _crowd(self, source: tuple[int, bool]) -> float:
        """What the next statement of a message is divided by."""
        return 1 + (CROWDED_USER if source[1] else CROWDED) * self.taken[source]

    def _holds(self, text: str) -> bool:
        """Whether a folded text stands in the context anyway."""
        return self.record.present.holds(text) or self.written.holds(text)


def _told_by_user(statement: Statement) -> bool:
    """Whether a user typed it, and not to ask."""
    return statement.kind == USER and not asks(statement.text)


def _source(statement: Statement) -> tuple[int, bool]:
    """Where it comes from: which message, and whether a user typed it."""
    return statement.n, statement.kind == USER
