"""Draft with Chimera (Zeng et al. 2402.15758).

The decoder layer's KV cache holds the target's hidden states of the text. In a round each node's input is
the code of its last three tokens, which attends to the cache and to the node's ancestors. The tree has a
fixed shape; all nodes are chosen."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ....core import Budget, CapableTarget, DraftTree, Scores, State
from ....drafters.heads.last_state import HydraTree
from ....models.row_cache import RowCache
from ....trees import top_probs


class TextRows:
    """KV cache of Chimera's decoder layer for one run, over the target's final hidden states of the text."""

    def __init__(self, heads: Any):
        self.cache = RowCache(heads.fused)

    def read(self, states: Tensor, at: int) -> Tensor:
        """Append the target's final hidden states [n, hidden] of the text; at: position of the first one,
        used if the cache is empty. Return the last of them, [hidden]."""
        if not self.cache.count:
            self.cache.restart(at)
        with torch.inference_mode():
            self.cache.read(states)
        return states[-1]


class ChimeraTree(HydraTree):
    """Drafter of a tree of a fixed shape with Chimera's heads, level by level (Zeng et al. 2402.15758)."""

    def prefix_layer(self) -> TextRows:
        return TextRows(self.heads)

    def draft_model(self, state: State) -> ChimeraModel:
        assert self.last is not None  # a draft begins at a known state
        self.model = ChimeraModel(self.heads, self.target, self.rows.cache, self.last, state.tokens[-3:])
        return self.model

    def propose(self, state: State, budget: Budget) -> DraftTree:
        tree = super().propose(state, budget)
        if len(tree):
            at, path = -1, []
            while below := tree.children(at):
                at = below[0]
                path.append(tree.tokens[at])
            text = [*state.tokens[-3:], *path]
            state.note(
                "trigram",
                rows=[
                    {
                        "tokens": last_three(text[: len(text) - len(path) + i]),
                        "tok": token,
                        "chance": self.model.best[i],
                    }
                    for i, token in enumerate(path)
                ],
            )
        return tree


class ChimeraModel:
    """Chimera's heads during one round, with the interface of a draft model: ``score``. last [hidden]: the
    target's final hidden state that predicted the root; text: the committed tokens. best: for each level,
    the top-1 probability at its first node."""

    def __init__(self, heads: Any, target: CapableTarget, cache: RowCache, last: Tensor, text: list[int]):
        self.heads = heads
        self.target = target
        self.cache = cache
        self.last = last
        self.text = list(text)
        self._at, self._used = {}, 0  # node -> row of what it became; rows of the scratch in use
        self.best: list[float] = []
        cache.crop(cache.count)

    def score(self, tree: DraftTree, start: int = 0) -> Scores:
        """Return the Scores with logits [len(tree) - start, vocab] after the nodes from ``start`` on, which
        must have one depth; for an empty tree [1, vocab] after the root."""
        nodes = range(start, len(tree)) or (-1,)
        texts = [self.text + [tree.tokens[i] for i in tree.path(node)] for node in nodes]
        above = [-1 if node < 0 else self._at[tree.parents[node]] for node in nodes]
        level, n = tree.depths[start] if len(tree) else 0, len(nodes)
        with torch.inference_mode():
            embeds = self.target.embed([token for text in texts for token in last_three(text)])
            codes = self.heads.trigrams(embeds.unflatten(0, (n, 3)))
            became = self.cache.branch(codes, above, [level + 1] * n)
            self.cache.branch(
                became, above, [level + 1] * n
            )  # those below see what a row became, not its code
            self._at |= {node: self._used + n + i for i, node in enumerate(nodes)}
            self._used += 2 * n
            logits = self.heads.logits(level, self.last.expand(n, -1), became, self.target.head)
            self.best.append(round(float(top_probs(logits[:1])), 4))
            return Scores(logits)


def last_three(tokens: list[int]) -> list[int]:
    """Return the last three tokens; a shorter text is padded with its last token, as in the authors' code."""
    return tokens[-3:] if len(tokens) > 2 else (tokens + [tokens[-1]] * 2)[:3]
