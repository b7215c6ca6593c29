"""Clover: heads with a recurrent state, each updated by the token drafted before it (Xiao et al. 2405.00263).

A decoder layer over the target's last hidden states (the augmenting block) gives the first state. Head i
adds an attention whose query is that state and whose only key and value is the last drafted token; a
residual block per head, x + SiLU(W x + b), leads to the target's output matrix. Token inputs are rows of
that output matrix, normalised.

A softmax over one key is always 1; the paper's figure shows gates without a formula. Here the gate of each
attention head is the cosine between query and key, as in Clover-2, whose code is public. Clover's weights
were never published.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ....checkpoints.weights import ModelError
from ....models.eagle_layers import OF_TARGET, layer_keys, saved_layer_keys
from ....models.heads import HeadWeights, TargetInfo, calibration, config_of, fill
from ....models.hydra import Block, Prefix


class RegressiveAttention(nn.Module):
    """Attention of each hidden state to one token, an nn.Module: states [n, hidden] and token inputs [n,
    hidden] -> updated states [n, hidden]. heads: number of attention heads, each with a gate."""

    def __init__(self, hidden: int, heads: int, eps: float):
        super().__init__()
        self.heads, self.norm = heads, nn.RMSNorm(hidden, eps=eps)
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(hidden, hidden, False) for _ in range(3))
        for turn in (self.q_proj, self.k_proj):
            nn.init.eye_(turn.weight)
            turn.weight.data += 0.02 * torch.randn_like(turn.weight)
        nn.init.zeros_(self.v_proj.weight)

    def forward(self, states: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Return the states updated by the tokens, [n, hidden], and the gates [n, heads], each from -1 to
        1."""
        q, k, v = (
            part.unflatten(-1, (self.heads, -1))
            for part in (self.q_proj(self.norm(states)), self.k_proj(tokens), self.v_proj(tokens))
        )
        gates = F.cosine_similarity(q, k, -1)
        return states + (gates[..., None] * v).flatten(-2), gates


class Clover(nn.Module):
    """Clover's draft heads (Xiao et al. 2405.00263), an nn.Module: a recurrent state, updated by each
    drafted token, and a residual block per head before the target's output matrix.

    config: clover_num_heads and the sizes of a Llama layer. accuracy, nodes: calibration of the tree, as in
    Medusa."""

    def __init__(self, config: dict[str, Any]):
        super().__init__()
        self.sizes, d = config, config["hidden_size"]
        self.prefix = Prefix(config)
        if d % self.prefix.sizes.heads:
            raise ModelError(
                f"Clover shares {d} numbers out to {self.prefix.sizes.heads} gates, which does not go",
                "clover.gates",
            )
        self.regression = RegressiveAttention(d, self.prefix.sizes.heads, self.prefix.sizes.eps)
        self.mlp = nn.ModuleList(Block(d) for _ in range(config["clover_num_heads"]))
        self.accuracy: list[list[float]] = []
        self.nodes = 0

    def __len__(self) -> int:
        return len(self.mlp)

    @staticmethod
    def rows(head: Callable[[Tensor], Tensor], like: Tensor) -> Tensor:
        """Return the rows [vocab, hidden] of the target's output matrix, each normalised, which are the
        heads' inputs for the tokens. head: applies the output matrix; its bias is subtracted; like: a
        hidden state [hidden], for device and type."""
        states = torch.cat(
            [torch.eye(len(like), dtype=like.dtype, device=like.device), torch.zeros_like(like)[None]]
        )
        logits = head(states)
        return F.normalize((logits[:-1] - logits[-1]).T, dim=-1)

    def logits(self, index: int, states: Tensor, head: Callable[[Tensor], Tensor]) -> Tensor:
        """Return logits [n, vocab] of head ``index`` for its recurrent states [n, hidden]. head: applies
        the target's output matrix."""
        return head(self.mlp[index](states))

    def matrix(self, index: int, targets: Tensor) -> Tensor:
        """Return the output matrix [vocab, hidden] that head ``index`` uses in training: the target's,
        ``targets``."""
        return targets

    @property
    def config(self) -> dict[str, Any]:
        """The config.json of these heads."""
        return {**self.sizes, "model_type": "clover", "accuracy": self.accuracy, "nodes": self.nodes}


def build(target: TargetInfo, hparams: dict[str, Any]) -> Clover:
    """Return untrained heads for a target; their decoder layer has the shape of a target layer unless
    hparams give other sizes."""
    sizes = layer_keys(target.config) | {key: hparams[key] for key in OF_TARGET if key in hparams}
    return Clover(
        {
            **sizes,
            "hidden_size": target.hidden,
            "vocab_size": target.vocab,
            "clover_num_heads": hparams["heads"],
        }
    )


def load(folder: Path, target: TargetInfo) -> Clover:
    """Load the heads of a checkpoint folder in this project's layout. Raises ModelError, also for Clover-2,
    which is another network."""
    config, weights = config_of(folder), HeadWeights(folder, target)
    heads = weights.indices(r"mlp\.(\d+)\.linear\.weight")
    if weights.first(r"clover_.*"):
        raise ModelError(
            f"{folder.name} holds Clover-2, which reads the token in front of its layers: Clover alone is read here",
            "head.other_kind",
        )
    if not heads or heads != list(range(len(heads))):
        raise ModelError(
            f"{folder.name} holds no Clover heads under any of the known names", "head.other_kind"
        )
    if weights.shape("mlp.0.linear.weight")[0] != target.hidden:
        raise ModelError(
            f"{folder.name} does not fit {target.name}: it reads states of {weights.shape('mlp.0.linear.weight')[0]} numbers, "
            f"and {target.name} has {target.hidden}",
            "head.states",
        )
    sizes = saved_layer_keys(config, target.config)
    made = Clover(
        {**sizes, "hidden_size": target.hidden, "vocab_size": target.vocab, "clover_num_heads": len(heads)}
    )
    found = {name: weights.get(name, *tensor.shape) for name, tensor in made.state_dict().items()}
    weights.check_none_unread()
    made.accuracy, made.nodes = calibration(config, folder.name)
    return fill(made, found, target)
