"""Kangaroo's adapter, which makes an early exit of the target usable for drafting (Liu et al. 2404.18911).

Input: the hidden state before the exit layer; a norm, attention with its own KV cache, a residual
connection, no feed-forward; then a final norm of its own and the target's head. Only the adapter is
trained. It is small: the first layers do most of the work, and verification continues from their hidden
states.

``load`` reads the published layout: config.json and model.safetensors with ``layers.0.self_attn.*``,
``layers.0.input_layernorm.weight`` and ``norm.weight``. The config must name the layer it was trained
after, ``exit_layer``; published ones do not.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ....checkpoints.weights import ModelError
from ....models.eagle import config_like, layer_weights
from ....models.eagle_layers import FusedLayers, Layer, Sizes, angles_of
from ....models.heads import HeadWeights, TargetInfo, check_fit, config_of, fill
from ....models.rms_norm import Norm
from ....models.row_cache import RowCache

EXIT = 2  # the paper's, for a model of 32 layers


class Kangaroo(nn.Module):
    """Kangaroo's adapter (Liu et al. 2404.18911), an nn.Module: a layer between an early exit of the target
    and its output matrix.

    config: a Llama-like config.json; ``exit_layer``: number of the target's layers before the exit."""

    def __init__(self, config: dict[str, Any], name: str = "the Kangaroo adapter"):
        super().__init__()
        self.config = config
        self.name = name
        self.sizes = Sizes.of(config, name)
        self.exit = config.get("exit_layer", EXIT)
        bias = bool(config.get("qkv_bias", False))
        self.layers = nn.ModuleList(Layer(self.sizes, True, False, bias) for _ in range(self.sizes.layers))
        self.norm = nn.RMSNorm(self.sizes.hidden, eps=self.sizes.eps)

    def forward(self, states: Tensor) -> Tensor:
        """Training: map hidden states at the input of the exit layer, [batch, n, hidden], to states [batch,
        n, hidden] for the target's output matrix."""
        angles, x = angles_of(self.config, self.sizes.head_dim, states.shape[1], states.device), states
        for layer in self.layers:
            x = layer(x, angles)[0]
        return self.norm(x)

    @cached_property
    def fused(self) -> FusedLayers:
        """The weights in inference layout (fused matrices); converted once and shared by all runs."""
        return FusedLayers(self.layers, self.config)

    @cached_property
    def last_norm(self) -> Norm:
        """The adapter's final norm, applied before the target's output matrix."""
        return Norm(self.norm.weight.detach(), self.sizes.eps)

    def open(self) -> RowCache:
        """Return a KV cache over these weights for one run. Its output is not yet normalised by
        ``last_norm``."""
        return RowCache(self.fused)


def build(target: TargetInfo, hparams: dict[str, Any]) -> Kangaroo:
    """Return an untrained adapter for a target. hparams, all optional: exit_layer, layers, heads, kv_heads,
    head_dim."""
    config = {**config_like(target, hparams), "exit_layer": hparams.get("exit_layer", EXIT)}
    return Kangaroo(config, f"the Kangaroo adapter of {target.name}")


def load(folder: str | Path, target: TargetInfo) -> Kangaroo:
    """Load the adapter of a checkpoint folder, in this project's or a published layout. Raises ModelError."""
    folder = Path(folder)
    check_fit(folder, target.name, target.hidden, target.vocab)
    weights, config = HeadWeights(folder, target), {"hidden_size": target.hidden, **config_of(folder)}
    if "exit_layer" not in config:
        raise ModelError(
            f"config.json of {folder.name} does not say exit_layer, the number of the target's layers in front of the "
            "adapter: add it (the authors take 2 for Vicuna-7B, 3 for 13B); after another layer it guesses wrongly",
            "kangaroo.exit_layer",
        )
    exit, found = config["exit_layer"], {}
    if type(exit) is not int or not 0 < exit < target.layers:
        raise ModelError(
            f"{folder.name} exits after layer {exit}; {target.name} has {target.layers} layers",
            "head.exit_layer",
        )
    # published configs are the target's own, so the layers are counted in the file
    config["num_hidden_layers"] = max(1, len(weights.indices(r"layers\.(\d+)\.")))
    sizes = Sizes.of(config, folder.name)
    for i in range(sizes.layers):
        found |= layer_weights(weights, sizes, f"layers.{i}.", True, False)
    found = {name: tensor for name, tensor in found.items() if tensor is not None}
    found["norm.weight"] = weights.get("norm.weight", sizes.hidden)
    weights.check_none_unread()
    return fill(
        Kangaroo({**config, "qkv_bias": "layers.0.self_attn.q_proj.bias" in found}, folder.name),
        found,
        target,
    )
