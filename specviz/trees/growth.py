"""Grow a draft tree of a fixed shape with a draft model, one forward pass per level, and choose the
children of each node.

A child rule is a function (build, parents, counts, rows, state) -> lists of nodes. It adds counts[i]
children under node parents[i], whose logits are rows[i] [vocab], to the TreeBuilder ``builder``, and
returns the new nodes of each parent, the child of rank 0 in the shape first. There are fewer if the
distribution has fewer tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch import Tensor

from ..core import (
    IID,
    WITHOUT_REPLACEMENT,
    DraftTree,
    ForwardPass,
    Scores,
    ScoringModel,
    State,
    TreeBuilder,
    is_on_device,
    lazy_ints,
)
from .draws import (
    first_duplicates,
    path_tokens,
    pick,
    sample_without_replacement,
    sample_without_replacement_on_device,
    top_k,
)
from .shapes import Shape

HUB = "hub"
"""Two siblings of which at least one is the most likely token (SpecHub, Sun et al. 2411.05289)."""

ChildRule = Callable[[TreeBuilder, list[int], list[int], Tensor, State], list[list[int]]]


class Scorer:
    """Scores the nodes of a growing draft tree with the draft model. Only nodes that get children are scored.

    ``state``: if given, the run's logits processors are applied to the logits.

    The model gets a tree without distributions, because stacking them at every level would cost more than
    the forward pass.
    """

    def __init__(self, model: ScoringModel, state: State | None = None):
        self.model, self._state = model, state
        self._tokens: list[int] = []
        self._parents: list[int] = []
        self._at = {-1: -1}

    def share_scores(self, node: int, scored: int) -> None:
        """Let ``node`` use the scores of ``scored``, a sibling with the same token that has been scored."""
        self._at[node] = self._at[scored]

    def logits(self, builder: TreeBuilder, nodes) -> Tensor:
        """Score ``nodes`` in one forward pass and return the logits [len(nodes), vocab] after each of them.
        Their parents must have been scored before; the first call is for the root, (-1,)."""
        rows = self.scores(builder, nodes).logits[-len(nodes) :]
        if self._state is None or not (self._state.processors or self._state.saves_draft_logits):
            return rows
        return self._state.process_draft_logits(rows, [path_tokens(builder, node) for node in nodes])

    @property
    def finds_top(self) -> bool:
        """Whether the model finds the most likely tokens itself (``top_log_probs``), and no logits are needed
        for anything else."""
        state = self._state
        needed = state is not None and bool(state.processors or state.saves_draft_logits)
        return not needed and "top_tokens" in getattr(self.model, "capabilities", ())

    def top_log_probs(
        self, builder: TreeBuilder, nodes, count: int, temperature: float
    ) -> tuple[Tensor, Tensor]:
        """Score ``nodes`` as ``logits`` does; return log-probabilities and tokens [len(nodes), count] of the
        most likely tokens after each of them, most likely first. Only if ``finds_top``."""
        asked = self.forward_pass(builder, nodes)
        model: Any = self.model
        return model.top_log_probs(asked.tree, asked.start, count, temperature)

    def scores(self, builder: TreeBuilder, nodes) -> Scores:
        """Run a forward pass over ``nodes`` and return its Scores, with captured hidden states. Its last
        len(nodes) rows are those of ``nodes``."""
        asked = self.forward_pass(builder, nodes)
        return self.model.score(asked.tree, asked.start)

    def forward_pass(self, builder: TreeBuilder, nodes) -> ForwardPass:
        """Prepare a forward pass over ``nodes`` and return it without running it, so that it can be
        batched. The caller must run every pass that is returned."""
        first = len(self._tokens)
        for node in nodes:
            if node >= 0:
                self._at[node] = len(self._tokens)
                self._tokens.append(builder.tokens[node])
                self._parents.append(self._at[builder.parents[node]])
        tree = DraftTree(tuple(self._tokens), tuple(self._parents), (-1,) * len(self._tokens))
        return ForwardPass(self.model, tree, first)


def grow_shape(model: ScoringModel, shape: Shape, state: State, children: ChildRule) -> DraftTree:
    """Draft a tree of the given shape under state.tokens[-1], one forward pass per level. The draft model's
    KV cache must hold state.tokens[:-1]; ``children`` is the child rule."""
    builder, scorer = TreeBuilder(), Scorer(model, state)
    at = {-1: -1}  # index in the shape -> node of the tree
    parents = [-1] if len(shape) else []
    for level in shape.levels:
        nodes = [at[place] for place in parents]
        rows = scorer.logits(builder, nodes)
        made = children(builder, nodes, [shape.fanout[place] for place in parents], rows, state)
        under = dict(zip(parents, made))
        for place in level:
            have = under.get(shape.parents[place], ())
            if shape.ranks[place] < len(have):
                at[place] = have[shape.ranks[place]]
        parents = [place for place in level if place in shape.fanout and place in at]
        if not parents:
            break
    return builder.tree()


def fill_shape(
    logits: Tensor | None, shape: Shape, width: int, state: State
) -> tuple[TreeBuilder, dict[int, int]]:
    """Fill a shape with the top tokens of each depth. One row of logits serves all nodes of a depth, as
    Medusa's heads give it. Return the tree, and {index in the shape: node of the tree} of the nodes that
    were filled (-1 is the root).

    logits [depths, vocab]: row i is for depth i + 1; None: the tree is empty. width: maximum number of
    children per node. The run's logits processors are applied along each node's path."""
    builder, at = TreeBuilder(), {-1: -1}
    if logits is None or not len(logits) or not len(shape):
        return builder, at
    most, below = max(shape.ranks) + 1, {}  # place -> tokens of its children
    shared = [] if state.processors else _top(logits, most)
    for place, (parent, rank, level) in enumerate(zip(shape.parents, shape.ranks, shape.depths)):
        if parent not in at or level > len(logits) or rank >= width:
            continue
        if parent not in below:
            path = path_tokens(builder, at[parent])
            if shared:
                state.save_draft_logits(logits[level - 1][None], [path])
            below[parent] = (
                shared[level - 1]
                if shared
                else _top(state.process_draft_row(logits[level - 1], path)[None], most, True)[0]
            )
        if rank < len(below[parent]):
            at[place] = builder.add(below[parent][rank], at[parent])
    return builder, at


def _top(rows: Tensor, count: int, masked: bool = False) -> list[list[Any]]:
    """Return the top tokens of each row of logits; ``masked``: leave out tokens with logit -inf."""
    values, found = top_k(rows, count)
    tokens = lazy_ints(found)
    if not masked:
        return tokens
    return [
        [token for token, value in zip(ids, row) if value > -math.inf]
        for ids, row in zip(tokens, values.tolist())
    ]


def chosen_children(builder: TreeBuilder, parents, counts, rows: Tensor, state: State) -> list[list[int]]:
    """Child rule: add the top-k tokens as chosen nodes."""
    tokens = _top(rows, max(counts), bool(state.processors))
    return [
        [builder.add(token, parent) for token in tokens[i][:count]]
        for i, (parent, count) in enumerate(zip(parents, counts))
    ]


def drawn_children(builder: TreeBuilder, parents, counts, rows: Tensor, state: State) -> list[list[int]]:
    """Child rule: sample tokens without replacement at the run's temperature."""
    out, distributions = [], state.sampling.probs(rows)
    drawn = (
        sample_without_replacement_on_device(distributions, counts, state)
        if is_on_device(distributions)
        else None
    )
    for at, (parent, count, probs) in enumerate(zip(parents, counts, distributions)):
        draw = builder.begin(probs, WITHOUT_REPLACEMENT)
        tokens = sample_without_replacement(probs, count, state) if drawn is None else drawn[at]
        out.append([builder.add(token, parent, draw) for token in tokens])
    return out


