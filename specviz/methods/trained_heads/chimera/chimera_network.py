"""Chimera: short context by trigrams, long context by one layer over the target's hidden states (Zeng et
al. 2402.15758).

The trigram encoder maps the last three tokens' embeddings through a residual block and a matrix to one
vector. It follows the target's last hidden states in one decoder layer (the full context encoder); its
output o stands in for the hidden state that the target has not computed yet, and later predictions attend
to it. A head per step reads the last true hidden state concatenated with o.

Names are the authors', their three files joined into one: ``trimlp.0.linear.weight``,
``trimlp.0.linear.bias``, ``trimlp.1.weight``, ``fast_layer1.0.*`` and ``chimera_head.0.0.weight`` [vocab, 2
hidden]. This project's heads are [hidden, 2 hidden], followed by the target's output matrix; untrained
heads add hidden state and o, as the authors' do.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ....checkpoints.weights import ModelError
from ....models.eagle_layers import (
    OF_TARGET,
    FusedLayers,
    Layer,
    Sizes,
    angles_of,
    layer_keys,
    saved_layer_keys,
)
from ....models.heads import HeadWeights, TargetInfo, calibration, config_of, fill
from ....models.hydra import Block


class Chimera(nn.Module):
    """Chimera's draft heads (Zeng et al. 2402.15758), an nn.Module: a trigram encoder and one decoder layer
    over the target's final hidden states, and one output head per step.

    config: chimera_num_heads, own_output, and the sizes of a Llama layer. accuracy, nodes: calibration of
    the tree, as in Medusa."""

    def __init__(self, config: dict[str, Any], bias: bool = False):
        super().__init__()
        self.settings = config
        self.sizes = Sizes.of(config, "the full context encoder")
        d = config["hidden_size"]
        self.trimlp = nn.Sequential(Block(3 * d), nn.Linear(3 * d, d, False))
        self.fast_layer1 = nn.ModuleList([Layer(self.sizes, True, True, bias)])
        self.own = bool(config["own_output"])
        out = config["vocab_size"] if self.own else d
        matrices = [nn.Linear(2 * d, out, False) for _ in range(config["chimera_num_heads"])]
        self.chimera_head = nn.ModuleList(nn.Sequential(matrix) for matrix in matrices)
        if not self.own:
            for matrix in matrices:
                matrix.weight.data.copy_(torch.eye(d).repeat(1, 2))
        self.accuracy: list[list[float]] = []
        self.nodes = 0

    def __len__(self) -> int:
        return len(self.chimera_head)

    def trigrams(self, embeds: Tensor) -> Tensor:
        """Return the trigram codes [..., hidden] of three tokens' embeddings [..., 3, hidden], oldest
        first."""
        return self.trimlp(embeds.flatten(-2))

    def joined(self, index: int, last: Tensor, outputs: Tensor) -> Tensor:
        """Return the input [n, 2 * hidden] of head ``index``: the target's last true hidden states and the
        decoder layer's outputs, each [n, hidden], concatenated."""
        return self.chimera_head[index](torch.cat([last, outputs], -1))

    def logits(self, index: int, last: Tensor, outputs: Tensor, head: Callable[[Tensor], Tensor]) -> Tensor:
        """Return logits [n, vocab] of head ``index``, for the inputs of ``joined``. head: applies the
        target's output matrix."""
        found = self.joined(index, last, outputs)
        return found if self.own else head(found)

    def forward(self, states: Tensor, codes: list[Tensor]) -> list[Tensor]:
        """Training: return, for each step, the decoder layer's outputs [batch, n, hidden]; a step attends
        to the outputs of earlier steps. states [batch, n, hidden]: the target's final hidden states; codes:
        for step i a tensor [batch, n, hidden], the code of the trigram that ends i tokens after the
        position's next token."""
        n, layer = states.shape[1], self.fast_layer1[0]
        angles = angles_of(self.settings, self.sizes.head_dim, n + len(codes), states.device)
        own = torch.eye(n, dtype=torch.bool, device=states.device)
        sees = torch.ones_like(own).tril()
        _, kv = layer(states, angles[:n])
        found = []
        for step, rows in enumerate(codes, 1):
            sees = torch.cat([sees, own], 1)
            found.append(layer(rows, angles[step : step + n], kv, sees)[0])
            _, kv = layer(found[-1], angles[step : step + n], kv, sees)
        return found

    def matrix(self, index: int, targets: Tensor) -> Tensor:
        """Return the output matrix [vocab, hidden] that head ``index`` uses in training: the target's,
        ``targets``."""
        return targets

    @cached_property
    def fused(self) -> FusedLayers:
        """The decoder layer in inference layout; converted once and shared by all runs."""
        return FusedLayers(self.fast_layer1, self.settings)

    @property
    def config(self) -> dict[str, Any]:
        """The config.json of these heads."""
        return {**self.settings, "model_type": "chimera", "accuracy": self.accuracy, "nodes": self.nodes}


def build(target: TargetInfo, hparams: dict[str, Any]) -> Chimera:
    """Return untrained heads for a target; their decoder layer has the shape of a target layer unless
    hparams give other sizes."""
    sizes = layer_keys(target.config) | {key: hparams[key] for key in OF_TARGET if key in hparams}
    sizes |= {"hidden_size": target.hidden, "vocab_size": target.vocab}
    return Chimera({**sizes, "chimera_num_heads": hparams["heads"], "own_output": False})


def load(folder: Path, target: TargetInfo) -> Chimera:
    """Load the heads of a checkpoint folder, this project's or the authors' (their files joined into one).
    Raises ModelError."""
    config, weights = config_of(folder), HeadWeights(folder, target)
    heads = weights.indices(r"chimera_head\.(\d+)\.0\.weight")
    if not heads or heads != list(range(len(heads))):
        raise ModelError(
            f"{folder.name} holds no Chimera heads under any of the known names", "head.other_kind"
        )
    alien = f"{folder.name} does not fit {target.name}: it"
    rows, columns = weights.shape("chimera_head.0.0.weight")
    if columns != 2 * target.hidden:
        raise ModelError(
            f"{alien} reads states of {columns / 2:g} numbers, and {target.name} has {target.hidden}",
            "head.states",
        )
    if rows not in (target.vocab, target.hidden):
        raise ModelError(
            f"the vocabulary of {alien} has {rows} tokens, and {target.name} has {target.vocab}",
            "head.vocabulary",
        )
    sizes = saved_layer_keys(config, target.config)
    own = bool(config.get("own_output", rows == target.vocab))
    made = Chimera(
        {
            **sizes,
            "hidden_size": target.hidden,
            "vocab_size": target.vocab,
            "chimera_num_heads": len(heads),
            "own_output": own,
        },
        "fast_layer1.0.self_attn.q_proj.bias" in weights,
    )
    found = {name: weights.get(name, *tensor.shape) for name, tensor in made.state_dict().items()}
    weights.check_none_unread()
    made.accuracy, made.nodes = calibration(config, folder.name)
    return fill(made, found, target)
