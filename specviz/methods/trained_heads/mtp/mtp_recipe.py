"""Train an MTP module on the target's answers, with the target frozen (DeepSeek-V3, 2412.19437, trains both
jointly).

The loss is the divergence of the module's next-token distribution from the target's, at the first step and
at a few steps on the module's own states, because drafting applies the one module repeatedly. The report
trains the first step only.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ....training import attention, chains, losses
from ....training.features import Batch, Features
from ....training.job import Job
from ....training.runner import Runner
from ..eagle.eagle_recipe import chain_states_function, rollout_states
from . import mtp_network as mtp


def run(job: Job) -> Path:
    """Train the MTP module; return the folder of its weights."""
    hparams = job.hparams("mtp")
    features = Features(job, hparams)
    torch.manual_seed(job.seed)
    model = mtp.build(features.target_info, hparams)
    runner = Runner(job, "mtp", model, hparams, features.checkpoint_folder("mtp"))

    def loss_at(step: int):
        batch = features.batch(step, runner.budget_spent())
        attention.limit_scores(model, lambda: rollout_states(model, features, batch, 1), step, hparams)
        return loss(model, features, batch, hparams), len(batch.labels)

    runner.train(
        loss_at, lambda: chains.measure(chain_states_function(model, features), features, hparams, model)
    )
    return chains.export(job, job.model_name("mtp"), model, features, runner, CARD.format(**hparams))


def loss(model: mtp.Mtp, features: Features, batch: Batch, hparams: dict) -> Tensor:
    """Return the mean distillation loss over the steps of the rollout, step i weighted by ``loss_decay`` **
    i."""
    total: Any = 0.0  # a tensor from the first term on
    weights = 0.0
    for step, states in enumerate(rollout_states(model, features, batch, hparams["rollout"])):
        kept, _ = batch.back(
            step + 1
        )  # positions predicted from ``step`` states of the module and at least one true one
        rows = states[batch.where[kept] - 1]
        found = losses.distil(
            rows,
            features.head,
            batch.top_ids[kept],
            batch.top_logp[kept],
            batch.labels[kept],
            hparams["hard_label_weight"],
            negatives=hparams.get("negatives", 0),
        )
        weight = hparams["loss_decay"] ** step
        total, weights = total + weight * found, weights + weight
    return total / weights


CARD = """An MTP module (one layer of its own; embedding and output matrix are shared with the target). It reads the
target's last hidden states and guesses one token further, again and again on its own; the target verifies the draft, so a
wrong token costs time and never changes the text.

Loss: distillation plus {hard_label_weight} times cross-entropy on the generated tokens, over {rollout} steps on the module's own states;
step i's loss is multiplied by {loss_decay}^i. Published modules are trained together with their target; this one was trained later."""