def independent_children(
    builder: TreeBuilder, parents, counts, rows: Tensor, state: State
) -> list[list[int]]:
    """Child rule: sample tokens with replacement. Siblings with equal tokens remain separate nodes. Their
    children belong to one draw, so that a verifier that processes duplicates together knows that they share
    a distribution."""
    out = []
    distributions = state.sampling.probs(rows)
    draws = {}
    for first, parent, count in zip(first_duplicates(builder, parents), parents, counts):
        probs = distributions[first]
        draw = draws[first] if first in draws else draws.setdefault(first, builder.begin(probs, IID))
        out.append([builder.add(pick(probs, state), parent, draw) for _ in range(count)])
    return out


def hub_children(builder: TreeBuilder, parents, counts, rows: Tensor, state: State) -> list[list[int]]:
    """Child rule of SpecHub (2411.05289): at most two children per node, a sampled token and the top-1
    token. If the top-1 token was sampled, the second child is sampled from the other tokens."""
    out = []
    for parent, count, probs in zip(parents, counts, state.sampling.probs(rows)):
        hub, first = int(probs.argmax()), state.rng.pick("draft", probs)
        draw = builder.begin(probs, HUB if count > 1 else IID)
        pair = [first]
        if count > 1 and first != hub:
            pair.append(hub)
        elif count > 1:
            rest = probs.clone()
            rest[hub] = 0
            mass = float(rest.sum())
            pair += [state.rng.pick("draft", rest / mass)] if mass > 0 else []
        out.append([builder.add(token, parent, draw) for token in pair])
    return out


def top_and_one_children(
    builder: TreeBuilder, parents, counts, rows: Tensor, state: State
) -> list[list[int]]:
    """Child rule of greedy multi-draft (Hu et al. 2502.18779): the top count - 1 tokens, and one sampled
    from the other tokens.

    The sampled child is verified first, as sampled siblings must be; in the shape it has the last rank.
    """
    out = []
    for parent, count, probs in zip(parents, counts, state.sampling.probs(rows)):
        top = top_k(probs[None], count - 1)[1][0].tolist() if count > 1 else []
        rest = probs.clone()
        rest[top] = 0
        mass, last = float(rest.sum()), []
        if mass > 0:
            rest /= mass
            last = [builder.add(state.rng.pick("draft", rest), parent, builder.begin(rest, IID))]
        out.append([builder.add(token, parent) for token in top] + last)
    return out
