"""Gumiho's head: EAGLE's layers for the first tokens of a draft, one small MLP for each later token (Li et
al. 2503.10135).

The serial part is EAGLE's: ``fc`` joins a token's embedding with a hidden state, and decoder layers predict
the next state, which the next position reads. Each MLP reads the outputs of ``fc`` for the last two serial
positions, so all MLPs run at once; MLP i predicts the hidden state i + 1 positions after them. Embedding
and output matrix are the target's.

``load`` reads the authors' names, which this project also writes: EAGLE's, and
``mlp.mlp.I.J.linear.weight`` for block J of MLP I. A checkpoint folder may share the serial part of an
EAGLE head (models/heads.py, ``base_of``) and hold the MLPs alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ....checkpoints.weights import ModelError
from ....models.eagle import Eagle, config_like, serial_weights
from ....models.eagle_layers import Sizes
from ....models.heads import TargetInfo, check_fit, config_of, fill, head_weights

SERIAL = 2  # places that are drafted one after another
READS = 2  # serial rows that an MLP reads


class Block(nn.Module):
    """A block of an MLP, an nn.Module: SiLU(W x + b), plus x if input and output have the same width."""

    def __init__(self, wide: int, hidden: int):
        super().__init__()
        self.linear = nn.Linear(wide, hidden)
        nn.init.zeros_(self.linear.weight)

    def forward(self, x: Tensor) -> Tensor:
        y = F.silu(self.linear(x))
        return y + x if y.shape == x.shape else y


class ParallelHeads(nn.Module):
    """``count`` MLPs over the same input, an nn.Module: [..., 2 * hidden] -> [..., count, hidden]. The
    first block of each narrows the input; ``blocks`` residual blocks follow."""

    def __init__(self, hidden: int, count: int, blocks: int):
        super().__init__()
        self.mlp = nn.ModuleList(
            nn.Sequential(Block(READS * hidden, hidden), *(Block(hidden, hidden) for _ in range(blocks)))
            for _ in range(count)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the predicted hidden states [..., count, hidden] for inputs x [..., 2 * hidden]."""
        return torch.stack([mlp(x) for mlp in self.mlp], -2)


class Gumiho(Eagle):
    """Gumiho's draft head (Li et al. 2503.10135), an nn.Module: EAGLE's layers, and MLPs for later tokens.
    config: a Llama-like config.json; ``mlp_num``: number of MLPs; ``mlp_blocks``: residual blocks of
    each."""

    def __init__(self, config: dict[str, Any], name: str = "the Gumiho head"):
        super().__init__(config, name)
        self.mlp = ParallelHeads(self.sizes.hidden, config["mlp_num"], config["mlp_blocks"])

    def __len__(self) -> int:
        """Return the maximum number of tokens of a draft: serial and parallel ones."""
        return SERIAL + len(self.mlp.mlp)

    def later(self, pairs: Tensor) -> Tensor:
        """Return the hidden states [..., count, hidden] that the MLPs predict. pairs [..., 2 * hidden]:
        outputs of ``fc`` for the last two serial positions."""
        return self.mlp(pairs)


def build(target: TargetInfo, hparams: dict[str, Any]) -> Gumiho:
    """Return an untrained head for a target. hparams: mlp_num, mlp_blocks; optional: intermediate, layers,
    heads, kv_heads, head_dim, bias."""
    more = {
        "bias": bool(hparams.get("bias", True)),
        "mlp_num": hparams["mlp_num"],
        "mlp_blocks": hparams["mlp_blocks"],
    }
    return Gumiho(config_like(target, hparams) | more, f"the Gumiho head of {target.name}")


def load(folder: str | Path, target: TargetInfo) -> Gumiho:
    """Load the head of a checkpoint folder, in this project's or the authors' layout. Raises ModelError."""
    folder = Path(folder)
    check_fit(folder, target.name, target.hidden, target.vocab, "gumiho")
    weights, config = head_weights(folder, target), {"hidden_size": target.hidden, **config_of(folder)}
    heads, blocks = weights.indices(r"mlp\.mlp\.(\d+)\."), weights.indices(r"mlp\.mlp\.0\.(\d+)\.")
    if not heads or heads != list(range(len(heads))) or blocks != list(range(len(blocks))):
        raise ModelError(
            f"{folder.name} holds no Gumiho head under any of the known names", "head.other_kind"
        )
    found = serial_weights(weights, Sizes.of(config, folder.name))
    made = Gumiho(
        config
        | {
            "bias": "fc.bias" in found,
            "qkv_bias": "layers.0.self_attn.q_proj.bias" in found,
            "mlp_num": len(heads),
            "mlp_blocks": len(blocks) - 1,
        },
        folder.name,
    )
    found |= {
        name: weights.get(name, *tensor.shape)
        for name, tensor in made.state_dict().items()
        if name.startswith("mlp.")
    }
    weights.check_none_unread()
    return fill(made, found, target)
