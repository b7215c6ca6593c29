"""The Llama family (Touvron et al. 2302.13971; also Qwen2 and Qwen3) as a forward pass over rows and KV
slots.

RMSNorm, rotary position embedding, grouped-query attention, SwiGLU. A row is one position of the pass. A
block takes rows [n, hidden], writes their keys and values into slots of one tensor [layers, 2, kv_heads,
slots, head_dim], and lets each row attend to the slots its mask allows. Queries of one group are folded
into the row axis, so keys and values are never repeated. Rotary pairs are stored adjacently, so a rotation
is one complex product.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, overload

import torch
from torch import Tensor
from torch.nn import functional as F

from ..checkpoints.config_defaults import check_parts, context_of, output_matrix, uses_window, with_defaults
from ..checkpoints.mx import QUANTISED
from ..checkpoints.sizes import check_config, check_weights
from ..checkpoints.weights import ModelError, Weights, read_ahead, read_json
from .cuda_attention import disable_cudnn_attention
from .linear import Layout, fastest_layout
from .reduced_vocabulary import ReducedOutput, projected_embedding, read_tokens, share_table
from .rms_norm import Norm

if TYPE_CHECKING:
    import numpy as np

    # numba is imported only where a model is compiled
    from ..kernels.network import CompiledNetwork
    from ..kernels.sequence_rows import SequenceRows

FAMILY = ("llama", "qwen2", "qwen3", "mistral")
NUMBERS = {
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
}
FIRST_ROTATIONS = 1024  # positions whose rotations are made at once
WHY_NOT = {  # ends of sentences, by identifier
    "family": "the fast forward runs {family}, not {kind}",
    "activation": "the fast forward has no activation {kind!r}",
    "quantised": "the fast forward reads no quantised weights but MXINT8",
    "rotary": "the fast forward has no rotary scaling {kind!r}",
    "layers": "the fast forward has no layers but those of full attention",
    "window": "the fast forward has no sliding window",
}


def unsupported_reason(config: dict[str, Any]) -> str | None:
    """Return why this forward pass cannot run a checkpoint with that config.json, as the end of a message;
    None if it can. Raises ModelError for values that make no sense."""
    if config.get("model_type") not in FAMILY:
        return WHY_NOT["family"].format(family=", ".join(FAMILY), kind=config.get("model_type"))
    config = with_defaults(config)
    if config.get("hidden_act", "silu") not in ("silu", "swish"):
        return WHY_NOT["activation"].format(kind=config["hidden_act"])
    if (config.get("quantization_config") or QUANTISED) != QUANTISED:
        return WHY_NOT["quantised"]
    rope = rope_of(config)
    if (
        rope["rope_type"] not in ("default", "linear", "llama3")
        or rope.get("partial_rotary_factor", 1.0) != 1.0
    ):
        return WHY_NOT["rotary"].format(kind=rope["rope_type"])
    if set(config.get("layer_types") or ()) - {"full_attention"}:
        return WHY_NOT["layers"]
    window = config.get("sliding_window") if uses_window(config) else None
    if window is not None and type(window) is not int:
        raise ModelError(
            f"sliding_window in its config.json is {str(window)[:40]!r}, which is not a width",
            "config.sliding_window",
        )
    if window and window < (context_of(config) or window):
        return WHY_NOT["window"]
    return None


def rope_of(config: dict[str, Any]) -> dict[str, Any]:
    """Return the rotary parameters, from either spelling of config.json. Raises ModelError for values that
    are not numbers."""
    given = (
        config.get("rope_scaling") or config.get("rope_parameters") or {}
    )  # transformers takes them in this order
    if not isinstance(given, dict):
        raise ModelError("the rotary parameters in its config.json are not a JSON object", "config.rotary")
    if any(isinstance(value, dict) for value in given.values()):
        raise ModelError(
            "its config.json has rotary parameters for each kind of layer, and one set is read here: rope_parameters",
            "config.rotary_kinds",
        )
    rope = {
        "rope_theta": config.get("rope_theta", 10000.0),
        "partial_rotary_factor": config.get("partial_rotary_factor") or 1.0,
        **given,
    }
    rope["rope_type"] = rope.get("rope_type") or rope.get("type") or "default"
    for name in ("rope_theta", *NUMBERS.get(str(rope["rope_type"]), ())):
        value: Any = rope.get(name)
        if type(value) not in (int, float) or not 0 < value < 1e18:
            raise ModelError(
                f"{name} in its config.json is {str(value)[:40]}; a number above 0 is needed",
                "config.rotary_value",
            )
    if rope["rope_type"] == "llama3" and rope["low_freq_factor"] >= rope["high_freq_factor"]:
        raise ModelError(
            "low_freq_factor in its config.json must lie below high_freq_factor", "config.rotary_order"
        )
    return rope


def inverse_frequencies(rope: dict[str, Any], head_dim: int) -> Tensor:
    """Return the angle per position of each rotary pair, [head_dim / 2], float32 as the checkpoints were
    trained. rope: from ``rope_of``."""
    inverse = 1.0 / rope["rope_theta"] ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
    if rope["rope_type"] == "linear":
        inverse = inverse / rope["factor"]
    if rope["rope_type"] == "llama3":
        low = rope["low_freq_factor"]
        high = rope["high_freq_factor"]
        old = rope["original_max_position_embeddings"]
        rotations = old * inverse / (2 * math.pi)
        blend = ((rotations - low) / (high - low)).clamp(0, 1)
        inverse = (1 - blend) * inverse / rope["factor"] + blend * inverse
    return inverse


def fused_layer(
    weights: Weights,
    *parts: tuple[str, int, int],
    turned: Callable[[Tensor], Tensor] = lambda x: x,
    pairs: int = 0,
) -> tuple[Tensor, Tensor | None]:
    """Return a fused linear layer: the matrices of several parts (name, rows, input width) stacked, and
    their biases (None if no part has one). turned: a function applied to the rows of the first ``pairs``
    parts."""
    matrix = [weights.get(f"{name}.weight", out, width) for name, out, width in parts]
    bias = [weights.get_optional(f"{name}.bias", out) for name, out, _ in parts]
    matrix[:pairs] = map(turned, matrix[:pairs])
    bias[:pairs] = [b if b is None else turned(b) for b in bias[:pairs]]
    if all(b is None for b in bias):
        return torch.cat(matrix), None
    return torch.cat(matrix), torch.cat(
        [m.new_zeros(len(m)) if b is None else b for m, b in zip(matrix, bias)]
    )


@dataclass
class Block:
    """The weights of one decoder layer. norm_q, norm_k: norms of queries and keys, where there are any."""

    norm_in: Norm
    qkv: Any
    norm_q: Norm | None
    norm_k: Norm | None
    out: Any
    norm_mlp: Norm
    gate_up: Any
    down: Any


class Llama:
    """Weights and forward pass of a model of the Llama family, loaded from a Hugging Face folder. Raises
    ModelError for a checkpoint that cannot be used.

    embedding [vocab, hidden]; head: output layer (lm_head); norm_final; blocks; parameters: number of
    weights; kernel: names of the weight layouts.
    """

    refuses = staticmethod(unsupported_reason)  # config.json -> why this forward pass cannot run it
    matrices: tuple[str, ...] = ("qkv", "out", "gate_up", "down")  # of a block, stored as linear layers
    fused_parts = {  # of each, the checkpoint's matrices it is made of
        "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        "out": ("self_attn.o_proj",),
        "gate_up": ("mlp.gate_proj", "mlp.up_proj"),
        "down": ("mlp.down_proj",),
    }
    compiled: CompiledNetwork | None = None  # runs all layers in one call, where there is one

    @property
    def can_generate(self) -> bool:
        """Whether several draft tokens can be generated in one call."""
        return self.compiled is not None and self.compiled.table is not None

    def __init__(
        self, folder: str | Path, device: str | torch.device = "cpu", dtype: torch.dtype | None = None
    ):
        folder = Path(folder)
        config = read_json(folder, "config.json")
        check_config(config, folder.name)
        reason = self.refuses(config)
        if reason:
            raise ModelError(f"{folder.name}: {reason}", "forward.unsupported")
        device = torch.device(device)
        dtype = dtype or (torch.bfloat16 if device.type == "cuda" else torch.float32)
        self.folder = folder
        self.name = folder.name
        self.config = config
        self.device = device
        self.dtype = dtype
        try:
            self._measure(config)
        except KeyError as missing:
            raise ModelError(f"config.json of {folder.name} lacks {missing}", "config.lacks") from None
        disable_cudnn_attention(device)
        with torch.inference_mode():
            weights = Weights(folder, device, dtype)
            check_weights(config, weights, folder.name, dtype.itemsize, device)
            check_parts(config, weights, folder.name)
            self._load(weights)
            weights.check_all_read()
            self._tables(rope_of(config))

    def _measure(self, config: dict[str, Any]) -> None:
        config = with_defaults(config)
        self.hidden = config["hidden_size"]
        self.layers = config["num_hidden_layers"]
        self.vocab = config["vocab_size"]
        self.heads, self.inner = config["num_attention_heads"], config["intermediate_size"]
        self.kv_heads = config.get("num_key_value_heads") or self.heads
        self.head_dim = config.get("head_dim") or self.hidden // self.heads
        self.eps, self.context = (
            config["rms_norm_eps"],
            cast(int, context_of(config)),
        )  # its type is checked below
        if type(self.eps) not in (int, float) or not 0 <= self.eps < 1:
            raise ModelError(
                f"config.json of {self.name} has rms_norm_eps = {str(self.eps)[:40]}", "config.rms_norm_eps"
            )
        sizes = (
            self.hidden,
            self.layers,
            self.vocab,
            self.heads,
            self.inner,
            self.kv_heads,
            self.head_dim,
            self.context,
        )
        if (
            not all(type(size) is int and size > 0 for size in sizes)
            or self.heads % self.kv_heads
            or self.head_dim % 2
        ):
            raise ModelError(
                f"config.json of {self.name} has sizes that contradict each other: hidden_size {self.hidden}, "
                f"num_attention_heads {self.heads}, num_key_value_heads {self.kv_heads}, head_dim {self.head_dim}",
                "config.sizes",
            )
        self.group = self.heads // self.kv_heads

    def _load(self, weights: Weights) -> None:
        d = self.hidden
        self.embedding = (
            projected_embedding(weights, self.config, self.folder, self.device, self.dtype)
            if "embedding_from" in self.config
            else weights.get("model.embed_tokens.weight", self.vocab, d)
        )
        share_table(self.folder, self.embedding)
        draft_vocab = self.config.get(
            "draft_vocab_size", self.vocab
        )  # of a draft model with a reduced vocabulary
        head = output_matrix(self.config, weights, self.embedding, draft_vocab)
        self.norm_final = self._norm(weights.get("model.norm.weight", d))
        matrices, others = self.matrices, weights.count
        parts = self._read(weights, "model.layers.0.")
        bytes_in_all = 4 * (others + self.layers * (weights.count - others))
        linear = self._layout([parts[name][0] for name in matrices] + [head], bytes_in_all)
        self.kernel, self.head, self.blocks = linear.kernel, self._output_layer(linear, head), []
        if draft_vocab != self.vocab:
            self.head = ReducedOutput(
                self.head, read_tokens(weights, draft_vocab, self.vocab, self.name), self.vocab
            )
        in_turn = read_ahead if self.device.type == "cpu" else map  # elsewhere nothing is packed meanwhile
        unpacked = itertools.chain(
            [parts], in_turn(lambda i: self._read(weights, f"model.layers.{i}."), range(1, self.layers))
        )
        del parts  # else the first block would be held in floats to the end
        for block in unpacked:
            built: dict[str, Any] = {
                name: linear(*part) if name in matrices else part for name, part in block.items()
            }
            self.blocks.append(Block(**built))
        self.parameters = weights.count

    def _layout(self, weights: list[Tensor], total: int) -> Layout:
        """Return the storage of the matrices; total: bytes of the whole model."""
        return fastest_layout(weights, total)

    def _output_layer(self, linear: Layout, weight: Tensor) -> Any:
        """Return the output layer of a matrix [vocab, hidden]."""
        return linear(weight)

    @overload
    def _norm(self, weight: Tensor) -> Norm: ...

    @overload
    def _norm(self, weight: None) -> None: ...

    def _norm(self, weight: Tensor | None) -> Norm | None:
        return weight if weight is None else Norm(weight, self.eps)

    def _read(self, weights: Weights, at: str) -> dict[str, Any]:
        """Return the tensors of one block: matrices fused, rotary pairs of queries and keys adjacent."""
        d = self.hidden
        hd = self.head_dim
        q = self.heads * self.head_dim
        kv = self.kv_heads * self.head_dim

        def fused(*parts: tuple[str, int, int], pairs: int = 0) -> tuple[Tensor, Tensor | None]:
            return fused_layer(
                weights,
                *((at + name, out, width) for name, out, width in parts),
                turned=self._paired,
                pairs=pairs,
            )

        def head_norm(name: str) -> Norm | None:
            weight = weights.get_optional(f"{at}self_attn.{name}.weight", hd)
            return weight if weight is None else self._norm(self._paired(weight))

        return dict(
            norm_in=self._norm(weights.get(f"{at}input_layernorm.weight", d)),
            norm_mlp=self._norm(weights.get(f"{at}post_attention_layernorm.weight", d)),
            norm_q=head_norm("q_norm"),
            norm_k=head_norm("k_norm"),
            qkv=fused(
                ("self_attn.q_proj", q, d), ("self_attn.k_proj", kv, d), ("self_attn.v_proj", kv, d), pairs=2
            ),
            out=fused(("self_attn.o_proj", d, q)),
            **self._feed_forward(weights, at),
        )

    def _feed_forward(self, weights: Weights, at: str) -> dict[str, Any]:
        """Return the tensors of a block's feed-forward."""
        gate, up, down = (
            (f"{at}mlp.{name}_proj", *shape)
            for name, *shape in (
                ("gate", self.inner, self.hidden),
                ("up", self.inner, self.hidden),
                ("down", self.hidden, self.inner),
            )
        )
        return dict(gate_up=fused_layer(weights, gate, up), down=fused_layer(weights, down))

    def _tables(self, rope: dict[str, Any]) -> None:
        self._inverse = inverse_frequencies(rope, self.head_dim)
        self._rotations = self._make_rotations(min(FIRST_ROTATIONS, self.context))

    @property
    def positions(self) -> int:
        """Number of positions: tokens of the context, and rows before them that are not tokens."""
        return self.context

    def rotations(self, count: int) -> Tensor:
        """Return the rotary rotations of at least the first ``count`` positions, at most ``positions``, as
        complex numbers [positions, 1, head_dim / 2].

        The table grows with use, because a config.json may claim a context of any length.
        """
        table, count = self._rotations, min(count, self.positions)
        if len(table) < count:
            with torch.inference_mode():
                table = self._rotations = self._make_rotations(
                    min(max(count, 2 * len(table)), self.positions)
                )
        return table

    def _make_rotations(self, count: int) -> Tensor:
        angles = torch.arange(count, dtype=torch.float32)[:, None] * self._inverse
        rotation = torch.polar(torch.ones_like(angles), angles)[:, None].to(self.device)
        return rotation.to(torch.complex128) if self.dtype == torch.float64 else rotation

    # --- forward pass -----------------------------------------------------------------------------------------------
    def new_slots(self, slots: int) -> Tensor:
        """Allocate a KV cache with this number of slots, [layers, 2, kv_heads, slots, head_dim]."""
        return torch.empty(
            self.layers, 2, self.kv_heads, slots, self.head_dim, dtype=self.dtype, device=self.device
        )

    def embed(self, ids: Tensor) -> Tensor:
        """Return the embeddings [n, hidden] of token ids [n]."""
        return F.embedding(ids, self.embedding)

    def enter(self, ids: Tensor) -> Tensor:
        """Return the residual stream [n, hidden] that enters the first block, for token ids [n]. The same
        as ``embed`` unless the blocks use another basis than the checkpoint."""
        return self.embed(ids)

    def to_checkpoint(self, x: Tensor) -> Tensor:
        """Convert a residual stream [n, hidden] to the checkpoint's basis, which drafters read. The
        identity unless the blocks use another basis."""
        return x

    def norm_output(self, x: Tensor) -> Tensor:
        """Apply the final norm to the residual stream after the last block; the result is the input of
        ``output`` and ``final_states``."""
        return self.norm_final(x)

    def output(self, normed: Tensor) -> Tensor:
        """Return logits [n, vocab] of the result of ``norm_output``."""
        return self.head(normed)

    def final_states(self, normed: Tensor) -> Tensor:
        """Convert the result of ``norm_output`` to the checkpoint's final hidden states [n, hidden], which
        drafters and ``head`` read."""
        return normed

    def from_checkpoint(self, x: Tensor) -> Tensor:
        """Convert states [n, hidden] from the checkpoint's basis to the basis that the blocks use."""
        return x

    def as_input(self, layer: int, name: str, matrix: Tensor) -> Tensor:
        """Convert a matrix [n, in] that multiplies the input of the checkpoint's matrix ``name`` to one
        that multiplies its input in this forward pass. The identity unless norms are folded or the basis is
        rotated."""
        return matrix

    def as_output(self, part: str, matrix: Tensor) -> Tensor:
        """Convert a matrix [out, n] whose product is added to the output of the checkpoint's matrix
        ``part`` to one that is added to its output in this forward pass."""
        return self._paired(matrix) if part.endswith(("q_proj", "k_proj")) else matrix

    def _paired(self, x: Tensor) -> Tensor:
        """Reorder rows of whole heads from halves to adjacent pairs."""
        return x.unflatten(0, (-1, 2, self.head_dim // 2)).transpose(1, 2).flatten(0, 2)

    def attend(
        self,
        block: Block,
        x: Tensor,
        rotation: Tensor,
        slots: Tensor,
        at: int | Tensor,
        mask: Tensor | None,
        reads: Tensor | None = None,
    ) -> Tensor:
        """Return x plus its attention. x [n, hidden]; rotation [n, 1, head_dim / 2]; slots [2, kv_heads,
        slots, head_dim] of this layer, written at at..at+n and read up to there; mask [group * n, at + n]
        is added to scores, None = no mask. If ``at`` is a tensor [n], these slots are written and all are
        read; a mask of a wider type makes the sums in that type. reads: input of the projection, if it is
        not the normalised x."""
        q, new = self.project(block, x, rotation, reads)
        if isinstance(at, Tensor):
            slots_seen = slots.index_copy_(2, at, new)
        else:
            slots.narrow(2, at, x.shape[0]).copy_(new)
            slots_seen = slots.narrow(2, 0, at + x.shape[0])
        return self.join(block, x, self.attention(block, q, slots_seen, mask).to(x.dtype))

    def attention(self, block: Block, q: Tensor, slots_seen: Tensor, mask: Tensor | None) -> Tensor:
        """Return the attention of queries [1, kv_heads, rows, head_dim] over keys and values [2, kv_heads,
        slots, head_dim], of the queries' shape. mask [rows, slots] is added to scores."""
        keys, values = slots_seen.unsqueeze(1).unbind(0)
        if mask is not None and mask.dtype != q.dtype:
            q, keys, values = (y.to(mask.dtype) for y in (q, keys, values))
        return F.scaled_dot_product_attention(q, keys, values, mask)

    def run_blocks(
        self,
        x: Tensor,
        rotation: Tensor,
        slots: Tensor,
        at: int | Tensor,
        mask: Tensor | None,
        first: int = 0,
        end: int | None = None,
        wanted: Sequence[int] = (),
    ) -> tuple[Tensor, list[Tensor]]:
        """Run blocks first..end over x [n, hidden]. Return (the states after them; the states that enter
        the blocks listed in ``wanted``, in order). slots [layers, 2, kv_heads, slots, head_dim]; the other
        arguments as in ``attend``."""
        last = self.layers if end is None else end
        found = []
        for i in range(first, last):
            if i in wanted:
                found.append(x)
            block = self.blocks[i]
            x = self.attend(block, x, rotation, slots[i], at, mask)
            x = x if block.down is None else self.transform(block, x)
        return x, found

    @property
    def compiled_width(self) -> int:
        """Padded width of states in the compiled pass."""
        assert self.compiled is not None
        return self.compiled.sizes.hidden

    @property
    def compiled_outputs(self) -> int:
        """Padded number of logits in the compiled pass."""
        assert self.compiled is not None and self.compiled.output is not None
        return self.compiled.output.outputs

    def compiled_logits(self, logits: Tensor) -> Tensor:
        """Return the logits [rows, vocab] of the compiled pass's outputs."""
        return logits if logits.shape[1] == self.vocab else logits[:, : self.vocab]

    def generate(
        self,
        rows: SequenceRows,
        count: int,
        temperature: float,
        uniforms: Sequence[float] | None,
        min_prob: float | None,
    ) -> tuple[list[int], Tensor | None, list[float], Callable[[], Tensor], Callable[[], Tensor], int]:
        """Run a chain's rows, then generate ``count`` tokens in one compiled call (``CompiledNetwork.draft``).
        Return (tokens, the distributions they were sampled from or None, the tokens' probabilities if there is
        a threshold, functions that return their logits [tokens, vocab] and final hidden states [tokens,
        hidden], the number of tokens before the first whose logits are not finite)."""
        raise NotImplementedError(f"{self.name} has no compiled draft loop")

    def run_compiled(
        self,
        sequences: Sequence[SequenceRows],
        x: Tensor,
        first: int,
        end: int,
        skipped: Collection[int] = (),
        captured: dict[int, Tensor] | None = None,
        logits: Tensor | None = None,
        reads: Tensor | None = None,
    ) -> Tensor:
        """Run layers first..end over states x [rows, hidden] in one compiled call; return the states after
        them. Arguments as in ``CompiledNetwork.run``; reads [rows, inputs]."""
        assert self.compiled is not None
        states = F.pad(x, (0, self.compiled_width - self.hidden)) if self.compiled_width > self.hidden else x
        states = states.clone(memory_format=torch.contiguous_format) if states is x else states.contiguous()
        found = {layer: rows.numpy() for layer, rows in (captured or {}).items()}
        self.compiled.run(
            sequences,
            states.numpy(),
            False,
            first,
            end,
            None if logits is None else logits.numpy(),
            found,
            frozenset(skipped),
            None if reads is None else self._padded_reads(reads, first),
        )
        return states[:, : self.hidden]

    def _padded_reads(self, reads: Tensor, layer: int) -> np.ndarray:
        assert self.compiled is not None
        inputs = self.compiled.layers[layer].qkv.inputs
        return F.pad(reads, (0, inputs - reads.shape[1])).contiguous().numpy()

    def project(
        self, block: Block, x: Tensor, rotation: Tensor, reads: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return (queries [1, kv_heads, group * n, head_dim]; keys and values [2, kv_heads, n, head_dim])
        of x [n, hidden], rotated."""
        n = x.shape[0]
        heads = self.heads
        kv = self.kv_heads
        width = self.head_dim
        qkv = block.qkv(block.norm_in(x) if reads is None else reads).view(n, heads + 2 * kv, width)
        if block.norm_q is not None and block.norm_k is not None:
            qkv[:, :heads] = block.norm_q(qkv[:, :heads])
            qkv[:, heads : heads + kv] = block.norm_k(qkv[:, heads : heads + kv])
        self._rotate(qkv[:, : heads + kv], rotation)
        q = (
            qkv[:, :heads]
            .view(n, kv, self.group, width)
            .permute(1, 2, 0, 3)
            .reshape(1, kv, self.group * n, width)
        )
        return q, qkv[:, heads:].view(n, 2, kv, width).permute(1, 2, 0, 3)

    def join(self, block: Block, x: Tensor, y: Tensor) -> Tensor:
        """Return x [n, hidden] plus the output projection of the attention y [1, kv_heads, group * n,
        head_dim]."""
        y = y.view(self.kv_heads, self.group, x.shape[0], self.head_dim).permute(2, 0, 1, 3)
        return block.out.add(y.reshape(x.shape[0], self.heads * self.head_dim), x)

    def transform(self, block: Block, x: Tensor) -> Tensor:
        """Return x [n, hidden] plus the feed-forward of a layer."""
        both = block.gate_up(block.norm_mlp(x))
        return block.down.add(F.silu(both[:, : self.inner]).mul_(both[:, self.inner :]), x)

    def _rotate(self, x: Tensor, rotation: Tensor) -> None:
        """Rotate x [n, heads, head_dim] in place by rotation [n, 1, head_dim / 2]."""
        pairs = x.view(*x.shape[:-1], -1, 2)
        if x.dtype in (torch.float32, torch.float64):
            torch.view_as_complex(pairs).mul_(rotation)
        else:
            pairs.copy_(torch.view_as_real(torch.view_as_complex(pairs.float()).mul_(rotation)))
