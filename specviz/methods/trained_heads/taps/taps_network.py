"""TAPS' scorer: the target's preference among the children of a node, given its token (2606.00487).

It reads parent and child token, the depth, the child's log-probability in the drafter and the entropy of
the drafter's position; a softmax over the siblings gives the probability that a child is accepted once its
parent is. The product along a path estimates how probably verification reaches a node. The score is added
to the drafter's log-probability, so that an untrained scorer is DDTree's rule.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ....checkpoints.weights import ModelError
from ....drafters.heads.path_scores import Block, CandidateScores, PathScores
from ....drafters.heads.reduced_output import reduced_head
from ....models.heads import HeadWeights, TargetInfo, check_fit, config_of, fill

SIZES = ("taps_rank", "taps_inner", "taps_top_k", "taps_depths")


class Scorer(nn.Module):
    """TAPS' correction of a block drafter (2606.00487), an nn.Module that estimates which child of a node
    the target accepts.

    config: hidden_size, taps_rank (width of the tokens' projections), taps_inner, taps_top_k (number of
    siblings), taps_depths."""

    reads_text = False

    def __init__(self, config: dict[str, Any], name: str = "the TAPS scorer"):
        super().__init__()
        try:
            d, (rank, inner, self.top_k, depths) = (
                int(config["hidden_size"]),
                (int(config[key]) for key in SIZES),
            )
        except (KeyError, TypeError, ValueError) as missing:
            raise ModelError(f"config.json of {name} does not say {missing}", "head.config_lacks") from None
        self.config, self.depths = config, depths
        self.parent, self.child = nn.Linear(d, rank, bias=False), nn.Linear(d, rank, bias=False)
        self.depth = nn.Embedding(depths, inner)
        self.hidden, self.out = nn.Linear(3 * rank + 2, inner), nn.Linear(inner, 1, bias=False)
        nn.init.zeros_(self.out.weight)

    def forward(
        self, parents: Tensor, children: Tensor, log_probs: Tensor, entropy: Tensor, depth: Tensor
    ) -> Tensor:
        """Return the correction [..., k] of the children's log-probabilities. parents [..., hidden] and
        children [..., k, hidden]: embeddings; log_probs [..., k]: by the block drafter; entropy [...]: of
        its distribution, in nats; depth [...]: 0 for the root's children."""
        size = parents.shape[-1] ** 0.5  # embeddings are made as long as states after a norm
        u = self.parent(size * F.normalize(parents, dim=-1))[..., None, :].expand(*children.shape[:-1], -1)
        v = self.child(size * F.normalize(children, dim=-1))
        x = torch.cat(
            [u, v, u * v, log_probs[..., None], entropy[..., None, None].expand(*log_probs.shape, 1)], -1
        )
        return self.out(F.silu(self.hidden(x) + self.depth(depth.clamp(max=self.depths - 1))[..., None, :]))[
            ..., 0
        ]

    def open(self, block: Block) -> PathScores:
        """Return the corrected scores of one round's block."""
        return SiblingScores(block, self)


class SiblingScores(CandidateScores):
    """Scores of a position's candidates: the block drafter's log-probabilities plus the network's
    correction, given the token before."""

    def __init__(self, block: Block, head: Scorer):
        super().__init__(block, head.top_k)
        self.head, restricted = head, reduced_head(block.target)
        logits = block.logits if restricted is None else block.logits[:, restricted.tokens]
        log_probs = logits.log_softmax(-1)
        self.entropy = -(log_probs.exp() * log_probs.clamp(min=-1e4)).sum(-1)
        self.children = block.target.embed(self.ids.flatten()).to(block.states).unflatten(0, self.ids.shape)

    def step(self, position: int, carry: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        n = len(tokens)
        found = self.head(
            self.block.target.embed(tokens).to(self.children),
            self.children[position].expand(n, -1, -1),
            self.log_probs[position].expand(n, -1),
            self.entropy[position].expand(n),
            torch.full((n,), position, dtype=torch.long, device=tokens.device),
        )
        return self.log_probs[position] + found, carry


def build(target: TargetInfo, hparams: dict[str, Any]) -> Scorer:
    """Return an untrained network for a target. hparams: taps_rank, taps_inner, candidates, block."""
    sizes = {
        "taps_rank": hparams["taps_rank"],
        "taps_inner": hparams["taps_inner"],
        "taps_top_k": hparams["candidates"],
        "taps_depths": hparams["block"],
    }
    return Scorer(
        {"hidden_size": target.hidden, "vocab_size": target.vocab, **sizes},
        f"the TAPS scorer of {target.name}",
    )


def load(folder: Path, target: TargetInfo) -> Scorer:
    """Load the network of a checkpoint folder. Raises ModelError."""
    check_fit(folder, target.name, target.hidden, target.vocab)
    weights = HeadWeights(folder, target)
    made = Scorer({"hidden_size": target.hidden, **config_of(folder)}, folder.name)
    found = {name: weights.get(name, *tensor.shape) for name, tensor in made.state_dict().items()}
    weights.check_none_unread()
    return fill(made, found, target)
