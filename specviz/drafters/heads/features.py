"""Draft with an EAGLE head on the target's hidden states (Li et al., arXiv 2401.15077; EAGLE-2, 2406.16858).

At the beginning of a round, verification has already computed the hidden states of the tokens committed
last. The head processes them and extends its own KV cache; the keys and values of drafted tokens are
dropped after the round. ``FeatureModel`` has the ``sync`` and ``score`` of a draft model, so every tree
drafter can draft with the head.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ...core import (
    Budget,
    CapableTarget,
    Drafter,
    DraftTree,
    Outcome,
    Scores,
    State,
    common_prefix_length,
    is_on_device,
    select_rows,
)
from ...trees import top_log_probs
from .reduced_output import ReducedHead, reduced_head, target_for_drafting


class FeatureModel:
    """A trained draft head on the target's hidden states (EAGLE and variants) during one run, with the
    interface of a draft model: ``sync`` and ``score``.

    head: the network. It reads pairs (token t + 1, target's hidden states at t). tokens: the text up to the
    root; before: the target's hidden states at the position before the root [layers * hidden], None if
    unknown.
    """

    capabilities: frozenset[str] = frozenset()
    _narrow: ReducedHead | None = None  # the output matrix, if it is restricted to some tokens

    def __init__(self, head: Any):
        self.net, self.rows = head, head.open()
        self.tokens: list[int] = []
        self._waiting: list[Tensor] = []  # features that were not read yet
        self.before: Tensor | None = None
        self._tip: Tensor | None = None  # guess [1, hidden] of the feature of the root
        self._out: Tensor | None = None  # guesses [1 + nodes, hidden] of the root and the tree's rows

    def start(self, target: CapableTarget, tokens: list[int], prefill: Scores) -> None:
        """Begin a run on the text ``tokens``. If the target reused its KV cache, ``prefill`` holds hidden
        states of few tokens, but always of the one before the root. The head's own KV cache is kept if it
        reaches the first of them; otherwise it starts there."""
        self.target, self.vocab = target_for_drafting(target, self.net), target.vocab
        self._narrow = reduced_head(self.target)
        plain = type(self).score is FeatureModel.score and not is_on_device(prefill.logits)
        self.capabilities = frozenset({"top_tokens"} if plain and self._narrow is not None else ())
        features, at = self.read_features(prefill), prefill.first_position
        if not len(features) and len(tokens) > 1:
            target.sync(tokens[:-1])
            again = target.sync(tokens)
            features, at = self.read_features(again), again.first_position
        self.before = features[-1] if len(features) else None
        first, known = (
            self.rows.first,
            min(self.rows.first + self.rows.count, common_prefix_length(self.tokens, tokens) - 1),
        )
        if first <= at <= known:
            self.rows.crop(at - first)
        else:
            self.rows.restart(at)
        self.tokens = list(tokens)
        self._waiting = [features] if len(features) else []
        self._tip = None

    def restart(self, features: Tensor, first: int) -> None:
        """Read the text again from position ``first`` on, with other weights. features [n, layers * hidden]: the
        target's hidden states of all tokens from there to before the root."""
        self.rows.restart(first)
        self._waiting = [features]
        self._tip = None

    def read_features(self, scores: Scores) -> Tensor:
        """Return the target's hidden states that the head reads, those of several layers concatenated: [n,
        layers * hidden]."""
        return torch.cat([scores.hidden_states[capture] for capture in self.net.hidden_states], -1)

    def append_features(self, features: Tensor, tokens: list[int]) -> None:
        """Append n committed tokens, and the target's hidden states [n, layers * hidden] that predicted
        them."""
        self._waiting.append(features)
        self.tokens += tokens
        self.before = features[-1]

    def sync(self, tokens: list[int]) -> bool:
        """Process the pairs of tokens and hidden states that were appended. Return whether the hidden
        states before the root are known, so that drafting is possible."""
        if tokens != self.tokens or len(tokens) < 2:
            return False
        if self._waiting:
            features, self._waiting = torch.cat(self._waiting), []
            ids = tokens[-len(features) :]
            with torch.inference_mode():
                self._kind = features.dtype
                self._tip = self.root_output(self.rows.read(self.target.embed(ids), features))
        return self._tip is not None

    def root_output(self, out: Tensor) -> Tensor:
        """Return the head's output [1, hidden] from which the draft starts, given its outputs ``out`` [n,
        hidden] for the pairs just processed: the last of them."""
        return out[-1:]

    def score(self, tree: DraftTree, start: int = 0) -> Scores:
        """Run the head on the nodes of a growing tree from ``start`` on; return the Scores with logits
        [len(tree) - start, vocab] after them. An empty tree: logits [1, vocab] after the root."""
        with torch.inference_mode():
            return Scores(self.net.logits(self._outputs(tree, start), self.target.head))

    def top_log_probs(
        self, tree: DraftTree, start: int, count: int, temperature: float
    ) -> tuple[Tensor, Tensor]:
        """Run the head as ``score`` does; return log-probabilities and tokens [len(tree) - start, count] of the
        most likely tokens after each node, most likely first. Capability "top_tokens": the logits of all other
        tokens of the vocabulary are never written."""
        assert self._narrow is not None
        with torch.inference_mode():
            logits = self.net.logits(self._outputs(tree, start), self._narrow.narrow)
            values, places = top_log_probs(logits, min(count, logits.shape[-1]), temperature)
        return values, places if logits.shape[-1] == self.vocab else self._narrow.tokens[places]

    def _outputs(self, tree: DraftTree, start: int) -> Tensor:
        """Run the head on the nodes from ``start`` on; return their outputs [len(tree) - start, hidden]; of an
        empty tree the root's."""
        if not len(tree):
            self.rows.crop(self.rows.count)
            assert self._tip is not None  # sync() comes first
            self._out = new = self._tip
        else:
            assert self._out is not None  # so does the root
            above = (
                tree.parents[start:]
                if tree.device_topology is None
                else tree.device_topology.sees[1 + start :, 1:]
            )
            new = self.rows.branch(
                self.target.embed(tree.tokens[start:]),
                self.parent_outputs(tree, start),
                above,
                tree.depths[start:],
            )
            self._out = torch.cat([self._out, new])
        return new.to(self._kind)

    def parent_outputs(self, tree: DraftTree, start: int) -> Tensor:
        """Return the head's outputs [len(tree) - start, hidden] for the parents of the nodes from ``start``
        on."""
        assert self._out is not None
        if tree.device_topology is None:
            return select_rows(self._out, [parent + 1 for parent in tree.parents[start:]])
        return self._out.index_select(0, tree.device_topology.parents[start:] + 1)


class FeatureDrafter(Drafter):
    """Drafter with an EAGLE head (Li et al. 2401.15077) or one of its variants. head: the trained draft
    head; grow(model): builds the drafter that uses the head as its draft model."""

    model_class = FeatureModel
    restartable = False  # there are no hidden states of unverified text

    def __init__(self, head: Any, grow: Callable[[FeatureModel], Drafter]):
        self.hidden_states = frozenset(head.hidden_states)
        self.needs = frozenset(
            {f"tap:{capture.partition(':')[0]}" for capture in head.hidden_states} | {"embed", "head"}
        )
        self.model = self.model_class(head)
        self.inner = grow(self.model)

    def start(self, state: State, target: CapableTarget, prefill: Scores) -> None:
        self.model.start(target, state.tokens, prefill)
        self.inner.start(state, target, prefill)

    def propose(self, state: State, budget: Budget) -> DraftTree:
        return (
            self.inner.propose(state, budget)
            if budget.gamma > 0 and self.model.sync(state.tokens)
            else DraftTree()
        )

    def observe(self, state: State, outcome: Outcome) -> None:
        self.model.append_features(
            select_rows(self.model.read_features(outcome.scores), outcome.kept), list(outcome.committed)
        )
        self.inner.observe(state, outcome)
