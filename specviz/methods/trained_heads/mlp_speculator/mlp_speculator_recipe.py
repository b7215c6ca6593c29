"""Train MLPSpeculator's levels on the frozen target's last hidden states along its own answers (Wertheimer
et al. 2404.19124).

Level i reads the hidden state i + 1 positions earlier and the true tokens after it, and learns the next
token. The paper trains in two stages, on long texts and then on text of the target, with cross-entropy.
Here one stage starts with all texts and ends with the target's own, and the loss is distillation.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from ....training import parallel_heads, ranks
from ....training.features import Batch, Features
from ....training.job import Job
from ....trees import full_tree
from . import mlp_speculator_network as mlp_speculator


def run(job: Job) -> Path:
    """Train MLPSpeculator's levels; return the folder of their weights."""
    return parallel_heads.run(
        job,
        "mlp_speculator",
        mlp_speculator.build,
        head_states_function,
        about,
        chain=lambda model: full_tree(model.top),
        begin=begin,
        most=parallel_heads.OWN_MATRICES,
    )


@torch.no_grad()
def begin(model: mlp_speculator.MLPSpeculator, features: Features) -> None:
    """Initialise embeddings and output matrices with the target's output matrix, projected on its main
    directions: with few training tokens most rows of a large vocabulary would otherwise stay random."""
    matrix = features.head.float()
    basis = torch.linalg.eigh(matrix.T @ matrix)[1].flip(1)[
        :, : model.inner
    ]  # [hidden, inner], the largest first
    table = matrix @ basis
    parts: list[Any] = [*model.emb, *model.head]
    for part in parts:
        part.weight.copy_(table / table.std() * model.inner**-0.5)
    first: Any = model.proj[0]
    first.weight.copy_(basis.T)


def about(model: mlp_speculator.MLPSpeculator, hparams: dict) -> str:
    """Return the text of the model card."""
    return CARD.format(
        levels=len(model),
        inner=model.inner,
        **{key: hparams[key] for key in ("loss_decay", "hard_label_weight")},
    )


def head_states_function(model: mlp_speculator.MLPSpeculator, features: Features) -> ranks.HeadStates:
    """Return the function (batch, level) -> (kept, states) of ranks.HeadStates: one level's hidden states
    at the positions of a batch."""

    def head_states(batch: Batch, index: int):
        kept, places = batch.back(index + 1)
        states, ids = batch.states[places].float(), batch.ids.flatten()
        for level in range(index + 1):
            states = model.step(level, states, ids[places + 1 + level])
        return kept, states

    return head_states


CARD = """An MLPSpeculator of {levels} levels, {inner} numbers wide. From the target's last hidden state and the token guessed
before it, each level guesses the next token; the most probable paths are checked in one pass, so a wrong guess costs time and
never changes the text.

Embeddings and output matrix began as the target's output matrix, projected on its main directions.
Loss: distillation plus {hard_label_weight} times cross-entropy; level i's loss is multiplied by {loss_decay}^i."""
