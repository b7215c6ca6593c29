"""One decoder layer of the Llama family that can be trained on another model's hidden states: the building
block of EAGLE's head, Kangaroo's adapter and others.

The trainable modules have the published parameter names. ``FusedLayers`` has the same weights in the layout
of the inference forward pass (models/llama.py); its KV cache is a ``RowCache`` (row_cache.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..checkpoints.head_keys import check_keys
from ..checkpoints.weights import ModelError
from ..kernels.sequence_rows import SequenceRows, chain_rows
from .linear import Layout, fastest_layout
from .llama import Block, Llama, inverse_frequencies, rope_of
from .rms_norm import Norm
from .static_rows import StaticRowBufferPool

if TYPE_CHECKING:  # numba is imported only where layers are compiled
    from .compiled_linear import PaddedSizes

SMALL = 2**16  # weights below which no way of storing them is worth measuring
KV = tuple[Tensor, Tensor]  # keys and values, each [batch, kv_heads, rows, head_dim]


@dataclass(frozen=True)
class Sizes:
    """The sizes of one decoder layer, from a config.json of the Llama family. inner: intermediate size;
    context: longest text."""

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    layers: int
    context: int
    eps: float

    @classmethod
    def of(cls, config: dict[str, Any], name: str, causal: bool | None = True) -> Sizes:
        """Read the sizes from a config.json. causal: whether rows attend only to those before them. Raises
        ModelError if a size is missing, if sizes do not fit together, or if the config asks for something
        that these layers do not compute."""
        try:
            hidden, heads = config["hidden_size"], config["num_attention_heads"]
            found = cls(
                hidden,
                heads,
                config.get("num_key_value_heads") or heads,
                config.get("head_dim") or hidden // heads,
                config.get("intermediate_size", hidden),
                config.get("num_hidden_layers", 1),
                config.get("max_position_embeddings", 2048),
                config.get("rms_norm_eps", 1e-6),
            )
        except (KeyError, TypeError, ZeroDivisionError) as error:
            raise ModelError(f"config.json of {name} does not say {error}", "head.config_lacks") from None
        whole = (
            found.hidden,
            found.heads,
            found.kv_heads,
            found.head_dim,
            found.inner,
            found.layers,
            found.context,
        )
        if (
            not all(type(size) is int and size > 0 for size in whole)
            or found.heads % found.kv_heads
            or found.head_dim % 2
        ):
            raise ModelError(f"config.json of {name} gives sizes that do not fit together", "head.sizes")
        if rope_of(config)["rope_type"] not in ("default", "linear", "llama3"):
            raise ModelError(
                f"{name}: there is no rotary scaling {rope_of(config)['rope_type']!r} here", "head.rotary"
            )
        check_keys(config, name, found.head_dim, found.layers, causal)
        return found


OF_TARGET = (
    "rope_parameters",
    "rope_scaling",
    "rope_theta",
    "rms_norm_eps",
    "max_position_embeddings",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "intermediate_size",
    "attention_bias",
)  # keys in which a head's layer follows its target


def rotary_keys(config: dict[str, Any]) -> dict[str, Any]:
    """Return the rotary parameters for a new head of a target: those of the target's layers with full
    attention, applied to whole heads."""
    rotary = config.get("rope_parameters")
    if isinstance(rotary, dict) and isinstance(rotary.get("full_attention"), dict):
        config = config | {"rope_parameters": rotary["full_attention"]}
    return rope_of(config) | {"partial_rotary_factor": 1.0}


def layer_keys(config: dict[str, Any]) -> dict[str, Any]:
    """Return the config.json keys of a new layer that is shaped like those of a target with this config."""
    whole = config.get("text_config") or config
    found = {
        key: whole[key] for key in OF_TARGET if not key.startswith("rope") and whole.get(key) is not None
    }
    return found | {"rope_parameters": rotary_keys(whole)}


def saved_layer_keys(config: dict[str, Any], target: dict[str, Any]) -> dict[str, Any]:
    """Return the config.json keys of a saved head's layer: those of its own config.json, else the
    target's."""
    rotary = {key for key in OF_TARGET if key.startswith("rope")}
    left_out = (
        rotary if rotary & config.keys() else set()
    )  # another spelling of the target's would contradict the head's own
    return {
        key: found
        for key in OF_TARGET
        if (found := config.get(key, None if key in left_out else target.get(key))) is not None
    }


