"""Superposed decoding (Shen et al. 2405.18400): several continuations for the cost of one.

The input embedding is the weighted sum of the embeddings of the k drafts' last tokens, and the model
returns one distribution for all of them. n-gram counts tell the drafts apart: log P = (1 - a) log p + a log
p_ngram. The paper counts n-grams of 200 million tokens; here they are those of the context, and an unknown
n-gram costs ``UNKNOWN`` nats.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ...core import Budget, CapableTarget, Drafter, DraftTree, HiddenInput, Outcome, Scores, State
from ...indexes.ngram_counts import NgramCounts

WEIGHTS = {2: 0.01, 3: 0.04, 4: 0.15, 5: 0.18, 6: 0.12}  # interpolation weights of n-grams, as published
UNKNOWN = 8.0


class Superposed(Drafter):
    """Drafter by superposed decoding (Shen et al. 2405.18400): it generates several continuations with one
    target pass per token, and proposes the most probable one as a chain of chosen nodes.

    drafts: number of continuations k; length: their tokens; best: top tokens considered per step;
    temperature: of the target's distribution; blend: weight a of the n-gram model. passes: (begin, end,
    tokens) of each target pass spent on drafting.
    """

    needs = frozenset({"embed", "entry"})
    restartable = False  # appends uncommitted tokens to the target's KV cache

    def __init__(
        self, drafts: int = 3, length: int = 10, best: int = 9, temperature: float = 0.06, blend: float = 0.54
    ):
        self.drafts = drafts
        self.length = length
        self.best = best
        self.temperature = temperature
        self.blend = blend
        self.counts = NgramCounts(max(WEIGHTS))
        self.passes: list[tuple[float, float, int]] = []

    def start(self, state: State, target: CapableTarget, prefill: Scores) -> None:
        self.target = target
        self.counts.clear()
        self.counts.extend(state.tokens)

    def observe(self, state: State, outcome: Outcome) -> None:
        self.counts.extend(state.tokens)

    def propose(self, state: State, budget: Budget) -> DraftTree:
        length = min(self.length, budget.gamma)
        if length <= 0:
            return DraftTree()
        self.counts.follow(state.tokens)
        alive: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
        ended: list[tuple[float, tuple[int, ...]]] = []
        chain, mixes = DraftTree(), []
        for step in range(length):
            logits = self._score(chain, state)
            alive = self._extend(alive, logits, state)
            ended += [draft for draft in alive if draft[1][-1] in state.stop]
            alive = [draft for draft in alive if draft[1][-1] not in state.stop]
            if not alive or step + 1 == length:
                break
            weights = torch.tensor([score for score, _ in alive], dtype=torch.float64).softmax(-1)
            mixes.append([round(w, 4) for w in weights.tolist()])
            chain = self._feed(chain, weights, [draft[-1] for _, draft in alive])
        done = sorted(alive + ended, key=lambda d: -d[0])[: self.drafts]
        total = sum(math.exp(score - done[0][0]) for score, _ in done)
        state.note(
            "superposed",
            drafts=[
                {"tokens": list(d), "chance": round(math.exp(s - done[0][0]) / total, 4)} for s, d in done
            ],
            weights=mixes,
            passes=len(mixes) + 1,
        )
        return DraftTree.chain(done[0][1])

    def _score(self, chain: DraftTree, state: State) -> Tensor:
        began = state.clock.now()
        logits = self.target.score(chain, max(0, len(chain) - 1)).logits[-1]
        self.passes.append((began, state.clock.now(), 1))
        return logits

    def _feed(self, chain: DraftTree, weights: Tensor, tokens: list[int]) -> DraftTree:
        """Append the weighted sum of the tokens' embeddings to the chain."""
        at = len(chain)
        rows = self.target.embed(tokens)
        mix = (weights.to(rows.dtype).to(rows.device) @ rows)[None]
        entry = HiddenInput(0, (at,), lambda hidden: mix)
        longer = chain.add(-1, at - 1, probe=True)
        return DraftTree(
            longer.tokens, longer.parents, longer.draw, probes=longer.probes, inputs=(*chain.inputs, entry)
        )

    def _extend(self, alive, logits: Tensor, state: State):
        """Return the ``drafts`` best (score, tokens) after one more token."""
        top = (logits.double() / self.temperature).topk(min(self.best, logits.shape[-1]))
        logs = top.values.log_softmax(-1).tolist()
        out = []
        for score, draft in alive:
            known = self._known(draft, state)
            for token, log in zip(top.indices.tolist(), logs):
                ngram = (
                    math.log(known[token]) if known.get(token, 0.0) > 0 else -UNKNOWN / max(self.blend, 1e-9)
                )
                out.append(
                    (
                        score + (1 - self.blend) * log + (self.blend * ngram if self.blend else 0.0),
                        (*draft, token),
                    )
                )
        out.sort(key=lambda d: (-d[0], d[1]))
        return out[: self.drafts]

    def _known(self, draft: tuple[int, ...], state: State) -> dict[int, float]:
        """Return p_ngram of the successors of the draft, interpolated with the published weights."""
        if not self.blend:
            return {}
        context = [*state.tokens[-max(WEIGHTS) :], *draft]
        found: dict[int, float] = {}
        mass = sum(WEIGHTS.values())
        for n, weight in WEIGHTS.items():
            after = self.counts.after.get(tuple(context[1 - n :]), {}) if len(context) >= n - 1 else {}
            total = sum(len(places) for places in after.values())
            for token, places in after.items():
                found[token] = found.get(token, 0.0) + weight / mass * len(places) / total
        return found
