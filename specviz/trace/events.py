"""Events that a decoding loop emits: plain data, made from an Outcome (the result of a round) while the
engine's clock is paused.

Each event converts itself to trace records (docs/TRACE.md). Views process these records and never access
the engine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ..core.parts import Decision, Outcome
from ..core.state import State
from .model_probs import DraftProbs, ModelProbs, Top, grammar_note, top_tokens

Span = tuple[float, float]  # seconds on the engine's clock


def _clean(record: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in record.items() if v is not None or k in _NULLABLE}


_NULLABLE = {"q", "u", "p", "draft", "baseline_run_id", "peak_mem"}


@dataclass(frozen=True)
class Event:
    """Base class of events."""

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield this event's trace records, without the fields seq and lane."""
        yield from ()


@dataclass(frozen=True)
class Started(Event):
    """A run started. header: models, settings and machine."""

    header: dict[str, Any]

    def records(self):
        yield {"type": "header", **self.header}


@dataclass(frozen=True)
class Prefilled(Event):
    """The prompt was prefilled: ``n`` tokens, from t0 to t1 in seconds."""

    t0: float
    t1: float
    n: int

    def records(self):
        yield {"type": "prefill", "t0": self.t0, "t1": self.t1, "n": self.n}


@dataclass(frozen=True)
class Drafted(Event):
    """A draft was proposed, from t0 to t1 in seconds. nodes: id, parent, token and draft probability of
    each draft node."""

    round: int
    t0: float
    t1: float
    nodes: tuple[dict[str, Any], ...]

    def records(self):
        chain = all(node["parent"] == node["id"] - 1 for node in self.nodes)
        kind = "none" if not self.nodes else "chain" if chain else "tree"
        yield {
            "type": "draft",
            "round": self.round,
            "t0": self.t0,
            "t1": self.t1,
            "kind": kind,
            "nodes": list(self.nodes),
        }


@dataclass(frozen=True)
class Verified(Event):
    """The target scored the draft: a forward pass of ``rows`` tokens, from t0 to t1 in seconds."""

    round: int
    t0: float
    t1: float
    rows: int

    def records(self):
        yield {"type": "verify", "round": self.round, "t0": self.t0, "t1": self.t1, "n_in": self.rows}


@dataclass(frozen=True)
class Decided(Event):
    """The accept/reject decisions of a round, one per tested draft node."""

    round: int
    decisions: tuple[dict[str, Any], ...]

    def records(self):
        for decision in self.decisions:
            yield {"type": "judge", "round": self.round, **decision}


@dataclass(frozen=True)
class Committed(Event):
    """Tokens were committed at the end of a round.

    tokens: the committed tokens; at: seconds; path: ids of the accepted draft nodes; kind: of the last
    token ("bonus", "correction", ...); tail_prob, tail_top: the last token's probability in the
    distribution it was drawn from, and that distribution's top tokens; kv: sizes of the KV cache; seconds:
    duration of the round's phases; softmax_p, softmax_top (temperature 0 only): the model's own probability
    of the last token, and its top tokens; logprobs, top_logprobs (if requested): for each token its
    log-probability under the model's own distribution, and the top [token, log-probability] pairs."""

    round: int
    at: float
    path: tuple[int, ...]
    tokens: tuple[int, ...]
    kind: str
    tail_prob: float | None
    tail_top: Top | None
    kv: dict[str, int]
    seconds: dict[str, float]
    softmax_p: float | None = None
    softmax_top: Top | None = None
    logprobs: tuple[float, ...] | None = None
    top_logprobs: tuple[Top, ...] | None = None

    @property
    def accepted(self) -> int:
        """Number of draft tokens among ``tokens``."""
        return len(self.path) + (self.kind == "accepted")

    def records(self):
        tail = _clean(
            {
                "tok": self.tokens[-1],
                "why": self.kind,
                "p": self.tail_prob,
                "top": self.tail_top,
                "softmax_p": self.softmax_p,
                "top_softmax": self.softmax_top,
            }
        )
        yield _clean(
            {
                "type": "commit",
                "round": self.round,
                "t": self.at,
                "path": list(self.path),
                "tail": tail,
                "n_new": len(self.tokens),
                "kv": self.kv,
                "logprobs": self.logprobs,
                "top_logprobs": self.top_logprobs,
            }
        )
        ns = {k: round(v * 1e9) for k, v in self.seconds.items()}
        yield {
            "type": "timing",
            "round": self.round,
            "draft_ns": ns.get("draft", 0),
            "verify_ns": ns.get("verify", 0),
            "judge_ns": ns.get("judge", 0),
            "cache_ns": ns.get("commit", 0),
            "other_ns": ns.get("plan", 0) + ns.get("observe", 0),
        }


@dataclass(frozen=True)
class Received(Event):
    """A server's message, which counts as a round. tokens: the ids of its tokens, -1 if unknown; at:
    seconds on the client's clock. The server's drafts and KV cache are unknown."""

    round: int
    at: float
    tokens: tuple[int, ...]

    def records(self):
        yield {
            "type": "commit",
            "round": self.round,
            "t": self.at,
            "path": [],
            "tail": {"tok": self.tokens[-1], "why": "received"},
            "n_new": len(self.tokens),
        }


