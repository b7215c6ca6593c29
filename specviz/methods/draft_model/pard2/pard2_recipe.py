"""Train PARD-2's projection of the target's states over PARD's frozen draft model (2605.08632).

The loss of the k-th token of a draft is weighted by how sure the target was of the tokens before it, so that places
which are seldom reached count little. A share of the texts is trained without states, so that the draft model works
without them, too."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ....models import masked as models
from ....training import chains, mask_rows
from ....training.features import Batch
from ....training.job import Job
from ....training.mask_training import MaskTrainer, distil_rows
from ....training.masked_block import AuxStateFeatures
from ....training.runner import Runner
from ..pard.pard_recipe import reduction
from . import pard2_network as network


def run(job: Job) -> Path:
    """Train PARD-2's projection; return the folder of its weights."""
    hparams = job.hparams("pard2")
    features = AuxStateFeatures(
        job, hparams, lambda target, said: network.build(target, said | {"draft_hidden": 1})
    )
    model = models.load(job.model(job.model_name("pard")), features.target_info).float()
    torch.manual_seed(job.seed)
    made = network.build(features.target_info, hparams | {"draft_hidden": model.sizes.hidden})
    torch.nn.init.zeros_(made.target_proj.weight)
    runner = Runner(job, "pard2", made, hparams, features.checkpoint_folder("pard2"))
    trainer = mask_trainer(made, model, features)
    sometimes_without = mask_trainer(made, model, features, hparams["states_dropped"])
    reduce = reduction(model)

    def loss_at(step: int):
        batch = reduce(features.batch(step, runner.budget_spent()))
        rng = random.Random(f"{job.seed} {step}")
        masks = mask_rows.sample_masks(batch, hparams, rng, 0)
        return loss(sometimes_without, batch, masks, hparams, model.output), len(batch.labels)

    runner.train(loss_at, lambda: trainer.measure(hparams))
    return chains.export(job, job.model_name("pard2"), made, features, runner, CARD.format(**hparams))


def mask_trainer(
    made: network.TargetStates, model: models.MaskedModel, features: AuxStateFeatures, dropped: float = 0.0
) -> MaskTrainer:
    """Return the measurement of the projection over a draft model, and its predictions. dropped: share of the texts
    that is read without states; which ones follows from the batch, so that a resumed run drops the same."""

    def states(batch: Batch, masks: mask_rows.Masks) -> Tensor:
        rows, width = batch.ids.shape
        ids = torch.cat([batch.ids, batch.ids.new_full((rows, len(masks.depth)), model.mask_token)], 1)
        places = torch.cat([torch.arange(width, device=ids.device).expand(rows, -1), masks.place], 1)
        added = made(batch.captured.float().view(rows, width, -1)).roll(1, 1)
        added = torch.cat([torch.zeros_like(added[:, :1]), added[:, 1:]], 1)
        if dropped:
            rng = torch.Generator().manual_seed(int(batch.ids.sum()))
            added = added * (torch.rand(rows, 1, 1, generator=rng) >= dropped).to(added)
        added = F.pad(added, (0, 0, 0, len(masks.depth)))
        return model.rows(ids, places, masks.mask, added=added)[0].flatten(0, 1)

    return MaskTrainer(features, states, lambda rows: model.expand(F.linear(rows, model.output)).float())


def loss(
    trainer: MaskTrainer, batch: Batch, masks: mask_rows.Masks, hparams: dict[str, Any], head: Tensor
) -> Tensor:
    """Return the mean distillation loss over the depths of the drafts, each weighted by the mean of the target's
    confidence product over the tokens before it."""
    sure = batch.top_logp[:, 0].exp()
    total: Any = 0.0  # a tensor from the first term on
    weights = 0.0
    reached = torch.ones_like(sure)  # of the draft whose token at this depth is i
    for rows, index in trainer.predict(batch, masks):
        if not len(index):
            break
        found = distil_rows(batch, rows, index, hparams, head)
        weight = float(reached[index].mean())
        total, weights = total + weight * found, weights + weight
        reached = torch.cat([torch.ones_like(sure[:1]), (reached * sure)[:-1]])
    return total / max(weights, 1e-9)


CARD = """PARD-2's projection: the target's states after the layers that config.json names, one position behind, are added to the
embeddings of PARD's draft model. The target checks what is drafted, so a wrong guess costs time and never changes the text.

PARD's weights are frozen; the authors train both. Distillation plus {hard_label_weight} times cross-entropy; the loss of a depth is
weighted by the target's confidence in the tokens before it. A share of {states_dropped} of the texts is read without states."""
