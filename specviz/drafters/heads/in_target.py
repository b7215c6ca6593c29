"""Draft inside the target: extra positions with trained input vectors instead of tokens are added to the
forward pass that verifies a draft, and predict the next draft.

Chains of such positions follow the root and the drafted tokens. After verification, the predictions of the
positions after the last accepted token become the next draft; the others are dropped. Drafting needs no
forward pass of its own, and the first round has no draft. PaSS (Monea et al. 2311.13581) samples a chain
from the predictions and adds positions only after its last token; PPD (Chen et al. 2405.18628), Hidden
Transfer (Wu et al. 2404.12022) and Speculative Streaming (Bhendawade et al. 2402.11131) choose trees.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ...core import (
    IID,
    Budget,
    CapableTarget,
    Drafter,
    DraftTree,
    HiddenInput,
    Outcome,
    Scores,
    State,
    TreeBuilder,
    plain,
    select_rows,
    to_device,
    token_tensor,
)
from ...trees import Shape, fill_shape, sample_token

NUM_NOTED = 4  # top tokens of a prediction that are noted
Plan = Callable[[int], tuple[Shape, Sequence[int]]]
"""A function from the number of predictions to the tree's shape, and the length of the chains of extra positions after the root and
each node of the shape."""


class InTargetDrafter(Drafter):
    """Base class of drafters that predict the next draft with extra positions in the target's own forward
    pass.

    heads: the trained input vectors of these positions. guesses [steps, vocab]: logits for the tokens after
    the root, predicted by the previous pass; None if it had no positions after the accepted path.
    """

    needs = frozenset({"entry"})
    dropped: int | None = None  # number of candidates that ``prune`` dropped
    restartable = False  # predictions belong to the target's last pass

    def __init__(self, heads: Any):
        self.heads = heads

    def start(self, state: State, target: CapableTarget, prefill: Scores) -> None:
        self.target = target
        self.guesses: Tensor | None = None

    def observe(self, state: State, outcome: Outcome) -> None:
        """Keep the logits of the extra positions after the last accepted token, averaged over the chains of
        a step."""
        tree, path = outcome.tree, outcome.verdict.path
        logits, at = [], [path[-1] if path else -1]
        while at := [i for i in sorted(tree.probes) if tree.parents[i] in at]:
            logits.append(select_rows(outcome.scores.logits, [i + 1 for i in at]).mean(0))
        self.guesses = torch.stack(logits) if logits else None

    def with_extra_rows(self, builder: TreeBuilder, steps: dict[int, int], state: State) -> DraftTree:
        """Return the draft tree with chains of extra positions. steps: {node (-1 for the root): length of
        the chains after it}. Nothing follows an end token."""
        builder, at = builder.cut_after_end(state.stop)
        ends = {node for node, token in enumerate(builder.tokens) if token in state.stop}
        steps = {at[node]: count for node, count in steps.items() if at.get(node, -2) not in ends | {-2}}
        drafted, rows = (
            len(builder),
            [[] for _ in range(len(self.heads))],
        )  # of each step (node, owner, chain)
        for owner, count in steps.items():
            for chain in range(self.heads.chains):
                at = owner
                for step in range(min(count, len(self.heads))):
                    at = builder.add(-1, at, probe=True)
                    rows[step].append((at, owner, chain))
        builder.inputs += [self._entry(step, entries) for step, entries in enumerate(rows) if entries]
        dropped = {} if self.dropped is None else {"dropped": self.dropped}
        with state.clock.paused():
            shown = [] if self.guesses is None else _rows(self.guesses.softmax(-1))
        state.note(
            "ahead",
            rows=shown,
            probes=len(builder) - drafted,
            behind=sum(count > 0 for count in steps.values()),
            layers=list(self.heads.layers),
            chains=self.heads.chains,
            **dropped,
        )
        return builder.tree()

    def _entry(self, step: int, entries: list[tuple[int, int, int]]) -> HiddenInput:
        owners, chains = (
            [owner + 1 for _, owner, _ in entries],
            torch.tensor([chain for *_, chain in entries]),
        )
        return HiddenInput(
            self.heads.layers[step],
            tuple(node for node, *_ in entries),
            lambda x: self.heads.input_states(step, to_device(chains, x.device), select_rows(x, owners)),
        )


class InTargetChain(InTargetDrafter):
    """Drafter of a chain sampled from the predictions of the target's last pass (PaSS, Monea et al.
    2311.13581). Extra positions follow only its last token, so after a rejection there are no predictions,
    and the next round has no draft."""

    def propose(self, state: State, budget: Budget) -> DraftTree:
        builder = TreeBuilder()
        if budget.gamma < 1:
            return builder.tree()
        for logits in () if self.guesses is None else self.guesses[: budget.gamma]:
            token, probs = sample_token(state.process_draft_row(logits, builder.tokens), state)
            builder.add(token, len(builder) - 1, builder.begin(probs, IID))
        return self.with_extra_rows(builder, {len(builder) - 1: len(self.heads)}, state)


class InTargetTree(InTargetDrafter):
    """Drafter of a tree of a planned shape, filled with the top tokens that the target's last pass
    predicted for each depth; they do not depend on the path. plan: see Plan."""

    needs = frozenset({"entry", "tree"})

    def __init__(self, heads: Any, plan: Plan):
        super().__init__(heads)
        self.plan = plan

    def propose(self, state: State, budget: Budget) -> DraftTree:
        if budget.gamma < 1:
            return DraftTree()
        known = 0 if self.guesses is None else min(len(self.guesses), budget.gamma)
        shape, steps = self.plan(known)
        builder, at = fill_shape(
            self.guesses if self.guesses is None else self.guesses[:known], shape, budget.width, state
        )
        builder.tokens = list(plain(tuple(builder.tokens)))
        owners = {node: steps[place + 1] for place, node in at.items()}
        return self.with_extra_rows(*self.prune(builder, owners), state)

    def prune(self, builder: TreeBuilder, owners: dict[int, int]) -> tuple[TreeBuilder, dict[int, int]]:
        """Return the tree of candidates to keep, and ``owners`` ({node: length of the chains of extra
        positions after it}) for it. This base class keeps all."""
        return builder, owners


class StreamTree(InTargetTree):
    """Drafter of Speculative Streaming (Bhendawade et al. 2402.11131): an InTargetTree that is pruned
    before extra positions are added. The target's layers below the stream layers estimate the probability
    of each candidate after its parent.

    min_prob: smallest probability of a kept candidate; others are dropped with their subtrees. Nothing is
    pruned if the target has no early exits (capability "early")."""

    def __init__(self, heads: Any, plan: Plan, min_prob: float):
        super().__init__(heads, plan)
        self.min_prob = min_prob

    def prune(self, builder: TreeBuilder, owners: dict[int, int]) -> tuple[TreeBuilder, dict[int, int]]:
        target = self.target
        layer = self.heads.layers[0]
        self.dropped = None
        if not len(builder) or not layer or not self.min_prob or "early" not in target.capabilities:
            return builder, owners
        with torch.inference_mode():
            states = target.early(layer).step(builder.tree(), 0)
            distributions = target.head(target.norm(self.heads.early(states))).softmax(-1)
            above = select_rows(distributions, [parent + 1 for parent in builder.parents])
            token_probs = above.gather(1, token_tensor(distributions.device, builder.tokens)[:, None])[
                :, 0
            ].tolist()
        kept, at = TreeBuilder(), {-1: -1}
        for node, (token, parent) in enumerate(zip(builder.tokens, builder.parents)):
            if parent in at and token_probs[node] >= self.min_prob:
                at[node] = kept.add(token, at[parent])
        self.dropped = len(builder) - len(kept)
        return kept, {at[node]: steps for node, steps in owners.items() if node in at}


def uniform_plan(shape: Shape, steps: int) -> Plan:
    """Return a Plan that uses the same shape in every round, cut to as many levels as there are
    predictions, with chains of ``steps`` extra positions after every node."""
    return lambda known: (shape.within(known, 10**6), (steps,) * (1 + len(shape)))


def _rows(distributions: Tensor) -> list[dict[str, list]]:
    token_probs, tokens = distributions.topk(min(NUM_NOTED, distributions.shape[-1]))
    shown = torch.stack([tokens.double(), token_probs.double()], 1).tolist()
    return [
        {"tokens": [int(token) for token in tokens], "chances": [round(prob, 4) for prob in sure]}
        for tokens, sure in shown
    ]
