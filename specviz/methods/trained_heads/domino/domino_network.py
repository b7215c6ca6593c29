"""Domino's head: a recurrent network over the chosen prefix and a low-rank bias on a block drafter's logits
(2605.29707).

A GRU without biases reads the embeddings of the root and of the drafted tokens. Its state and the
position's hidden state pass a bottleneck, W2 SiLU(W1 [hidden, gru]), which is added to the position's
logits. Parameter names are those of the authors' code (``prefix_gru``, ``embed_proj``); the drafter below
it is a DFlash of the target.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ....checkpoints.weights import ModelError
from ....drafters.heads.path_scores import Block, CandidateScores, PathScores
from ....models.heads import HeadWeights, TargetInfo, check_fit, config_of, fill


class Domino(nn.Module):
    """Domino's correction of a block drafter (2605.29707), an nn.Module: a GRU over the drafted tokens
    gives a low-rank bias on each position's logits.

    config: hidden_size, vocab_size, gru_hidden_dim, emb_dim, and pure_draft_prefix_len, the number of first
    positions that are not corrected."""

    reads_text = False
    candidates = 64  # top tokens of each place that are corrected, as in DARTree's code

    def __init__(self, config: dict[str, Any], name: str = "the Domino head"):
        super().__init__()
        try:
            d, gru, width = (int(config[key]) for key in ("hidden_size", "gru_hidden_dim", "emb_dim"))
        except (KeyError, TypeError, ValueError) as missing:
            raise ModelError(f"config.json of {name} does not say {missing}", "head.config_lacks") from None
        self.config, self.skipped = config, int(config.get("pure_draft_prefix_len") or 0)
        self.prefix_gru = nn.GRU(d, gru, batch_first=True, bias=False)
        self.embed_proj = nn.Sequential(
            nn.Linear(d + gru, width, bias=False),
            nn.SiLU(),
            nn.Linear(width, int(config["vocab_size"]), bias=False),
        )

    @property
    def narrow(self) -> nn.Linear:
        """The first matrix of the bottleneck, ``embed_proj.0``."""
        return cast(nn.Linear, self.embed_proj[0])

    @property
    def widen(self) -> nn.Linear:
        """The last matrix of the bottleneck, ``embed_proj.2`` [vocab, emb_dim]."""
        return cast(nn.Linear, self.embed_proj[2])

    @torch.no_grad()
    def begin(self, embedding: Tensor, output: Tensor) -> None:
        """Initialise the weights for training, so that the bias is zero, along directions of the target's
        output matrix [vocab, hidden]."""
        mixed = (
            torch.randn(output.shape[1], self.widen.weight.shape[1], device=output.device)
            / output.shape[1] ** 0.5
        )
        self.widen.weight.copy_(output @ mixed)
        self.narrow.weight.zero_()

    def read(self, embeds: Tensor, carry: Tensor) -> Tensor:
        """Return the GRU's states [n, gru] after one more token each. embeds [n, hidden]: these tokens'
        embeddings; carry [n, gru]: the states before."""
        gates = F.linear(embeds, cast(Tensor, self.prefix_gru.weight_ih_l0)).chunk(3, -1)
        reset, update, new = F.linear(carry, cast(Tensor, self.prefix_gru.weight_hh_l0)).chunk(3, -1)
        kept = torch.sigmoid(gates[1] + update)
        return (1 - kept) * torch.tanh(gates[2] + torch.sigmoid(gates[0] + reset) * new) + kept * carry

    def latent(self, states: Tensor, carry: Tensor) -> Tensor:
        """Return the bottleneck [..., emb_dim] of positions with the block drafter's hidden states [...,
        hidden] and the GRU's states ``carry`` [..., gru]; multiplied by ``embed_proj.2`` it is the bias on
        the logits."""
        return F.silu(self.narrow(torch.cat([states, carry], -1)))

    def forward(self, states: Tensor, embeds: Tensor) -> Tensor:
        """Training: return the bottlenecks [blocks, positions, emb_dim] of blocks. states [blocks,
        positions, hidden]: the block drafter's hidden states; embeds [blocks, positions, hidden]: of the
        root and the true tokens before each position."""
        return self.latent(states, self.prefix_gru(embeds)[0])

    def open(self, block: Block) -> PathScores:
        """Return the corrected scores of one round's block."""
        return DominoScores(block, self, self.candidates)


class DominoScores(CandidateScores):
    """Scores of a position's candidates: the block drafter's logits plus Domino's bias. The recurrent state
    of a path is the GRU's, before it has read the path's last token."""

    def __init__(self, block: Block, head: Domino, candidates: int):
        super().__init__(block, candidates)
        self.head, self.matrix = head, head.widen.weight

    def start(self) -> Tensor:
        return self.block.states.new_zeros(1, self.head.prefix_gru.hidden_size)

    def step(self, position: int, carry: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        carry = self.head.read(self.block.target.embed(tokens).to(carry), carry)
        if position < self.head.skipped:
            return self.base[position].expand(len(tokens), -1), carry
        latent = self.head.latent(self.block.states[position].to(carry).expand(len(tokens), -1), carry)
        return self.base[position] + latent @ self.matrix[self.ids[position]].T, carry


def build(target: TargetInfo, hparams: dict[str, Any]) -> Domino:
    """Return an untrained network for a target. hparams: gru_hidden_dim, emb_dim, pure_draft_prefix_len."""
    sizes = {
        key: hparams[key] for key in ("gru_hidden_dim", "emb_dim", "pure_draft_prefix_len") if key in hparams
    }
    return Domino(
        {"hidden_size": target.hidden, "vocab_size": target.vocab, **sizes},
        f"the Domino head of {target.name}",
    )


def load(folder: Path, target: TargetInfo) -> Domino:
    """Load the network of a checkpoint folder. Raises ModelError."""
    check_fit(folder, target.name, target.hidden, target.vocab)
    weights = HeadWeights(folder, target)
    made = Domino(
        {"hidden_size": target.hidden, "vocab_size": target.vocab, **config_of(folder)}, folder.name
    )
    found = {name: weights.get(name, *tensor.shape) for name, tensor in made.state_dict().items()}
    weights.check_none_unread()
    return fill(made, found, target)
