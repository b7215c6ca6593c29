"""Networks whose layers carry states: Mamba-2, Bamba's and Falcon-H1's hybrids of it with attention, LFM2's
convolutions, and linear attention, as a forward pass over the rows of a draft tree.

A layer is a norm and a mixer (tree_rows.py), then a norm and a feed-forward where the architecture has one.
The Architecture of each model_type gives the mixers of its checkpoints and their tensor names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..checkpoints.config_defaults import check_state_parts, context_of, output_matrix, with_defaults
from ..checkpoints.mx import QUANTISED
from ..checkpoints.sizes import check_config, check_weights
from ..checkpoints.weights import ModelError, ScaledWeights, Weights, read_json
from .attention_mixer import AttentionMixer
from .linear_attention import LinearAttentionMixer
from .llama import rope_of
from .mamba2 import Mamba2Mixer, MambaSizes, dt_limits
from .parallel_mixer import ParallelMixer
from .short_convolution import ShortConvolutionMixer
from .tree_rows import Mixer, RowPositions

UNBOUNDED = 32768  # tokens: a recurrent state has no context limit, so this one only bounds a run

Config = dict[str, Any]


@dataclass(frozen=True)
class FeedForward:
    """A gated feed-forward with SiLU. norm [hidden]; gate, up [intermediate, hidden]; down [hidden,
    intermediate]."""

    norm: Tensor
    gate: Tensor
    up: Tensor
    down: Tensor

    def run(self, x: Tensor, eps: float) -> Tensor:
        """Return the output [rows, hidden] for x [rows, hidden]; the norm is applied here."""
        x = F.rms_norm(x, x.shape[-1:], self.norm, eps)
        return F.linear(F.silu(F.linear(x, self.gate)) * F.linear(x, self.up), self.down)


@dataclass(frozen=True)
class Layer:
    """A norm and a mixer, then a feed-forward if there is one."""

    norm: Tensor
    mixer: Mixer
    feed: FeedForward | None = None


@dataclass(frozen=True)
class Architecture:
    """How checkpoints of one model_type are read.

    sizes: integers that config.json must have; eps: config key of the norms' epsilon; table, last: tensor
    names of the embedding and of the final norm; layer(weights, config, index, name): reads one layer;
    state_capability: the capability that a target has through its states ("state:decay", "state:groups", ""
    for none); scales: config keys of the factors of embeddings and of logits, "" for 1.
    """

    sizes: tuple[str, ...]
    eps: str
    table: str
    last: str
    layer: Callable[[Weights, Config, int, str], Layer]
    state_capability: str
    scales: tuple[str, str] = ("", "")

    @property
    def state_capabilities(self) -> frozenset[str]:
        """``state_capability`` as a set, empty without one."""
        return frozenset({self.state_capability} - {""})


def unsupported_reason(config: Config) -> str | None:
    """Return why this forward pass cannot run a checkpoint with that config.json, as the end of a message;
    None if it can. Raises ModelError for values that make no sense."""
    kind = config.get("model_type")
    if kind not in ARCHITECTURES:
        return f"the forward with states runs {', '.join(ARCHITECTURES)}, not {str(kind)[:40]}"
    if config.get("hidden_act", "silu") not in ("silu", "swish"):
        return f"the forward with states has no activation {str(config['hidden_act'])[:40]!r}"
    if config.get("quantization_config") not in (None, QUANTISED):
        return "the forward with states reads no quantised weights but MXINT8"
    if _rope(config)["rope_type"] != "default":
        key = "rope_scaling" if config.get("rope_scaling") else "rope_parameters"
        return f"the forward with states has the default rotary embedding alone, not that of {key}"
    if config.get("mlp_bias"):
        return "the forward with states has no biases in feed-forward parts"
    return None


class RecurrentNetwork:
    """Weights and forward pass of a recurrent or hybrid network, loaded from a Hugging Face folder. float32
    on a CPU, bfloat16 weights elsewhere; states are float32.

    longest_kernel: of the layers' convolutions. Raises ModelError for a checkpoint that cannot be used.
    """

    def __init__(
        self, folder: str | Path, device: str | torch.device = "cpu", dtype: torch.dtype | None = None
    ):
        folder = Path(folder)
        config = read_json(folder, "config.json")
        check_config(config, folder.name)
        reason = unsupported_reason(config)
        if reason:
            raise ModelError(f"{folder.name}: {reason}", "forward.unsupported")
        self.device = torch.device(device)
        self.dtype = dtype or (torch.bfloat16 if self.device.type == "cuda" else torch.float32)
        self.folder = folder
        self.name = folder.name
        self.config = config
        self.kernel = "plain"
        kind = ARCHITECTURES[config["model_type"]]
        missing = [name for name in kind.sizes if type(config.get(name)) is not int or config[name] < 1]
        if missing:
            raise ModelError(f"config.json of {self.name} gives no size {missing[0]}", "config.lacks")
        self.hidden, self.layers, self.vocab = (
            config[name] for name in ("hidden_size", "num_hidden_layers", "vocab_size")
        )
        config = with_defaults(config)
        self.eps, self.context = config.get(kind.eps, 1e-5), context_of(config) or UNBOUNDED
        self.state_capabilities = kind.state_capabilities
        self.embedding_scale, self.logit_scale = (
            _number(config, key, self.name) if key else 1.0 for key in kind.scales
        )
        with torch.inference_mode():
            weights = Weights(folder, self.device, self.dtype)
            check_weights(config, weights, folder.name, self.dtype.itemsize, self.device)
            check_state_parts(config, weights, folder.name)
            self._load(kind, weights)
            weights.check_all_read()

    def _load(self, kind: Architecture, weights: Weights) -> None:
        d = self.hidden
        self.embedding = weights.get(kind.table, self.vocab, d)
        self.output = output_matrix(self.config, weights, self.embedding, self.vocab)
        self.norm_final = weights.get(kind.last, d)
        self.blocks = [kind.layer(weights, self.config, index, self.name) for index in range(self.layers)]
        self.longest_kernel = max(block.mixer.kernel for block in self.blocks)
        self.parameters = weights.count

    # --- states ----------------------------------------------------------------------------------------------------
    def new_states(self) -> list[Any]:
        """Return the states of all layers before any text."""
        return [block.mixer.new_state() for block in self.blocks]

    def advance(self, layer: int, state: Any, rows: Any, path: list[int]) -> Any:
        """Return a layer's state after the accepted rows ``path``, in order. rows: what ``run_layer``
        returned."""
        return self.blocks[layer].mixer.advance(state, rows, path)

    def survival(self, layer: int, rows: Any) -> list[Tensor]:
        """Return, for each part of a layer that decays, a tensor [rows]: the share of the committed state
        that each row's decay leaves, averaged over heads; an empty list for other layers."""
        return self.blocks[layer].mixer.survival(rows)

    # --- the forward -----------------------------------------------------------------------------------------------
    def embed(self, ids: Tensor) -> Tensor:
        """Return the embeddings [n, hidden] of token ids [n]."""
        return F.embedding(ids, self.embedding) * self.embedding_scale

    def norm(self, states: Tensor) -> Tensor:
        """Apply the final norm to states [rows, hidden]."""
        return F.rms_norm(states, (self.hidden,), self.norm_final, self.eps)

    def head(self, states: Tensor) -> Tensor:
        """Multiply states [rows, hidden], to which the final norm has already been applied, by the output
        matrix (lm_head); return logits [rows, vocab]."""
        return F.linear(states, self.output) * self.logit_scale

    def run_layer(
        self, layer: int, hidden: Tensor, state: Any, before: Any, place: RowPositions
    ) -> tuple[Tensor, Any]:
        """Run one layer over draft rows lo..n: hidden [n - lo, hidden]. before: what the layer returned for
        rows before ``lo``, None for lo = 0. Return (the states after the layer; what the state needs of all
        draft rows)."""
        block = self.blocks[layer]
        mixed, rows = block.mixer.run(
            F.rms_norm(hidden, (self.hidden,), block.norm, self.eps), state, before, place
        )
        hidden = hidden + mixed
        return hidden if block.feed is None else hidden + block.feed.run(hidden, self.eps), rows