@dataclass(frozen=True)
class Noted(Event):
    """A note that a method attached to a round (core/note_kinds.py)."""

    round: int
    kind: str
    data: dict[str, Any]

    def records(self):
        yield {"type": "lens", "round": self.round, "kind": self.kind, "data": self.data}


@dataclass(frozen=True)
class Checked(Event):
    """The result of a check of a lane, outside its rounds."""

    kind: str
    detail: dict[str, Any]

    def records(self):
        yield {"type": "check", "kind": self.kind, "detail": self.detail}


@dataclass(frozen=True)
class TextEmitted(Event):
    """The text of a round: one piece per committed token, as bytes with their span in the output."""

    round: int
    pieces: tuple[tuple[int, bytes, int, int], ...]  # token, bytes, start, end

    def records(self):
        from base64 import b64encode

        pieces = [{"tok": t, "b": b64encode(b).decode(), "span": [lo, hi]} for t, b, lo, hi in self.pieces]
        yield {"type": "text", "round": self.round, "pieces": pieces}


@dataclass(frozen=True)
class Finished(Event):
    """The run ended normally. finish: why ("stop", "length", ...); totals: raw counts; peak_mem: bytes of
    device memory, None if unknown."""

    finish: str  # "stop" | "length" | "stop_string" | "stopped" | "deadline" | "context"
    totals: dict[str, Any]
    peak_mem: int | None = None

    def records(self):
        if self.finish in ("stopped", "deadline"):
            yield {"type": "stop", "why": self.finish}
        yield {"type": "done", "finish": self.finish, "totals": self.totals, "peak_mem": self.peak_mem}


@dataclass(frozen=True)
class Failed(Event):
    """The run ended with an error. why: its message."""

    why: str
    totals: dict[str, Any] = field(default_factory=dict)

    def records(self):
        yield {"type": "error", "why": self.why}
        yield {"type": "done", "finish": "error", "totals": self.totals, "peak_mem": None}


def round_events(outcome: Outcome, state: State, spans: tuple[Span, Span] | None = None) -> Iterator[Event]:
    """Yield the events of the round that was just played. Call it while the clock is paused.

    spans: (start, end) of draft model and target, for loops that run both at the same time; None: one after
    the other."""
    r, t = state.round - 1, outcome.began + outcome.seconds["plan"]
    drafted = t + outcome.seconds["draft"]
    verified = drafted + outcome.seconds["verify"]
    committed = verified + outcome.seconds["judge"] + outcome.seconds["commit"]
    draft, verify = spans or ((t, drafted), (drafted, verified))
    if state.processors and state.processors.has_grammar and state.top_k_saved:
        state.note("grammar", **grammar_note(outcome))
    rows = len(outcome.scores.logits)
    drafted_probs = DraftProbs(outcome, state)
    yield Drafted(
        r,
        *draft,
        tuple(
            _node(outcome, i, state.top_k_saved) | drafted_probs.of_node(i) for i in range(len(outcome.tree))
        ),
    )
    yield Verified(r, *verify, rows)
    verdict, model = outcome.verdict, ModelProbs(outcome, state)
    yield Decided(r, tuple(_decisions(outcome, state.top_k_saved, model)))
    before = len(state.tokens) - len(outcome.committed) - 1
    kv = {"before": before, "after": before + len(outcome.kept), "dropped": rows - len(outcome.kept)}
    prob = None if verdict.probs is None else float(verdict.probs[verdict.token])
    yield Committed(
        r,
        committed,
        verdict.path,
        outcome.committed,
        verdict.kind,
        prob,
        top_tokens(verdict.probs, state.top_k_saved),
        kv,
        outcome.seconds,
        *model.of_committed(),
    )
    for kind, data in state.notes:
        yield Noted(r, kind, data)
    state.notes.clear()


def _node(outcome: Outcome, i: int, count: int) -> dict[str, Any]:
    tree = outcome.tree
    probs = tree.draft_probs(i)
    origin = tree.origin[i] if i < len(tree.origin) else None
    return _clean(
        {
            "id": i,
            "parent": tree.parents[i],
            "depth": tree.depths[i],
            "tok": tree.tokens[i],
            "q": None if probs is None else float(probs[tree.tokens[i]]),
            "how": tree.label(i),
            "top": top_tokens(probs, count),
            "src": None
            if origin is None
            else {"source": origin.source, "start": origin.start, "end": origin.end},
            "probe": True if i in tree.probes else None,
        }
    )


def _decisions(outcome: Outcome, count: int, model: ModelProbs) -> Iterator[dict[str, Any]]:
    decided = set()
    for decision in outcome.verdict.decisions:
        decided.add(decision.node)
        yield {**_decision(decision, count), **model.of_node(decision.node)}
    for i in range(len(outcome.tree)):
        if i not in decided and i not in outcome.tree.probes:
            yield {"node": i, "rule": "", "p": None, "q": None, "a": None, "u": None, "verdict": "skipped"}


def _decision(decision: Decision, count: int) -> dict[str, Any]:
    return _clean(
        {
            "node": decision.node,
            "rule": decision.rule,
            "p": decision.target_prob,
            "q": decision.draft_prob,
            "a": decision.accept,
            "u": decision.draw,
            "verdict": decision.verdict,
            "top_p": top_tokens(decision.probs, count),
            "resid": top_tokens(decision.residual, count),
        }
    )
