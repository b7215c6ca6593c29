"""Train TreeFlash's network over the target's frozen DFlash (2606.03819): see block_corrections.py."""

from pathlib import Path

import torch
from torch import Tensor

from ....training import block_corrections
from ....training.block_corrections import Blocks, Corrected
from ....training.job import Job
from . import treeflash_network as network


def run(job: Job) -> Path:
    """Train TreeFlash's network; return the folder of its weights."""
    return block_corrections.run(job, "treeflash", network.build, scores, CARD)


def scores(model: network.TreeFlash, features: Corrected, blocks: Blocks) -> Tensor:
    """Return the network's corrected logits of the block drafter's candidates, [n, positions, m], given the
    true token before each position."""
    states = features.drafter.norm(blocks.raw + model.ar_approximation(blocks.embeds, blocks.states)).float()
    rows = features.head[blocks.ids].to(states.dtype)  # [n, positions, m, hidden]
    return torch.einsum("nph,npmh->npm", states, rows)


CARD = """TreeFlash's network, {treeflash_inner} wide: it corrects a hidden state of DFlash's block by the token before its place. The
target checks what is drafted, so a wrong guess costs time and never changes the text.

DFlash is frozen. Distillation of the target's probabilities on the {candidates} top tokens of each place, after the true token before,
weight e^(-place / {loss_decay_length}), {anchors} blocks a row of text."""
