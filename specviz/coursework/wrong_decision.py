"""The first wrong decision of a submission as a trace: its lane beside that of the right part, for the viewer.

A verification rule is random, so that one call shows nothing by itself. The first round is searched on which the
submission's outcomes differ from the rule's beyond chance, and of its outcomes the one that differs most."""

from __future__ import annotations

import math
import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import torch
from torch import Tensor

from .. import VERSION
from ..core import Decision, DraftTree, Outcome, Parts, Sampling, Scores, State, Target, Verdict
from ..core.parts import Budget
from ..loops import speculate
from ..trace.events import Committed, Event, Finished, Started, TextEmitted, round_events
from ..trace.metrics import Totals
from ..trace.recorder import Recorder
from .messages import TEXTS

CALLS = 200  # on one round
SCORE = 5.0  # standard deviations by which an outcome's frequency differs
SEEDS = 20_000  # until the right rule has the outcome that is shown
PHASES = ("plan", "draft", "verify", "judge", "commit", "observe")
RECORDED = 8  # most probable tokens of a distribution that a record carries


@dataclass(frozen=True)
class WrongDecision:
    """A wrong decision to look at. sentence: what differs; records: of the lanes "yours" and "the rule"; place: where
    the viewer opens."""

    sentence: str
    records: list[dict[str, Any]]
    place: str


