"""How much of what was said is still in the context after compactions: the scoreboard.

    python -m bench.recall [--seed N] [--probes DIR --sessions DIR] [--model NAME [--url URL]] [--answers]

Scored on the context that would be sent, literally; no model is needed. A full context must score 100 % or the case is
invalid; a context that did not become smaller counts as a failure. `--probes` and `--sessions` name a folder of
questions about real sessions, and of the sessions. `--model` has a real model write the summaries, of a server or, with
no `--url`, the one that is built in; with `--answers` it is also asked the questions, and what it says is scored.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from agent.client import ChatClient
from agent.compaction import Compactor, record
from agent.compaction.form import instruction
from agent.errors import AgentError
from agent.messages import Delta, Message, Reply, Request, text_of
from agent.session import Session
from agent.tokens import count, estimate_messages, limits_for
from bench.cases import Case, Question, all_cases, score
from bench.policies import FAITHFUL, HOSTILE, LOSSY, POLICIES, Summariser

SHARES = (0.22, 0.23, 0.24, 0.25, 0.26, 0.27, 0.28)
"""Windows as shares of a real session. How large a final context is depends on how long ago the last compaction was:
only over several windows do sizes compare."""
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
        questions = [
            (p["question"], tuple([p["answer"]] if isinstance(p["answer"], str) else p["answer"])) for p in asked
        ]
        yield name, [line["message"] for line in parsed if line["type"] == "message"], questions


def on_real(
    sessions: str, probes: str, model: Summariser, only: Sequence[str] = tuple(POLICIES), share: float = 0.25
) -> dict[str, dict[str, tuple[int, int, int]]]:
    """{policy: {session: (answered, asked, tokens of the final context)}}, in a window of this share of each session's
    size."""
    found: dict[str, dict[str, tuple[int, int, int]]] = {name: {} for name in only}
    for name, messages, questions in real(sessions, probes):
        window = int(estimate_messages(messages) * share)
        for policy_name in only:
            context = POLICIES[policy_name](messages, window, model)
            found[policy_name][name] = (score(context, questions), len(questions), tokens_of(context))
    return found


def on_average(
    sessions: str, probes: str, model: Summariser, only: Sequence[str], shares: Sequence[float]
) -> dict[str, tuple[float, float, float]]:
    """{policy: (answered, asked, tokens of all final contexts)}, each the mean over windows of these shares."""
    several = [on_real(sessions, probes, model, only, share) for share in shares]
    totals = {name: [list(map(sum, zip(*found[name].values(), strict=True))) for found in several] for name in only}
    means = {name: [sum(column) / len(shares) for column in zip(*rows, strict=True)] for name, rows in totals.items()}
    return {name: (answered, asked, size) for name, (answered, asked, size) in means.items()}


def looked_up(sessions: str, probes: str) -> tuple[int, int]:
    """(answered, asked): one `recall(question)` within 4,000 tokens, on the whole of each session."""
    from agent.recall import search

    answered = asked = 0
    for _, messages, questions in real(sessions, probes):
        with Session.ephemeral({}) as session:
            for message in messages:
                session.append({"type": "message", "message": message})
            for question in questions:
                found = search(session, question[0], limit_tokens=4000)
                answered += score([{"role": "tool", "content": found}], [question])
        asked += len(questions)
    return answered, asked


def chained(hops: int, model: Summariser) -> tuple[int, int]:
    """(kept, asked): facts and constraints a user typed and a pin, after `hops` compactions in a row."""
    with Session.ephemeral({"model": model.name}) as session:
        session.append({"type": "pin", "text": "The customer is called Ärger & Söhne."})
        said = [f"The port of service {name} is {4100 + 97 * i}." for i, name in enumerate("abcdefghijkl")]
        rules = ["Never deploy on Fridays.", "不要修改 legacy 目录。", "Always answer in English."]
        for text in [*said, *rules]:
            session.append({"type": "message", "message": {"role": "user", "content": text}})
            session.append({"type": "message", "message": {"role": "assistant", "content": "Noted."}})
        compactor = Compactor(session, model, limits_for(4000, "bench"), (), lambda event: None)
        done = 0
        while done < hops:
            for _ in range(4):
                session.append({"type": "message", "message": {"role": "user", "content": "And what of it? " * 20}})
                session.append({"type": "message", "message": {"role": "assistant", "content": "This or that. " * 30}})
            done += compactor.make_room()
        wanted = [("", (text,)) for text in [*said, *rules, "The customer is called Ärger & Söhne."]]
        return score(session.view(), wanted), len(wanted)


def missing(case: Case, context: list[Message]) -> Iterator[tuple[str, str]]:
    """(question, why) of what a context no longer answers: was it never seen as a fact, or was there no room for it?"""
    entries = [{"n": n, "message": message} for n, message in enumerate(case.messages, 1)]
    statements = record.gather(entries).statements
    for question in case.questions:
        if score(context, [question]) == 0:
            seen = [s.n for s in statements if score([{"role": "user", "content": s.text}], [question])]
            why = f"stated in message {seen[-1]}, but others were worth more" if seen else "no statement holds it whole"
            yield question[0], why


def answers(model: ChatClient, context: list[Message], questions: Sequence[Question]) -> int:
    """How many questions a model answers rightly from a context."""
    right = 0
    for question in questions:
        asked = {"role": "user", "content": f"{question[0]}\nAnswer in a few words."}
        try:
            reply = model.complete(Request([*context, asked], max_tokens=48, temperature=0.0), lambda delta: None)
        except AgentError:
            continue
        right += score([{"role": "assistant", "content": text_of(reply.message)}], [question])
    return right


def speed(messages: list[Message]) -> tuple[float, float, float]:
    """Milliseconds for 1,000 messages of a compaction beside the model's call, its ratio to one pass of orjson over them,
    and milliseconds of what is read while the model writes."""
    lines = [orjson.dumps(message) for message in messages]
    started = time.process_time()
    for line in lines:
        orjson.loads(line)
    parsing = time.process_time() - started
    called = read = 0.0

    def write(request: Request, on_delta: Callable[[Delta], None]) -> Reply:
        nonlocal called, read
        began = time.process_time()
        request.meanwhile()
        reading = time.process_time() - began
        reply = FAITHFUL.complete(request, on_delta)
        called, read = called + time.process_time() - began, read + reading
        return reply

    with Session.ephemeral({"model": "lossy"}) as session:
        for message in messages:
            session.append({"type": "message", "message": message})
        size = estimate_messages(messages)
        done = {"usage": {"prompt_tokens": size, "completion_tokens": 2}, "model": "lossy"}
        session.append({"type": "message", "message": {"role": "assistant", "content": "Fine."}, **done})
        compactor = Compactor(session, Reading(write), limits_for(size * 5 // 4, "bench"), (), lambda event: None)
        started = time.process_time()
        if not compactor.make_room():
            raise SystemExit("nothing was compacted")
        taken = time.process_time() - started
    each = 1e6 / len(messages)
    return (taken - called) * each, (taken - called) / parsing, read * each


@dataclass
class Reading:
    """A model that does what is to be done while it writes."""

    complete: Callable[[Request, Callable[[Delta], None]], Reply]
    name: str = "lossy"
    takes_tools: bool = False
    structured: str = ""


def client_of(url: str | None, name: str) -> ChatClient:
    """A model of any chat-completions server (the key from OPENAI_API_KEY), or the built-in one."""
    from agent import local
    from agent.wire import Dialect
    from agent.wire.providers import Target

    if url:
        return ChatClient(Target("", url, name, os.environ.get("OPENAI_API_KEY", "")))
    served = local.serve(name, os.environ, lambda line: None, progress=False)
    return ChatClient(Target("local", served.base_url, served.model, served.api_key, Dialect(tools=False)))


def writing(client: ChatClient) -> Summariser:
    """A real model as the summariser."""

    def write(messages: list[Message], cap: int) -> str:
        order = messages[-1] or {"role": "user", "content": instruction(cap, 8192)}
        request = Request([*messages[:-1], order], max_tokens=cap, temperature=0.0, purpose="summary", call_tools=False)
        try:
            return text_of(client.complete(request, lambda delta: None).message)
        except AgentError:
            return ""

    return Summariser(client.name, write)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sessions", help="folder of sessions")
    parser.add_argument("--probes", help="folder of questions about them")
    parser.add_argument("--model", help="a real model that summarises: of --url, or smollm2, the built-in one")
    parser.add_argument("--url", help="its chat-completions server")
    parser.add_argument("--answers", action="store_true", help="ask the model the questions, too")
    options = parser.parse_args()
    client = client_of(options.url, options.model) if options.model else None
    models = (writing(client),) if client else (LOSSY, FAITHFUL, *HOSTILE)
    for model in models:
        _show_planted(options.seed, model)
    if client and options.answers:
        _show_answers(options.seed, client)
    if options.probes and options.sessions:
        _show_real(options.sessions, options.probes, models[0])
    kept, asked = chained(10, LOSSY)
    sys.stdout.write(f"\nuser-typed facts, constraints and a pin after 10 compactions: {kept}/{asked}\n")
    for case in all_cases(options.seed):
        if case.kind in ("ten hops", "noise", "tool state"):
            beside, ratio, read = speed(case.messages * (1 + 2000 // len(case.messages)))
            told = f"beside the model's call, {ratio:.0f} x orjson; {read:.0f} ms of reading while it writes"
            sys.stdout.write(f"{beside:.0f} ms for 1,000 messages of {case.kind} {told}\n")


def _show_planted(seed: int, model: Summariser) -> None:
    sys.stdout.write(f"\nplanted facts, summariser {model.name}\n")
    for name, kinds in planted(seed, model).items():
        answered, asked = sum(a for a, _, _ in kinds.values()), sum(q for _, q, _ in kinds.values())
        ratio = sum(r for _, _, r in kinds.values()) / len(kinds)
        lost = ", ".join(f"{kind} {a}/{q}" for kind, (a, q, _) in kinds.items() if a < q)
        sys.stdout.write(f"  {name:24} {answered:3}/{asked}  ratio {ratio:.2f}  lost: {lost or 'nothing'}\n")
    for case in all_cases(seed):
        context = POLICIES["ours"](case.messages, window_for(case.messages), model)
        for question, why in missing(case, context):
            sys.stdout.write(f"    ours lost, {case.kind}: {question} ({why})\n")


def _show_answers(seed: int, client: ChatClient) -> None:
    """The model's own answers, from the whole conversation and from what ours made of it."""
    sys.stdout.write(f"\nanswers of {client.name}\n")
    whole = compacted = asked = 0
    for case in all_cases(seed):
        context = POLICIES["ours"](case.messages, window_for(case.messages), writing(client))
        mine, full = answers(client, context, case.questions), answers(client, case.messages, case.questions)
        whole, compacted, asked = whole + full, compacted + mine, asked + len(case.questions)
        sys.stdout.write(f"  {case.kind:24} from ours {mine}, from everything {full} of {len(case.questions)}\n")
        sys.stdout.flush()
    sys.stdout.write(f"  in all                   from ours {compacted}, from everything {whole} of {asked}\n")