class Attention(nn.Module):
    """Attention with rotary positions, an nn.Module for trained heads.

    input_factor: input width divided by hidden size; qk_norm: queries and keys are normalised per head.
    """

    def __init__(self, sizes: Sizes, bias: bool = False, input_factor: int = 1, qk_norm: bool = False):
        super().__init__()
        d = sizes.hidden
        q = sizes.heads * sizes.head_dim
        kv = sizes.kv_heads * sizes.head_dim
        self.sizes = sizes
        self.q_proj, self.k_proj, self.v_proj = (
            nn.Linear(input_factor * d, out, bias=bias) for out in (q, kv, kv)
        )
        self.o_proj = nn.Linear(q, d, bias=False)
        self.q_norm, self.k_norm = (
            nn.RMSNorm(sizes.head_dim, eps=sizes.eps) if qk_norm else None for _ in range(2)
        )

    def forward(
        self, x: Tensor, angles: Tensor, past: KV | None, mask: Tensor | int | None
    ) -> tuple[Tensor, KV]:
        """Return (output [batch, n, hidden]; keys and values of past and these rows).

        x [batch, n, input_factor * hidden]; angles [n, head_dim / 2]; past: keys and values of earlier
        rows; mask [n, past + n], True where a row may attend, None = causal, a number: the step of a training
        rollout (``rollout_attention``).
        """
        x = _for_products(x)
        q, k, v = (
            p(x).unflatten(-1, (-1, self.sizes.head_dim)).transpose(1, 2)
            for p in (self.q_proj, self.k_proj, self.v_proj)
        )
        q, k = (_rotated(part, angles).type_as(v) for part in self._normed(q, k))
        kv = (k, v) if past is None else (torch.cat([past[0], k], 2), torch.cat([past[1], v], 2))
        seen = isinstance(mask, Tensor)
        y = masked_attention(q, *kv, mask) if seen else rollout_attention(q, *kv, mask or 0)
        return self.o_proj(y.transpose(1, 2).flatten(2)), kv

    def _normed(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return (q, k) if self.q_norm is None or self.k_norm is None else (self.q_norm(q), self.k_norm(k))

    @torch.no_grad()
    def weights(self, x: Tensor, angles: Tensor) -> Tensor:
        """Return the causal attention weights [batch, heads, n, n] of x [batch, n, hidden]; each row sums
        to one."""
        q, k = (
            p(x).unflatten(-1, (-1, self.sizes.head_dim)).transpose(1, 2) for p in (self.q_proj, self.k_proj)
        )
        q, k = (_rotated(part, angles) for part in self._normed(q, k))
        scores = (
            q @ k.repeat_interleave(self.sizes.heads // self.sizes.kv_heads, 1).mT / self.sizes.head_dim**0.5
        )
        return (
            scores.float()
            .masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -torch.inf)
            .softmax(-1)
        )

    @torch.no_grad()
    def limit_scores(self, x: Tensor, limit: float) -> None:
        """Scale the weights of queries and keys down, head by head, until no attention score over rows x
        [batch, n, hidden] exceeds the limit (QK-clip, 2507.20534). Beyond it one row gets all the weight
        and no gradient reaches the others. Does nothing where queries and keys are normalised."""
        if self.q_norm is not None:
            return
        heads = self.sizes.heads
        kv = self.sizes.kv_heads
        each = self.sizes.head_dim
        q, k = (
            p(x).flatten(0, -2).unflatten(-1, (-1, each)).float().norm(dim=-1).amax(0)
            for p in (self.q_proj, self.k_proj)
        )
        share = (limit * each**0.5 / (q * k.repeat_interleave(heads // kv)).clamp(min=1e-12)).clamp(max=1)
        for_keys = share.view(kv, -1).amin(1).sqrt()
        for p, factor in (
            (self.q_proj, share / for_keys.repeat_interleave(heads // kv)),
            (self.k_proj, for_keys),
        ):
            for weight in p.parameters():
                weight.mul_(factor.repeat_interleave(each).view(-1, *[1] * (weight.dim() - 1)))


def masked_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Return the attention [batch, heads, n, head_dim] of queries q [batch, heads, n, head_dim] to keys and values
    k, v [batch, kv_heads, m, head_dim]; mask [n, m] or [batch, 1, n, m]: True where a query may look.

    Two products: on a processor the backward pass of torch's fused attention takes several times as long."""
    rows = (q * q.shape[3] ** -0.5).unflatten(1, (k.shape[1], -1)).flatten(2, 3)
    seen = mask if mask.dim() == 2 else mask[:, :, None]
    scores = (rows @ k.mT).unflatten(2, (-1, q.shape[2])).masked_fill(~seen, -torch.inf)
    return (scores.softmax(-1).flatten(2, 3) @ v).unflatten(2, (-1, q.shape[2])).flatten(1, 2)


def rollout_attention(q: Tensor, k: Tensor, v: Tensor, step: int) -> Tensor:
    """Return the attention [batch, heads, n, head_dim] of queries q [batch, heads, n, head_dim] in step ``step``
    (from 0) of a training rollout; k, v [batch, kv_heads, (step + 1) * n, head_dim]: of all its steps.

    A row sees the keys of the first step up to ``step`` positions before it, and of each later step the one on
    its own path: a row of scores is n + step wide. Scores over all keys, with a mask, took a third of the
    training's time.
    """
    n, kv_heads = q.shape[2], k.shape[1]
    rows = (q * q.shape[3] ** -0.5).unflatten(1, (kv_heads, -1))  # [batch, kv_heads, group, n, head_dim]
    (first_keys, *keys), (first_values, *values) = k.split(n, 2), v.split(n, 2)
    seen = torch.ones(n, n, dtype=torch.bool, device=q.device).tril(-step)
    scores = [(rows.flatten(2, 3) @ first_keys.mT).unflatten(2, (-1, n)).masked_fill(~seen, -torch.inf)]
    place = torch.arange(n, device=q.device)[:, None]
    for shift, key in zip(
        range(step - 1, -1, -1), keys, strict=True
    ):  # positions by which it is before the row
        score = (rows * _shifted(key, shift)).sum(-1, keepdim=True)
        scores.append(score.masked_fill(place < shift, -torch.inf))
    first_weights, *weights = torch.cat(scores, -1).softmax(-1).split([n] + [1] * step, -1)
    out = (first_weights.flatten(2, 3) @ first_values).unflatten(2, (-1, n))
    for shift, weight, value in zip(range(step - 1, -1, -1), weights, values):
        out = out + weight * _shifted(value, shift)
    return out.flatten(1, 2)


def _shifted(x: Tensor, by: int) -> Tensor:
    """Return x [batch, kv_heads, n, head_dim] moved ``by`` positions to the right, [batch, kv_heads, 1, n,
    head_dim]."""
    return F.pad(x, (0, 0, by, 0))[:, :, None, : x.shape[2]]


def _for_products(x: Tensor) -> Tensor:
    """Return x in the type that autocast multiplies in, so that several products share one conversion."""
    kind = x.device.type
    return x.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else x


def _rotated(x: Tensor, angles: Tensor) -> Tensor:
    """Apply rotary positions to heads stored as halves, as in checkpoints."""
    a, b = x.chunk(2, -1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Mlp(nn.Module):
    """Gated feed-forward (SwiGLU), an nn.Module: x [..., hidden] -> [..., hidden]."""

    def __init__(self, sizes: Sizes):
        super().__init__()
        self.gate_proj, self.up_proj = (nn.Linear(sizes.hidden, sizes.inner, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(sizes.inner, sizes.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return down(SiLU(gate(x)) * up(x)), [..., hidden]."""
        x = _for_products(x)
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """A decoder layer of a trained head, an nn.Module.

    normed: it has a norm before the attention; feedback: it has a feed-forward block; bias: on queries,
    keys and values; heads: further arguments of the attention. static: when drafting, it runs with static
    shapes (models/static_rows.py); use_int8: when drafting, it multiplies in int8.
    """

    static = use_int8 = False

    def __init__(self, sizes: Sizes, normed: bool, feedback: bool, bias: bool = False, **heads: Any):
        super().__init__()
        self.input_layernorm = nn.RMSNorm(sizes.hidden, eps=sizes.eps) if normed else nn.Identity()
        self.self_attn = Attention(sizes, bias, **heads)
        self.mlp = Mlp(sizes) if feedback else None
        self.post_attention_layernorm = nn.RMSNorm(sizes.hidden, eps=sizes.eps) if feedback else None

    def forward(
        self, x: Tensor, angles: Tensor, past: KV | None = None, mask: Tensor | int | None = None
    ) -> tuple[Tensor, KV]:
        """Return (output [batch, n, hidden]; keys and values of past and these rows); arguments as in
        Attention.forward."""
        y, kv = self.self_attn(self.input_layernorm(x), angles, past, mask)
        return self.feed_forward(x + y), kv

    def feed_forward(self, x: Tensor) -> Tensor:
        """Return x plus the feed-forward block's output; x unchanged if the layer has none."""
        if self.mlp is None or self.post_attention_layernorm is None:
            return x
        return x + self.mlp(self.post_attention_layernorm(x))


def angles_of(config: dict[str, Any], head_dim: int, length: int, device=None) -> Tensor:
    """Return the rotary angles of the first ``length`` positions, [length, head_dim / 2]."""
    return (
        torch.arange(length, dtype=torch.float32)[:, None] * inverse_frequencies(rope_of(config), head_dim)
    ).to(device)


# --- the same weights, for drafting ------------------------------------------------------------------------------------
class FusedLayers(Llama):
    """Trained decoder layers in the inference layout of models/llama.py: matrices fused and stored in the
    fastest layout of this processor.

    lead: a linear layer before the layers (EAGLE's fc), in the same layout, or None. Layers that multiply in
    int8 are run by the compiled pass, with inputs of 16 bits; wherever a mask is an argument, they take a
    SequenceRows, which says what each row sees, and no rotation. output: a matrix [vocab, hidden] that the
    compiled pass multiplies after the norm with the weights ``output_norm``.
    """

    padded: PaddedSizes | None = None  # of compiled layers
    output_layer: Any = None  # of compiled layers with an output matrix

    def __init__(
        self,
        modules: Iterable[nn.Module],
        config: dict[str, Any],
        lead: nn.Linear | None = None,
        output: Tensor | None = None,
        output_norm: Tensor | None = None,
    ):
        layers = cast("list[Layer]", list(modules))
        sizes = layers[0].self_attn.sizes
        self.hidden = sizes.hidden
        self.heads = sizes.heads
        self.kv_heads = sizes.kv_heads
        self.head_dim = sizes.head_dim
        self.inner = sizes.inner
        self.group = self.heads // self.kv_heads
        self.layers = len(layers)
        self.eps = sizes.eps
        self.context = sizes.context
        self.static = layers[0].static
        self.buffers = StaticRowBufferPool(self) if self.static else None
        first = layers[0].self_attn.o_proj.weight
        self.device, self.dtype = first.device, first.dtype
        with torch.inference_mode():
            parts = [self._parts(layer) for layer in layers]
            if layers[0].use_int8 and not self.static:
                from .compiled_linear import CompiledInt8Layout, PaddedSizes

                linear: Any = CompiledInt8Layout(int16_input=True)
                self.padded = PaddedSizes(self.hidden, self.heads, self.kv_heads, self.head_dim, self.inner)
                parts = [
                    {name: getattr(self.padded, name)(*part) for name, part in found.items()}
                    for found in parts
                ]
            else:
                mine = [part[0] for part in parts[0].values()]
                linear = self._stored(mine + ([] if lead is None else [lead.weight.detach()]), len(layers))
            self.kernel = linear.kernel
            self.blocks = [
                self._block(layer, {name: linear(*part) for name, part in found.items()})
                for layer, found in zip(layers, parts)
            ]
            self.lead: Any = (
                None
                if lead is None
                else linear(lead.weight.detach(), None if lead.bias is None else lead.bias.detach())
            )
            if self.padded is not None:
                self.output_layer = None if output is None else linear(output)
                self._compile_network(layers, self.padded, output_norm)
            self._tables(rope_of(config))

    def _stored(self, matrices: list[Tensor], layers: int) -> Layout:
        size = sum(matrix.numel() for matrix in matrices)
        return Layout() if size <= SMALL else fastest_layout(matrices, 4 * size * layers, budget=0.1)

    def _compile_network(self, layers: list[Layer], padded: PaddedSizes, output_norm: Tensor | None) -> None:
        """Describe the layers to the compiled pass."""
        from ..kernels.network import CompiledLayer, CompiledNetwork

        made = []
        self._index = {id(block): i for i, block in enumerate(self.blocks)}
        self._no_feed_forward = [2 * i + 1 for i, layer in enumerate(layers) if layer.mlp is None]
        for layer, block in zip(layers, self.blocks):
            norm_in, norm_mlp = (
                None if (weight := getattr(part, "weight", None)) is None else padded.norm(weight.detach())
                for part in (layer.input_layernorm, layer.post_attention_layernorm)
            )
            made.append(
                CompiledLayer(
                    block.qkv.matrix,
                    block.out.matrix,
                    None if block.gate_up is None else block.gate_up.matrix,
                    None if block.down is None else block.down.matrix,
                    padded.head_norm(block.norm_q),
                    padded.head_norm(block.norm_k),
                    norm_in,
                    norm_mlp,
                    norm_in is not None,
                )
            )
        norm = None if output_norm is None else padded.norm(output_norm)
        sizes, output = padded.network(len(layers), self.eps), self.output_layer and self.output_layer.matrix
        self.compiled = CompiledNetwork(sizes, made, None, output, True, norm)

    def _make_rotations(self, count: int) -> Tensor:
        rotation = super()._make_rotations(count)
        if self.compiled is not None and self.padded is not None:
            self.compiled.set_rotations(*self.padded.rotations(rotation))
        return rotation

    def new_slots(self, slots: int) -> Tensor:
        """Allocate a KV cache as Llama.new_slots."""
        return super().new_slots(slots) if self.padded is None else self.padded.new_slots(self.layers, slots)

    def attend(
        self, block: Block, x: Tensor, rotation: Any, slots: Any, at: Any, mask: Any, reads: Any = None
    ) -> Tensor:
        """Return x plus its attention, as Llama.attend."""
        if not isinstance(mask, SequenceRows):
            return super().attend(block, x, rotation, slots, at, mask, reads)
        i = self._index[id(block)]
        return self.run_compiled([mask], x, i, i + 1, (2 * i + 1,), reads=reads)

    def transform(self, block: Block, x: Tensor) -> Tensor:
        """Return x [n, hidden] plus the feed-forward of a layer."""
        if self.padded is None:
            return super().transform(block, x)
        i = self._index[id(block)]
        return self.run_compiled([chain_rows(0, 0, [0] * len(x), 0, 0, len(x))], x, i, i + 1, (2 * i,))

    def run_blocks(
        self,
        x: Tensor,
        rotation: Any,
        slots: Any,
        at: Any,
        mask: Any,
        first: int = 0,
        end: int | None = None,
        wanted: Sequence[int] = (),
        reads: Tensor | None = None,
    ) -> tuple[Tensor, list[Tensor]]:
        """Run blocks first..end, as Llama.run_blocks; reads: input of the first one's projection to queries,
        keys and values, if it is not the normalised x."""
        last = self.layers if end is None else end
        if isinstance(mask, SequenceRows) and type(self).transform is FusedLayers.transform:
            return self.run_compiled([mask], x, first, last, self._no_feed_forward, reads=reads), []
        if reads is not None:
            block = self.blocks[first]
            x = self.transform(block, self.attend(block, x, rotation, slots[first], at, mask, reads))
            first += 1
        return super().run_blocks(x, rotation, slots, at, cast(Any, mask), first, last, wanted)

    def rotations_to(self, count: int) -> Tensor:
        """Return the rotations of the first ``count`` positions, [count, 1, head_dim / 2]."""
        self.context = max(self.context, count)
        return self.rotations(count)[:count]

    def rotations_at(self, positions: list[int]) -> Tensor:
        """Return the rotations of these positions, [n, 1, head_dim / 2], also beyond the context of the
        config, because a target's context may be longer than its head's."""
        self.context = max(self.context, max(positions) + 1)
        table = self.rotations(max(positions) + 1)
        if positions[-1] - positions[0] == len(positions) - 1 and positions == sorted(positions):
            return table[positions[0] : positions[-1] + 1]
        return table[positions]

    def _parts(self, layer: Layer) -> dict[str, tuple[Tensor, Tensor | None]]:
        """Return fused matrices with their biases; rotary pairs of queries and keys adjacent."""
        at = layer.self_attn

        def qkv(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return torch.cat([self._paired(q), self._paired(k), v]).detach()

        three = (at.q_proj, at.k_proj, at.v_proj)
        bias = None if at.q_proj.bias is None else qkv(*(p.bias for p in three))
        out = {"qkv": (qkv(*(p.weight for p in three)), bias), "out": (at.o_proj.weight.detach(), None)}
        if layer.mlp is not None:
            both = torch.cat([layer.mlp.gate_proj.weight, layer.mlp.up_proj.weight]).detach()
            out |= {"gate_up": (both, None), "down": (layer.mlp.down_proj.weight.detach(), None)}
        return out

    def _block(self, layer: Layer, matrices: dict[str, Any]) -> Block:
        def norm(module: nn.Module | None) -> Any:
            weight = getattr(module, "weight", None)
            return (lambda x: x) if weight is None else Norm(weight.detach(), self.eps)

        norm_q, norm_k = (
            None if part is None else Norm(self._paired(part.weight.detach()), self.eps)
            for part in (layer.self_attn.q_norm, layer.self_attn.k_norm)
        )
        return Block(
            norm(layer.input_layernorm),
            matrices["qkv"],
            norm_q,
            norm_k,
            matrices["out"],
            norm(layer.post_attention_layernorm),
            matrices.get("gate_up"),
            matrices.get("down"),
        )

    def run(self, x: Tensor, rotation: Tensor, slots: Tensor, at: int | Tensor, mask: Any) -> Tensor:
        """Run all layers over rows x [n, hidden]; return their outputs. slots: KV slots [layers, 2,
        kv_heads, slots, head_dim]; the other arguments as in ``Llama.attend``."""
        return self.run_blocks(x, rotation, slots, at, mask)[0]
