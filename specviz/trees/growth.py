"""Growing a draft tree of a known shape with a draft model, one forward a level, and the ways to choose children.

A way to choose children is a function (build, parents, counts, rows, state) -> lists of nodes: counts[i] children under
parents[i], whose logits are rows[i]; best place of the shape first, fewer where the distribution has fewer tokens.
"""
from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from ..core import IID, WITHOUT_REPLACEMENT, DraftTree, ForwardPass, Scores, State, Target, TreeBuilder, is_on_device, numbers
from .draws import best, draw_on_device, draw_some, first_duplicates, path_tokens, pick
from .shapes import Shape

HUB = "hub"
"""Two siblings of which at least one is the most likely token (SpecHub, Sun et al. 2411.05289)."""

Children = Callable[[TreeBuilder, list[int], list[int], Tensor, State], list[list[int]]]


class Scorer:
    """The part of a growing tree that its draft model has scored: only nodes that are to have children go through it.

    The model gets a tree without distributions: stacking them at every level would cost more than the forward pass.
    """

    def __init__(self, model: Target):
        self.model = model
        self._tokens: list[int] = []
        self._parents: list[int] = []
        self._at = {-1: -1}

    def twin(self, node: int, of: int) -> None:
        """Let a duplicate of the scored node ``of`` use its scores."""
        self._at[node] = self._at[of]

    def rows(self, build: TreeBuilder, nodes) -> Tensor:
        """Logits [len(nodes), vocab] after each of ``nodes``, whose parents were scored before; (-1,) first, for the root."""
        return self.scores(build, nodes).logits[-len(nodes):]

    def scores(self, build: TreeBuilder, nodes) -> Scores:
        """The same with the states that the model taps; the last rows are those of ``nodes``."""
        asked = self.ask(build, nodes)
        return self.model.score(asked.tree, asked.start)

    def ask(self, build: TreeBuilder, nodes) -> ForwardPass:
        """The pass whose last rows are those of ``nodes``, for whoever runs it; every pass asked for must be run."""
        first = len(self._tokens)
        for node in nodes:
            if node >= 0:
                self._at[node] = len(self._tokens)
                self._tokens.append(build.tokens[node])
                self._parents.append(self._at[build.parents[node]])
        tree = DraftTree(tuple(self._tokens), tuple(self._parents), (-1,) * len(self._tokens))
        return ForwardPass(self.model, tree, first)


def grow_shape(model: Target, shape: Shape, state: State, children: Children) -> DraftTree:
    """A tree of the given shape under state.tokens[-1]; the model must be synced to state.tokens."""
    build, scorer = TreeBuilder(), Scorer(model)
    at = {-1: -1}  # place in the shape -> node of the tree
    parents = [-1] if len(shape) else []
    for level in shape.levels:
        nodes = [at[place] for place in parents]
        rows = scorer.rows(build, nodes)
        if state.processors:
            rows = state.processed_rows(rows, [path_tokens(build, node) for node in nodes])
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


def chosen_children(build: TreeBuilder, parents, counts, rows: Tensor, state: State) -> list[list[int]]:
    """The most likely tokens."""
    tokens = numbers(best(rows, max(counts))[1])
    return [[build.add(token, parent) for token in tokens[i][:count]] for i, (parent, count) in enumerate(zip(parents, counts))]


def drawn_children(build: TreeBuilder, parents, counts, rows: Tensor, state: State) -> list[list[int]]:
    """Draw tokens without replacement from the run's distribution."""
    out, distributions = [], state.sampling.probs(rows)
    drawn = draw_on_device(distributions, counts, state) if is_on_device(distributions) else None
    for at, (parent, count, probs) in enumerate(zip(parents, counts, distributions)):
        draw = build.begin(probs, WITHOUT_REPLACEMENT)
        tokens = draw_some(probs, count, state) if drawn is None else drawn[at]
        out.append([build.add(token, parent, draw) for token in tokens])
    return out


def independent_children(build: TreeBuilder, parents, counts, rows: Tensor, state: State) -> list[list[int]]:
    """Draw tokens with replacement. Duplicate siblings stay two nodes, each a proposal of its own. Children of duplicates belong to one
    draw, so that a rule that walks them together knows that they share a distribution."""
    out, distributions, draws = [], state.sampling.probs(rows), {}
    for first, parent, count in zip(first_duplicates(build, parents), parents, counts):
        probs = distributions[first]
        draw = draws[first] if first in draws else draws.setdefault(first, build.begin(probs, IID))
        out.append([build.add(pick(probs, state), parent, draw) for _ in range(count)])
    return out


def hub_children(build: TreeBuilder, parents, counts, rows: Tensor, state: State) -> list[list[int]]:
    """SpecHub's pairs: a token drawn from the distribution, and the most likely one; or, where that was drawn, a second one drawn from
    the rest. At most two a node."""
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
    """Greedy multi-draft (Hu et al. 2502.18779): all but one are the most likely tokens, one is drawn from the rest.

    The drawn one is judged first, as drawn siblings must be; in the shape it takes the last place.
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
