"""What is counted in a run to try a claim (core/claim.py): totals and notes of its events, and the same
drafts judged by two rules."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from ..core import DraftTree, Kit, Method, Parts, Scores, State, Verdict, Verifier
from ..core.claim import Claim
from ..core.sampling import RandomStreams
from ..methods import trained_parts
from ..trace.events import Committed, Drafted, Event, Noted, Verified
from ..trace.metrics import Totals
from ..verifiers import TokenRejection

TRIALS = 16  # judgements of a round's draft by either rule, at temperatures above 0


@dataclass
class Counts:
    """Counts of one run. one_pass: the drafter drafts in one pass; steps: sequential passes of the drafter;
    rows: tokens of the target's passes; overlapped: tokens drafted in each round that drafts while it
    verifies; sums: of notes, by name."""

    one_pass: bool = False
    totals: Totals = field(default_factory=Totals)
    steps: int = 0
    rows: int = 0
    overlapped: list[int] = field(default_factory=list[int])
    sums: dict[str, float] = field(default_factory=dict[str, float])
    _passes: int = 0  # of the drafter in this round
    _nodes: int = 0
    _new: int = 0

    def take(self, event: Event) -> None:
        """Add an event of the run."""
        self.totals.fold(event)
        if isinstance(event, Verified):
            self.rows += event.rows
        elif isinstance(event, Drafted):
            drafted = [node["depth"] for node in event.nodes if not node.get("probe")]
            depth = max(drafted, default=0)
            self._passes = min(1, depth) if self.one_pass else depth
            self._nodes = len(drafted)
            self.steps += self._passes
        elif isinstance(event, Committed):
            self._new = len(event.tokens)
        elif isinstance(event, Noted) and event.kind in NOTES:
            NOTES[event.kind](self, event.data)

    def add(self, name: str, value: float) -> None:
        """Add to a sum."""
        self.sums[name] = self.sums.get(name, 0.0) + value

    def replace_passes(self, passes: int) -> None:
        """Set the drafter's passes of this round."""
        self.steps += passes - self._passes
        self._passes = passes


def _layers(counts: Counts, data: dict[str, Any]) -> None:
    share = 1 - len(data["skipped"]) / (2 * data["count"])
    if "at" in data:  # the token's only pass, nothing is verified
        counts.add("layers", share - 1)
    else:
        counts.add("layers", counts._nodes * share - data.get("reused", 0) / data["count"])


def _own_cache(counts: Counts, data: dict[str, Any]) -> None:
    counts.add("cache_plain", counts._new * data["of"])
    counts.add("cache", data["of"] + counts._nodes * data["kept"] * ((data["bits"] or 16) / 16))


def _chip(counts: Counts, data: dict[str, Any]) -> None:
    counts.add("chip", 1e3 * (data["draft"] + data["verify"] + data["sync"]))
    counts.add("chip_host", 1e3 * data["host"])


def _experts(counts: Counts, data: dict[str, Any]) -> None:
    rows = len(data["line"])
    counts.add("expert_rows", rows)
    counts.add("expert_bytes", data["bytes"])
    counts.add("expert_apart", data["separately"])


def _sizes(counts: Counts, data: dict[str, Any]) -> None:
    counts.add("draft_tokens", len(data["used"]))
    counts.add("draft_layers", sum(data["layers"][i] for i in data["used"]))
    counts.add("draft_whole", data["layers"][-1] * len(data["used"]))


def _side_by_side(counts: Counts, data: dict[str, Any]) -> None:
    counts.add("draft_tokens", counts._nodes)
    counts.add("draft_layers", data["steps"] * counts._nodes)
    counts.add("draft_whole", data["layers"] * counts._nodes)


def _staged(counts: Counts, data: dict[str, Any]) -> None:
    counts.replace_passes(data["rounds"])
    counts.add("inner_passes", data["rounds"])
    counts.add("inner_tokens", sum(data["sizes"]))


def _combined(counts: Counts, data: dict[str, Any]) -> None:
    counts.add("asked", sum(data["asked"]))
    counts.add("combined", len(data["asked"]))


def _superposed(counts: Counts, data: dict[str, Any]) -> None:
    counts.add("texts", sum(len(draft["tokens"]) for draft in data["drafts"]))
    counts.add("text_passes", data["passes"])


def _outcomes(counts: Counts, data: dict[str, Any]) -> None:
    if data["ready"]:
        counts.replace_passes(0)


def _timeline(counts: Counts, data: dict[str, Any]) -> None:
    counts.replace_passes(0)
    counts.overlapped.append(data["written"])


def _class(counts: Counts, data: dict[str, Any]) -> None:
    counts.sums["batch_tokens"] = sum(data["written"])
    counts.add("batch_rows", sum(data["rows"]))


def _rows(counts: Counts, data: dict[str, Any]) -> None:
    counts.add("given", sum(data["given"]))
    counts.add("padded", data["padded"])


def _scale(counts: Counts, data: dict[str, Any]) -> None:
    counts.add("parameters", data["parameters"] / 1e6)


