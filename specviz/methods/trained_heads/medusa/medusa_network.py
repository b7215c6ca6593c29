"""Medusa: heads on the target's last hidden state, each predicting one token further ahead (Cai et al.
2401.10774).

Head i reads the hidden state that predicted the root and predicts the token i + 1 positions after the root,
independently of the tokens between. A head is a few residual blocks, x + SiLU(W x + b), and an output
matrix: its own, one shared by all heads, or the target's, which adds no parameters.

``load`` reads the authors' names (``0.0.linear.weight``, ``0.1.weight``), Medusa-2's inside a whole model
(prefix ``medusa_head.``) and vLLM's (``blocks.0.layers.0.weight``, ``lm_heads.0.weight`` or
``lm_head.weight``, ``token_map``), which this project also writes. The number of heads comes from the
names: published configs are sometimes wrong about it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ....models.heads import HeadWeights, ModelError, TargetInfo, calibration, config_of, fill

OWN = "own"  # output matrices: one per head
SHARED = "shared"  # one for all heads
TARGETS = "target"  # the target's


class Block(nn.Module):
    """The residual blocks of one Medusa head, an nn.Module: x + SiLU(W x + b), repeated; [..., hidden] ->
    [..., hidden]."""

    def __init__(self, hidden: int, layers: int, bias: bool = True):
        super().__init__()
        matrices = [nn.Linear(hidden, hidden, bias) for _ in range(layers)]
        self.layers = nn.ModuleList(matrices)
        for layer in matrices:
            nn.init.zeros_(layer.weight)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + F.silu(layer(x))
        return x


class Medusa(nn.Module):
    """Medusa's draft heads (Cai et al. 2401.10774), an nn.Module: target's final hidden state -> logits of
    the next ``heads`` tokens after the root, one head per position.

    layers: residual blocks of each head; output: "own", "shared" or "target" (the target's output matrix);
    width: size of a reduced vocabulary, whose ``token_map`` [width] holds the token ids; None: the full
    vocabulary. accuracy [heads][ranks]: measured probability that the token of this rank is correct; nodes:
    size of the tree for which it was measured."""

    token_map: Tensor | None

    def __init__(
        self,
        hidden: int,
        vocab: int,
        heads: int = 4,
        layers: int = 1,
        output: str = TARGETS,
        bias: bool = True,
        width: int | None = None,
    ):
        super().__init__()
        self.vocab = vocab
        self.blocks = nn.ModuleList(Block(hidden, layers, bias) for _ in range(heads))
        matrices = {OWN: heads, SHARED: 1, TARGETS: 0}[output]
        self.lm_heads = nn.ModuleList(nn.Linear(hidden, width or vocab, False) for _ in range(matrices))
        self.register_buffer("token_map", None if width is None else torch.arange(width))
        self.accuracy: list[list[float]] = []
        self.nodes = 0

    def __len__(self) -> int:
        return len(self.blocks)

    def forward(self, state: Tensor, depth: int, head: Callable[[Tensor], Tensor]) -> Tensor:
        """Return logits [depth, vocab] of the first ``depth`` heads for a final hidden state [hidden] of
        the target. head: applies the target's output matrix."""
        states = torch.stack([block(state) for block in self.blocks[:depth]])
        if not len(self.lm_heads):
            return head(states)
        if len(self.lm_heads) == 1:
            logits = self.lm_heads[0](states)
        else:
            logits = torch.stack([lm(x) for lm, x in zip(self.lm_heads, states)])
        if self.token_map is None:
            return logits
        return logits.new_full((len(logits), self.vocab), -torch.inf).index_copy_(1, self.token_map, logits)

    def matrix(self, index: int, targets: Tensor) -> Tensor:
        """Return the output matrix [vocab, hidden] that head ``index`` uses in training; targets: the
        target's."""
        return (
            cast(nn.Linear, self.lm_heads[min(index, len(self.lm_heads) - 1)]).weight
            if len(self.lm_heads)
            else targets
        )

    @property
    def config(self) -> dict[str, Any]:
        """The config.json of these heads in this project's layout."""
        layers = cast(Block, self.blocks[0]).layers
        first = cast(nn.Linear, layers[0])
        return {
            "model_type": "medusa",
            "hidden_size": first.in_features,
            "vocab_size": self.vocab,
            "num_heads": len(self),
            "num_hidden_layers": len(layers),
            "medusa_fc_bias": first.bias is not None,
            "accuracy": self.accuracy,
            "nodes": self.nodes,
        }


def build(target: TargetInfo, hparams: dict[str, Any]) -> Medusa:
    """Return untrained heads for a target. An output matrix of their own is not initialised from the
    target's here; the recipe may do so."""
    return Medusa(target.hidden, target.vocab, hparams["heads"], hparams["layers"], hparams["output"])


def load(folder: Path, target: TargetInfo) -> Medusa:
    """Load the heads of a checkpoint folder, in this project's or a published layout. Raises ModelError."""
    config, weights = config_of(folder), HeadWeights(folder, target)
    tensors = _vllm(weights, target) if weights.indices(r"blocks\.(\d+)\.") else _authors(weights, target)
    weights.check_none_unread(r"model\..*", r"lm_head\.weight")  # Medusa-2's lie inside a whole model
    heads = 1 + max(int(name.split(".")[1]) for name in tensors if name.startswith("blocks."))
    layers = len([name for name in tensors if name.startswith("blocks.0.") and name.endswith("weight")])
    matrices = len([name for name in tensors if name.startswith("lm_heads.")])
    width = tensors["lm_heads.0.weight"].shape[0] if matrices else target.vocab
    if width != len(tensors.get("token_map", range(target.vocab))):
        raise ModelError(
            f"{folder.name} does not fit {target.name}: its vocabulary has {width} tokens, and {target.name} has "
            f"{target.vocab}",
            "head.vocabulary",
        )
    made = Medusa(
        target.hidden,
        target.vocab,
        heads,
        layers,
        OWN if matrices > 1 else SHARED if matrices else TARGETS,
        "blocks.0.layers.0.bias" in tensors,
        width if "token_map" in tensors else None,
    )
    fill(made, tensors, target)
    made.accuracy, made.nodes = calibration(config, folder.name)
    return made


def _authors(weights: HeadWeights, target: TargetInfo) -> dict[str, Tensor]:
    """Read the authors' names. Published blocks of one head are the same block repeated, and the copies may
    be left out."""
    at = "medusa_head." if any(name.startswith("medusa_head.") for name in weights.names) else ""
    heads = weights.indices(rf"{at}(\d+)\.0\.linear\.weight")
    if not heads or heads != list(range(len(heads))):
        raise ModelError(
            f"{weights.title} holds no Medusa heads under any of the known names", "head.other_kind"
        )
    last = max(weights.indices(rf"{at}0\.(\d+)\.weight"), default=0)
    if not last:
        raise ModelError(f"{weights.title} lacks the weight {at}0.1.weight", "head.lacks_weight")
    tensors = {}
    for i in heads:
        for j in range(last):
            name = f"{at}{i}.{j}.linear" if f"{at}{i}.{j}.linear.weight" in weights else f"{at}{i}.0.linear"
            _linear(weights, name, f"blocks.{i}.layers.{j}", target, tensors)
        tensors[f"lm_heads.{i}.weight"] = _matrix(weights, f"{at}{i}.{last}.weight", target)
    return tensors


def _vllm(weights: HeadWeights, target: TargetInfo) -> dict[str, Tensor]:
    """Read vLLM's names, which this project also writes. Without any output matrix the target's is used."""
    tensors: dict[str, Tensor] = {}
    for i in weights.indices(r"blocks\.(\d+)\."):
        for j in weights.indices(rf"blocks\.{i}\.layers\.(\d+)\.weight"):
            _linear(weights, f"blocks.{i}.layers.{j}", f"blocks.{i}.layers.{j}", target, tensors)
    for i in weights.indices(r"lm_heads\.(\d+)\.weight"):
        tensors[f"lm_heads.{i}.weight"] = _matrix(weights, f"lm_heads.{i}.weight", target)
    if "lm_head.weight" in weights:
        tensors["lm_heads.0.weight"] = _matrix(weights, "lm_head.weight", target)
    if "token_map" in weights:
        tensors["token_map"] = weights.ids("token_map", target.vocab)
    return tensors


def _linear(
    weights: HeadWeights, name: str, ours: str, target: TargetInfo, tensors: dict[str, Tensor]
) -> None:
    tensors[f"{ours}.weight"] = weights.get_target_wide(
        f"{name}.weight", target, target.hidden, target.hidden
    )
    if f"{name}.bias" in weights:
        tensors[f"{ours}.bias"] = weights.get(f"{name}.bias", target.hidden)


def _matrix(weights: HeadWeights, name: str, target: TargetInfo) -> Tensor:
    return weights.get_target_wide(name, target, weights.shape(name)[0], target.hidden)
