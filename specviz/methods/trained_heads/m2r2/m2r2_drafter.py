"""M2R2: an early exit whose fast residual predicts through the target's own norm and output matrix
(Bhendawade et al. 2502.02040).

The slow residual is the target's own hidden state, kept uncommitted in the target, and verification
continues from there. The fast residual of a position depends on its token and on the keys and values of the
first layers, so it needs no cache."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ....core import (
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
from ....drafters.heads.reduced_output import target_for_drafting
from ....drafters.model.chain import policy_probs
from ....trees import sample_token


class M2R2Chain(Drafter):
    """Drafter of a chain by early exit (Bhendawade et al. 2502.02040): each token comes from the target's
    final norm and output matrix on the sum of slow and fast residual at the exit. The policy has the role
    of the paper's router. net: the network of the fast residual."""

    needs = frozenset({"early", "head", "embed", "kv"})
    restartable = False  # the exit stands on the target's own cache

    def __init__(self, net: Any):
        self.net = net

    def start(self, state: State, target: CapableTarget, prefill: Scores) -> None:
        self.target, self.view = target_for_drafting(target, self.net), target.early(self.net.exit)

    def propose(self, state: State, budget: Budget) -> DraftTree:
        builder, moved = TreeBuilder(), []
        for depth in range(budget.gamma):
            chain = DraftTree.chain(builder.tokens)
            slow = self.view.step(chain, max(0, depth - 1))[-1:]
            logits, share = self._logits_after(
                builder.tokens[-1] if depth else state.tokens[-1], slow, len(state.tokens) - 1 + depth
            )
            moved.append(share)
            logits = state.process_draft_row(logits, builder.tokens)
            token, probs = sample_token(logits, state)
            builder.add(token, len(builder) - 1, builder.begin(probs, IID))
            if budget.stop is not never_stop and budget.stop(
                Step(token, policy_probs(logits, probs, state), depth)
            ):
                break
        layers, exit = self.target.layers, self.net.exit
        state.note("layers", count=layers, skipped=list(range(2 * exit, 2 * layers)), reused=exit)
        if moved:
            state.note("residuals", line=moved, exit=exit)
        return builder.tree()

    def _logits_after(self, token: int, slow: Tensor, at: int) -> tuple[Tensor, float]:
        """Return logits [vocab] after a token at a position, and the norm of the change of its fast
        residual relative to the slow one [1, hidden]."""
        kind = next(self.net.parameters()).dtype
        with torch.inference_mode():
            target_kv = [
                tuple(part[None].to(kind) for part in self.view.kv(layer)) for layer in range(self.net.exit)
            ]
            fast = self.net(self.target.embed([token]).to(kind)[None], target_kv, at)[0].to(slow.dtype)
            logits = self.target.head(self.target.norm(slow + fast))[0]
            return logits, round(float(fast.norm() / slow.norm().clamp(min=1e-9)), 4)
