"""Grow a draft tree of a fixed shape with a draft model, one forward pass per level, and choose the children of each node.

A child rule is a function (build, parents, counts, rows, state) -> lists of nodes: counts[i] children under parents[i], whose
logits are rows[i]; best slot of the shape first, fewer if the distribution has fewer tokens.
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
from .draws import best, draw_on_device, draw_some, first_duplicates, path_tokens, pick
from .shapes import Shape

HUB = "hub"
"""Two siblings of which at least one is the most likely token (SpecHub, Sun et al. 2411.05289)."""

Children = Callable[[TreeBuilder, list[int], list[int], Tensor, State], list[list[int]]]


class Scorer:
    """Scores the nodes of a growing tree with its draft model. Only nodes that get children are scored.

    The model gets a tree without distributions, because stacking them at every level would cost more than the forward pass.
    """

    def __init__(self, model: ScoringModel, state: State | None = None):
        self.model, self._state = model, state
        self._tokens: list[int] = []
        self._parents: list[int] = []
        self._at = {-1: -1}

    def share_scores(self, node: int, of: int) -> None:
        """Let ``node``, a duplicate sibling of the scored node ``of``, use its scores."""
        self._at[node] = self._at[of]

    def rows(self, build: TreeBuilder, nodes) -> Tensor:
        """Return logits [len(nodes), vocab] after each of ``nodes``, whose parents were scored before; (-1,) first, for the root.
        """
        rows = self.scores(build, nodes).logits[-len(nodes):]
        if self._state is None or not self._state.processors:
            return rows
        return self._state.processed_rows(rows, [path_tokens(build, node) for node in nodes])

    def scores(self, build: TreeBuilder, nodes) -> Scores:
        """Return the Scores of a forward pass whose last rows are those of ``nodes``, with captured hidden states."""
        asked = self.ask(build, nodes)
        return self.model.score(asked.tree, asked.start)

    def ask(self, build: TreeBuilder, nodes) -> ForwardPass:
        """Return, without running it, the forward pass whose last rows are those of ``nodes``. The caller must run
        every pass that is returned."""
        first = len(self._tokens)
        for node in nodes:
            if node >= 0:
                self._at[node] = len(self._tokens)
                self._tokens.append(build.tokens[node])
                self._parents.append(self._at[build.parents[node]])
        tree = DraftTree(tuple(self._tokens), tuple(self._parents), (-1,) * len(self._tokens))
        return ForwardPass(self.model, tree, first)


def grow_shape(model: ScoringModel, shape: Shape, state: State, children: Children) -> DraftTree:
    """Draft a tree of the given shape under state.tokens[-1]; the model must be synced to state.tokens."""
    build, scorer = TreeBuilder(), Scorer(model, state)
    at = {-1: -1}  # place in the shape -> node of the tree
    parents = [-1] if len(shape) else []
    for level in shape.levels:
        nodes = [at[place] for place in parents]
        rows = scorer.rows(build, nodes)
        made = children(build, nodes, [shape.fanout[place] for place in parents], rows, state)
        under = dict(zip(parents, made))
        for place in level:
            have = under.get(shape.parents[place], ())
            if shape.ranks[place] < len(have):
                at[place] = have[shape.ranks[place]]
        parents = [place for place in level if place in shape.fanout and place in at]
        if not parents:
            break
    return build.tree()


def fill_shape(logits: Tensor | None, shape: Shape, width: int, state: State) -> tuple[TreeBuilder, dict[int, int]]:
    """Fill a shape with the top tokens of each depth, which do not depend on the path; at most ``width`` children per
    node. Return the tree, and {index in the shape: node} for the filled ones (-1 is the root).

    logits [depths, vocab]: row i is for depth i + 1, None without logits. The run's logits processors are applied along
    each node's path."""
    build, at = TreeBuilder(), {-1: -1}
    if logits is None or not len(logits) or not len(shape):
        return build, at
    most, below = max(shape.ranks) + 1, {}  # place -> tokens of its children
    shared = [] if state.processors else _top(logits, most)
    for place, (parent, rank, level) in enumerate(zip(shape.parents, shape.ranks, shape.depths)):
        if parent not in at or level > len(logits) or rank >= width:
            continue
        if parent not in below:
            path = path_tokens(build, at[parent])
            below[parent] = shared[level - 1] if shared else _top(state.processed_row(logits[level - 1], path)[None], most, True)[0]
        if rank < len(below[parent]):
            at[place] = build.add(below[parent][rank], at[parent])
    return build, at


