"""Shared by the recipes of heads at an early exit of the target; their input is what enters the exit layer along the target's own
answers.

The loss is the divergence of the distribution that the target's output matrix gives for the head's states from the target's. A
recipe adds its network, the hidden states of its heads for a batch, and its card.
"""
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from . import attention, chains, losses
from .features import Batch, Features
from .job import Job, TrainingError
from .runner import Runner

Predict = Callable[[Any, Any, Batch], Tensor]  # (network, features, batch) -> states for the target's head, [rows * width, hidden]


def run(job: Job, kind: str, reads: type[Features], build: Callable[[Any, dict], nn.Module], predict: Predict, card: str) -> Path:
    """Train a head of this kind and return its folder. reads: features with the input of the layer ``exit_layer`` of the recipe.
    """
    hparams = job.hparams(kind)
    features = reads(job, hparams, layer=hparams["exit_layer"])
    if not 0 < hparams["exit_layer"] < features.body.layers:
        raise TrainingError(f"exit_layer in {kind}.yaml must lie between 1 and {features.body.layers - 1}: "
                            f"the target has {features.body.layers} layers.", "training.exit_layer")
    torch.manual_seed(job.seed)
    model = build(features.body, hparams)
    runner = Runner(job, kind, model, hparams, features.place(kind))

    def loss_at(step: int):
        batch = features.batch(step, runner.done())
        if "score_limit" in hparams:
            attention.limit_scores(model, lambda: predict(model, features, batch), step, hparams)
        hidden = predict(model, features, batch)[batch.where]
        return losses.distil(hidden, features.head, batch.top_ids, batch.top_logp, batch.labels, hparams["hard_label_weight"],
                             negatives=hparams.get("negatives", 0)), len(batch.labels)

    runner.train(loss_at, lambda: chains.measure(ahead(predict, model, features), features, hparams, model))
    return chains.export(job, job.named(kind), model, features, runner, card.format(**hparams))


def ahead(predict: Predict, model: nn.Module, features: Features) -> chains.Guesses:
    """Return a function that gives the replay the predicted states of each step. Drafts depend on true states at any distance."""
    return lambda batch, steps: [predict(model, features, batch).roll(-1, 0)] * steps
