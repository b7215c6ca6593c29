"""M2R2's adapters, trained on what the target's first layers hold along its own answers (Bhendawade et al. 2502.02040).

The loss is the divergence of what the target's head makes of slow plus fast residual at the exit from the target's distribution. Only the
adapters are trained.
"""
from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from ..models import m2r2
from . import chains, losses
from .features import Batch, Features, assembled
from .job import Job, TrainingError
from .runner import Runner


class Shared(Features):
    """Batches whose ``layer`` holds what enters the exit layer, and behind it keys and values of each layer below the exit, side by
    side: [rows * width, hidden + exit * 2 * keys]."""

    @torch.no_grad()
    def states(self, material) -> Batch:
        out = self.target.model(material[0], use_cache=True, output_hidden_states=True)
        held = out.past_key_values.layers[:self.layer]
        lent = [part.transpose(1, 2).flatten(2) for one in held for part in (one.keys, one.values)]
        rows = torch.cat([out.hidden_states[self.layer], *lent], -1)
        return assembled(material, out.last_hidden_state.flatten(0, 1), rows.flatten(0, 1))


def run(job: Job) -> Path:
    numbers = job.numbers("m2r2")
    features = Shared(job, numbers, layer=numbers["exit_layer"])
    if not 0 < numbers["exit_layer"] < features.body.layers:
        raise TrainingError(f"exit_layer in m2r2.yaml must lie between 1 and {features.body.layers - 1}: "
                            f"the target has {features.body.layers} layers.")
    torch.manual_seed(job.seed)
    model = m2r2.build(features.body, numbers)
    runner = Runner(job, "m2r2", model, numbers, features.place("m2r2"))

    def loss_at(step: int):
        batch = features.batch(step, runner.done())
        hidden = said(model, features, batch)[batch.where]
        return losses.distil(hidden, features.head, batch.top_ids, batch.top_logp, batch.labels, numbers["hard"]), len(batch.labels)

    runner.train(loss_at, lambda: chains.measure(ahead(model, features), features, numbers, model))
    return chains.export(job, job.named("m2r2"), model, features, runner, CARD.format(**numbers))


def ahead(model: m2r2.FastResidual, features: Shared) -> chains.Guesses:
    """What the replay asks. A row needs no other row of its kind, so it says the same however far ahead it is drafted."""
    return lambda batch, steps: [said(model, features, batch).roll(-1, 0)] * steps


def said(model: m2r2.FastResidual, features: Shared, batch: Batch) -> Tensor:
    """States for the target's head, [rows * width, hidden]."""
    rows, width = batch.ids.shape
    slow, lent = batch.layer.float().split([features.body.hidden, batch.layer.shape[-1] - features.body.hidden], -1)
    parts = lent.view(rows, width, model.exit, 2, *model.keys).permute(2, 3, 0, 4, 1, 5)
    fast = model(F.embedding(batch.ids, features.embedding).float(), [tuple(pair) for pair in parts])
    return features.target.model.norm(slow + fast.flatten(0, 1))


CARD = """M2R2's adapters: beside each of the target's first {exit_layer} layers one of rank {rank} moves a fast residual, with queries over
the layer's own keys and values and a small feed-forward. At the exit it is added to the target's own state, and the target's last norm
and output matrix draft from there; the check goes on from the first layers' work, so a wrong guess costs time and never changes the text.

Distilled from the target's distribution at every place of its answers, with {hard} cross-entropies on the token written; nothing else is
trained. The paper's formulas could not be read: the form of the adapters, and how both residuals meet, are ours."""
