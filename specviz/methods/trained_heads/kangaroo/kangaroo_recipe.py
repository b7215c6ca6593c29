"""Train Kangaroo's adapter on the states that enter the target's exit layer along its own answers (Liu et
al. 2404.18911).

Only the adapter is trained: one attention layer and two norms.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from torch import Tensor

from ....training import early_exit
from ....training.features import Batch, EntryFeatures, Features
from ....training.job import Job
from . import kangaroo_network as kangaroo


def run(job: Job) -> Path:
    """Train Kangaroo's adapter; return the folder of its weights."""
    return early_exit.run(job, "kangaroo", EntryFeatures, kangaroo.build, adapter_states, CARD)


def adapter_states(model: kangaroo.Kangaroo, _: Features, batch: Batch) -> Tensor:
    """Return the adapter's output states [rows * width, hidden]; the target's output matrix turns them into
    logits."""
    return model(batch.captured.float().view(*batch.ids.shape, -1)).flatten(0, 1)


chain_states_function = partial(early_exit.chain_states_function, adapter_states)


CARD = """A Kangaroo adapter: one attention layer and two norms after the target's first {exit_layer} layers. With the target's
own output matrix it drafts until it is no longer sure; the check goes on from the first layers' work, so a wrong guess costs time
and never changes the text.

Distilled from the target's distribution at every place of its answers; nothing else is trained."""
