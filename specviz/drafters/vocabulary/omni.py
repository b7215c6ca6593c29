"""A draft of another vocabulary that learns both the target's words and the target's taste while it serves (OmniDraft, Ramakrishnan et
al. 2507.02659).

Every token that the target writes and the draft cannot say in one piece goes into the n-gram cache. Every so many written tokens the
draft, a copy of the model's weights, takes a step: where both have the token, towards the target's distribution over the tokens that both
have (reverse divergence); where the token is several of the draft's, towards saying these. A small head on the draft's states may learn,
too, whether a token will be accepted. All of it happens between rounds, so the output stays exact.
"""
from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ...core import Outcome, State, Target
from ...models.draft_length import AcceptanceHead, loss
from .bridge import Bridge
from .ngrams import MergingChain

WINDOW = 256  # tokens of the text before the first place that a step reads
CLIP = 1.0  # of the gradient's norm
HEAD_RATE = 1e-2  # of the acceptance head's steps
REFUSED = 6.0  # what a refusal weighs to the acceptance head, as in SpecDec++
HOPE = 2.0  # log odds of acceptance that an untaught head says of every token


@dataclass(frozen=True)
class Written:
    """A written token. at: its index in the text; logits [vocab]: the target's, which it came from."""

    at: int
    logits: Tensor


class OmniChain(MergingChain):
    """every: written tokens for a step; rate: of AdamW, constant; weight: of n-gram tokens beside mapped ones; head: learns which
    tokens are accepted, on the draft's states, else None."""

    def __init__(self, model: Target, bridge: Bridge, ahead: int = 4, every: int = 16, rate: float = 3e-4, weight: float = 0.2,
                 head: AcceptanceHead | None = None):
        super().__init__(model.learning(), bridge, ahead)
        self.every, self.weight, self.head, self.updates = every, weight, head, 0
        self.written: list[Written] = []
        self.judged: list[tuple[Tensor, float]] = []  # states that have read a drafted token, and the chance that it was accepted with
        with torch.inference_mode(False):
            self.optimiser = torch.optim.AdamW(self.model.weights, lr=rate, weight_decay=0.0)
            if head is not None:
                self.of_head = torch.optim.AdamW(head.to(self.model.weights[0].device).parameters(), lr=HEAD_RATE, weight_decay=0.0)
                self.model.capture(frozenset({"final"}))

    def observe(self, state: State, outcome: Outcome) -> None:
        first = len(state.tokens) - len(outcome.committed)
        if self.written and first <= self.written[-1].at:  # another text
            self.written = []
        lacking = [token for token in outcome.committed if self.cache.lacks(token)]
        hits = sum(token in self.cache.tokens for token in lacking)
        new = [token for token in lacking if self.cache.add(token)]
        self.written += [Written(first + i, outcome.scores.logits[row].clone()) for i, row in enumerate(outcome.kept)]
        if self.head is not None:
            self.judged += [(self.hidden[trial.node + 1], trial.accept) for trial in outcome.verdict.trials
                            if trial.node + 1 < len(self.hidden)]
        if len(self.written) >= self.every:
            self.learn(state.tokens)
        tree, path = outcome.tree, outcome.verdict.path
        state.note("ngrams", known=len(self.cache.tokens), tokens=new, lacking=len(lacking), hits=hits, drafted=len(tree),
                   accepted=len(path), merged=sum(token in self.cache.tokens for token in tree.tokens),
                   waiting=len(self.written), every=self.every, updates=self.updates)

    def learn(self, tokens: list[int]) -> None:
        """One step on the tokens written since the last one."""
        written, self.written, judged, self.judged = self.written, [], self.judged, []
        with torch.inference_mode(False), torch.enable_grad():
            missed = self.missed(tokens, written)
            if missed is not None:
                step(missed, self.model.weights, self.optimiser)
                self.model.renew()
                self.updates += 1
            if judged and self.head is not None:
                states, token_probs = torch.stack([state for state, _ in judged]), torch.tensor([prob for _, prob in judged])
                step(loss(self.head.logit(states), token_probs.to(states.device), REFUSED), list(self.head.parameters()), self.of_head)

    def missed(self, tokens: list[int], written: list[Written]) -> Tensor | None:
        """The hybrid loss, a mean over those of these tokens that begin where one of the draft's begins; None where there is none, and
        where the text is longer than the draft can read."""
        start, end = max(0, written[0].at - WINDOW), written[-1].at + 1
        theirs = self.bridge.encode(tokens[start:end])
        if not 1 < len(theirs) <= self.model.context:
            return None
        met = dict(self.bridge.meet(tokens[start:end], theirs))
        rows = self.model.logits(theirs[:-1])
        ours, mapped = self.bridge.shared
        terms: list[Tensor] = []
        for place in written:
            token, i = tokens[place.at], place.at - start
            j = met.get(i, 0)
            if not 0 < j < len(theirs):
                continue
            if self.bridge.to_theirs[token] >= 0:
                q, p = rows[j - 1][mapped].log_softmax(-1), place.logits[ours].to(rows).log_softmax(-1)
                terms.append((q.exp() * (q - p)).sum())
            elif i + 1 in met:
                spelled = torch.tensor(theirs[j:met[i + 1]], device=rows.device)
                said = rows[j - 1:j - 1 + len(spelled)].log_softmax(-1)
                terms.append(-self.weight * said.gather(1, spelled[:, None]).sum())
        return torch.stack(terms).mean() if terms else None


def step(missed: Tensor, weights: list[Tensor], optimiser: torch.optim.Optimizer) -> None:
    missed.backward()
    torch.nn.utils.clip_grad_norm_(weights, CLIP)
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)


def untaught(hidden: int, vocab: int, seed: int = 0) -> AcceptanceHead:
    """An acceptance head that takes every token for likely to pass, until it is taught."""
    with torch.inference_mode(False), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        head = AcceptanceHead(hidden, vocab, layers=1)
        nn.init.zeros_(head.model[-1].weight)
        head.model[-1].bias.data = torch.tensor([-HOPE / 2, HOPE / 2])
    return head
