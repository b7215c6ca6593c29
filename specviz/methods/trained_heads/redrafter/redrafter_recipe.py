"""Train ReDrafter's head on the frozen target's last hidden states along its own answers (Zhang et al.
2403.09919).

The recurrence runs over the true tokens after a hidden state, and each step learns the next one. The
authors train on text; here the text is the target's own and the loss is distillation, as in the knowledge
distillation of the paper.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch.nn import functional as F

from ....training import parallel_heads, ranks
from ....training.features import Batch, Features
from ....training.job import Job
from ....trees import full_tree
from . import redrafter_network as redrafter


def run(job: Job) -> Path:
    """Train ReDrafter's head; return the folder of its weights."""
    return parallel_heads.run(
        job,
        "redrafter",
        redrafter.build,
        head_states_function,
        lambda model, hparams: CARD.format(**hparams),
        chain=lambda model: full_tree((1,) * len(model)),
        most=parallel_heads.OWN_MATRICES,
    )


def head_states_function(model: redrafter.ReDrafter, features: Features) -> ranks.HeadStates:
    """Return the function (batch, step) -> (kept, states) of ranks.HeadStates: the hidden states of one
    step of the recurrence at the positions of a batch."""

    def head_states(batch: Batch, index: int):
        kept, places = batch.back(index + 1)
        last, ids = batch.states[places].float(), batch.ids.flatten()
        states = torch.zeros_like(last)
        for step in range(index + 1):
            states = model.step(states, F.embedding(ids[places + 1 + step], features.embedding).float())
        return kept, model.exits(last, states)

    return head_states


CARD = """A ReDrafter head ({layers} residual blocks after a recurrent state; the target's embedding is shared by the target, and
its output matrix unless the head has one of its own). From the target's last hidden state and the tokens drafted so far it
guesses the next token; several continuations are followed by beam search and checked in one pass, so a wrong guess costs time and
never changes the text.

Loss: distillation plus {hard_label_weight} times cross-entropy, {length_ahead} tokens ahead; step i's loss is multiplied by
{loss_decay}^i. Figures in the curve are for a single beam."""
