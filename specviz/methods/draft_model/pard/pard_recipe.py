"""PARD: fine-tune a draft model on mask tokens, so that it drafts a block in one pass (An et al. 2504.18583).

It is initialised with the target's draft model. The paper trains on text, and its draft model serves every
target of a family. This one is distilled from one target, along that target's answers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from ....models import masked as models
from ....models.heads import config_of
from ....training import chains, mask_rows
from ....training.features import Batch, Features
from ....training.job import Job
from ....training.mask_training import MaskTrainer
from ....training.reduced_draft import ReducedHead
from ....training.runner import Runner
from ...trained_heads.specdiff.specdiff_recipe import TextFeatures


def run(job: Job) -> Path:
    """Fine-tune PARD's draft model; return the folder of its weights."""
    hparams = job.hparams("pard")
    features = TextFeatures(job, hparams)
    torch.manual_seed(job.seed)
    model = initialised_network(job, features, hparams)
    runner = Runner(job, "pard", model, hparams, features.checkpoint_folder("pard"))
    trainer, reduce = mask_trainer(model, features), reduction(model)

    def loss_at(step: int):
        batch = reduce(features.batch(step, runner.budget_spent()))
        return trainer.loss(batch, hparams, step, model.output), len(batch.labels)

    runner.train(loss_at, lambda: trainer.measure(hparams))
    return chains.export(
        job,
        job.model_name("pard"),
        model,
        features,
        runner,
        CARD.format(**hparams | {"layers": model.sizes.layers}),
    )


def initialised_network(job: Job, features: Features, hparams: dict) -> models.MaskedModel:
    """Return the network with the weights of the target's draft model."""
    folder = job.model(job.draft_name())
    config = config_of(folder) | {"pard_token": hparams["mask_token"], "spd_type": "pard"}
    return models.read(folder, config, features.target_info).requires_grad_()


def mask_trainer(model: models.MaskedModel, features: Features) -> MaskTrainer:
    """Return the loss and measurement of this network."""

    def states(batch: Batch, masks: mask_rows.Masks) -> Tensor:
        rows, width = batch.ids.shape
        ids = torch.cat([batch.ids, batch.ids.new_full((rows, len(masks.depth)), model.mask_token)], 1)
        places = torch.cat([torch.arange(width, device=ids.device).expand(rows, -1), masks.place], 1)
        return model(ids, places, masks.mask).flatten(0, 1)

    return MaskTrainer(features, states, lambda rows: model.expand(F.linear(rows, model.output)).float())


def reduction(model: models.MaskedModel) -> Callable[[Batch], Batch]:
    """Return the function that turns a batch's tokens into rows of the model's output matrix, and leaves
    out positions whose label has none; the identity for a model with the whole vocabulary."""
    if model.draft_tokens is None:
        return lambda batch: batch
    vocabulary = ReducedHead(model.output.detach(), model.draft_tokens.long(), model.width)

    def reduce(batch: Batch) -> Batch:
        ids, where, top_ids, top_logp, labels = vocabulary.to_reduced_vocabulary(
            (batch.ids, batch.where, batch.top_ids, batch.top_logp, batch.labels)
        )
        return replace(batch, ids=ids, where=where, top_ids=top_ids, top_logp=top_logp, labels=labels)

    return reduce


CARD = """A draft model ({layers} layers, an embedding of its own) that drafts {block} tokens in one pass: token {mask_token}
stands for each that is not known yet. The target checks them, so a wrong guess costs time and never changes the text.

Initialised with the target's draft model. Loss: distillation plus {hard_label_weight} times cross-entropy on the generated tokens, at
every answer position and at masks after {anchors} positions per row of text. A share of {keep} of the masks of one depth are followed
by another, at least {keep_least} of the positions, as in the paper. The authors train with cross-entropy on text."""
