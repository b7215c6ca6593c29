"""Self-speculation with fewer layers of the target.

``ExitChain``: draft with the first layers and the target's head; the verification continues from their
hidden states (LayerSkip, Elhoushi et al. 2404.16710). ``SkippedLayers``: skip some sublayers, chosen by a
search during generation (SWIFT, Xia et al. 2410.06916). ``evenly_spaced_layers``: Unified Layer Skipping
(Liu et al. 2404.06954); ``skip_schedule``: keep fewer layers the longer the text is (SkipDecode, Del Corro
et al. 2307.02628).
"""

from __future__ import annotations

import random
from collections.abc import Callable

import torch

from ...core import (
    IID,
    Budget,
    CapableTarget,
    Drafter,
    DraftSteps,
    DraftTree,
    Outcome,
    Scores,
    State,
    Step,
    TreeBuilder,
    never_stop,
)
from ...indexes.earlier_answers import Memory
from ...trees import Scorer, chosen_children, drawn_children, sample_token
from ..model.chain import DraftChain, policy_probs
from .layer_search import LayerSearch


class ExitChain(Drafter):
    """Drafter of a chain by early exit: the target's final norm and lm_head on the hidden states after the
    first ``share`` of its layers (LayerSkip, Elhoushi et al. 2404.16710). Verification continues from these
    states."""

    needs = frozenset({"early", "head"})
    restartable = False  # uses the target's own KV cache

    def __init__(self, share: float):
        self.share = share

    def start(self, state: State, target: CapableTarget, prefill: Scores) -> None:
        self.layers = target.layers
        self.exit = max(1, min(target.layers - 1, round(self.share * target.layers)))
        self.target, self.view = target, target.early(self.exit)

    def propose(self, state: State, budget: Budget) -> DraftTree:
        builder = TreeBuilder()
        for depth in range(budget.gamma):
            chain = DraftTree.chain(builder.tokens)
            states = self.view.step(chain, max(0, len(chain) - 1))
            logits = self.target.head(self.target.norm(states[-1:]))[0]
            logits = state.process_draft_row(logits, builder.tokens)
            token, probs = sample_token(logits, state)
            builder.add(token, len(builder) - 1, builder.begin(probs, IID))
            if budget.stop is not never_stop and budget.stop(
                Step(token, policy_probs(logits, probs, state), depth)
            ):
                break
        state.note(
            "layers", count=self.layers, skipped=list(range(2 * self.exit, 2 * self.layers)), reused=self.exit
        )
        return builder.tree()


class KeptLayers(DraftChain):
    """Drafter of a chain: the target with all layers skipped except those in ``kept``."""

    restartable = False  # the view uses the target's own KV cache

    def __init__(self, target: CapableTarget, kept: tuple[int, ...]):
        self.count = target.layers
        self.skipped = [
            s for layer in range(target.layers) if layer not in kept for s in (2 * layer, 2 * layer + 1)
        ]
        super().__init__(target.skipping(self.skipped))

    def steps(self, state: State, budget: Budget) -> DraftSteps:
        tree = yield from super().steps(state, budget)
        state.note("layers", count=self.count, skipped=self.skipped)
        return tree


