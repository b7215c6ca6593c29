"""Oracle drafts: the target drafts for itself while the timer is paused, so drafting costs nothing and a
draft token is wrong only on purpose.

The speed of such a run is what any drafter with the same draft length and acceptance could reach on this
machine: only verification and sampling take time.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ...core import IID, Budget, Drafter, DraftingModel, DraftTree, Scores, State, Target, TreeBuilder
from ...trees import Scorer, sample_token
from .chain import DraftChain


class OracleChain(Drafter):
    """Drafter of a chain sampled from the target itself, with a second KV cache (``model``), while the
    engine's timer is paused.

    accept: acceptance probability of each place, given that those before it were accepted; empty: every
    draft token is right. Where a draft token shall be rejected, a wrong one is proposed, and the verifier
    rejects it by the ordinary rule. So the text is the target's at any acceptance, and the rounds take as
    long as those of a drafter that is as often right."""

    def __init__(self, model: DraftingModel, accept: Sequence[float] = ()):
        self.inner, self.accept = DraftChain(model), tuple(accept)

    def start(self, state: State, target: Target, prefill: Scores) -> None:
        with state.clock.paused():
            self.inner.start(state, target, prefill)

    def propose(self, state: State, budget: Budget) -> DraftTree:
        with state.clock.paused():
            return self._with_errors(state, budget) if self.accept else self.inner.propose(state, budget)

    def _with_errors(self, state: State, budget: Budget) -> DraftTree:
        """Draft a chain that is wrong from a random place on. Which place is decided by a random number of
        its own, and the wrong token by the target's distribution: so it is a chosen node, and verification
        stays exact."""
        builder, model = TreeBuilder(), self.inner.model
        scorer = Scorer(model, state)
        if budget.gamma > 0:
            model.sync(state.tokens)
        for depth in range(min(budget.gamma, len(self.accept))):
            logits = scorer.logits(builder, (depth - 1,))[0]
            if state.rng.flip("draft", self.accept[depth])[0]:
                token, probs = sample_token(logits, state)
                builder.add(token, depth - 1, builder.begin(probs, IID))
            else:
                builder.add(wrong_token(logits, state), depth - 1)
        return builder.tree()


def wrong_token(logits: Tensor, state: State) -> int:
    """Return a token that the target rejects after ``logits`` [vocab]: at temperature 0 the second most
    probable, which looks like a draft model's mistake, else the least probable one."""
    if state.sampling.greedy:
        return int(logits.topk(2).indices[1])
    return int(state.sampling.probs(logits).argmin())
