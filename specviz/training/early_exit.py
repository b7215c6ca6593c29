"""Training code shared by the recipes of heads at an early exit of the target (Kangaroo, M2R2). These heads
read the hidden states that enter the exit layer.

The loss is distillation: the head's distribution, which the target's output matrix gives for its states,
against the target's. A recipe adds its network, the hidden states of its head for a batch, and its model
card."""

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

Predict = Callable[
    [Any, Any, Batch], Tensor
]  # (network, features, batch) -> states for the target's head, [rows * width, hidden]


def run(
    job: Job,
    kind: str,
    reads: type[Features],
    build: Callable[[Any, dict], nn.Module],
    predict: Predict,
    card: str,
) -> Path:
    """Train a head of this kind at an early exit; return the folder of its weights.

    reads: the class of features whose batches hold the input of the recipe's ``exit_layer``; build(target,
    hparams): the untrained head; predict(model, features, batch): its hidden states, [rows * width,
    hidden]; card: template of the model card."""
    hparams = job.hparams(kind)
    features = reads(job, hparams, layer=hparams["exit_layer"])
    if not 0 < hparams["exit_layer"] < features.target_info.layers:
        raise TrainingError(
            f"exit_layer in {kind}.yaml must lie between 1 and {features.target_info.layers - 1}: "
            f"the target has {features.target_info.layers} layers.",
            "training.exit_layer",
        )
    torch.manual_seed(job.seed)
    model = build(features.target_info, hparams)
    runner = Runner(job, kind, model, hparams, features.checkpoint_folder(kind))

    def loss_at(step: int):
        batch = features.batch(step, runner.budget_spent())
        if "score_limit" in hparams:
            attention.limit_scores(model, lambda: predict(model, features, batch), step, hparams)
        hidden = predict(model, features, batch)[batch.where]
        return losses.distil(
            hidden,
            features.head,
            batch.top_ids,
            batch.top_logp,
            batch.labels,
            hparams["hard_label_weight"],
            negatives=hparams.get("negatives", 0),
        ), len(batch.labels)

    runner.train(
        loss_at,
        lambda: chains.measure(chain_states_function(predict, model, features), features, hparams, model),
    )
    return chains.export(job, job.model_name(kind), model, features, runner, card.format(**hparams))


def chain_states_function(predict: Predict, model: nn.Module, features: Features) -> chains.ChainStates:
    """Return the function (batch, steps) -> predicted hidden states for each step of a chain, as
    ``chains.tables`` takes it. At every step these heads read true states of the target's first layers, so
    all steps are equal."""
    return lambda batch, steps: [predict(model, features, batch).roll(-1, 0)] * steps