def letters(token: int) -> bytes:
    """Return the name of a token of the tiny models: a letter, from the 27th on two."""
    name = chr(97 + token % 26) if token < 26 else chr(96 + token // 26) + chr(97 + token % 26)
    return f"{name} ".encode()


@dataclass(frozen=True)
class Models:
    """What a lane says of its models. target, draft: names; token_bytes(id): the bytes of a token."""

    target: str = "tiny"
    draft: str = "tiny draft"
    token_bytes: Callable[[int], bytes] = letters


TINY = Models()


def header(
    title: str, prompt: list[int], sampling: Sampling, limit: int, models: Models = TINY
) -> dict[str, Any]:
    """Return the header of a lane."""
    return {
        "schema": "specviz-trace/1",
        "run_id": uuid.uuid4().hex[:12],
        "mode": "live",
        "clock": "engine",
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "method": {"key": "submission", "title": title, "family": "Coursework"}
        | dict.fromkeys(("exactness", "paper", "summary"), ""),
        "knobs": {},
        "prompt": {"text": written(prompt, models), "ids": prompt, "turns": []},
        "sampling": asdict(sampling),
        "greedy": sampling.greedy,
        "max_new_tokens": limit,
        "target": {"name": models.target},
        "draft": {"name": models.draft},
        "tokenizer": models.target,
        "env": {"specviz": VERSION},
        "top_k_saved": RECORDED,
        "baseline_run_id": None,
        "deterministic": True,
    }


def lane_records(
    lane: int, head: dict[str, Any], events: Iterable[Event], models: Models = TINY
) -> list[dict[str, Any]]:
    """Return the records of a lane: header, the events with the text of each round, and the end."""
    recorder, totals = Recorder(lane, models.token_bytes), Totals()
    records, at = recorder.take(Started(head)), 0
    for event in events:
        totals.fold(event)
        records += recorder.take(event)
        if isinstance(event, Committed):
            pieces = []
            for token in event.tokens:
                name = models.token_bytes(token)
                pieces.append((token, name, at, at + len(name)))
                at += len(name)
            records += recorder.take(TextEmitted(event.round, tuple(pieces)))
    return records + recorder.take(Finished("length", totals.record() | {"text_bytes": at}))


def run_lane(
    lane: int,
    title: str,
    parts: Parts,
    target: Target,
    prompt: list[int],
    limit: int,
    models: Models = TINY,
) -> list[dict[str, Any]]:
    """Run parts at temperature 0 and return the lane's records."""
    sampling = Sampling(0.0)
    state = State(list(prompt), sampling, limit=limit, top_k_saved=RECORDED)
    with torch.inference_mode(), closing(speculate(parts, target, state)) as events:
        return lane_records(lane, header(title, prompt, sampling, limit, models), events, models)


def written(tokens: Iterable[int], models: Models = TINY) -> str:
    """Return tokens as a sentence shows them."""
    return b"".join(map(models.token_bytes, tokens)).decode(errors="replace").strip() or TEXTS["wrong.none"]


def differing_round(records: list[dict[str, Any]]) -> int | None:
    """Return the number of the first round in which lanes 0 and 1 drafted or committed different tokens; None if there
    is none."""
    lanes: list[dict[int, Any]] = [{}, {}]
    for record in records:
        if record["type"] == "text":
            lanes[record["lane"]].setdefault(record["round"], []).append([p["tok"] for p in record["pieces"]])
        if record["type"] == "draft":
            nodes = [(node["parent"], node["tok"]) for node in record["nodes"]]
            lanes[record["lane"]].setdefault(record["round"], []).append(nodes)
    rounds = sorted(lanes[0])
    return next((n for n in rounds if lanes[0][n] != lanes[1].get(n)), None)


def place_of(number: int) -> str:
    """Return the viewer's place of a round of the submission's lane."""
    return f"#layout=watch&lane=0&round={number}"


def differs_most(right: dict[Any, float], counts: Counter[Any]) -> tuple[Any, Any, float]:
    """Return the outcome that is too frequent, the one that is too rare, and by how many standard deviations the
    frequency of the first or the second differs, whichever is more."""
    calls = sum(counts.values())

    def score(outcome: Any) -> float:
        prob = min(1 - 1e-9, max(1e-9, right.get(outcome, 0.0)))
        return (counts[outcome] - calls * prob) / math.sqrt(max(0.25, calls * prob * (1 - prob)))

    known = list({**right, **counts})
    frequent, rare = max(known, key=score), min(known, key=score)
    return frequent, rare, max(score(frequent), -score(rare))


def first_wrong_round(
    right: list[dict[Any, float]], call: Callable[[int, int], Any]
) -> tuple[int, Any, Any, Counter[Any]] | None:
    """Return the first round on which a submission differs from the rule beyond chance, the outcomes as in
    ``differs_most``, and how often each outcome was; None if there is none. call(round, number): one call."""
    for index, probs in enumerate(right):
        counts = Counter(call(index, number) for number in range(CALLS))
        frequent, rare, score = differs_most(probs, counts)
        if score > SCORE:
            return index, frequent, rare, counts
    return None


def one_round(
    lane: int, title: str, tree: DraftTree, scores: Scores, verdict: Verdict
) -> list[dict[str, Any]]:
    """Return the records of a lane of one round whose verdict is known. Its durations are zero: nothing was timed."""
    sampling = Sampling(1.0)
    state = State([0], sampling, limit=len(tree) + 1, top_k_saved=RECORDED)
    committed = (*(tree.tokens[node] for node in verdict.path), verdict.token)
    kept = (0, *(node + 1 for node in verdict.path))
    outcome = Outcome(
        tree, scores, verdict, Budget(len(tree)), committed, kept, dict.fromkeys(PHASES, 0.0), 0.0
    )
    state.tokens += committed
    state.round = 1
    return lane_records(lane, header(title, [0], sampling, len(tree) + 1), round_events(outcome, state))


def submitted_verdict(tree: DraftTree, p: Tensor, q: Tensor, path: tuple[int, ...], token: int) -> Verdict:
    """Return a submission's outcome as a verdict. Which tests it made is not known: nodes of the path count as
    accepted, those below its last node as rejected, with no acceptance probability."""
    last = path[-1] if path else -1
    shown = dict.fromkeys(path, "accepted") | dict.fromkeys(tree.children(last), "rejected")
    decisions = [
        Decision(
            node,
            "",
            float(p[tree.parents[node] + 1, tree.tokens[node]]),
            float(q[node, tree.tokens[node]]),
            math.nan,
            None,
            verdict,
        )
        for node, verdict in shown.items()
    ]
    kind = "correction" if tree.children(last) else "bonus"
    return Verdict(path, token, kind, tuple(decisions), p[last + 1])


def named(outcome: tuple[tuple[int, ...], int], tokens: Iterable[int]) -> dict[str, Any]:
    """Return an outcome in the words of a sentence: the accepted tokens, and the one after them."""
    path, token = outcome
    drafted = list(tokens)
    return {"kept": written(drafted[node] for node in path), "token": written([token])}