# --- architectures -----------------------------------------------------------------------------------------------------
def _mamba_sizes(
    config: Config,
    heads: str,
    head_dim: int,
    state: str,
    groups: str,
    kernel: str,
    expand: str,
    eps: str,
    name: str,
) -> MambaSizes:
    sizes = MambaSizes(
        config["hidden_size"],
        config[heads],
        head_dim,
        config[state],
        config[groups],
        config[kernel],
        config.get(eps, 1e-5),
        dt_limits(config.get("time_step_limit"), name),
    )
    if (
        int(config.get(expand, 2) * sizes.hidden) != sizes.inner
        or sizes.heads % sizes.groups
        or sizes.inner % sizes.groups
    ):
        raise ModelError(f"config.json of {name} gives sizes that do not fit together", "config.sizes")
    return sizes


def _rope(config: Config) -> Config:
    """Return the rotary parameters. Bamba's class rotates half of each head unless the parameters
    themselves say otherwise."""
    return rope_of(
        with_defaults(config) | ({"partial_rotary_factor": 0.5} if config["model_type"] == "bamba" else {})
    )


def _theta(config: Config) -> float:
    return float(_rope(config)["rope_theta"])


def _feed(
    weights: Weights,
    config: Config,
    norm: str,
    at: str,
    inner: int = 0,
    names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj"),
) -> FeedForward:
    d, inner = config["hidden_size"], inner or config["intermediate_size"]
    gate, up, down = (f"{at}{name}.weight" for name in names)
    return FeedForward(
        weights.get(norm, d),
        weights.get(gate, inner, d),
        weights.get(up, inner, d),
        weights.get(down, d, inner),
    )