def _show_real(sessions: str, probes: str, model: Summariser) -> None:
    sys.stdout.write(f"\nprobes on real sessions, summariser {model.name}, window a quarter of the session\n")
    for name, found in on_real(sessions, probes, model).items():
        answered, asked, size = map(sum, zip(*found.values(), strict=True))
        each = " ".join(f"{a}/{q}:{t}" for a, q, t in found.values())
        sys.stdout.write(f"  {name:24} {answered:3}/{asked} = {answered / asked:.0%}  {size} tokens  {each}\n")
    sys.stdout.write(f"  on average over windows of {SHARES[0]:.0%} to {SHARES[-1]:.0%} of the session\n")
    means = on_average(sessions, probes, model, tuple(POLICIES), SHARES)
    for name, (answered, asked, size) in means.items():
        sys.stdout.write(f"  {name:24} {answered:5.1f}/{asked:.0f} = {answered / asked:.1%}  {size:.0f} tokens\n")
    smallest = min(size for name, (_, _, size) in means.items() if name != "ours")
    for percent in range(100, 40, -5):
        shares = [share * percent / 100 for share in SHARES]
        answered, asked, size = on_average(sessions, probes, model, ("ours",), shares)["ours"]
        if size <= smallest:
            text = f"{answered:5.1f}/{asked:.0f} = {answered / asked:.1%}  {size:.0f} tokens"
            sys.stdout.write(f"  ours in {percent} % of the window  {text}, no more than the smallest of the others\n")
            break
    answered, asked = looked_up(sessions, probes)
    sys.stdout.write(f"  one recall of 4,000 tokens {answered}/{asked} = {answered / asked:.0%}\n")


if __name__ == "__main__":
    main()
