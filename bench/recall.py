"""How much of what was said is still in the context after compactions: the scoreboard.

    python -m bench.recall [--seed N] [--probes DIR] [--sessions DIR]

Scored on the context that would be sent, literally; no model is needed. A full context must score 100 % or the case is
invalid; a context that did not become smaller counts as a failure. `--probes` and `--sessions` name a folder of
questions about real sessions, and of the sessions.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from agent.messages import Message
from agent.tokens import count, estimate_messages
from bench.cases import Question, all_cases, score
from bench.policies import FAITHFUL, HOSTILE, LOSSY, POLICIES, Summariser

RATIO = 0.31
"""The planted cases are compacted to at most this share of their size."""


def window_for(messages: list[Message]) -> int:
    """The window whose trigger is RATIO of the conversation: whoever compacts ends at no more than that."""
    return int(estimate_messages(messages) * RATIO / 0.75)


def tokens_of(messages: list[Message]) -> int:
    return estimate_messages(messages, measure=count)


def planted(seed: int, model: Summariser) -> dict[str, dict[str, tuple[int, int, float]]]:
    """{policy: {kind: (answered, asked, size ratio)}}"""
    found: dict[str, dict[str, tuple[int, int, float]]] = {name: {} for name in POLICIES}
    for case in all_cases(seed):
        assert case.valid, case.kind
        for name, policy in POLICIES.items():
            context = policy(case.messages, window_for(case.messages), model)
            ratio = tokens_of(context) / tokens_of(case.messages)
            answered = score(context, case.questions) if ratio < 1 else 0
            found[name][case.kind] = (answered, len(case.questions), ratio)
    return found


def real(sessions: str, probes: str) -> Iterator[tuple[str, list[Message], list[Question]]]:
    """Real sessions with questions whose answer stands in them."""
    for name in sorted(os.listdir(probes)):
        with open(os.path.join(sessions, name), encoding="utf-8") as lines:
            parsed = [json.loads(line) for line in lines]
        with open(os.path.join(probes, name), encoding="utf-8") as lines:
            asked = [json.loads(line) for line in lines]
        questions = [(p["question"], tuple([p["answer"]] if isinstance(p["answer"], str) else p["answer"])) for p in asked]
        yield name, [line["message"] for line in parsed if line["type"] == "message"], questions


def on_real(
    sessions: str, probes: str, model: Summariser, only: Sequence[str] = tuple(POLICIES)
) -> dict[str, dict[str, tuple[int, int, int]]]:
    """{policy: {session: (answered, asked, tokens of the final context)}}, at a quarter of each session's size."""
    found: dict[str, dict[str, tuple[int, int, int]]] = {name: {} for name in only}
    for name, messages, questions in real(sessions, probes):
        window = estimate_messages(messages) // 4
        for policy_name in only:
            context = POLICIES[policy_name](messages, window, model)
            found[policy_name][name] = (score(context, questions), len(questions), tokens_of(context))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sessions")
    parser.add_argument("--probes")
    options = parser.parse_args()
    write = sys.stdout.write
    for model in (LOSSY, FAITHFUL, *HOSTILE):
        started = time.perf_counter()
        write(f"\nplanted facts, summariser {model.name}\n")
        for name, kinds in planted(options.seed, model).items():
            answered = sum(a for a, _, _ in kinds.values())
            asked = sum(q for _, q, _ in kinds.values())
            ratio = sum(r for _, _, r in kinds.values()) / len(kinds)
            lost = ", ".join(f"{kind} {a}/{q}" for kind, (a, q, _) in kinds.items() if a < q)
            write(f"  {name:24} {answered:3}/{asked}  ratio {ratio:.2f}  lost: {lost or 'nothing'}\n")
        write(f"  ({time.perf_counter() - started:.1f} s)\n")
    if options.probes and options.sessions:
        write("\nprobes on real sessions, summariser lossy, window a quarter of the session\n")
        for name, found in on_real(options.sessions, options.probes, LOSSY).items():
            answered, asked = sum(a for a, _, _ in found.values()), sum(q for _, q, _ in found.values())
            size = sum(t for _, _, t in found.values())
            each = " ".join(f"{a}/{q}:{t}" for a, q, t in found.values())
            write(f"  {name:24} {answered:3}/{asked} = {answered / asked:.0%}  {size} tokens  {each}\n")


if __name__ == "__main__":
    main()
