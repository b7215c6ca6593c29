"""XPress' refiner: a bottleneck over a block drafter's hidden states and the token before each position, mixed
causally over the block, gives a low-rank bias on the logits (2608.02438).

For position k with hidden state h_k, mean state g of the block, and previous token t:

    x_k = in_proj([down_h h_k; down_g g; prev_proj embedding(t)])
    x_k = sum over j <= k of mix[channel, k, j] x_j
    x_k = x_k + down(SiLU(gate x_k) * up x_k)
    logits_k = base_k + w2 x_k

``mix`` is lower-triangular, so a position's scores depend on the tokens before it only: a prefix that no longer
changes is final. A file may hold rows of ``w2`` for ``draft_tokens`` only; the bias of other tokens is zero.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ....checkpoints.weights import ModelError
from ....drafters.heads.path_scores import Block, CandidateScores
from ....models.heads import HeadWeights, TargetInfo, check_fit, config_of, fill


class XPress(nn.Module):
    """XPress' refiner of a block drafter (2608.02438), an nn.Module.

    config: hidden_size, vocab_size, block_size, xpress_rank, and draft_vocab_size where ``w2`` has rows for
    some tokens only. ``rows`` [vocab]: each token's row of ``w2``, the last row (zeros) for the others."""

    reads_text = False
    candidates = 64  # top tokens of each place that are corrected
    draft_tokens: Tensor | None

    def __init__(self, config: dict[str, Any], name: str = "the XPress refiner"):
        super().__init__()
        try:
            d, vocab, block, rank = (
                int(config[key]) for key in ("hidden_size", "vocab_size", "block_size", "xpress_rank")
            )
        except (KeyError, TypeError, ValueError) as missing:
            raise ModelError(f"config.json of {name} does not say {missing}", "head.config_lacks") from None
        self.config = config
        self.vocab = vocab
        self.rank = rank
        self.places = block - 1
        drafted = config.get("draft_vocab_size")
        self.down_h, self.down_g, self.prev_proj = (nn.Linear(d, rank, bias=False) for _ in range(3))
        self.in_proj = nn.Linear(3 * rank, rank, bias=False)
        self.mix = nn.Parameter(torch.eye(self.places).repeat(rank, 1, 1))
        self.gate, self.up, self.down = (nn.Linear(rank, rank, bias=False) for _ in range(3))
        self.w2 = nn.Linear(rank, drafted or vocab, bias=False)
        self.register_buffer("draft_tokens", torch.arange(drafted, dtype=torch.int32) if drafted else None)

    @torch.no_grad()
    def begin(self, embedding: Tensor, output: Tensor) -> None:
        """Initialise the weights for training, so that the bias is zero, along directions of the target's
        output matrix [vocab, hidden]; embeddings are read at the length that the hidden states have."""
        if self.draft_tokens is not None:
            output = output[self.draft_tokens.long().to(output.device)]
        mixed = torch.randn(output.shape[1], self.rank, device=output.device) / output.shape[1] ** 0.5
        self.w2.weight.copy_(output @ mixed)
        self.prev_proj.weight.div_(embedding.std().clamp(min=1e-6))
        self.in_proj.weight.zero_()

    def fused(self, states: Tensor, summary: Tensor, embeds: Tensor) -> Tensor:
        """Return the bottleneck [..., rank] before mixing, for states [..., hidden] of the block drafter,
        their mean ``summary`` over the block, and embeddings of the tokens before."""
        parts = (
            self.down_h(states),
            self.down_g(summary).expand(*states.shape[:-1], -1),
            self.prev_proj(embeds),
        )
        return self.in_proj(torch.cat(parts, -1))

    def read_out(self, x: Tensor) -> Tensor:
        """Return the bottleneck [..., rank] after the gated layer, from the mixed one; multiplied by ``w2`` it
        is the bias on the logits."""
        return x + self.down(F.silu(self.gate(x)) * self.up(x))

    def forward(self, states: Tensor, embeds: Tensor) -> Tensor:
        """Return the bottlenecks [blocks, positions, rank] of blocks. states [blocks, positions, hidden]; embeds
        [blocks, positions, hidden]: of the tokens before each position."""
        x = self.fused(states, states.mean(-2, keepdim=True), embeds)
        places = states.shape[-2]
        mix = self.mix[:, :places, :places].tril()
        return self.read_out(torch.einsum("ckj,...jc->...kc", mix, x))

    def bias(self, x: Tensor, ids: Tensor) -> Tensor:
        """Return the bias [..., m] of tokens ids [..., m] for bottlenecks x [..., rank]."""
        if self.draft_tokens is None:
            return (x[..., None, :] * self.w2.weight[ids]).sum(-1)
        tokens = self.draft_tokens.long()
        at = torch.full((self.vocab,), -1, device=tokens.device).scatter_(
            0, tokens, torch.arange(len(tokens)).to(tokens)
        )
        rows = at[ids]
        return (x[..., None, :] * self.w2.weight[rows.clamp(min=0)]).sum(-1) * (rows >= 0)

    def open(self, block: Block) -> RefinedScores:
        """Return the corrected scores of one round's block."""
        return RefinedScores(block, self, self.candidates)


