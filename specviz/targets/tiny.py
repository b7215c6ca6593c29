"""A tiny transformer in double precision with a real KV cache, small enough to enumerate all runs of the
engine. For tests and for teaching.

RMS norm, rotary positions, two heads, a gated MLP, random weights from a seed. ``interpolate`` moves the
weights towards another net, which sets how well one drafts for the other.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..core import DraftTree, Scores, common_prefix_length
from ..models.draft_path import DraftPath
from .base import CachedTarget, Rows
from .cache_selection import CacheSelection
from .draft_path import block_rows
from .learning import Learner

Layer = dict[str, Tensor]


class TinyNet:
    """Weights and forward pass of a tiny transformer. vocab, width, layers: sizes; sharp: factor of the
    logits; seed: of the random weights."""

    def __init__(self, vocab: int = 4, seed: int = 0, *, width: int = 8, layers: int = 2, sharp: float = 3.0):
        source, d = torch.Generator().manual_seed(seed), width

        def weight(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=source, dtype=torch.float64) / shape[-1] ** 0.5

        self.vocab = vocab
        self.width = width
        self.heads = 2
        self.embedding, self.output = weight(vocab, width) * width**0.5, weight(vocab, width) * sharp
        self.layers: list[Layer] = [
            {"qkv": weight(3 * d, d), "o": weight(d, d), "up": weight(4 * d, d), "down": weight(d, 2 * d)}
            for _ in range(layers)
        ]

    def interpolate(self, other: TinyNet, share: float) -> TinyNet:
        """Return a net with weights between these and the other's: ``share`` 0 gives these, 1 the other's."""
        out = object.__new__(type(self))
        out.vocab = self.vocab
        out.width = self.width
        out.heads = self.heads
        out.embedding = torch.lerp(self.embedding, other.embedding, share)
        out.output = torch.lerp(self.output, other.output, share)
        out.layers = [
            {k: torch.lerp(a[k], b[k], share) for k in a} for a, b in zip(self.layers, other.layers)
        ]
        return out

    def embed(self, ids: Sequence[int] | Tensor) -> Tensor:
        """Return the embeddings [n, width] of token ids."""
        return self.embedding[torch.as_tensor(ids)]

    def head(self, states: Tensor) -> Tensor:
        """Return the logits [n, vocab] of states [n, width] to which ``norm`` was already applied."""
        return states @ self.output.T

    def rotations(self, positions: Sequence[int]) -> Tensor:
        """Return the rotary rotations of the positions as complex numbers [rows, head width / 2]."""
        half = self.width // self.heads // 2
        angles = torch.tensor(positions, dtype=self.output.dtype)[:, None] * 50.0 ** -(
            torch.arange(half) / half
        )
        return torch.polar(torch.ones_like(angles), angles)

    def block(
        self, layer: Layer, x: Tensor, kv: Tensor, first: int, rotation: Tensor, mask: Tensor
    ) -> Tensor:
        """Run one layer over x [rows, width]; the other arguments as in ``attend``. Return the states after
        it."""
        return self.transform(layer, self.attend(layer, x, kv, first, rotation, mask))

    def attend(
        self, layer: Layer, x: Tensor, kv: Tensor, first: int, rotation: Tensor, mask: Tensor
    ) -> Tensor:
        """Return x [rows, width] plus the attention of a layer. Keys and values of the rows are written to
        slots first, first + 1, ... of kv [2, heads, slots, head width]; row r then reads the slots where
        mask [rows, slots] is 0 and not -inf."""
        qkv = (self.norm(x) @ layer["qkv"].T).view(len(x), 3, self.heads, -1).permute(1, 2, 0, 3)
        pairs = torch.complex(*qkv[:2].chunk(2, -1)) * rotation
        q, k = torch.cat([pairs.real, pairs.imag], -1)
        kv[0, :, first : first + len(x)], kv[1, :, first : first + len(x)] = k, qkv[2]
        weights = (q @ kv[0].mT / q.shape[-1] ** 0.5 + mask).softmax(-1)
        return x + (weights @ kv[1]).transpose(0, 1).flatten(1) @ layer["o"].T

    def transform(self, layer: Layer, x: Tensor) -> Tensor:
        """Return x [rows, width] plus the feed-forward of a layer."""
        gate, up = (self.norm(x) @ layer["up"].T).chunk(2, -1)
        return x + (torch.nn.functional.silu(gate) * up) @ layer["down"].T

    def norm(self, x: Tensor) -> Tensor:
        """Apply RMSNorm without weights to states [n, width]."""
        return torch.nn.functional.rms_norm(x, (self.width,), eps=1e-6)

    def logits(self, tokens: Sequence[int]) -> Tensor:
        """Return the logits [tokens, vocab] of a text, computed without tree or KV cache, as a reference."""
        n = len(tokens)
        mask = torch.full((n, n), -torch.inf, dtype=self.output.dtype).triu(1)
        x, rotation = self.embed(tokens), self.rotations(list(range(n)))
        for layer in self.layers:
            x = self.block(
                layer, x, x.new_zeros(2, self.heads, n, self.width // self.heads), 0, rotation, mask
            )
        return self.head(self.norm(x))


class TinyTarget(CachedTarget):
    """Target over a TinyNet: a real KV cache with all capabilities, small enough for exhaustive tests."""

    capabilities = frozenset(
        {
            "tree",
            "rewind",
            "tap:final",
            "tap:layer",
            "entry",
            "embed",
            "head",
            "kv",
            "early",
            "skip",
            "layer_parallel",
            "learning",
            "partial_cache",
            "sublayers",
            "draft_path",
            "state:decay",
            "state:groups",
        }
    )
    state_bytes = 0
    group = 4  # positions; keys and values neither decay nor know groups, so both are what a toy says
    name = "the tiny model"
    skip: frozenset[int] = frozenset()  # sublayers that are left out
    offset = 0  # position of a row minus its slot

    def __init__(self, net: TinyNet, context: int = 64):
        self.net = net
        self.vocab = net.vocab
        self.context = context
        self.hidden, self.layers = net.width, len(net.layers)
        self._slots = net.output.new_zeros(self.layers, 2, net.heads, context, net.width // net.heads)
        super().__init__()

    def embed(self, ids: Sequence[int]) -> Tensor:
        """Return the embeddings [n, width] of token ids."""
        return self.net.embed(ids)

    def head(self, states: Tensor) -> Tensor:
        """Return the logits of states to which the final norm was already applied."""
        return self.net.head(states)

    def norm(self, states: Tensor) -> Tensor:
        """Apply the final norm."""
        return self.net.norm(states)

    def survival(self) -> list[float]:
        """Return 1 for each draft row: keys and values do not decay."""
        return [1.0] * self._rows

    def groups(self) -> list[int]:
        """Return position // group for each draft row."""
        return [(len(self.cached_tokens) + depth) // self.group for depth in (0, *self._tree.depths)]

    def early(self, exit: int) -> TinyEarlyExit:
        """Return the layers before ``exit`` as a draft model."""
        return TinyEarlyExit(self, exit)

    def skipping(self, sublayers: Sequence[int]) -> TinySkippedLayers:
        """Return a view without these sublayers."""
        return TinySkippedLayers(self, sublayers)

    def sublayers(self, count: int) -> TinySublayers:
        """Return a runner of single sublayers over the last ``count`` committed tokens."""
        return TinySublayers(self, count)

    def layer_parallel(self, size: int) -> TinyLayerParallel:
        """Return a view with groups of layers in parallel."""
        return TinyLayerParallel(self, size)

    def partial_cache(self, keep: CacheSelection) -> TinyPartialCache:
        """Return a view over a part of the KV cache."""
        return TinyPartialCache(self, keep)

    def draft_path(self, path: DraftPath) -> TinyDraftPath:
        """Return draft passes through a trained second path."""
        return TinyDraftPath(self, path)

    def learning(self) -> TinyLearner:
        """Return a target over a trainable copy of the weights."""
        return TinyLearner(self)

    def kv(self, layer: int, draft_rows: int = 0) -> tuple[Tensor, Tensor]:
        """Return a copy of the keys (rotated) and values of a layer, each [heads, rows, head width]: of the
        committed tokens and of the first ``draft_rows`` draft rows."""
        keys, values = self._slots[layer, :, :, : len(self.cached_tokens) + draft_rows].clone()
        return keys, values

    def _forward(self, rows: Rows) -> tuple[Tensor, dict[str, Tensor]]:
        x, hidden_states = self.run_layers(rows, self.layers)
        hidden_states["final"] = self.net.norm(x)
        return self.net.head(hidden_states["final"]), {name: hidden_states[name] for name in self._want}

    def run_layers(self, rows: Rows, layers: int) -> tuple[Tensor, dict[str, Tensor]]:
        """Run the first ``layers`` layers over the rows. Return the states after them, and the input of
        each layer as "layer:k"."""
        at, hidden_states = rows.past + rows.lo, {}
        end = at + len(rows.ids)
        if end > self._slots.shape[3]:  # a wide tree after a long text
            self._slots = torch.cat(
                [self._slots, torch.zeros_like(self._slots[:, :, :, :1]).expand(-1, -1, -1, end, -1)], 3
            )
        mask = self._slots.new_zeros(len(rows.ids), end)
        mask[:, rows.past :].masked_fill_(~rows.shape.sees, -torch.inf)
        rotation = self.net.rotations((rows.shape.depth + rows.past + self.offset).tolist())
        x = self.net.embed(rows.ids)
        for depth, layer in enumerate(self.net.layers[:layers]):
            for entry, where in rows.entries(depth):
                made, x = entry.make(x), x.clone()
                x[where] = made
            hidden_states[f"layer:{depth}"] = x
            if 2 * depth not in self.skip:
                x = self.attended(depth, layer, x, self._slots[depth, :, :, :end], at, rotation, mask)
            if 2 * depth + 1 not in self.skip:
                x = self.transformed(layer, x)
        return x, hidden_states

    def attended(self, depth: int, layer: Layer, x: Tensor, *where) -> Tensor:
        """Return x plus the attention of a layer, whose index is ``depth``. where: the further arguments of
        ``TinyNet.attend``."""
        return self.net.attend(layer, x, *where)

    def transformed(self, layer: Layer, x: Tensor) -> Tensor:
        """Return x plus the feed-forward of a layer."""
        return self.net.transform(layer, x)

    def _gather(self, past: int, rows: list[int]) -> None:
        with torch.inference_mode():
            self._slots[:, :, :, past : past + len(rows)] = self._slots[:, :, :, [past + row for row in rows]]


class ChangedRows:
    """A weight matrix [out, in] as ``x @ matrix.T``, to which rows of x from ``first`` on add a path's
    changes of its parts."""

    def __init__(self, base: Tensor, changes: list[tuple[Tensor, Tensor]], first: int):
        self.base = base
        self.changes = changes
        self.first = first

    @property
    def T(self) -> ChangedRows:
        """The transpose, which multiplies from the right; here the same object."""
        return self

    def __rmatmul__(self, x: Tensor) -> Tensor:
        y, own = x @ self.base.T, x[self.first :]
        return torch.cat(
            [
                y[: self.first],
                y[self.first :] + torch.cat([own @ down.T @ up.T for down, up in self.changes], 1),
            ]
        )


class TinyDraftPath:
    """Draft passes of a TinyTarget through a second path (targets/draft_path.py)."""

    PARTS = {
        "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        "o": ("self_attn.o_proj",),
        "up": ("mlp.gate_proj", "mlp.up_proj"),
        "down": ("mlp.down_proj",),
    }

    def __init__(self, target: TinyTarget, path: DraftPath):
        self._target = target
        self._path = path
        net = copy.copy(target.net)
        changed = {name: [part for part in parts if part in path.parts] for name, parts in self.PARTS.items()}
        layers: Any = []  # a changed matrix is used as a tensor is
        for i, layer in enumerate(target.net.layers):
            changes = {name: [path.change(i, part) for part in changed[name]] for name in layer}
            layers.append(
                {
                    name: ChangedRows(matrix, changes[name], path.first) if changes[name] else matrix
                    for name, matrix in layer.items()
                }
            )
        net.layers = layers
        self._view = TinyTarget(net, target.context)

    def logits(self, tokens: Sequence[int]) -> Tensor:
        """Return the logits [1 + tokens, vocab] of the root and the tokens after it, run as one block."""
        target, view = self._target, self._view
        rows = block_rows(target, self._path, tokens)
        view._slots = target._slots
        with target.timed():
            states, _ = view.run_layers(rows, target.layers)
            return target.net.head(target.net.norm(states))


class TinySublayers:
    """Runs the last committed tokens of a TinyTarget through single sublayers (targets/sublayers.py)."""

    def __init__(self, target: TinyTarget, count: int):
        target.flush()
        self.net = target.net
        self.past = len(target.cached_tokens) - count
        self.slots = target._slots
        self.ids, d = target.cached_tokens[self.past :], target.net.width
        self.costs = (4 * d * d + 2 * d * len(target.cached_tokens), 6 * d * d)

    def enter(self) -> Tensor:
        """Return the states [count, width] that enter the first sublayer."""
        return self.net.embed(self.ids)

    def run(self, index: int, states: Tensor) -> Tensor:
        """Run sublayer ``index`` over states [alternatives, count, width]."""
        layer, n = self.net.layers[index // 2], len(self.ids)
        if index % 2:
            return torch.stack([self.net.transform(layer, x) for x in states])
        rotation = self.net.rotations(list(range(self.past, self.past + n)))
        mask = states.new_full((n, n), -torch.inf).triu(1)
        mask = torch.cat([mask.new_zeros(n, self.past), mask], 1)
        kv = self.slots[index // 2, :, :, : self.past + n]
        return torch.stack([self.net.attend(layer, x, kv.clone(), self.past, rotation, mask) for x in states])

    def logits(self, states: Tensor) -> Tensor:
        """Return logits of states after the last sublayer."""
        return self.net.head(self.net.norm(states))


class TinyLearner(Learner, TinyTarget):
    """Target over a trainable copy of a TinyNet's weights."""

    def __init__(self, original: TinyTarget):
        self.original = original
        with torch.inference_mode(False):
            net = original.net.interpolate(original.net, 0.0)
            own = [net.embedding, net.output, *(weight for layer in net.layers for weight in layer.values())]
            self.weights = [weight.requires_grad_() for weight in own]
        super().__init__(net, original.context)

    def logits(self, tokens: Sequence[int]) -> Tensor:
        """Return the logits [n, vocab] of a text, with gradients."""
        return self.net.logits(tokens)


class TinySkippedLayers(TinyTarget):
    """A view of a TinyTarget without some sublayers (2i: attention of layer i, 2i + 1: its feed-forward),
    over its committed tokens."""

    def __init__(self, original: TinyTarget, sublayers: Sequence[int]):
        super().__init__(original.net, original.context)
        self.original, self.skip = original, frozenset(sublayers)

    def sync(self, tokens: Sequence[int]) -> Scores:
        """Copy the KV cache of the original target as far as the texts agree, then sync."""
        agree = common_prefix_length(self.original.cached_tokens, list(tokens[:-1]))
        self._slots, self.cached_tokens = self.original._slots.clone(), self.original.cached_tokens[:agree]
        self._drop()
        self.root = None
        return super().sync(tokens)


class TinyLayerParallel(TinySkippedLayers):
    """A view of a TinyTarget with groups of layers in parallel: in a group, the attention of draft nodes
    reads the group's input (targets/layer_groups.py)."""

    def __init__(self, original: TinyTarget, size: int):
        from .layer_groups import groups_of

        super().__init__(original, ())
        self.starts = {layer: group[0] for group in groups_of(original.layers, size) for layer in group}

    def sync(self, tokens: Sequence[int]) -> Scores:
        """Sync the original target, then copy its KV cache."""
        self.original.sync(tokens)
        self.original.flush()
        return super().sync(tokens)

    def run_layers(self, rows: Rows, layers: int) -> tuple[Tensor, dict[str, Tensor]]:
        """Run the layers; rows of draft nodes are run in groups."""
        self._approximate = bool(rows.lo)
        self._entered: Tensor | None = None
        return super().run_layers(rows, layers)

    def attended(self, depth: int, layer: Layer, x: Tensor, *where) -> Tensor:
        """Return x plus the attention of the layer, which reads the group's input for draft nodes."""
        if not self._approximate or self.starts[depth] == depth:
            self._entered = x
        entered = self._entered
        assert entered is not None  # the first layer starts a group
        return x + (super().attended(depth, layer, entered, *where) - entered)


class TinyPartialCache(TinySkippedLayers):
    """A view of a TinyTarget over the cached rows that ``keep`` selects (targets/cache_selection.py); every
    sync copies them again."""

    def __init__(self, original: TinyTarget, keep: CacheSelection):
        super().__init__(original, ())
        self.keep, self.kept = keep, 0

    def sync(self, tokens: Sequence[int]) -> Scores:
        """Copy the selected part of the original target's KV cache, then sync."""
        agree = common_prefix_length(self.original.cached_tokens, list(tokens[:-1]))
        rows, _ = self.keep(self.original._slots[:, :, :, :agree], 0)
        self._slots, self.kept = self.original._slots.clone(), rows.shape[3]
        self._slots[:, :, :, : self.kept] = rows
        self.cached_tokens = self.original.cached_tokens[:agree]
        self.offset = agree - self.kept
        self.root = None
        self._drop()
        return TinyTarget.sync(self, tokens)

    def run_layers(self, rows: Rows, layers: int) -> tuple[Tensor, dict[str, Tensor]]:
        """Run the layers with slots shifted by ``offset``."""
        return super().run_layers(replace(rows, past=rows.past - self.offset), layers)

    def _gather(self, past: int, rows: list[int]) -> None:
        super()._gather(past - self.offset, rows)


class TinyEarlyExit:
    """The layers of a TinyTarget before layer ``exit``, as a draft model; they run again for every step."""

    def __init__(self, target: TinyTarget, exit: int):
        self.target = target
        self.exit = exit
        self.rows = 0

    def kv(self, layer: int) -> tuple[Tensor, Tensor]:
        """Return keys and values of a layer: of the text, the root and the nodes of the last step."""
        return self.target.kv(layer, self.rows)

    def step(self, tree: DraftTree, start: int = 0) -> Tensor:
        """Return the states at the input of layer ``exit``: for the root and all nodes if start is 0, else
        for the nodes from ``start`` on."""
        rows = Rows(tree, self.target.row_token_ids(tree, 0), len(self.target.cached_tokens), 0, False)
        states, _ = self.target.run_layers(rows, self.exit)
        self.target._drop()
        self.rows = len(tree) + 1
        return states[start + 1 :] if start else states
