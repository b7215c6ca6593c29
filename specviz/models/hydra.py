"""Hydra: draft heads that also read the tokens drafted before them (Ankner et al. 2402.05109).

Head i reads the hidden state that predicted the root and the embeddings of the root and of the i drafted
tokens after it, and predicts the next one. Unlike Medusa's, a head depends on the path, and the tree grows
level by level. Hydra++ puts one decoder layer with its own KV cache first, so that the heads read the whole
text instead of its last hidden state.

``load`` reads the authors' names, whose sequences have a dropout in every other slot or none
(``hydra_mlp.0.1.linear.weight``, ``hydra_mlp.0.1.res_connection.weight``, ``hydra_lm_head.0.1.weight``,
``prefix_embeding_layer.layers.0.*``). This project's have no dropout slots, and may omit output matrices
(the target's are used) and ``res_connection`` (identity).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from torch import Tensor, nn
from torch.nn import functional as F

from .eagle_layers import OF_TARGET, FusedLayers, Layer, Sizes, angles_of, layer_keys, saved_layer_keys
from .heads import HeadWeights, ModelError, TargetInfo, calibration, config_of, fill
from .rms_norm import Norm
from .row_cache import RowCache

PREFIX = "prefix_embeding_layer"  # the authors' spelling


class Block(nn.Module):
    """A residual block of Hydra's heads, an nn.Module: residual(x) + SiLU(W x + b), x [..., parts * hidden]
    -> [..., hidden].

    parts: number of concatenated input vectors; matrix: the residual path has a matrix; without one it is
    the first input vector, the hidden state.
    """

    def __init__(self, hidden: int, parts: int = 1, matrix: bool = False):
        super().__init__()
        self.linear = nn.Linear(hidden * parts, hidden)
        self.res_connection = nn.Linear(hidden * parts, hidden) if matrix else None
        nn.init.zeros_(self.linear.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Return residual(x) + SiLU(W x + b), [..., hidden], for x [..., parts * hidden]."""
        past = x[..., : self.linear.out_features] if self.res_connection is None else self.res_connection(x)
        return past + F.silu(self.linear(x))


class Prefix(nn.Module):
    """Hydra++'s decoder layer and norm over the target's states, an nn.Module: [batch, n, hidden] ->
    [batch, n, hidden]."""

    def __init__(self, config: dict[str, Any], bias: bool = False):
        super().__init__()
        self.config, self.sizes = config, Sizes.of(config, "the prefix layer")
        self.layers = nn.ModuleList([Layer(self.sizes, True, True, bias)])
        self.norm = nn.RMSNorm(self.sizes.hidden, eps=self.sizes.eps)

    def forward(self, states: Tensor) -> Tensor:
        """Training: return the normalised output [batch, n, hidden] for the target's states [batch, n,
        hidden]."""
        return self.norm(
            self.layers[0](
                states, angles_of(self.config, self.sizes.head_dim, states.shape[1], states.device)
            )[0]
        )

    @cached_property
    def fused(self) -> tuple[FusedLayers, Norm]:
        """The layer and the norm in inference layout; converted once and shared by all runs."""
        return FusedLayers(self.layers, self.config), Norm(self.norm.weight.detach(), self.sizes.eps)


class PrefixRows:
    """KV cache of the prefix layer for one run. Every hidden state of the text is appended once, in order."""

    def __init__(self, prefix: Prefix):
        net, self._norm = prefix.fused
        self._rows = RowCache(net)

    def read(self, states: Tensor, at: int) -> Tensor:
        """Append hidden states [n, hidden] of the text and return the last output [hidden]. at: position of
        the first state, used if nothing was read before."""
        if not self._rows.count:
            self._rows.restart(at)
        return self._norm(self._rows.read(states)[-1:])[0]


