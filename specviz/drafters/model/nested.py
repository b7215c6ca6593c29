"""A chain from a draft model with smaller ones inside it (S2D, Kavehzadeh et al. 2407.01955)."""
from __future__ import annotations

from torch import Tensor

from ...core import IID, Budget, Drafter, DraftTree, Scores, State, Step, Target, TreeBuilder, never
from ...models.exits import exits
from ...trees import Scorer, draw_one
from .chain import belief


class NestedChain(Drafter):
    """One path, each token drawn from the distribution of one size: the first so many layers, the last norm and the head.

    size: which one, counted from the smallest; None: for each token the smallest whose likeliest token has at least ``sure``, the
    largest where none has. The choice sees distributions, no token. A size that was not asked for some tokens reads them together when
    it is. A model that cannot leave layers out has one size.
    """

    def __init__(self, model: Target, size: int | None = None, sure: float = 0.6):
        self.sizes, self.sure = exits(model.layers) if "skip" in model.capabilities else (model.layers,), sure
        self.views = [model if count == model.layers else model.skipping(range(2 * count, 2 * model.layers)) for count in self.sizes]
        last = len(self.sizes) - 1
        self.asked = range(last + 1) if size is None else (min(size, last) % (last + 1),)

    def start(self, state: State, target: Target, prefill: Scores) -> None:
        for at in reversed(self.asked):  # what the largest has read the others take from it
            self.views[at].sync(state.tokens)

    def propose(self, state: State, budget: Budget) -> DraftTree:
        build, used, token_probs = TreeBuilder(), [], []
        readers: dict[int, Reader] = {}
        for depth in range(budget.gamma):
            for at in self.asked:
                if at not in readers:
                    readers[at] = Reader(self.views[at], state)
                logits = readers[at].row(build)
                prob = float(logits.softmax(-1).max())
                if prob >= self.sure:
                    break
            token, probs = draw_one(logits, state)
            build.add(token, len(build) - 1, build.begin(probs, IID))
            used.append(at)
            token_probs.append(round(prob, 4))
            if budget.stop is not never and budget.stop(Step(token, belief(logits, probs, state), depth)):
                break
        if used:
            state.note("sizes", layers=list(self.sizes), used=used, sure=token_probs, least=self.sure if len(self.asked) > 1 else 0.0)
        return build.tree()


class Reader:
    """One size on this round's chain; what it was not asked for it reads when it is."""

    def __init__(self, view: Target, state: State):
        view.sync(state.tokens)
        self.scorer, self.read = Scorer(view), 0  # rows, the root's among them

    def row(self, build: TreeBuilder) -> Tensor:
        """Logits [vocab] after the last token of the chain."""
        missing = range(self.read - 1, len(build))  # -1 is the root
        self.read = len(build) + 1
        return self.scorer.rows(build, missing)[-1]
