"""Draft a whole block in one forward pass (DFlash, 2602.06036; DSpark; DDTree, a tree over a block's predictions).

Each round begins with hidden states of the tokens committed last, at the input of some target layers, which the verification has
computed anyway. The drafter's KV cache keeps entries for these tokens; the block after them consists of mask tokens, and its
entries are dropped.
"""
from __future__ import annotations

import heapq
import math
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ...core import (
    IID,
    Budget,
    CapableTarget,
    Drafter,
    DraftTree,
    Outcome,
    Scores,
    State,
    Step,
    TreeBuilder,
    is_on_device,
    never_stop,
    read,
    select_rows,
    token_tensor,
)
from ...trees import best, draw_one
from ...trees.draws import path_tokens
from ..model.chain import policy_probs
from .features import common
from .reduced_output import for_drafting


class BlockStates(Drafter):
    """Keep the block drafter's KV cache of the text up to date; ``guesses`` returns the hidden states of the next block."""

    needs = frozenset({"tap:layer", "embed", "head"})
    restartable = False  # of a text that was not verified it has no states

    def __init__(self, head: Any):
        self.net, self.rows, self.hidden_states = head, head.open(), frozenset(head.hidden_states)
        self.read: list[int] = []  # tokens that have a row, from position rows.first on

    def start(self, state: State, target: CapableTarget, prefill: Scores) -> None:
        self.target = for_drafting(target, self.net)
        scores = prefill
        if not len(prefill.hidden_states[self.net.hidden_states[0]]) and len(state.tokens) > 1:  # a kept cache yields the last row only
            target.sync(state.tokens[:-1])
            scores = target.sync(state.tokens)
        states, at, first = self._joined(scores), scores.at, self.rows.first
        if first <= at <= first + common(self.read, state.tokens[first:-1]):  # what an earlier run read of this text is true
            self.rows.crop(at - first)
            self.read = state.tokens[first:at]
        else:
            self.rows.restart(at)
            self.read = []
        self._waiting = [states] if len(states) else []
        self._read(state)

    def observe(self, state: State, outcome: Outcome) -> None:
        self._waiting.append(select_rows(self._joined(outcome.scores), outcome.kept))

    def _joined(self, scores: Scores) -> Tensor:
        return torch.cat([scores.hidden_states[capture] for capture in self.net.hidden_states], -1)

    def _read(self, state: State) -> bool:
        """Process the pending hidden states; return whether all of the text before the root is in the KV cache."""
        before = state.tokens[self.rows.first:-1]
        if not before or len(self.read) + sum(map(len, self._waiting)) != len(before):
            return False
        if self._waiting:
            with torch.inference_mode():
                self.rows.read(torch.cat(self._waiting))
            self.read, self._waiting = list(before), []
        return True

    def guesses(self, state: State, most: int) -> Tensor | None:
        """Return states [rows, hidden] that predict up to ``most`` tokens after the root, nearest first; None if hidden states of
        the text before the root are missing."""
        if not self._read(state):
            return None
        with torch.inference_mode():
            size = min(self.net.block, most + (not self.net.anchored))
            ids = [state.tokens[-1]] + [self.net.mask_token] * (size - 1)
            states = self.rows.draft(self.target.embed(ids))
        return states[:most] if self.net.anchored else states[1:most + 1]


class BlockChain(BlockStates):
    """Draft a chain: sample each token from its row's distribution; with a Markov head the distribution depends on the token
    before it.

    least: the draft ends before the first row whose confidence is below this, possibly before any (DeepSpec afdfa7c,
    draft_ops.py). A row's confidence depends on the token before it, never on its own, so the samples keep their distribution.
    """

    def __init__(self, head: Any, least: float = 0.0):
        super().__init__(head)
        self.least = least

    def propose(self, state: State, budget: Budget) -> DraftTree:
        build, most = TreeBuilder(), min(budget.gamma, self.net.length)
        states = self.guesses(state, most) if most > 0 else None
        if states is None:
            return build.tree()
        markov, token, confidences = self.net.markov_head, state.tokens[-1], []
        blind = is_on_device(states) and state.sampling.greedy and budget.stop is never_stop  # whether to go on is read at the end
        waits: list[Tensor] = []
        with torch.inference_mode():
            base = self.target.head(states)
            for depth in range(len(states)):
                row, before = states[depth:depth + 1], token_tensor(states.device, [token])
                latent = None if markov is None else markov.latent(before, row)
                if self.net.confidence_head is not None:
                    sure = torch.sigmoid(self.net.confidence(row, before))
                    if blind:
                        waits.append(sure.reshape(1))
                    else:
                        confidences.append(float(sure))
                        if confidences[-1] < self.least:
                            break
                logits = base[depth] if markov is None else base[depth] + markov.markov_w2(latent)[0]
                logits = state.processed_row(logits, build.tokens)
                token, probs = draw_one(logits, state)
                build.add(token, len(build) - 1, build.begin(probs, IID))
                if budget.stop is not never_stop and budget.stop(Step(token, policy_probs(logits, probs, state), depth)):
                    break
        tree = build.tree()
        if waits:
            confidences, end = read(torch.cat(waits)), len(tree)
            for depth, sure in enumerate(confidences):
                if sure < self.least:
                    confidences, end = confidences[:depth + 1], depth
                    break
            tree = tree.keep(range(end), looked=False)
        if confidences:
            state.note("block", block=self.net.length, drafted=len(tree), confidence=[round(x, 4) for x in confidences])
        return tree


class BlockTree(BlockStates):
    """Draft the ``nodes`` most probable paths through a block: ``width`` top tokens per row, by the product of their
    probabilities. Nodes are chosen, so each is accepted with its target probability. With a Markov head the probabilities depend
    on the path."""

    def __init__(self, head: Any, width: int, nodes: int):
        super().__init__(head)
        self.width, self.nodes = width, nodes

    def propose(self, state: State, budget: Budget) -> DraftTree:
        build, most = TreeBuilder(), min(budget.gamma, self.net.length)
        states = self.guesses(state, most) if most > 0 else None
        if states is None:
            return build.tree()
        nodes, width = min(self.nodes, budget.nodes), min(self.width, budget.width)
        with torch.inference_mode():
            base = self.target.head(states)
            heap: list[tuple[float, int, int, int]] = []  # (-log chance, parent, depth, token)
            offer = partial(self._offer, heap, base, states, state, build)
            offer(-1, 0, 0.0, width)
            while heap and len(build) < nodes:
                cost, parent, depth, token = heapq.heappop(heap)
                node = build.add(token, parent)
                if depth + 1 < len(states) and token not in state.stop:
                    offer(node, depth + 1, cost, width)
        return build.tree()

    def _offer(self, heap, base: Tensor, states: Tensor, state: State, build: TreeBuilder, parent: int, depth: int, cost: float,
               width: int) -> None:
        logits, markov, path = base[depth], self.net.markov_head, path_tokens(build, parent)
        if markov is not None:
            before = token_tensor(states.device, [path[-1] if path else state.tokens[-1]])
            logits = logits + markov.markov_w2(markov.latent(before, states[depth:depth + 1]))[0]
        logits = state.processed_row(logits, path)
        values, tokens = best(logits.log_softmax(-1)[None], width)
        for value, child in zip(*torch.stack([values[0].double(), tokens[0].double()]).tolist()):
            if math.isfinite(value):
                heapq.heappush(heap, (cost - value, parent, depth, int(child)))
