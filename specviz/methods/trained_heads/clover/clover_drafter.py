"""Draft with Clover's heads, whose recurrent state reads each drafted token (Xiao et al. 2405.00263).

As with Hydra's heads, the tree has a fixed shape and grows level by level, and the layer before the heads
reads every hidden state of the text. All nodes are chosen.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from ....core import Budget, CapableTarget, DraftTree, Scores, State, token_tensor
from ....drafters.heads.last_state import HydraTree
from ....trees import Shape

_tables: WeakKeyDictionary[Any, Tensor] = WeakKeyDictionary()  # of each heads


class CloverTree(HydraTree):
    """Drafter of a tree of a fixed shape with Clover's heads, level by level (Xiao et al. 2405.00263).

    table [vocab, hidden]: the heads' input for each token, in 16 bits; computed once for each heads."""

    needs = frozenset({"tap:final", "head"})

    def __init__(self, heads: Any, shape: Shape):
        super().__init__(heads, shape)
        self.table: Tensor | None = None

    def start(self, state: State, target: CapableTarget, prefill: Scores) -> None:
        super().start(state, target, prefill)
        self.whole = target  # the drafting target may lack tokens, of which any can be the root
        if self.last is not None:
            self._fill_table()

    def propose(self, state: State, budget: Budget) -> DraftTree:
        tree = super().propose(state, budget)
        if len(tree):
            at = -1
            path: list[tuple[int, ...]] = [()]
            while below := tree.children(at):
                at = below[0]
                path.append((*path[-1], tree.tokens[at]))
            gates = [self.model.gates[read] for read in path[:-1]]
            state.note(
                "regression",
                tokens=[state.tokens[-1], *path[-2]],
                gates=[[round(gate, 4) for gate in row] for row, _ in gates],
                moved=[round(share, 4) for _, share in gates],
            )
        return tree

    def draft_model(self, state: State) -> CloverModel:
        assert self.last is not None  # a draft begins at a known state
        table = self._fill_table() if self.table is None else self.table
        self.model = CloverModel(self.heads, self.target, table, self.last, state.tokens[-1])
        return self.model

    def _fill_table(self) -> Tensor:
        assert self.last is not None
        table = _tables.get(self.heads)
        if table is None:
            with torch.inference_mode():
                table = self.heads.rows(self.whole.head, self.last).half()
            _tables[self.heads] = table
        self.table = table
        return table


class CloverModel:
    """Clover's heads during one round, with the interface of a draft model: ``score``. table: of
    CloverTree; last [hidden]: the state after the augmenting block; root: the last committed token. gates:
    for each drafted token, the gates and the relative change of the state."""

    def __init__(self, heads: Any, target: CapableTarget, table: Tensor, last: Tensor, root: int):
        self.heads = heads
        self.target = target
        self.table = table
        self.last = last
        self.root = root
        self.states: dict[int, Tensor] = {}
        self.gates: dict[tuple[int, ...], tuple[list[float], float]] = {}

    def score(self, tree: DraftTree, start: int = 0) -> Scores:
        """Return the Scores with logits [len(tree) - start, vocab] after the nodes from ``start`` on, which
        must have one depth; for an empty tree [1, vocab] after the root."""
        nodes = range(start, len(tree)) or (-1,)
        tokens = tree.tokens[start:] or (self.root,)
        with torch.inference_mode():
            before = torch.stack(
                [self.last if node < 0 else self.states[tree.parents[node]] for node in nodes]
            )
            after, gates = self.heads.regression(
                before, self.table.index_select(0, token_tensor(self.table.device, tokens)).to(before)
            )
            shares = (after - before).norm(dim=-1) / before.norm(dim=-1).clamp(min=1e-9)
            for node, state, (*row, share) in zip(
                nodes, after, torch.cat([gates, shares[:, None].to(gates)], 1).tolist()
            ):
                self.states[node], self.gates[tuple(tree.tokens[i] for i in tree.path(node))] = (
                    state,
                    (row, share),
                )
            return Scores(self.heads.logits(tree.depths[start] if len(tree) else 0, after, self.target.head))
