"""Train Domino's head over the target's frozen DFlash (2605.29707): see block_corrections.py."""

from pathlib import Path

from torch import Tensor

from ....training import block_corrections
from ....training.block_corrections import Blocks
from ....training.job import Job
from . import domino_network as network


def run(job: Job) -> Path:
    """Train Domino's correction head; return the folder of its weights."""
    return block_corrections.run(job, "domino", network.build, scores, CARD)


def scores(model: network.Domino, _, blocks: Blocks) -> Tensor:
    """Return the head's corrected logits of the block drafter's candidates, [n, positions, m], given the
    true tokens before each position."""
    latent = model(blocks.states, blocks.embeds)
    bias = (latent[..., None, :] * model.widen.weight[blocks.ids]).sum(-1)
    places = bias.new_ones(bias.shape[1]).cumsum(0) > model.skipped
    return blocks.logits + bias * places[:, None]


CARD = """A Domino head: a recurrent network with {gru_hidden_dim} numbers reads the tokens chosen so far, and a bottleneck of
{emb_dim} corrects DFlash's next place. The target checks what is drafted, so a wrong guess costs time and never changes the text.

DFlash is frozen. Distillation of the target's probabilities on the {candidates} top tokens of each place, weight
e^(-place / {loss_decay_length}), {anchors} blocks a row of text; the authors train the whole drafter, first without the head."""
