"""Train Clover's heads on the frozen target's hidden states along its own answers (Xiao et al. 2405.00263).

The recurrent state reads the true tokens after a position, as on an accepted path; head i reads i + 1 of
them and learns the next one. The augmenting block starts from random weights; in the paper it starts from
the target's last layer. Loss and tree are those of Hydra."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor
from torch.nn import functional as F

from ....training import parallel_heads
from ....training.features import Batch, Features
from ....training.job import Job
from . import clover_network as clover


def run(job: Job) -> Path:
    """Train Clover's heads; return the folder of their weights."""
    return parallel_heads.run(
        job,
        "clover",
        clover.build,
        lambda model, features: BatchHeadStates(model, features).head_states,
        lambda model, hparams: CARD.format(**hparams),
        run_attention=lambda model, head_states, batch: head_states(batch, 0),
    )


class BatchHeadStates:
    """Compute the heads' hidden states at the positions of a training batch. The augmenting block runs once
    per batch."""

    def __init__(self, model: clover.Clover, features: Features):
        self.model = model
        self.table = F.normalize(features.head.detach().float(), dim=-1)
        self._of: Batch | None = None
        self._states: Tensor | None = None

    def head_states(self, batch: Batch, index: int):
        """Return (kept, states [m, hidden]) of head ``index``: indices into ``batch.where``, and the head's
        hidden states at them."""
        if self._of is not batch:
            self._of, self._states = (
                batch,
                self.model.prefix(batch.states.float().view(*batch.ids.shape, -1)).flatten(0, 1),
            )
        kept, places = batch.back(index + 1)
        assert self._states is not None  # of this batch
        states, ids = self._states[places], batch.ids.flatten()
        for level in range(index + 1):
            states, _ = self.model.regression(states, self.table[ids[places + 1 + level]])
        return kept, self.model.mlp[index](states)


CARD = """Clover heads: {heads} of them after a decoder layer over the whole text's states; the output matrix is the target's.
Each drafted token updates the recurrent state that predicts the next one. A tree is drafted level by level and verified in one pass,
so a wrong draft costs time and never changes the text. The accuracy of each rank of each head is in config.json.

Loss: distillation plus {hard_label_weight} times cross-entropy; head i's loss is multiplied by {loss_decay}^i.
The paper initialises the augmenting block with the target's last layer and trains on text; here it is initialised randomly."""