class RefinedScores(CandidateScores):
    """Scores of a position's candidates: the block drafter's logits plus the refiner's bias. The recurrent state
    of a path is the bottlenecks of its positions before mixing, [positions * rank]."""

    def __init__(self, block: Block, head: XPress, candidates: int):
        super().__init__(block, candidates)
        self.head = head
        self.summary = block.states.mean(0, keepdim=True)

    def start(self) -> Tensor:
        return self.block.states.new_zeros(1, len(self) * self.head.rank)

    def step(self, position: int, carry: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        states = self.block.states[position].expand(len(tokens), -1)
        x = self.head.fused(states, self.summary, self.block.target.embed(tokens).to(states))
        carry = carry.expand(len(tokens), -1).unflatten(-1, (len(self), self.head.rank)).clone()
        carry[:, position] = x
        mix = self.head.mix[:, position, : position + 1]
        mixed = torch.einsum("cj,njc->nc", mix, carry[:, : position + 1])
        bias = self.head.bias(self.head.read_out(mixed), self.ids[position].expand(len(tokens), -1))
        return self.base[position] + bias, carry.flatten(1)

    def all_at_once(self, before: Tensor) -> Tensor:
        """Return the logits [positions, m] of all positions' candidates, given the token before each position,
        before [positions]: one pass of the refiner."""
        embeds = self.block.target.embed(before).to(self.block.states)
        return self.base + self.head.bias(self.head(self.block.states, embeds), self.ids)


def build(target: TargetInfo, hparams: dict[str, Any]) -> XPress:
    """Return an untrained network for a target. hparams: block, xpress_rank; draft_tokens: ids of the tokens
    that a draft may hold, None for all."""
    config = {
        "hidden_size": target.hidden,
        "vocab_size": target.vocab,
        "block_size": hparams["block"],
        "xpress_rank": hparams["xpress_rank"],
    }
    tokens = hparams.get("draft_tokens")
    if tokens is not None:
        config["draft_vocab_size"] = len(tokens)
    made = XPress(config, f"the XPress refiner of {target.name}")
    if made.draft_tokens is not None and tokens is not None:
        made.draft_tokens.copy_(tokens)
    return made


def load(folder: Path, target: TargetInfo) -> XPress:
    """Load the network of a checkpoint folder. Raises ModelError."""
    check_fit(folder, target.name, target.hidden, target.vocab)
    weights = HeadWeights(folder, target)
    made = XPress(
        {"hidden_size": target.hidden, "vocab_size": target.vocab, **config_of(folder)}, folder.name
    )
    found: dict[str, Tensor] = {}
    for name, tensor in made.state_dict().items():
        if name == "draft_tokens":
            found[name] = weights.ids(name, target.vocab).int()
        else:
            found[name] = weights.get(name, *tensor.shape)
    weights.check_none_unread()
    return fill(made, found, target)
