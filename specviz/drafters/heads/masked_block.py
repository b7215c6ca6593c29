"""Draft a whole block in one forward pass (DFlash, 2602.06036; DSpark), as a chain or as a tree (DDTree,
2604.12989; TAPS; DARTree).

Each round begins with hidden states of the tokens committed last, at the input of some target layers, which
the verification has computed anyway. The drafter's KV cache keeps the keys and values of these tokens; the
block after them consists of mask tokens, whose keys and values are dropped. What a position predicts may be
corrected by the drafted tokens before it (path_scores.py).
"""

from __future__ import annotations

import heapq
import math
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
from ...trees import sample_token
from ...trees.draws import path_tokens
from ..model.chain import policy_probs
from .features import common_prefix_length
from .path_scores import Block, Correction, MarkovScores, PathScores
from .reduced_output import target_for_drafting


class BlockPassDrafter(Drafter):
    """Base class of drafters that predict a whole block in one forward pass of a trained network (DFlash,
    2602.06036). It keeps the network's KV cache in step with the text; ``scores`` returns the predictions
    for the next block.

    head: the network; correction: makes the predictions depend on the drafted tokens before a position;
    None: the network's own Markov head does, if it has one."""

    needs = frozenset({"tap:layer", "embed", "head"})
    restartable = False  # there are no hidden states of unverified text

    def __init__(self, head: Any, correction: Correction | None = None):
        self.net = head
        self.rows = head.open()
        self.hidden_states = frozenset(head.hidden_states)
        self.correction, self._text = correction, None
        self.read: list[int] = []  # tokens in the drafter's KV cache, from position rows.first on

    def start(self, state: State, target: CapableTarget, prefill: Scores) -> None:
        self.target = target_for_drafting(target, self.net)
        scores = prefill
        if (
            not len(prefill.hidden_states[self.net.hidden_states[0]]) and len(state.tokens) > 1
        ):  # a kept cache yields the last row only
            target.sync(state.tokens[:-1])
            scores = target.sync(state.tokens)
        states = self._joined(scores)
        at = scores.first_position
        first = self.rows.first
        if (
            first <= at <= first + common_prefix_length(self.read, state.tokens[first:-1])
        ):  # what an earlier run read of this text is true
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
        """Process the pending hidden states; return whether all of the text before the root is in the KV
        cache."""
        before = state.tokens[self.rows.first : -1]
        if not before or len(self.read) + sum(map(len, self._waiting)) != len(before):
            return False
        if self._waiting:
            with torch.inference_mode():
                states = torch.cat(self._waiting)
                self.rows.read(states)
                if self.correction is not None and self.correction.reads_text:
                    self._text = self.rows.text(states[-1:])[0]
            self.read, self._waiting = list(before), []
        return True

    def scores(self, state: State, max_positions: int) -> PathScores | None:
        """Run the network and return its scores for up to ``max_positions`` positions after the root,
        nearest first; None if hidden states of the text before the root are missing."""
        if max_positions < 1 or not self._read(state):
            return None
        with torch.inference_mode():
            size = min(self.net.block, max_positions + (not self.net.anchored))
            ids = [state.tokens[-1]] + [self.net.mask_token] * (size - 1)
            raw = self.rows.draft_raw(self.target.embed(ids))
            raw = raw[:max_positions] if self.net.anchored else raw[1 : max_positions + 1]
            states = self.rows.net.after(raw)
            block = Block(
                self.target,
                states,
                raw,
                self.rows.net.after,
                self.net.logits(states, self.target.head),
                self._text,
            )
            if self.correction is not None:
                return self.correction.open(block)
            return (
                PathScores(block)
                if self.net.markov_head is None
                else MarkovScores(block, self.net.markov_head)
            )


class BlockChain(BlockPassDrafter):
    """Drafter of a chain from a block: each token is sampled from its position's distribution, which may
    depend on the tokens before it.

    min_confidence: the draft ends before the first position whose confidence (a network's output) is below
    this, possibly before any (DeepSpec afdfa7c, draft_ops.py). A position's confidence depends on the token
    before it, never on its own token, so the samples keep their distribution."""

    def __init__(self, head: Any, min_confidence: float = 0.0, correction: Correction | None = None):
        super().__init__(head, correction)
        self.min_confidence = min_confidence

    def propose(self, state: State, budget: Budget) -> DraftTree:
        builder, scores = TreeBuilder(), self.scores(state, min(budget.gamma, self.net.length))
        if scores is None:
            return builder.tree()
        states = scores.block.states
        token = state.tokens[-1]
        carry = scores.start()
        confidences = []
        blind = (
            is_on_device(states) and state.sampling.greedy and budget.stop is never_stop
        )  # whether to go on is read at the end
        waits: list[Tensor] = []
        with torch.inference_mode():
            for position in range(len(scores)):
                before = token_tensor(states.device, [token])
                if self.net.confidence_head is not None:
                    sure = torch.sigmoid(self.net.confidence(states[position : position + 1], before))
                    if blind:
                        waits.append(sure.reshape(1))
                    else:
                        confidences.append(float(sure))
                        if confidences[-1] < self.min_confidence:
                            break
                found, carry = scores.step(position, carry, before)
                logits = state.process_draft_row(scores.expand_to_vocab(position, found)[0], builder.tokens)
                if scores.ids is not None and state.processors and not bool(logits.isfinite().any()):
                    break  # the request allows no candidate here
                token, probs = sample_token(logits, state)
                builder.add(token, len(builder) - 1, builder.begin(probs, IID))
                if budget.stop is not never_stop and budget.stop(
                    Step(token, policy_probs(logits, probs, state), position)
                ):
                    break
        tree = builder.tree()
        if waits:
            tree, confidences = _ended(tree, read(torch.cat(waits)), self.min_confidence)
        if confidences:
            state.note(
                "block",
                block=self.net.length,
                drafted=len(tree),
                confidence=[round(x, 4) for x in confidences],
            )
        if self.correction is not None and len(tree):
            with state.clock.paused():
                note_lattice(scores, tree, state)
        return tree


