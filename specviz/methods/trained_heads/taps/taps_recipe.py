"""Train TAPS' scorer over the target's frozen DFlash (2606.00487): see block_corrections.py.

The loss has two parts, as in the paper: the divergence from the target's distribution among the candidates
of a node (siblings), and the binary cross-entropy between the predicted probability that a node is reached,
a product along its path, and whether the target generated this path."""

from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from ....training import block_corrections
from ....training.block_corrections import Blocks, Corrected
from ....training.features import Batch
from ....training.job import Job
from . import taps_network as network


def run(job: Job) -> Path:
    """Train TAPS' scorer; return the folder of its weights."""
    return block_corrections.run(job, "taps", network.build, scores, CARD, loss)


def scores(model: network.Scorer, features: Corrected, blocks: Blocks) -> Tensor:
    """Return the scorer's scores of the block drafter's candidates, [n, positions, m], below the true token
    before each position."""
    depth = torch.arange(blocks.before.shape[1], device=blocks.before.device).expand_as(blocks.before)
    children = F.embedding(blocks.ids, features.embedding).float()
    return blocks.log_probs + model(blocks.embeds, children, blocks.log_probs, blocks.entropy, depth)


def loss(found: Tensor, batch: Batch, blocks: Blocks, hparams: dict) -> Tensor:
    """Return the distillation loss among siblings, plus ``reach_weight`` times the cross-entropy of the
    predicted probability that each sibling of the true path is reached. found [n, positions, m]: the
    scores."""
    log_probs = found.float().log_softmax(-1)
    written = blocks.ids == batch.labels[blocks.index][..., None]
    along = (log_probs * written).sum(-1)  # of the true token, where it is a sibling
    alive = torch.cat(
        [torch.ones_like(along[:, :1]), written.any(-1).float()[:, :-1].cumprod(1)], 1
    )  # the prefix is in the tree
    above = torch.cat([torch.zeros_like(along[:, :1]), along[:, :-1].cumsum(1)], 1)
    reach = (above[..., None] + log_probs).clamp(max=-1e-4)
    error = -(written * reach + ~written * torch.log1p(-reach.exp())).mean(-1)
    weight = block_corrections.weights(blocks, hparams)
    return (
        block_corrections.distil(found, batch, blocks, hparams)
        + hparams["reach_weight"] * (weight * alive * error).sum()
    )


CARD = """A TAPS scorer: which of the {candidates} top tokens of a place of DFlash's block the target takes after a given token, in
{taps_inner} numbers. The target checks what is drafted, so a wrong guess costs time and never changes the text.

DFlash is frozen. Distillation of the target's probabilities among siblings, weight e^(-place / {loss_decay_length}), and {reach_weight}
of the binary cross-entropy of each node's reach; {anchors} blocks a row of text."""
