"""Train Hydra's heads on the frozen target's hidden states along its own answers (Ankner et al. 2402.05109).

Head i reads the hidden state and the embeddings of the i + 1 tokens after it, which in training are the
text's tokens, and learns the next one. Loss and tree are those of Medusa (methods/trained_heads/medusa/medusa_recipe.py):
distillation, as in Hydra++. With a prefix layer the heads read the hidden states of the whole text.
"""

from __future__ import annotations

from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ....models import hydra as heads_hydra
from ....training import parallel_heads
from ....training.features import Batch, Features
from ....training.job import Job


def run(job: Job) -> Path:
    """Train Hydra's heads; return the folder of their weights."""
    return parallel_heads.run(
        job,
        "hydra",
        heads_hydra.build,
        lambda model, features: BatchHeadStates(model, features).head_states,
        about,
        run_attention=lambda model, head_states, batch: head_states(batch, 0),
        begin=initialise_output_matrices,
        most=parallel_heads.OWN_MATRICES,
    )


def initialise_output_matrices(model: heads_hydra.Hydra, features: Features) -> None:
    """Initialise the heads' own output matrices with the target's (lm_head)."""
    for matrix in model.hydra_lm_head:
        cast(nn.Linear, matrix).weight.data.copy_(features.head)


def about(model: heads_hydra.Hydra, hparams: dict) -> str:
    """Return the text of the model card."""
    listed = {key: hparams[key] for key in ("layers", "loss_decay", "hard_label_weight")}
    return CARD.format(heads=len(model), front=FRONT * bool(model.prefix), **listed)


class BatchHeadStates:
    """Compute the heads' hidden states at the positions of a training batch. The prefix layer runs once per
    batch."""

    def __init__(self, model: heads_hydra.Hydra, features: Features):
        self.model, self.features = model, features
        self._of: Batch | None = None
        self._states: Tensor | None = None

    def head_states(self, batch: Batch, index: int):
        """Return (kept, states [m, hidden]) of head ``index``: indices into ``batch.where``, and the head's
        hidden states at them."""
        if self._of is not batch:
            states = batch.states.float()
            if self.model.prefix:
                states = self.model.prefix(states.view(*batch.ids.shape, -1)).flatten(0, 1)
            self._of, self._states = batch, states
        assert self._states is not None  # of this batch
        kept, places = batch.back(index + 1)
        above = batch.ids.flatten()[
            places[:, None] + 1 + torch.arange(index + 1, device=places.device)
        ]  # the root and below
        tokens = F.embedding(above, self.features.embedding).flatten(1).float()
        return kept, self.model.hydra_mlp[index](torch.cat([self._states[places].float(), tokens], -1))


FRONT = "A decoder layer in front of them reads the whole text's states (Hydra++). "
CARD = """Hydra heads: {heads} of them, {layers} blocks each; embedding and output matrix are shared with the target.
Each reads the target's last state and the tokens drafted before its own. {front}A tree is drafted level by level and verified in
one pass, so a wrong token costs time and never changes the text. The accuracy of each rank of each head is in config.json.

Loss: distillation plus {hard_label_weight} times cross-entropy; head i's loss is multiplied by {loss_decay}^i."""
