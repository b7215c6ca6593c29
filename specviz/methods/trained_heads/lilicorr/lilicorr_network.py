"""LiLiCorr: a small transformer over the lattice of a block's top candidates scores all transitions between
neighbouring positions (2608.20530).

Each candidate of each position is one input: its embedding, the position's hidden state, features of its
probability, its position and its rank. All candidates attend to each other, with a bias by the distance of
their positions. Unit vectors made of a candidate's output and of the text before the root give the score of
a transition, logit_scale <out(a), in(b)>. Parameter names are those of the authors' code.
``lilicorr_add_base`` (ours, off in published heads) adds the drafter's own log-probability of b.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ....checkpoints.weights import ModelError
from ....drafters.heads.path_scores import Block, CandidateScores, PathScores
from ....models.heads import HeadWeights, TargetInfo, check_fit, config_of, fill

FEATURES = 5  # log-probability, probability, distance to the best, rank, whether it is the best
SIZES = (
    "candidate_topk",
    "hidden_size",
    "num_layers",
    "num_heads",
    "mlp_ratio",
    "factor_dim",
    "vector_eps",
    "logit_scale",
)


class LatticeAttention(nn.Module):
    """Multi-head attention over all candidates of a block, an nn.Module: x [blocks, n, hidden] -> [blocks,
    n, hidden], with an additive bias [heads, n, n] on the scores."""

    def __init__(self, hidden: int, heads: int):
        super().__init__()
        self.heads = heads
        self.in_proj_weight, self.in_proj_bias = (
            nn.Parameter(torch.empty(3 * hidden, hidden)),
            nn.Parameter(torch.zeros(3 * hidden)),
        )
        nn.init.normal_(self.in_proj_weight, std=hidden**-0.5)
        self.out_proj = nn.Linear(hidden, hidden)

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in F.linear(x, self.in_proj_weight, self.in_proj_bias).chunk(3, -1)
        )
        return self.out_proj(
            F.scaled_dot_product_attention(q, k, v, bias.to(q.dtype)).transpose(1, 2).flatten(2)
        )


class LatticeLayer(nn.Module):
    """A transformer layer over the candidates, an nn.Module: LatticeAttention and a feed-forward, each
    after a norm. ratio: inner width of the feed-forward as a multiple of hidden."""

    def __init__(self, hidden: int, heads: int, ratio: float, eps: float):
        super().__init__()
        self.attn_norm, self.attn = nn.RMSNorm(hidden, eps=eps), LatticeAttention(hidden, heads)
        self.mlp_norm, inner = nn.RMSNorm(hidden, eps=eps), int(hidden * ratio)
        self.mlp = nn.Sequential(nn.Linear(hidden, inner), nn.SiLU(), nn.Linear(inner, hidden))

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        x = x + self.attn(self.attn_norm(x), bias)
        return x + self.mlp(self.mlp_norm(x))


class LiLiCorr(nn.Module):
    """LiLiCorr's correction of a block drafter (2608.20530), an nn.Module: a transformer over the lattice
    of candidates that scores all transitions between neighbouring positions.

    config: hidden_size, block_size, rms_norm_eps, and the ``lilicorr_*`` sizes."""

    reads_text = True

    def __init__(self, config: dict[str, Any], name: str = "the LiLiCorr head"):
        super().__init__()
        try:
            d, self.block = int(config["hidden_size"]), int(config["block_size"])
            sizes = {key: config[f"lilicorr_{key}"] for key in SIZES}
        except (KeyError, TypeError, ValueError) as missing:
            raise ModelError(f"config.json of {name} does not say {missing}", "head.config_lacks") from None
        self.config = config
        self.top_k = int(sizes["candidate_topk"])
        eps = float(config.get("rms_norm_eps", 1e-6))
        h = int(sizes["hidden_size"]) or d
        heads = int(sizes["num_heads"])
        factors = int(sizes["factor_dim"])
        if h % heads:
            raise ModelError(
                f"{name} shares {h} numbers out to {heads} heads, which does not go", "lilicorr.heads"
            )
        self.vector_eps, self.logit_scale = float(sizes["vector_eps"]), float(sizes["logit_scale"])
        self.add_base = bool(config.get("lilicorr_add_base"))
        self.token_proj: nn.Module = nn.Identity() if h == d else nn.Linear(d, h)
        self.embed_scale = 1.0  # of embeddings during training; ``fold_scale`` puts it into the weights
        self.pass_hidden_proj, self.context_proj = nn.Linear(d, h), nn.Linear(d, h)
        self.feature_mlp = nn.Sequential(
            nn.LayerNorm(FEATURES), nn.Linear(FEATURES, h), nn.SiLU(), nn.Linear(h, h)
        )
        self.slot_embedding = nn.Parameter(0.02 * torch.randn(1, 1, self.block - 1, 1, h))
        self.rank_embedding = nn.Parameter(0.02 * torch.randn(1, 1, 1, self.top_k, h))
        self.relative_slot_bias = nn.Parameter(torch.zeros(heads, 2 * self.block - 1))
        self.same_slot_bias = nn.Parameter(torch.zeros(heads))
        self.layers = nn.ModuleList(
            LatticeLayer(h, heads, float(sizes["mlp_ratio"]), eps) for _ in range(int(sizes["num_layers"]))
        )
        self.output_norm, self.anchor_norm = nn.RMSNorm(h, eps=eps), nn.RMSNorm(h, eps=eps)
        self.factor_input_proj = nn.Linear(3 * h, h)
        self.out_head, self.in_head, self.anchor_out_head = (nn.Linear(h, factors) for _ in range(3))

    @torch.no_grad()
    def fold_scale(self) -> None:
        """Multiply the weights that read embeddings by the scale that training applies to the embeddings,
        as the published layout has it."""
        if isinstance(self.token_proj, nn.Linear):
            self.token_proj.weight *= self.embed_scale
            self.embed_scale = 1.0

    def bias(self, places: int) -> Tensor:
        """Return the attention bias [heads, positions * top_k, positions * top_k] for this number of
        positions."""
        slot = torch.arange(places, device=self.same_slot_bias.device).repeat_interleave(self.top_k)
        apart = slot[:, None] - slot
        return (
            self.relative_slot_bias[:, apart + self.block - 1]
            + (apart == 0) * self.same_slot_bias[:, None, None]
        )

    def forward(
        self, embeds: Tensor, log_probs: Tensor, states: Tensor, text: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return the scores of the first position's candidates [blocks, k] and of all transitions [blocks,
        positions - 1, k, k].

        embeds [blocks, positions, k, hidden] and log_probs [blocks, positions, k] of the candidates, most
        probable first; states [blocks, positions, hidden]: the block drafter's; text [blocks, hidden]:
        ``Block.text``, None for none."""
        places, k = log_probs.shape[1:]
        rank = torch.arange(k, device=log_probs.device, dtype=log_probs.dtype)
        features = torch.stack(
            [
                log_probs,
                log_probs.exp(),
                log_probs - log_probs.amax(-1, keepdim=True),
                (rank / max(1, k - 1)).expand_as(log_probs),
                (rank == 0).to(rank).expand_as(log_probs),
            ],
            -1,
        )
        x = self.token_proj(embeds * self.embed_scale) + self.pass_hidden_proj(states)[..., None, :]
        x = x + self.feature_mlp(features.to(states.dtype))
        x = (x + self.slot_embedding[:, 0, :places] + self.rank_embedding[:, 0]).flatten(1, 2)
        bias = self.bias(places)
        for layer in self.layers:
            x = layer(x, bias)
        x = self.output_norm(x).unflatten(1, (places, k))
        anchor = self.anchor_norm(
            self.context_proj(states[:, 0] if text is None else text) * (text is not None)
        )
        row = anchor[:, None, None].expand_as(x)
        x = F.silu(self.factor_input_proj(torch.cat([x, row, x * row], -1)))
        outgoing, incoming, first = (
            F.normalize(head(part), dim=-1, eps=self.vector_eps)
            for head, part in ((self.out_head, x), (self.in_head, x), (self.anchor_out_head, anchor))
        )
        start = (first[:, None] * incoming[:, 0]).sum(-1)
        pairs = outgoing[:, :-1] @ incoming[:, 1:].transpose(-1, -2)
        return self.logit_scale * start, self.logit_scale * pairs

    def open(self, block: Block) -> PathScores:
        """Return the corrected scores of one round's block."""
        return LatticeScores(block, self)


