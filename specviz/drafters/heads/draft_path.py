"""Let the target draft for itself through a trained second path (Uno, 2609.04010; Orthrus, 2605.12825).

A draft costs one pass of the target over a block of positions after the text, with the text's own KV cache;
the next pass verifies it."""

from __future__ import annotations

from ...core import (
    IID,
    Budget,
    CapableTarget,
    Drafter,
    DraftTree,
    Scores,
    State,
    Step,
    TreeBuilder,
    never_stop,
)
from ...models.draft_path import DraftPath
from ...trees import sample_token
from ..model.chain import policy_probs


class DraftPathChain(Drafter):
    """Drafter of a chain from one block: a pass of the target through a trained second path. Position j of
    the block, the root's being position 0, gives the distribution of the j-th draft token; each token is
    sampled from it, given the tokens that fill the block, so token rejection is exact. path: the trained
    weights."""

    needs = frozenset({"draft_path"})
    restartable = False  # uses the target's own KV cache

    def __init__(self, path: DraftPath):
        self.path = path

    def start(self, state: State, target: CapableTarget, prefill: Scores) -> None:
        self.view = target.draft_path(self.path)

    def propose(self, state: State, budget: Budget) -> DraftTree:
        count, builder = min(budget.gamma, self.path.block), TreeBuilder()
        if count < 1:
            return builder.tree()
        inputs = self.path.fillers(state.rng.uniform_tensor("noise", (count - 1,)).tolist())
        logits = self.view.logits(inputs)
        for position in range(count):
            row = state.process_draft_row(logits[position], builder.tokens)
            token, probs = sample_token(row, state)
            builder.add(token, position - 1, builder.begin(probs, IID))
            enough = budget.stop is not never_stop and budget.stop(
                Step(token, policy_probs(row, probs, state), position)
            )
            if enough or token in state.stop:
                break
        state.note(
            "second_path",
            tokens=inputs,
            first=self.path.first,
            both=self.path.both,
            masked=self.path.mask_token is not None,
        )
        return builder.tree()
