"""Train Medusa's heads on the frozen target's last hidden states along its own answers (Cai et al.
2401.10774: Medusa-1).

Head i learns the token i + 2 positions after the state it reads. The paper uses cross-entropy on text; here
the text is the target's own, so the loss is distillation from its distribution plus a little cross-entropy.
Losses of later heads weigh less. After training, the accuracy of each rank of each head is measured, and
the tree that is fastest on this machine is stored with the weights.
"""

from __future__ import annotations

from pathlib import Path
from typing import cast

from torch import nn

from ....training import parallel_heads, ranks
from ....training.features import Batch, Features
from ....training.job import Job
from . import medusa_network as heads_medusa


def run(job: Job) -> Path:
    """Train Medusa's heads; return the folder of their weights."""
    return parallel_heads.run(
        job,
        "medusa",
        heads_medusa.build,
        head_states_function,
        about,
        begin=initialise_output_matrices,
        most=parallel_heads.OWN_MATRICES,
    )


def initialise_output_matrices(model: heads_medusa.Medusa, features: Features) -> None:
    """Initialise the heads' own output matrices with the target's (lm_head)."""
    for matrix in model.lm_heads:
        cast(nn.Linear, matrix).weight.data.copy_(features.head)


def head_states_function(model: heads_medusa.Medusa, features: Features) -> ranks.HeadStates:
    """Return the function (batch, head) -> (kept, states) of ranks.HeadStates: one head's hidden states at
    the positions of a batch."""

    def head_states(batch: Batch, index: int):
        kept, places = batch.back(index + 1)
        block = cast(heads_medusa.Block, model.blocks[index])
        return kept, block(batch.states[places].to(cast(nn.Linear, block.layers[0]).weight.dtype))

    return head_states


def about(model: heads_medusa.Medusa, hparams: dict) -> str:
    """Return the text of the model card."""
    return CARD.format(
        heads=len(model),
        **{key: hparams[key] for key in ("layers", "output", "loss_decay", "hard_label_weight")},
    )


CARD = """Medusa heads: {heads} of them, {layers} residual blocks each, output matrix: {output}. Each reads the target's last
hidden state and predicts one token further ahead; a sparse tree of their top tokens is verified in one pass, so a wrong token
costs time and never changes the text. The accuracy of each rank of each head, from which the tree is planned, is in config.json.

Loss: distillation plus {hard_label_weight} times cross-entropy; head i's loss is multiplied by {loss_decay}^i."""