def _mamba2_layer(weights: Weights, config: Config, index: int, name: str) -> Layer:
    at = f"backbone.layers.{index}."
    sizes = _mamba_sizes(
        config,
        "num_heads",
        config["head_dim"],
        "state_size",
        "n_groups",
        "conv_kernel",
        "expand",
        "layer_norm_epsilon",
        name,
    )
    return Layer(weights.get(f"{at}norm.weight", sizes.hidden), Mamba2Mixer(weights, f"{at}mixer.", sizes))


def _bamba_layer(weights: Weights, config: Config, index: int, name: str) -> Layer:
    at = f"model.layers.{index}."
    d = config["hidden_size"]
    heads = config["num_attention_heads"]
    if index in (config.get("attn_layer_indices") or ()):
        width = config.get("head_dim") or d // heads
        mixer: Mixer = AttentionMixer(
            weights,
            f"{at}self_attn.",
            d,
            heads,
            config.get("num_key_value_heads") or heads,
            width,
            int(width * _rope(config)["partial_rotary_factor"]),
            _theta(config),
        )
    else:
        inner = int(config.get("mamba_expand", 2) * d)
        width = config.get("mamba_d_head", "auto")
        width = inner // config["mamba_n_heads"] if width == "auto" else width
        mixer = Mamba2Mixer(
            weights,
            f"{at}mamba.",
            _mamba_sizes(
                config,
                "mamba_n_heads",
                width,
                "mamba_d_state",
                "mamba_n_groups",
                "mamba_d_conv",
                "mamba_expand",
                "rms_norm_eps",
                name,
            ),
        )
    return Layer(
        weights.get(f"{at}input_layernorm.weight", d),
        mixer,
        _feed(weights, config, f"{at}pre_ff_layernorm.weight", f"{at}feed_forward."),
    )


