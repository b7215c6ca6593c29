"""Kangaroo's adapter, trained on the states that enter the target's exit layer along its own answers (Liu et al. 2404.18911).

The loss is the divergence of what the target's head makes of the adapted state from the target's law. Only the adapter is
trained: one attention layer and two norms.
"""

from pathlib import Path

import torch
from torch import Tensor

from ..models import kangaroo
from . import attention, chains, losses
from .features import Batch, Features
from .job import Job, TrainingError
from .runner import Runner


def run(job: Job) -> Path:
    numbers = job.numbers("kangaroo")
    features = Features(job, numbers, layer=numbers["exit_layer"])
    if not 0 < numbers["exit_layer"] < features.body.layers:
        raise TrainingError(f"exit_layer in kangaroo.yaml must lie between 1 and {features.body.layers - 1}: "
                            f"the target has {features.body.layers} layers.")
    torch.manual_seed(job.seed)
    model = kangaroo.build(features.body, numbers)
    runner = Runner(job, "kangaroo", model, numbers, features.place("kangaroo"))

    def loss_at(step: int):
        batch = features.batch(step, runner.done())
        attention.calm(model, lambda: adapted(model, batch), step, numbers)
        hidden = adapted(model, batch)[batch.where]
        return losses.distil(hidden, features.head, batch.top_ids, batch.top_logp, batch.labels, numbers["hard"]), len(batch.labels)

    runner.train(loss_at, lambda: chains.measure(ahead(model, features), features, numbers, model))
    return chains.export(job, job.named("kangaroo"), model, features, runner, CARD.format(**numbers))


def ahead(model: kangaroo.Kangaroo, features: Features) -> chains.Guesses:
    """What the replay asks. Drafts stand on true states, however far ahead they are."""
    return lambda batch, steps: [adapted(model, batch).roll(-1, 0)] * steps


def adapted(model: kangaroo.Kangaroo, batch: Batch) -> Tensor:
    """States for the target's head, [rows * width, hidden]."""
    return model(batch.layer.float().view(*batch.ids.shape, -1)).flatten(0, 1)


CARD = """A Kangaroo adapter: one attention layer and two norms behind the target's first {exit_layer} layers. With the target's own
output matrix it drafts until it is no longer sure; the check goes on from the first layers' work, so a wrong guess costs time and
never changes the text.

Distilled from the target's law at every place of its answers; nothing else is trained."""