def _top(rows: Tensor, count: int, masked: bool = False) -> list[list[Any]]:
    """Return the top tokens of each row; ``masked``: none that a mask forbids."""
    values, found = best(rows, count)
    tokens = lazy_ints(found)
    if not masked:
        return tokens
    return [[token for token, value in zip(ids, row) if value > -math.inf] for ids, row in zip(tokens, values.tolist())]


def chosen_children(build: TreeBuilder, parents, counts, rows: Tensor, state: State) -> list[list[int]]:
    """Choose the top-k tokens."""
    tokens = _top(rows, max(counts), bool(state.processors))
    return [[build.add(token, parent) for token in tokens[i][:count]] for i, (parent, count) in enumerate(zip(parents, counts))]


def drawn_children(build: TreeBuilder, parents, counts, rows: Tensor, state: State) -> list[list[int]]:
    """Sample tokens without replacement from the run's distribution."""
    out, distributions = [], state.sampling.probs(rows)
    drawn = draw_on_device(distributions, counts, state) if is_on_device(distributions) else None
    for at, (parent, count, probs) in enumerate(zip(parents, counts, distributions)):
        draw = build.begin(probs, WITHOUT_REPLACEMENT)
        tokens = draw_some(probs, count, state) if drawn is None else drawn[at]
        out.append([build.add(token, parent, draw) for token in tokens])
    return out


def independent_children(build: TreeBuilder, parents, counts, rows: Tensor, state: State) -> list[list[int]]:
    """Sample tokens with replacement. Duplicate siblings remain two nodes, each a proposal of its own. The children of
    duplicates belong to one draw, so that a verifier that processes duplicates together knows that they share a
    distribution."""
    out, distributions, draws = [], state.sampling.probs(rows), {}
    for first, parent, count in zip(first_duplicates(build, parents), parents, counts):
        probs = distributions[first]
        draw = draws[first] if first in draws else draws.setdefault(first, build.begin(probs, IID))
        out.append([build.add(pick(probs, state), parent, draw) for _ in range(count)])
    return out


def hub_children(build: TreeBuilder, parents, counts, rows: Tensor, state: State) -> list[list[int]]:
    """Choose SpecHub's pairs: a sampled token and the top-1 token; if that was sampled, a second one sampled from the rest. At
    most two per node."""
    out = []
    for parent, count, probs in zip(parents, counts, state.sampling.probs(rows)):
        hub, first = int(probs.argmax()), state.rng.pick("draft", probs)
        draw = build.begin(probs, HUB if count > 1 else IID)
        pair = [first]
        if count > 1 and first != hub:
            pair.append(hub)
        elif count > 1:
            rest = probs.clone()
            rest[hub] = 0
            mass = float(rest.sum())
            pair += [state.rng.pick("draft", rest / mass)] if mass > 0 else []
        out.append([build.add(token, parent, draw) for token in pair])
    return out


def top_and_one_children(build: TreeBuilder, parents, counts, rows: Tensor, state: State) -> list[list[int]]:
    """Greedy multi-draft (Hu et al. 2502.18779): the top tokens plus one sampled from the rest.

    The sampled one is verified first, as sampled siblings must be; in the shape it has the last rank.
    """
    out = []
    for parent, count, probs in zip(parents, counts, state.sampling.probs(rows)):
        top = best(probs[None], count - 1)[1][0].tolist() if count > 1 else []
        rest = probs.clone()
        rest[top] = 0
        mass, last = float(rest.sum()), []
        if mass > 0:
            rest /= mass
            last = [build.add(state.rng.pick("draft", rest), parent, build.begin(rest, IID))]
        out.append([build.add(token, parent) for token in top] + last)
    return out