class Hydra(nn.Module):
    """Hydra's draft heads, an nn.Module: each reads the tokens drafted by the heads before it.

    config: hydra_num_heads, hydra_num_layers, prefix (a decoder layer first), through (a matrix on the
    residual path of the first block), own_output (output matrices), grounded (heads read the drafted
    tokens; default true), and for the prefix the sizes of a Llama layer. accuracy, nodes: see
    ``heads.calibration``.
    """

    def __init__(self, config: dict[str, Any], bias: bool = False, output_bias: bool = True):
        super().__init__()
        self.sizes = config
        d = config["hidden_size"]
        heads = config["hydra_num_heads"]
        self.grounded = bool(config.get("grounded", True))
        if config["prefix"]:
            setattr(self, PREFIX, Prefix(config, bias))
        self.hydra_mlp = nn.ModuleList(
            nn.Sequential(
                Block(d, i + 2 if self.grounded else 1, config["through"]),
                *(Block(d) for _ in range(config["hydra_num_layers"] - 1)),
            )
            for i in range(heads)
        )
        self.hydra_lm_head = nn.ModuleList(
            nn.Linear(d, config["vocab_size"], output_bias)
            for _ in range(heads if config["own_output"] else 0)
        )
        self.accuracy: list[list[float]] = []
        self.nodes = 0

    def __len__(self) -> int:
        return len(self.hydra_mlp)

    @property
    def prefix(self) -> Prefix | None:
        """The prefix layer; None without one."""
        return getattr(self, PREFIX, None)

    @property
    def config(self) -> dict[str, Any]:
        """The config.json of heads in this project's layout."""
        return {**self.sizes, "model_type": "hydra", "accuracy": self.accuracy, "nodes": self.nodes}

    def forward(self, index: int, inputs: Tensor, head: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the logits [n, vocab] of head ``index`` for its inputs [n, (index + 2) * hidden]: the
        state, then the embeddings of the root and of the drafted tokens. head: the target's output layer,
        used if the heads have none of their own."""
        states = self.hydra_mlp[index](inputs if self.grounded else inputs[..., : self.sizes["hidden_size"]])
        return self.hydra_lm_head[index](states) if len(self.hydra_lm_head) else head(states)

    def matrix(self, index: int, targets: Tensor) -> Tensor:
        """Return the output matrix [vocab, hidden] of head ``index`` for training. targets: the target's
        output matrix, used if the heads have none."""
        return cast(nn.Linear, self.hydra_lm_head[index]).weight if len(self.hydra_lm_head) else targets


def build(target: TargetInfo, hparams: dict[str, Any]) -> Hydra:
    """Return untrained Hydra heads for a target. hparams: heads, layers, prefix, through, own_output,
    grounded (default true), and sizes of the prefix layer."""
    sizes = layer_keys(target.config) | {key: hparams[key] for key in OF_TARGET if key in hparams}
    return Hydra(
        {
            **sizes,
            "hidden_size": target.hidden,
            "vocab_size": target.vocab,
            "hydra_num_heads": hparams["heads"],
            "hydra_num_layers": hparams["layers"],
            "prefix": hparams["prefix"],
            "through": hparams["through"],
            "grounded": hparams.get("grounded", True),
            "own_output": hparams["own_output"],
        },
        output_bias=False,
    )


def load(folder: Path, target: TargetInfo) -> Hydra:
    """Load Hydra heads from a checkpoint folder, in this project's or a published layout. Raises
    ModelError."""
    config, weights = config_of(folder), HeadWeights(folder, target)
    heads = weights.indices(r"hydra_mlp\.(\d+)\.")
    if not heads or heads != list(range(len(heads))):
        raise ModelError(
            f"{folder.name} holds no Hydra heads under any of the known names", "head.other_kind"
        )
    names = {name: name for name in weights.names if name.startswith(PREFIX) and "embed_tokens" not in name}
    layers = 0
    for i in heads:
        slots = weights.indices(rf"hydra_mlp\.{i}\.(\d+)\.linear\.weight")
        layers = max(len(slots), layers)
        for ours, slot in enumerate(slots):
            for part in ("linear.weight", "linear.bias", "res_connection.weight", "res_connection.bias"):
                names[f"hydra_mlp.{i}.{ours}.{part}"] = f"hydra_mlp.{i}.{slot}.{part}"
        for part in ("weight", "bias"):
            names[f"hydra_lm_head.{i}.{part}"] = (
                f"hydra_lm_head.{i}.{part}"
                if f"hydra_lm_head.{i}.{part}" in weights
                else f"hydra_lm_head.{i}.1.{part}"
            )
    _check(weights, names, heads, target)
    there = {ours for ours, theirs in names.items() if theirs in weights}
    sizes = saved_layer_keys(config, target.config)
    layers = int(
        config.get("hydra_num_layers") or layers
    )  # the authors apply one block again; its copies may be left out
    made = Hydra(
        {
            **sizes,
            "hidden_size": target.hidden,
            "vocab_size": target.vocab,
            "hydra_num_heads": len(heads),
            "hydra_num_layers": layers,
            "prefix": any(name.startswith(PREFIX) for name in there),
            "grounded": weights.shape(names["hydra_mlp.0.0.linear.weight"])[-1] != target.hidden,
            "through": "hydra_mlp.0.0.res_connection.weight" in there,
            "own_output": "hydra_lm_head.0.weight" in there,
        },
        f"{PREFIX}.layers.0.self_attn.q_proj.bias" in there,
        "hydra_lm_head.0.bias" in there,
    )
    tensors = {}
    for ours, like in made.state_dict().items():
        once = re.sub(
            r"^(hydra_mlp\.\d+)\.(?:[2-9]|\d\d+)\.", r"\1.1.", ours
        )  # the name of the block that is applied again
        theirs = names.get(ours, ours)
        tensors[ours] = weights.get(theirs if theirs in weights else names.get(once, ours), *like.shape)
    weights.check_none_unread(
        rf"{PREFIX}\.embed_tokens\.weight", r"hydra_mlp\.\d+\.\d+\.linear\.(weight|bias)"
    )  # one block's copies
    made.accuracy, made.nodes = calibration(config, folder.name)
    return fill(made, tensors, target)


def _check(weights: HeadWeights, names: dict[str, str], heads: list[int], target: TargetInfo) -> None:
    """Refuse heads of another width or vocabulary. Heads that read only the state are not grounded, as the
    authors call it."""
    d = target.hidden
    for i in heads:
        first = names.get(f"hydra_mlp.{i}.0.linear.weight", "")
        rows, columns = weights.shape(first)
        if rows != d:
            raise ModelError(
                f"{weights.title} does not fit {target.name}: it reads states of {rows} numbers, and {target.name} has {d}",
                "head.states",
            )
        if columns not in (d, d * (i + 2)):
            raise ModelError(
                f"{weights.title} has a head {i} that reads {columns} numbers: neither the state alone nor with "
                f"{i + 1} tokens",
                "hydra.columns",
            )
        output = names[f"hydra_lm_head.{i}.weight"]
        if output in weights and weights.shape(output)[0] != target.vocab:
            raise ModelError(
                f"{weights.title} does not fit {target.name}: its vocabulary has {weights.shape(output)[0]} tokens, and "
                f"{target.name} "
                f"has {target.vocab}",
                "head.vocabulary",
            )