def _falcon_h1_layer(weights: Weights, config: Config, index: int, name: str) -> Layer:
    """Attention and Mamba-2 side by side. The checkpoint's multipliers (muP) are constants, so they are
    multiplied into the weights."""
    at = f"model.layers.{index}."
    d = config["hidden_size"]
    heads = config["num_attention_heads"]
    inner = config.get("mamba_d_ssm") or int(config.get("mamba_expand", 2) * d)
    width = config.get("mamba_d_head", "auto")
    width = inner // config["mamba_n_heads"] if width == "auto" else width
    norm = (
        ("before" if config.get("mamba_norm_before_gate", True) else "after")
        if config.get("mamba_rms_norm")
        else "none"
    )
    sizes = MambaSizes(
        d,
        config["mamba_n_heads"],
        width,
        config["mamba_d_state"],
        config["mamba_n_groups"],
        config["mamba_d_conv"],
        config.get("rms_norm_eps", 1e-5),
        dt_limits(config.get("time_step_limit"), name),
        norm,
    )
    if sizes.inner != inner or sizes.heads % sizes.groups or inner % sizes.groups:
        raise ModelError(f"config.json of {name} gives sizes that do not fit together", "config.sizes")
    one = {
        key: _number(config, f"{key}_multiplier", name)
        for key in ("attention_in", "attention_out", "key", "ssm_in", "ssm_out")
    }
    gate_scale, down_scale = _numbers(config, "mlp_multipliers", 2, name)
    scales = torch.tensor(_numbers(config, "ssm_multipliers", 5, name))
    rows = scales.repeat_interleave(
        torch.tensor([inner, inner, *[sizes.groups * sizes.state] * 2, sizes.heads])
    )
    scaled = ScaledWeights(
        weights,
        {
            f"{at}mamba.in_proj.weight": rows * one["ssm_in"],
            f"{at}mamba.in_proj.bias": rows,
            **{f"{at}mamba.out_proj.{part}": one["ssm_out"] for part in ("weight", "bias")},
            **{f"{at}self_attn.{part}_proj.weight": one["attention_in"] for part in "qv"},
            f"{at}self_attn.k_proj.weight": one["attention_in"] * one["key"],
            f"{at}self_attn.k_proj.bias": one["key"],
            **{f"{at}self_attn.o_proj.{part}": one["attention_out"] for part in ("weight", "bias")},
        },
    )
    head_dim = config.get("head_dim") or d // heads
    attention = AttentionMixer(
        scaled,
        f"{at}self_attn.",
        d,
        heads,
        config.get("num_key_value_heads") or heads,
        head_dim,
        head_dim,
        _theta(config),
    )
    feed = _feed(weights, config, f"{at}pre_ff_layernorm.weight", f"{at}feed_forward.")
    return Layer(
        weights.get(f"{at}input_layernorm.weight", d),
        ParallelMixer(Mamba2Mixer(scaled, f"{at}mamba.", sizes), attention),
        FeedForward(feed.norm, feed.gate * gate_scale, feed.up, feed.down * down_scale),
    )


def _number(config: Config, key: str, name: str) -> float:
    """Return a factor of config.json, 1 if it gives none. Raises ModelError if it is not a finite number."""
    return _numbers({key: [1.0 if config.get(key) is None else config[key]]}, key, 1, name)[0]


def _numbers(config: Config, key: str, count: int, name: str) -> list[float]:
    """Return ``count`` factors of config.json, ones if it gives none. Raises ModelError unless they are
    finite numbers."""
    found = [1.0] * count if config.get(key) is None else config[key]
    if (
        not isinstance(found, list)
        or len(found) != count
        or not all(type(one) in (int, float) and isfinite(one) for one in found)
    ):
        raise ModelError(
            f"config.json of {name} gives {key} that is not {count} finite numbers", "config.factors"
        )
    return [float(one) for one in found]


