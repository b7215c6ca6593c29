"""Train XPress' refiner over the target's frozen DFlash (2608.02438): see block_corrections.py."""

from pathlib import Path

from torch import Tensor

from ....training import block_corrections
from ....training.block_corrections import Blocks
from ....training.job import Job
from . import xpress_network as network


def run(job: Job) -> Path:
    """Train XPress' refiner; return the folder of its weights."""
    return block_corrections.run(job, "xpress", network.build, scores, CARD)


def scores(model: network.XPress, _, blocks: Blocks) -> Tensor:
    """Return the refined logits of the block drafter's candidates, [n, positions, m], given the true tokens
    before each position."""
    return blocks.logits + model.bias(model(blocks.states, blocks.embeds), blocks.ids)


CARD = """An XPress refiner: {xpress_rank} numbers a place, mixed over the places before it, correct DFlash's block in passes over
all places at once. The target checks what is drafted, so a wrong guess costs time and never changes the text.

DFlash is frozen. Distillation of the target's probabilities on the {candidates} top tokens of each place after the true tokens, weight
e^(-place / {loss_decay_length}), {anchors} blocks a row of text; the authors train both parts on the refiner's own passes."""
