"""Train Gumiho's head (2503.10135): EAGLE's losses for the serial part, and the same losses for the MLPs,
which draft the later positions.

The MLPs read the head's own predictions, as in a draft. With the recipe's list ``trained`` the serial part
keeps the weights of the head that it starts from, and only the MLPs are trained and stored
(shared_weights.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ....training import attention, chains
from ....training.eagle_variants import weighted_losses
from ....training.features import Batch, Features
from ....training.job import Job
from ....training.runner import Runner
from ....training.shared_weights import freeze_untrained
from ..eagle import eagle_recipe as eagle
from . import gumiho_network as network


def run(job: Job) -> Path:
    """Train Gumiho's head; return the folder of its weights."""
    hparams = job.hparams("gumiho")
    features = Features(job, hparams)
    torch.manual_seed(job.seed)
    model = freeze_untrained(network.build(features.target_info, hparams), hparams)
    frozen = not model.fc.weight.requires_grad
    runner = Runner(job, "gumiho", model, hparams, features.checkpoint_folder("gumiho"))

    def loss_at(step: int):
        batch = features.batch(step, runner.budget_spent())
        if not frozen:
            attention.limit_scores(
                model, lambda: eagle.rollout_states(model, features, batch, 1), step, hparams
            )
        rng = torch.Generator(features.device).manual_seed(1_000_003 * job.seed + step)
        noise = torch.rand(batch.states.shape, generator=rng, device=features.device) * 2 - 1
        noisy = batch.states.float() + noise * hparams["noise"] * batch.states.float().std()
        return loss(model, features, batch, hparams, noisy, frozen), len(batch.labels)

    runner.train(
        loss_at, lambda: chains.measure(chain_states_function(model, features), features, hparams, model)
    )
    whose = "the target's EAGLE head, frozen" if frozen else "its own"
    card = CARD.format(**hparams | {"places": len(model), "first": network.SERIAL, "whose": whose})
    return chains.export(job, job.model_name("gumiho"), model, features, runner, card, most=3e6)


def predicted_states(
    model: network.Gumiho, features: Features, batch: Batch, noisy: Tensor | None = None, frozen: bool = False
) -> list[Tensor]:
    """Return predicted hidden states [rows * width, hidden], one tensor per position of a draft. In the
    i-th, row r predicts the state at position r + 1 from true states up to position r - i. noisy: input
    states with noise; frozen: the serial part runs without gradients."""
    true = (batch.states if noisy is None else noisy).float().view(*batch.ids.shape, -1)
    embeds = F.embedding(batch.ids.roll(-1, 1), features.embedding).float()
    with torch.set_grad_enabled(torch.is_grad_enabled() and not frozen):
        first, second = model(embeds, true, network.SERIAL)
        # row r: the input of the row before, which is the prediction of row r - 2
        earlier = model.joined(embeds, first.roll(1, 1)).roll(1, 1)
        pairs = torch.cat([earlier, model.joined(embeds, second.roll(1, 1))], -1)
    later = model.later(pairs.to(first.dtype))
    return [x.flatten(0, 1) for x in (first, second)] + [
        later[:, :, i].roll(i, 1).flatten(0, 1) for i in range(later.shape[2])
    ]


def chain_states_function(model: network.Gumiho, features: Features) -> chains.ChainStates:
    """Return the function (batch, steps) -> predicted hidden states for each step of a chain, as
    ``chains.tables`` takes it."""
    return lambda batch, steps: predicted_states(model, features, batch)[:steps]


def loss(
    model: network.Gumiho, features: Features, batch: Batch, hparams: dict, noisy: Tensor, frozen: bool
) -> Tensor:
    """Return the weighted mean of the losses of all draft positions that are trained."""
    total: Any = 0.0  # a tensor from the first term on
    weights = 0.0
    for place, found in enumerate(predicted_states(model, features, batch, noisy, frozen)):
        if frozen and place < network.SERIAL:
            continue
        kept, _ = batch.back(place + 1)
        rows, weight = found[batch.where[kept] - 1], hparams["loss_decay"] ** place
        total, weights = (
            total + weight * weighted_losses(features, batch, hparams, kept, rows, rows),
            weights + weight,
        )
    return total / weights


CARD = """A Gumiho head: {places} places, the first {first} one after another by one decoder layer ({whose}), the others at once by
{mlp_num} MLPs. The target verifies the draft, so a wrong token costs time and never changes the text.

Loss of the MLPs: {regression_weight} times smooth L1 on the target's states plus {classification_weight} times distillation, after two
steps on the head's own predictions."""