def _ended(tree: DraftTree, confidences: list[float], min_confidence: float) -> tuple[DraftTree, list[float]]:
    """Return the draft up to the first position whose confidence is below ``min_confidence``, and the
    confidences read for that."""
    end = next((position for position, sure in enumerate(confidences) if sure < min_confidence), len(tree))
    return tree.keep(range(end), by_token=False), confidences[: end + 1]


def note_lattice(scores: PathScores, tree: DraftTree, state: State, shown: int = 5) -> None:
    """Attach the note "lattice": the block drafter's ``shown`` top tokens of each position, without
    correction, and the chain that was drafted with it."""
    with torch.inference_mode():
        log_probs = scores.block.logits[: len(tree)].log_softmax(-1)
        values, ids = log_probs.topk(min(shown, log_probs.shape[-1]), dim=-1)
        own = log_probs.gather(1, token_tensor(ids.device, list(tree.tokens))[:, None])[:, 0]
    tokens, own = ids.tolist(), own.tolist()
    rows, path = [], []
    for drafted, value, row, chances in zip(map(int, tree.tokens), own, tokens, values.exp().tolist()):
        row, chances = list(row), [round(one, 4) for one in chances]
        if drafted not in row:
            row, chances = [*row, drafted], [*chances, round(math.exp(value), 4)]
        rows.append({"tokens": row, "chances": chances})
        path.append(row.index(drafted))
    state.note(
        "lattice",
        rows=rows,
        plain=[0] * len(tree),
        path=path,
        scores=[round(max(one, -99.0), 3) for one in own],
        paths=1,
    )


class BlockTree(BlockPassDrafter):
    """Drafter of a tree over a block: the ``nodes`` nodes with the highest path probability, among the
    ``width`` top tokens of each position (DDTree, 2604.12989). They are chosen nodes, each accepted with
    its target probability. With a correction the probabilities depend on the path."""

    def __init__(self, head: Any, width: int, nodes: int, correction: Correction | None = None):
        super().__init__(head, correction)
        self.width, self.nodes = width, nodes

    def node_cost(self, depth: int) -> float:
        """Return the relative cost of a node of this depth (1 for the root's children). Nodes are added in
        the order of probability / cost; the cost must not fall with the depth."""
        return 1.0

    def is_worth_verifying(self, utility: float) -> bool:
        """Return whether a node is worth verifying; utility: its path probability / ``node_cost``."""
        return True

    def propose(self, state: State, budget: Budget) -> DraftTree:
        builder, scores = TreeBuilder(), self.scores(state, min(budget.gamma, self.net.length))
        if scores is None:
            return builder.tree()
        nodes, width = min(self.nodes, budget.nodes), min(self.width, budget.width)
        carries, reached = {-1: scores.start()}, []
        heap: list[
            tuple[float, float, int, int, int]
        ] = []  # (-log utility, -log probability, parent, depth, token)

        def offer(parent: int, position: int, cost: float) -> None:
            path = path_tokens(builder, parent)
            last = token_tensor(scores.block.states.device, [path[-1] if path else state.tokens[-1]])
            logits, carries[parent] = scores.step(position, carries[parent], last)
            values, tokens = scores.top_tokens(position, logits, width, [path], state)
            for value, child in zip(*torch.stack([values[0].double(), tokens[0].double()]).tolist()):
                if math.isfinite(value):
                    whole = cost - value
                    heapq.heappush(
                        heap,
                        (
                            whole + math.log(self.node_cost(position + 1)),
                            whole,
                            parent,
                            position + 1,
                            int(child),
                        ),
                    )

        with torch.inference_mode():
            offer(-1, 0, 0.0)
            while heap and len(builder) < nodes:
                utility, cost, parent, depth, token = heapq.heappop(heap)
                if not self.is_worth_verifying(math.exp(-utility)):
                    break
                node = builder.add(token, parent)
                carries[node] = carries[parent]
                reached.append(math.exp(-cost))
                if depth < len(scores) and token not in state.stop:
                    offer(node, depth, cost)
        tree = builder.tree()
        if self.correction is not None and len(tree):
            with state.clock.paused():
                note_reach(scores, tree, reached, state)
        return tree


def note_reach(scores: PathScores, tree: DraftTree, reached: list[float], state: State) -> None:
    """Attach the note "reach": each node's estimated path probability (``reached``), and for comparison the
    product of the block drafter's probabilities without correction."""
    with torch.inference_mode():
        log_probs = scores.block.logits.log_softmax(-1).cpu()
    alone: list[float] = []
    for token, parent, depth in zip(tree.tokens, tree.parents, tree.depths):
        alone.append((alone[parent] if parent >= 0 else 0.0) + float(log_probs[depth - 1, token]))
    state.note(
        "reach", reached=[round(one, 4) for one in reached], alone=[round(math.exp(one), 4) for one in alone]
    )
