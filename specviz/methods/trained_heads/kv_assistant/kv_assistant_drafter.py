"""Draft with queries over the target's own KV cache (Gemma 4's assistants): no cache, a constant position,
and an output over the best clusters of the vocabulary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from ....core import Budget, CapableTarget, Drafter, DraftTree, Outcome, Scores, State, select_rows
from ....drafters.heads.reduced_output import output_rows

PLACES = 5  # positions of the target's cache that a note lists

_output_tables: WeakKeyDictionary[Any, Tensor] = WeakKeyDictionary()


class ClusterOutput:
    """The drafter's output: a function from its states [n, width] and those of the target's width [n, wide]
    to logits [n, vocab], -inf outside the best clusters.

    net: the network; target: whose output matrix is used where the network has none of its own. Its rows
    are kept in 16 bits on a CPU, in the order of the clusters, once for each network."""

    def __init__(self, net: Any, target: CapableTarget):
        self.net, self.clusters = net, net.masked_embedding
        if net not in _output_tables:
            table = net.model.embed_tokens.weight if net.own_table else output_rows(target)
            table = table.detach()
            if self.clusters is not None:
                table = table[self.clusters.token_ordering]
            half = table.dtype == torch.float32 and table.device.type == "cpu" and not net.own_table
            _output_tables[net] = table.bfloat16() if half else table
        self.table = _output_tables[net]

    def __call__(self, states: Tensor, wide: Tensor) -> Tensor:
        rows = states if self.net.own_table else wide
        if self.clusters is None:
            return rows @ self.table.to(rows).T
        best = self.clusters.centroids(states).topk(self.net.top, -1).indices  # [n, top]
        tokens = self.clusters.tokens
        part = self.table.view(*tokens.shape, -1)[best].flatten(1, 2).to(rows)  # [n, chosen tokens, wide]
        logits = torch.bmm(part, rows[..., None])[..., 0]
        chosen = tokens[best].flatten(1)
        return logits.new_full((len(rows), self.net.vocab), -torch.inf).scatter_(-1, chosen, logits)


class AssistantModel:
    """The drafter in one run, with the interface of a draft model: ``sync`` and ``score``. before: the
    target's hidden state [1, wide] at the position before the root, None if unknown; looked: mean attention
    weights [cached tokens] of the first step."""

    capabilities: frozenset[str] = frozenset()

    def __init__(self, net: Any):
        self.net = net
        self.before: Tensor | None = None
        self.looked: Tensor | None = None

    def start(self, target: CapableTarget) -> None:
        """Begin a run with this target."""
        self.target, self.vocab = target, target.vocab
        self.before, self.tokens = None, []
        with torch.inference_mode():
            self.output = ClusterOutput(self.net, target)

    def sync(self, tokens: list[int]) -> bool:
        """Take the target's keys and values of tokens[:-1], which its KV cache must hold. Return whether
        drafting is possible."""
        at = len(tokens) - 1
        if at < 1 or self.before is None:
            return False
        kind = self.net.pre_projection.weight.dtype
        self.kv = [
            tuple(part[None, :, :at].to(kind) for part in self.target.kv(layer)) for layer in self.net.reads
        ]
        self.tokens, self.position = list(tokens), torch.tensor([at - 1], device=self.before.device)
        return True

    def score(self, tree: DraftTree, start: int = 0) -> Scores:
        """Return the Scores with logits [1, vocab] after the root of an empty tree, or [nodes - start, vocab]
        after the nodes of a growing tree from ``start`` on."""
        with torch.inference_mode():
            if not len(tree):
                assert self.before is not None  # sync() comes first
                tokens, states = [self.tokens[-1]], self.before
            else:
                tokens = tree.tokens[start:]
                states = select_rows(self._out, [parent + 1 for parent in tree.parents[start:]])
            kind = self.net.pre_projection.weight.dtype
            embeds = self.target.embed(tokens).to(kind)
            own, wide, looked = self.net(embeds[None], states[None].to(kind), self.position, self.kv)
            if len(tree):
                self._out = torch.cat([self._out, wide[0]])
            else:
                self._out, self.looked = wide[0], looked[0, 0]
            return Scores(self.output(own[0], wide[0]))


class BorrowingDrafter(Drafter):
    """Drafter with a network of queries over the target's KV cache. net: the network; grow(model): builds
    the drafter that uses it as its draft model."""

    needs = frozenset({"kv", "embed", "head", "tap:final"})
    hidden_states = frozenset({"final"})
    restartable = False  # the target's keys of a text that was not verified are not there

    def __init__(self, net: Any, grow: Callable[[AssistantModel], Drafter]):
        self.model = AssistantModel(net)
        self.inner = grow(self.model)

    def start(self, state: State, target: CapableTarget, prefill: Scores) -> None:
        self.model.start(target)
        rows = prefill.hidden_states["final"]
        if not len(rows) and len(state.tokens) > 1:
            target.sync(state.tokens[:-1])
            rows = target.sync(state.tokens).hidden_states["final"]
        self.model.before = rows[-1:] if len(rows) else None

    def propose(self, state: State, budget: Budget) -> DraftTree:
        if budget.gamma <= 0 or not self.model.sync(state.tokens):
            return DraftTree()
        tree = self.inner.propose(state, budget)
        self._note(state)
        return tree

    def _note(self, state: State) -> None:
        """Attach the note "borrowed". The engine's clock is paused meanwhile."""
        if self.model.looked is None:
            return
        with state.clock.paused():
            best = self.model.looked.topk(min(PLACES, len(self.model.looked)))
            state.note(
                "borrowed",
                layers=list(self.model.net.reads),
                cached=len(self.model.looked),
                position=len(state.tokens) - 2,
                cache_bytes=0,
                places=best.indices.tolist(),
                shares=[round(share, 4) for share in best.values.tolist()],
            )

    def observe(self, state: State, outcome: Outcome) -> None:
        self.model.before = select_rows(outcome.scores.hidden_states["final"], outcome.kept[-1:])
        self.inner.observe(state, outcome)