NOTES: dict[str, Callable[[Counts, dict[str, Any]], None]] = {
    "layers": _layers,
    "second_path": lambda counts, data: counts.add("layers", 1),
    "own_cache": _own_cache,
    "chip": _chip,
    "expert_union": _experts,
    "sizes": _sizes,
    "side_by_side": _side_by_side,
    "staged": _staged,
    "rounds": lambda counts, data: counts.replace_passes(len(data["paths"])),
    "serial_parallel": lambda counts, data: counts.replace_passes(data["passes"]),
    "diffusion": lambda counts, data: counts.replace_passes(data["passes"]),
    "combined": _combined,
    "superposed": _superposed,
    "outcomes": _outcomes,
    "timeline": _timeline,
    "class": _class,
    "rows": _rows,
    "scale": _scale,
}


def modelled_time(counts: Counts, claim: Claim) -> float:
    """Return the modelled time of a token: a pass of the target counts 1, a sequential pass of the drafter
    ``claim.step``; a round that drafts while the target verifies counts the longer of the two."""
    waiting = sum(max(0.0, claim.step * written - 1) for written in counts.overlapped)
    return (counts.totals.rounds + claim.step * counts.steps + waiting) / max(1, counts.totals.tokens)


def _per_token(name: str) -> Callable[[Counts, Claim], float]:
    return lambda counts, claim: counts.sums.get(name, 0.0) / max(1, counts.totals.tokens)


def _ratio(name: str, of: str) -> Callable[[Counts, Claim], float]:
    return lambda counts, claim: counts.sums.get(name, 0.0) / max(1.0, counts.sums.get(of, 0.0))


COUNTED: dict[str, Callable[[Counts, Claim], float]] = {
    "accepted_length": lambda counts, claim: counts.totals.tokens / max(1, counts.totals.rounds),
    "equal_drafts": _ratio("trial_ours", "trials"),
    "kept_share": lambda counts, claim: counts.totals.accepted / max(1, counts.totals.drafted),
    "discarded": lambda counts, claim: (
        (counts.totals.drafted - counts.totals.accepted) / max(1, counts.totals.tokens)
    ),
    "layers_read": lambda counts, claim: (
        (counts.totals.rounds + counts.sums.get("layers", 0.0)) / max(1, counts.totals.tokens)
    ),
    "draft_passes": lambda counts, claim: counts.steps / max(1, counts.totals.tokens),
    "modelled_time": modelled_time,
    "batch_rows": _ratio("batch_rows", "batch_tokens"),
    "padded_rows": _ratio("given", "batch_tokens"),
    "cache_read": _per_token("cache"),
    "chip_time": _per_token("chip"),
    "parameters_read": _per_token("parameters"),
    "expert_bytes": _ratio("expert_bytes", "expert_rows"),
    "draft_layers": _ratio("draft_layers", "draft_tokens"),
    "inner_passes": _ratio("inner_passes", "inner_tokens"),
    "asked_share": _ratio("asked", "combined"),
    "texts": lambda counts, claim: (
        counts.sums["texts"] / counts.sums["text_passes"]
        if counts.sums.get("text_passes")
        else counts.totals.tokens / max(1, counts.totals.rounds)
    ),
}
# Quantities whose baseline is counted in the method's own run: what the same tokens cost without the idea.
WITHOUT_IT: dict[str, Callable[[Counts, Claim], float]] = {
    "equal_drafts": _ratio("trial_baseline", "trials"),
    "padded_rows": _ratio("padded", "batch_tokens"),
    "cache_read": _per_token("cache_plain"),
    "chip_time": _per_token("chip_host"),
    "expert_bytes": _ratio("expert_apart", "expert_rows"),
    "draft_layers": _ratio("draft_whole", "draft_tokens"),
    "inner_passes": _ratio("inner_tokens", "inner_tokens"),
}


def drafts_in_one_pass(method: Method) -> bool:
    """Return whether the method's trained drafter drafts a whole block in one pass."""
    return any(part.one_pass and part.need in method.needs for part in trained_parts().values())


class BothRules(Verifier):
    """The method's own verifier; beside it each draft is judged by both rules, without consequences, with
    random numbers of its own (TRIALS times above temperature 0). counts: where the sums go."""

    def __init__(self, rule: Verifier, counts: Counts):
        self.rule, self.other, self.counts = rule, TokenRejection(), counts
        self.labels, self.title = rule.labels & self.other.labels, rule.title
        self.hidden_states = rule.hidden_states

    def precompute(self, tree: DraftTree, scores: Scores, state: State):
        return self.rule.precompute(tree, scores, state)

    def verify(self, tree: DraftTree, scores: Scores, state: State) -> Verdict:
        bare = replace(scores, precomputed=None)
        for name, rule in (("trial_ours", self.rule), ("trial_baseline", self.other)):
            trials = 1 if state.sampling.greedy else TRIALS
            for trial in range(trials):
                apart = copy.copy(state)
                apart.notes, apart.rng = [], RandomStreams(1000 * trial + state.round)
                self.counts.add(name, (len(rule.verify(tree, bare, apart).path) + 1) / trials)
        self.counts.add("trials", 1)
        return self.rule.verify(tree, scores, state)


def with_both_rules(method: Method, counts: Counts) -> Method:
    """Return the method with its verifier replaced by BothRules."""

    def build(kit: Kit, **knobs: Any) -> Parts:
        parts = method.build(kit, **knobs)
        return replace(parts, verifier=BothRules(parts.verifier, counts))

    return replace(method, build=build)
