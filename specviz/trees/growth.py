"""Growing a draft tree with a draft model, one forward a level."""
from __future__ import annotations

from torch import Tensor

from ..core import WITHOUT_REPLACEMENT, DraftTree, State, Target, TreeBuilder
from .draws import best, draw_some
from .shapes import Shape


class Scorer:
    """The part of a growing tree that its draft model has scored: only nodes that are to have children go through it.

    It hands the model a bare tree: stacking the laws at every level would cost more than the forward.
    """

    def __init__(self, model: Target):
        self.model = model
        self._tokens: list[int] = []
        self._parents: list[int] = []
        self._at = {-1: -1}

    def rows(self, build: TreeBuilder, nodes) -> Tensor:
        """Logits [len(nodes), vocab] after each of ``nodes``, whose parents were scored before; (-1,) first, for the root."""
        first = len(self._tokens)
        for node in nodes:
            if node >= 0:
                self._at[node] = len(self._tokens)
                self._tokens.append(build.tokens[node])
                self._parents.append(self._at[build.parents[node]])
        tree = DraftTree(tuple(self._tokens), tuple(self._parents), (-1,) * len(self._tokens))
        return self.model.score(tree, first).logits[-len(nodes):]


def grow_shape(model: Target, shape: Shape, state: State, drawn: bool) -> DraftTree:
    """A tree of the given shape under state.tokens[-1]; the model must be synced to state.tokens.

    drawn: siblings are drawn without replacement from the run's law; otherwise they are the most likely tokens (chosen).
    A node gets fewer children where the law has fewer tokens, so at temperature 0 a drawn tree is a chain.
    """
    build, scorer = TreeBuilder(), Scorer(model)
    at = {-1: -1}  # place in the shape -> node of the tree
    parents = [-1] if len(shape) else []
    for level in shape.levels:
        rows = scorer.rows(build, [at[place] for place in parents])
        counts = [shape.fanout[place] for place in parents]
        grow = drawn_children if drawn else chosen_children
        children = dict(zip(parents, grow(build, [at[place] for place in parents], counts, rows, state)))
        for place in level:
            have = children.get(shape.parents[place], ())
            if shape.ranks[place] < len(have):
                at[place] = have[shape.ranks[place]]
        parents = [place for place in level if place in shape.fanout and place in at]
        if not parents:
            break
    return build.tree()


def drawn_children(build: TreeBuilder, parents, counts, rows: Tensor, state: State) -> list[list[int]]:
    """Children drawn without replacement: counts[i] under parents[i], whose row is rows[i]."""
    out = []
    for parent, count, law in zip(parents, counts, state.sampling.probs(rows)):
        draw = build.begin(law, WITHOUT_REPLACEMENT)
        out.append([build.add(token, parent, draw) for token in draw_some(law, count, state)])
    return out


def chosen_children(build: TreeBuilder, parents, counts, rows: Tensor, state: State) -> list[list[int]]:
    """The most likely tokens: counts[i] under parents[i], whose row is rows[i]."""
    tokens = best(rows, max(counts))[1].tolist()
    return [[build.add(token, parent) for token in tokens[i][:count]] for i, (parent, count) in enumerate(zip(parents, counts))]