def evenly_spaced_layers(layers: int, speedup: int) -> tuple[int, ...]:
    """Return the indices of the layers to keep for a requested speed-up: the first, the last, and others at
    equal distances, about layers / speedup in all (Unified Layer Skipping, Liu et al. 2404.06954)."""
    kept = {0, layers - 1}
    count = max(2, layers // speedup)
    step = max(1, layers // max(1, count - 1))
    for layer in range(1, layers - 1):
        if len(kept) >= count:
            break
        if layer % step == 0:
            kept.add(layer)
    return tuple(sorted(kept))


def skip_schedule(
    layers: int, max_share: float, min_share: float, length: int, warm: int
) -> Callable[[int], frozenset[int]]:
    """Return a function from the number of generated tokens to the sublayers to skip (SkipDecode, Del Corro
    et al. 2307.02628).

    The share of active layers falls linearly from ``max_share`` to ``min_share`` over ``length`` tokens.
    The first ``warm`` layers stay active; the layers right after them are skipped first."""
    warm = min(warm, layers - 1)

    def skipped(written: int) -> frozenset[int]:
        share = max_share - (max_share - min_share) * min(1.0, written / length)
        count = max(warm + 1, round(share * layers))
        return frozenset(range(2 * warm, 2 * (layers - count + warm)))

    return skipped


Widths = tuple[
    tuple[int, ...], tuple[int, ...]
]  # children per node by confidence class: at temperature 0, and above 0
NARROW: Widths = ((1, 2, 3, 4), (1, 2, 3, 4))
PUBLISHED: Widths = ((3, 5, 8, 10), (1, 3, 5, 10))


class SkippedLayers(Drafter):
    """Drafter of a tree: the target with some sublayers skipped, chosen by a search during generation
    (SWIFT, Xia et al. 2410.06916). The tree follows the top-1 (or first sampled) token, with more siblings
    at positions where that token's probability is lower.

    ratio: share of skipped sublayers, not counting the first and last layer; min_top1_prob: the draft ends
    at a position with a lower top-1 probability; max_children: maximum children per node; context: number
    of tokens on which a set of sublayers is scored; every: rounds between trials; widths: children per node
    by confidence class, most confident first; memory: keeps the search between answers of a session."""

    needs = frozenset({"skip"})
    restartable = False  # the view uses the target's own KV cache

    def __init__(
        self,
        ratio: float = 0.45,
        min_top1_prob: float = 0.8,
        max_children: int = 3,
        context: int = 32,
        every: int = 1,
        widths: Widths | None = None,
        memory: Memory | None = None,
    ):
        self.ratio = ratio
        self.min_top1_prob = min_top1_prob
        self.max_children = max_children
        self.context = context
        self.every = every
        self.widths, self.memory = widths or NARROW, memory or Memory()

    def start(self, state: State, target: CapableTarget, prefill: Scores) -> None:
        self.target, self.layers = target, target.layers
        # the first and the last layer are never skipped
        open_ones = range(2, 2 * target.layers - 2)
        self.search = self.memory.table(
            ("layers", target.layers, self.ratio, self.context),
            lambda: LayerSearch(tuple(open_ones), self.ratio, random.Random(f"{state.sampling.seed}/layers")),
        )
        self.view = target.skipping(self.search.best)
        self.choices: list[int] = []  # top-1 tokens of the full target at the first positions of the answer

    def propose(self, state: State, budget: Budget) -> DraftTree:
        builder = TreeBuilder()
        if budget.gamma <= 0:
            return builder.tree()
        self.view.sync(state.tokens)
        scorer = Scorer(self.view, state)
        node = -1
        greedy = state.sampling.greedy
        for _ in range(budget.gamma):
            rows = scorer.logits(builder, (node,))
            best = float(rows[0].softmax(-1).max())
            grade = (best <= 0.95) + (best <= 0.8) + (best <= 0.5)
            count = min(self.max_children, budget.width, self.widths[0 if greedy else 1][grade])
            children = (chosen_children if greedy else drawn_children)(builder, [node], [count], rows, state)[
                0
            ]
            if not children or best < self.min_top1_prob or len(builder) >= budget.nodes:
                break
            node = children[0]
        state.note(
            "layers",
            count=self.layers,
            skipped=sorted(self.search.best),
            matched=round(self.search.matched, 4),
            trials=self.search.trials,
        )
        return builder.tree()

    def observe(self, state: State, outcome: Outcome) -> None:
        if len(self.choices) < self.context:
            self.choices += outcome.scores.tops(outcome.kept)
        elif not self.search.finished and state.round % self.every == 0:
            self.try_layer_set(state)

    def try_layer_set(self, state: State) -> None:
        """Try another set of sublayers: compare its top-1 tokens with the target's on the first tokens of
        the answer, and use it if it agrees more often."""
        trial = self.search.propose()
        view = self.target.skipping(trial)
        begin = state.start
        view.sync(state.tokens[:begin])
        rows = view.score(DraftTree.chain(state.tokens[begin : begin + self.context - 1])).logits
        agreed = (rows.argmax(-1).cpu() == torch.tensor(self.choices[: len(rows)])).double().mean()
        if self.search.learn(trial, float(agreed)):
            self.view = view