def _lfm2_layer(weights: Weights, config: Config, index: int, name: str) -> Layer:
    at = f"model.layers.{index}."
    d = config["hidden_size"]
    heads = config["num_attention_heads"]
    kinds, full = config.get("layer_types"), config.get("full_attn_idxs")
    if kinds[index] != "conv" if kinds else full is None or index in full:
        width = config.get("head_dim") or d // heads
        mixer: Mixer = AttentionMixer(
            weights,
            f"{at}self_attn.",
            d,
            heads,
            config["num_key_value_heads"],
            width,
            width,
            _theta(config),
            "out_proj",
            config.get("norm_eps", 1e-5),
        )
    else:
        mixer = ShortConvolutionMixer(weights, f"{at}conv.", d, config["conv_L_cache"])
    inner = config.get("block_ff_dim") or config["intermediate_size"]
    if config.get("block_auto_adjust_ff_dim", True):
        inner, multiple = int(2 * inner / 3), config.get("block_multiple_of", 256)
        if config.get("block_ffn_dim_multiplier", 1.0) is not None:
            inner = -(-int(config.get("block_ffn_dim_multiplier", 1.0) * inner) // multiple) * multiple
    return Layer(
        weights.get(f"{at}operator_norm.weight", d),
        mixer,
        _feed(weights, config, f"{at}ffn_norm.weight", f"{at}feed_forward.", inner, ("w1", "w3", "w2")),
    )


def _linear_layer(weights: Weights, config: Config, index: int, name: str) -> Layer:
    at = f"model.layers.{index}."
    d = config["hidden_size"]
    heads = config["num_attention_heads"]
    kv_heads = config["num_key_value_heads"]
    if heads % kv_heads or config["head_dim"] % 2:
        raise ModelError(f"config.json of {name} gives sizes that do not fit together", "config.sizes")
    mixer = LinearAttentionMixer(
        weights,
        f"{at}self_attn.",
        d,
        heads,
        kv_heads,
        config["head_dim"],
        config["group"],
        config["conv"],
        _theta(config),
    )
    return Layer(
        weights.get(f"{at}input_layernorm.weight", d),
        mixer,
        _feed(weights, config, f"{at}post_attention_layernorm.weight", f"{at}mlp."),
    )


SIZES = ("hidden_size", "num_hidden_layers", "vocab_size")
ARCHITECTURES = {
    "mamba2": Architecture(
        (*SIZES, "num_heads", "head_dim", "state_size", "n_groups", "conv_kernel"),
        "layer_norm_epsilon",
        "backbone.embeddings.weight",
        "backbone.norm_f.weight",
        _mamba2_layer,
        "state:decay",
    ),
    "bamba": Architecture(
        (
            *SIZES,
            "num_attention_heads",
            "intermediate_size",
            "mamba_n_heads",
            "mamba_d_state",
            "mamba_n_groups",
            "mamba_d_conv",
        ),
        "rms_norm_eps",
        "model.embed_tokens.weight",
        "model.final_layernorm.weight",
        _bamba_layer,
        "state:decay",
    ),
    "falcon_h1": Architecture(
        (
            *SIZES,
            "num_attention_heads",
            "intermediate_size",
            "mamba_n_heads",
            "mamba_d_state",
            "mamba_n_groups",
            "mamba_d_conv",
        ),
        "rms_norm_eps",
        "model.embed_tokens.weight",
        "model.final_layernorm.weight",
        _falcon_h1_layer,
        "state:decay",
        ("embedding_multiplier", "lm_head_multiplier"),
    ),
    "lfm2": Architecture(
        (*SIZES, "num_attention_heads", "num_key_value_heads", "intermediate_size", "conv_L_cache"),
        "norm_eps",
        "model.embed_tokens.weight",
        "model.embedding_norm.weight",
        _lfm2_layer,
        "",
    ),
    "linear_llama": Architecture(
        (
            *SIZES,
            "num_attention_heads",
            "num_key_value_heads",
            "intermediate_size",
            "head_dim",
            "group",
            "conv",
        ),
        "rms_norm_eps",
        "model.embed_tokens.weight",
        "model.norm.weight",
        _linear_layer,
        "state:groups",
    ),
}
