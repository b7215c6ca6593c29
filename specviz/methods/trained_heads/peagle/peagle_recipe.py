"""Train P-EAGLE's head: EAGLE-3's layers draft a block in one pass from mask tokens with learned hidden
states.

Every position has a distillation loss, as in the public code; masks are dropped by PARD's rule
(mask_rows.py)."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from ....training import chains, mask_rows
from ....training.features import Batch
from ....training.job import Job
from ....training.mask_training import MaskTrainer
from ....training.masked_block import AuxStateFeatures
from ....training.runner import Runner
from . import peagle_network as models


class States(AuxStateFeatures):
    """Batches with the target's hidden states at the layers that the head reads (``read_layers``),
    concatenated, as for EAGLE-3."""

    def __init__(self, job: Job, hparams: dict):
        super().__init__(job, hparams, models.build)


def run(job: Job) -> Path:
    """Train P-EAGLE's head; return the folder of its weights."""
    hparams = job.hparams("peagle")
    features = States(job, hparams)
    torch.manual_seed(job.seed)
    model = models.build(features.target_info, hparams)
    runner = Runner(job, "peagle", model, hparams, features.checkpoint_folder("peagle"))
    trainer = mask_trainer(model, features)

    def loss_at(step: int):
        batch = features.batch(step, runner.budget_spent())
        return trainer.loss(batch, hparams, step, features.head.float()), len(batch.labels)

    runner.train(loss_at, lambda: trainer.measure(hparams))
    about = CARD.format(**hparams | {"read": list(model.read_layers)})
    return chains.export(job, job.model_name("peagle"), model, features, runner, about)


def mask_trainer(model: models.PEagle, features: States) -> MaskTrainer:
    """Return the loss and measurement of this head."""

    def states(batch: Batch, masks: mask_rows.Masks) -> Tensor:
        rows, width = batch.ids.shape
        following = batch.ids.roll(-1, 1)  # the last column has no next token; no answer position uses it
        ids = torch.cat([following, following.new_full((rows, len(masks.depth)), model.mask_token)], 1)
        places = torch.cat([torch.arange(width, device=ids.device).expand(rows, -1), masks.place], 1)
        x = model(
            F.embedding(ids, features.embedding).float(),
            batch.captured.float().view(rows, width, -1),
            places,
            masks.mask,
        )
        return (x if model.norm_output else model.norm(x)).flatten(0, 1)

    return MaskTrainer(features, states, lambda rows: features.logits(rows), back=1)


CARD = """A P-EAGLE head ({layers} layers; embedding and output matrix are shared with the target). It reads what
enters the target's layers {read} (0 is the first) and drafts {block} tokens in one pass, a learned state standing for each that
is not known yet. The target checks them, so a wrong guess costs time and never changes the text.

Loss: distillation plus {hard_label_weight} times cross-entropy on the generated tokens, at every answer position and at masks after
{anchors} positions per row of text. A share of {keep} of the masks of one depth are followed by another, at least {keep_least} of
the positions. Published heads have four layers and an embedding and output matrix of their own."""
