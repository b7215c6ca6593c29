"""A tiny transformer in double precision with a real KV cache: small enough to enumerate every run of the engine exactly.

RMS norm, rotary positions, two heads, a gated MLP, random weights from a seed. ``blend`` moves the weights towards another
net, which sets how good a draft of that other net it is. For tests and for teaching; nothing is scripted but its size.
"""
from __future__ import annotations

import time
from typing import Sequence

import torch
from torch import Tensor

from ..core import DraftTree, Scores, Verdict

Layer = dict[str, Tensor]


class ScriptedNet:
    """The weights and the arithmetic. vocab, width, layers: sizes; sharp: how peaked the laws are; seed: of the weights."""

    def __init__(self, vocab: int = 4, seed: int = 0, *, width: int = 8, layers: int = 2, sharp: float = 3.0):
        source, d = torch.Generator().manual_seed(seed), width

        def weight(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=source, dtype=torch.float64) / shape[-1] ** 0.5

        self.vocab, self.width, self.heads = vocab, width, 2
        self.embedding, self.output = weight(vocab, width) * width**0.5, weight(vocab, width) * sharp
        self.layers: list[Layer] = [
            {"qkv": weight(3 * d, d), "o": weight(d, d), "up": weight(4 * d, d), "down": weight(d, 2 * d)}
            for _ in range(layers)
        ]

    def blend(self, other: ScriptedNet, share: float) -> ScriptedNet:
        """A net of the same sizes: ``share`` of the way from these weights to the other's (1 = the other)."""
        out = object.__new__(ScriptedNet)
        out.vocab, out.width, out.heads = self.vocab, self.width, self.heads
        out.embedding = torch.lerp(self.embedding, other.embedding, share)
        out.output = torch.lerp(self.output, other.output, share)
        out.layers = [{k: torch.lerp(a[k], b[k], share) for k in a} for a, b in zip(self.layers, other.layers)]
        return out

    def embed(self, ids: Sequence[int]) -> Tensor:
        return self.embedding[list(ids)]

    def head(self, states: Tensor) -> Tensor:
        return states @ self.output.T

    def rotations(self, positions: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Cosine and sine [rows, 1, head / 2] of the rotary positions."""
        half = self.width // self.heads // 2
        steps = 50.0 ** -(torch.arange(half, dtype=self.output.dtype) / half)
        angles = torch.tensor(list(positions), dtype=self.output.dtype)[:, None, None] * steps
        return angles.cos(), angles.sin()

    def block(self, layer: Layer, x: Tensor, kv: Tensor, first: int, turn: tuple[Tensor, Tensor], mask: Tensor) -> Tensor:
        """One layer over rows x [rows, width]. Their keys and values go to slots first, first + 1, ... of kv
        [2, slots, heads, head]; row r then reads the slots where mask [rows, slots so far] is 0 and not -inf."""
        rows, seen = mask.shape
        q, k, v = (norm(x) @ layer["qkv"].T).view(rows, 3, self.heads, -1).unbind(1)
        kv[0, first:first + rows], kv[1, first:first + rows] = rotate(k, turn), v
        weights = torch.einsum("rhd,nhd->hrn", rotate(q, turn), kv[0, :seen]) / q.shape[-1] ** 0.5 + mask
        x = x + torch.einsum("hrn,nhd->rhd", weights.softmax(-1), kv[1, :seen]).reshape(rows, -1) @ layer["o"].T
        gate, up = (norm(x) @ layer["up"].T).chunk(2, -1)
        return x + (torch.nn.functional.silu(gate) * up) @ layer["down"].T

    def logits(self, tokens: Sequence[int]) -> Tensor:
        """The reference: logits [tokens, vocab] without any cache kept or tree."""
        n = len(tokens)
        mask = torch.full((n, n), -torch.inf, dtype=self.output.dtype).triu(1)
        x, turn = self.embed(tokens), self.rotations(range(n))
        for layer in self.layers:
            x = self.block(layer, x, x.new_zeros(2, n, self.heads, self.width // self.heads), 0, turn, mask)
        return self.head(norm(x))


def norm(x: Tensor) -> Tensor:
    return x * (x.pow(2).mean(-1, keepdim=True) + 1e-6).rsqrt()


def rotate(x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    cos, sin = turn
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


class ScriptedTarget:
    """A ScriptedNet behind the Target protocol; committed tokens first in the cache, root and tree in the slots after them."""

    provides = frozenset({"tree", "rewind", "tap:final", "tap:layer", "entry", "embed", "head"})

    def __init__(self, net: ScriptedNet, context: int = 64):
        self.net, self.vocab, self.context = net, net.vocab, context
        self.hidden, self.layers = net.width, len(net.layers)
        self.busy, self.passes = 0.0, 0
        # zeros, and two contexts long: a tree lies behind a full cache
        self.kv = net.output.new_zeros(self.layers, 2, 2 * context, net.heads, net.width // net.heads)
        self.seen: list[int] = []  # tokens whose keys and values are committed
        self.root = -1
        self._wanted: frozenset[str] = frozenset()
        self._forget()

    def tap(self, names: frozenset[str]) -> None:
        self._wanted = frozenset(names)

    def embed(self, ids: Sequence[int]) -> Tensor:
        return self.net.embed(ids)

    def head(self, hidden: Tensor) -> Tensor:
        return self.net.head(hidden)

    def sync(self, tokens: Sequence[int]) -> Scores:
        tokens = list(tokens)
        if self._rows and tokens[:len(self.seen)] == self.seen and tokens[len(self.seen):len(self.seen) + 1] == [self.root]:
            self._keep(self._follow(tokens))
        agree = 0
        while agree < min(len(self.seen), len(tokens) - 1) and self.seen[agree] == tokens[agree]:
            agree += 1
        del self.seen[agree:]
        self._forget()
        fed, at = tokens[agree:-1], agree
        scores = Scores(self.kv.new_zeros(0, self.vocab), {name: self.kv.new_zeros(0, self.hidden) for name in self._wanted}, at)
        if fed:
            self.root = fed[0]
            scores = self.score(DraftTree.chain(fed[1:]))
            self._keep(range(len(fed)))
            self._forget()
        self.root = tokens[-1]
        return Scores(scores.logits, scores.taps, at, len(fed))

    def score(self, tree: DraftTree, start: int = 0) -> Scores:
        began = time.perf_counter()
        first = start + 1 if start else 0
        if not first:
            self._logits, self._taps = [], {}
        logits, taps = self._run(tree, first)
        self._logits.append(logits)
        for name, rows in taps.items():
            self._taps.setdefault(name, []).append(rows)
        self._tree, self._rows = tree, len(tree) + 1
        self.busy, self.passes = self.busy + time.perf_counter() - began, self.passes + 1
        return Scores(torch.cat(self._logits), {name: torch.cat(rows) for name, rows in self._taps.items()}, len(self.seen))

    def commit(self, verdict: Verdict) -> None:
        self._keep([0] + [i + 1 for i in verdict.path])
        self._forget()
        self.root = verdict.token

    def _forget(self) -> None:
        self._tree, self._rows, self._logits, self._taps = DraftTree(), 0, [], {}

    def _follow(self, tokens: list[int]) -> list[int]:
        """Rows of scratch (0 = the root) that spell the tokens after the committed ones, as far as they go."""
        rest = tokens[len(self.seen):-1]
        rows, node = [0] if rest else [], -1
        for token in rest[1:]:
            hits = [c for c in self._tree.children(node) if self._tree.tokens[c] == token and c + 1 < self._rows]
            if not hits:
                break
            node = hits[0]
            rows.append(node + 1)
        return rows

    def _keep(self, rows: Sequence[int]) -> None:
        base = len(self.seen)
        self.kv[:, :, base:base + len(rows)] = self.kv[:, :, [base + r for r in rows]]
        self.seen += [self.root if r == 0 else self._tree.tokens[r - 1] for r in rows]

    def _run(self, tree: DraftTree, first: int) -> tuple[Tensor, dict[str, Tensor]]:
        """Logits and taps of rows first, first + 1, ... (0 = the root)."""
        base, rows = len(self.seen), range(first, len(tree) + 1)
        depths = (0,) + tree.depths
        mask = self.kv.new_full((len(rows), base + len(tree) + 1), -torch.inf)
        mask[:, :base + 1] = 0  # everyone sees the committed tokens and the root
        for i, row in enumerate(rows):
            mask[i, [base + 1 + node for node in tree.path(row - 1)]] = 0
        turn = self.net.rotations([base + depths[row] for row in rows])
        x = self.net.embed([self.root if row == 0 else max(tree.tokens[row - 1], 0) for row in rows])
        taps = {}
        for depth, layer in enumerate(self.net.layers):
            for entry in tree.inputs:
                if entry.layer == depth:
                    x = x.clone()
                    x[[node + 1 - first for node in entry.nodes]] = entry.make(x)
            taps[f"layer:{depth}"] = x
            x = self.net.block(layer, x, self.kv[depth], base + first, turn, mask)
        taps["final"] = norm(x)
        return self.net.head(taps["final"]), {name: taps[name] for name in self._wanted}