class LatticeScores(CandidateScores):
    """Scores of a position's candidates: the network's scores of the transitions from the token before;
    after a token that is not a candidate, the block drafter's own log-probabilities."""

    def __init__(self, block: Block, head: LiLiCorr):
        super().__init__(block, head.top_k)
        embeds = block.target.embed(self.ids.flatten()).to(block.states).unflatten(0, self.ids.shape)
        text = None if block.text is None else block.text[None]
        start, pairs = head(embeds[None], self.log_probs[None], block.states[None], text)
        own = self.log_probs if head.add_base else torch.zeros_like(self.log_probs)
        self.first, self.pairs = own[0] + start[0], own[1:, None] + pairs[0]

    def step(self, position: int, carry: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        if position == 0:
            return self.first.expand(len(tokens), -1), carry
        at, known = self.ranks(position - 1, tokens)
        return torch.where(known[:, None], self.pairs[position - 1][at], self.log_probs[position]), carry


def build(target: TargetInfo, hparams: dict[str, Any]) -> LiLiCorr:
    """Return an untrained network for a target. hparams: block, candidates, and the ``lilicorr_*`` keys of
    a config except candidate_topk."""
    sizes = {f"lilicorr_{key}": hparams[f"lilicorr_{key}"] for key in SIZES[1:]}
    return LiLiCorr(
        {
            "hidden_size": target.hidden,
            "vocab_size": target.vocab,
            "block_size": hparams["block"],
            **sizes,
            "lilicorr_candidate_topk": min(hparams["candidates"], target.vocab),
            "lilicorr_add_base": True,
        },
        f"the LiLiCorr head of {target.name}",
    )


def load(folder: Path, target: TargetInfo) -> LiLiCorr:
    """Load the network of a checkpoint folder. Raises ModelError."""
    check_fit(folder, target.name, target.hidden, target.vocab)
    weights = HeadWeights(folder, target)
    made = LiLiCorr({"hidden_size": target.hidden, **config_of(folder)}, folder.name)
    found = {name: weights.get(name, *tensor.shape) for name, tensor in made.state_dict().items()}
    weights.check_none_unread()
    return fill(made, found, target)
