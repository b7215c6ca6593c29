"""Train DFlash2's candidate selector over the target's frozen DFlash: see block_corrections.py."""

from pathlib import Path

from torch import Tensor

from ....training import block_corrections
from ....training.block_corrections import Blocks
from ....training.job import Job
from . import dflash2_network as network


def run(job: Job) -> Path:
    """Train DFlash2's candidate selector; return the folder of its weights."""
    return block_corrections.run(job, "dflash2", network.build, scores, CARD)


def scores(model: network.Selector, _, blocks: Blocks) -> Tensor:
    """Return the selector's scores of the block drafter's candidates, [n, positions, m], given the true
    token before each position."""
    return blocks.logits + model.candidate_selector(blocks.states, blocks.before, blocks.ids)


CARD = """A DFlash2 selector of rank {selector_rank}: DFlash's next place is chosen among its {candidates} top tokens, given the token
before. The target checks what is drafted, so a wrong guess costs time and never changes the text.

DFlash is frozen. Distillation of the target's probabilities on the candidates after the true token before, weight
e^(-place / {loss_decay_length}), {anchors} blocks a row of text. The authors' selectors have rank 256 and are trained with the
drafter."""
