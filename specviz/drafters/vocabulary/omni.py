"""Online distillation of a draft model with another vocabulary (OmniDraft, Ramakrishnan et al. 2507.02659).

Target tokens without an equal draft token are added to the n-gram cache. Every few generated tokens a
trainable copy of the draft model takes a step on a hybrid loss: reverse KL over the intersection for target
tokens in it, cross-entropy of the spelling for the others. An optional head on the draft's hidden states
learns to predict acceptance. All updates happen between rounds, so the output stays exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from ...core import CapableTarget, Outcome, State, TrainableTarget
from ...core.needs import require_of_draft
from ...models.draft_length import AcceptanceHead, acceptance_loss
from .bridge import Bridge
from .ngrams import MergingChain

WINDOW = 256  # context tokens of a training step
CLIP = 1.0  # gradient norm clip
HEAD_RATE = 1e-2  # learning rate of the acceptance head
REFUSED = 6.0  # loss weight of a rejection, as in SpecDec++
HOPE = 2.0  # initial log odds of acceptance


@dataclass(frozen=True)
class GeneratedToken:
    """A generated token. at: its index in the text; logits [vocab]: the target's logits from which it was
    sampled."""

    at: int
    logits: Tensor


class OmniChain(MergingChain):
    """Drafter of a chain with a copy of a draft model with another vocabulary that is trained during
    generation (OmniDraft, 2507.02659).

    every: generated tokens per training step; rate: constant AdamW learning rate; weight: of the n-gram
    loss; head: network that predicts acceptance from the draft model's hidden states, or None."""

    model: TrainableTarget

    def __init__(
        self,
        model: CapableTarget,
        bridge: Bridge,
        ahead: int = 4,
        every: int = 16,
        rate: float = 3e-4,
        weight: float = 0.2,
        head: AcceptanceHead | None = None,
    ):
        require_of_draft(model, "learning")
        super().__init__(model.learning(), bridge, ahead)
        self.every = every
        self.weight = weight
        self.head = head
        self.updates = 0
        self.written: list[GeneratedToken] = []
        self.verified: list[
            tuple[Tensor, float]
        ] = []  # (hidden state after a draft token, its acceptance probability)
        with torch.inference_mode(False):
            self.optimiser = torch.optim.AdamW(self.model.weights, lr=rate, weight_decay=0.0)
            if head is not None:
                self.head_optimiser = torch.optim.AdamW(
                    head.to(self.model.weights[0].device).parameters(), lr=HEAD_RATE, weight_decay=0.0
                )
                self.model.capture(frozenset({"final"}))

    def observe(self, state: State, outcome: Outcome) -> None:
        first = len(state.tokens) - len(outcome.committed)
        if self.written and first <= self.written[-1].at:  # a new text
            self.written = []
        lacking = [token for token in outcome.committed if self.cache.is_missing_in_draft(token)]
        hits = sum(token in self.cache.tokens for token in lacking)
        new = [token for token in lacking if self.cache.add(token)]
        self.written += [
            GeneratedToken(first + i, outcome.scores.model_logits[row].clone())
            for i, row in enumerate(outcome.kept)
        ]
        if self.head is not None:
            states = {node: hidden for node, hidden in enumerate(self.hidden, -1) if hidden is not None}
            self.verified += [
                (states[decision.node], decision.accept)
                for decision in outcome.verdict.decisions
                if decision.node in states
            ]
        if len(self.written) >= self.every:
            self.learn(state.tokens)
        tree, path = outcome.tree, outcome.verdict.path
        state.note(
            "ngrams",
            known=len(self.cache.tokens),
            tokens=new,
            lacking=len(lacking),
            hits=hits,
            drafted=len(tree),
            accepted=len(path),
            merged=sum(token in self.cache.tokens for token in tree.tokens),
            waiting=len(self.written),
            every=self.every,
            updates=self.updates,
        )

    def learn(self, tokens: list[int]) -> None:
        """Take one training step on the tokens generated since the last one."""
        written = self.written
        self.written = []
        verified = self.verified
        self.verified = []
        with torch.inference_mode(False), torch.enable_grad():
            hybrid_loss = self.hybrid_loss(tokens, written)
            if hybrid_loss is not None:
                optimiser_step(hybrid_loss, self.model.weights, self.optimiser)
                self.model.drop_outdated()
                self.updates += 1
            if verified and self.head is not None:
                states, token_probs = (
                    torch.stack([state for state, _ in verified]),
                    torch.tensor([prob for _, prob in verified]),
                )
                loss = acceptance_loss(self.head.logit(states), token_probs.to(states.device), REFUSED)
                optimiser_step(loss, list(self.head.parameters()), self.head_optimiser)

    def hybrid_loss(self, tokens: list[int], written: list[GeneratedToken]) -> Tensor | None:
        """Return the mean loss over the generated tokens at whose start a draft token starts, too: reverse
        KL for tokens in both vocabularies, ``weight`` times the cross-entropy of the draft tokens for
        others. None if there is no such token, or if the text exceeds the draft model's context."""
        start, end = max(0, written[0].at - WINDOW), written[-1].at + 1
        theirs = self.bridge.encode(tokens[start:end])
        if not 1 < len(theirs) <= self.model.context:
            return None
        met = dict(self.bridge.alignments(tokens[start:end], theirs))
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
                spelled = torch.tensor(theirs[j : met[i + 1]], device=rows.device)
                log_probs = rows[j - 1 : j - 1 + len(spelled)].log_softmax(-1)
                terms.append(-self.weight * log_probs.gather(1, spelled[:, None]).sum())
        return torch.stack(terms).mean() if terms else None


def optimiser_step(loss: Tensor, weights: list[Tensor], optimiser: torch.optim.Optimizer) -> None:
    """Backpropagate a loss, clip the gradient norm of ``weights`` and update them."""
    loss.backward()
    torch.nn.utils.clip_grad_norm_(weights, CLIP)
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)


def untrained_head(hidden: int, vocab: int, seed: int = 0) -> AcceptanceHead:
    """Return an untrained acceptance head that predicts acceptance, with log odds HOPE, for every token.
    hidden, vocab: hidden size and vocabulary size of the draft model."""
    with torch.inference_mode(False), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        head = AcceptanceHead(hidden, vocab, layers=1)
        last = cast(nn.Linear, head.model[-1])
        nn.init.zeros_(last.weight)
        last.bias.data = torch.tensor([-HOPE / 2, HOPE / 2])
    return head
