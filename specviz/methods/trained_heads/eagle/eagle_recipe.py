"""Train EAGLE's head on the target's hidden states along its own answers (Li et al. 2401.15077).

Two losses at every answer position: smooth L1 between predicted and true hidden state, and distillation of
the next-token distribution, which the target's output matrix gives for the prediction. Uniform noise is
added to the input states, because a drafting head reads its own inexact predictions. As in HASS
(2408.15766) and EAGLE-3 (2503.01840), the head is also trained on its own predictions for a few steps, so
that later tokens of a draft are accepted more often. The target is frozen.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ....models import eagle
from ....training import attention, chains, losses
from ....training.features import Batch, Features
from ....training.job import Job
from ....training.runner import Runner


def run(job: Job) -> Path:
    """Train EAGLE's head; return the folder of its weights."""
    hparams = job.hparams("eagle")
    features = Features(job, hparams)
    torch.manual_seed(job.seed)
    model = eagle.build(features.target_info, hparams)
    # Orthogonal updates change all columns of a matrix by the same amount: inputs twenty times smaller
    # would be learned twenty times slower.
    model.embed_scale = float(features.batch(0, 0.0).states.float().std() / features.embedding.float().std())
    runner = Runner(job, "eagle", model, hparams, features.checkpoint_folder("eagle"))
    if runner.copied:  # the scale is in the weights of a head that is already trained
        model.unfold_scale()

    def loss_at(step: int):
        batch = features.batch(step, runner.budget_spent())
        attention.limit_scores(model, lambda: rollout_states(model, features, batch, 1), step, hparams)
        rng = torch.Generator(features.device).manual_seed(1_000_003 * job.seed + step)
        return loss(model, features, batch, hparams, rng), len(batch.labels)

    runner.train(
        loss_at, lambda: chains.measure(chain_states_function(model, features), features, hparams, model)
    )
    model.fold_scale()
    return chains.export(
        job,
        job.model_name("eagle"),
        model,
        features,
        runner,
        CARD.format(layers=len(model.layers), **hparams),
    )


def chain_states_function(model: nn.Module, features: Features) -> chains.ChainStates:
    """Return the function (batch, steps) -> predicted hidden states for each step of a chain, as
    ``chains.tables`` takes it."""
    return lambda batch, steps: rollout_states(model, features, batch, steps)


def rollout_states(
    model: nn.Module, features: Features, batch: Batch, steps: int, states: Tensor | None = None
) -> list[Tensor]:
    """Return the head's predicted hidden states [rows * width, hidden], one tensor per step of the rollout:
    from the second step on it reads its own predictions. Row i predicts the state at position i + 1.
    states: inputs instead of the batch's."""
    states = (batch.states if states is None else states).float().view(*batch.ids.shape, -1)
    following = batch.ids.roll(-1, 1)  # the last column has no next token; no answer position uses it
    return [x.flatten(0, 1) for x in model(F.embedding(following, features.embedding).float(), states, steps)]


def loss(model: eagle.Eagle, features: Features, batch: Batch, hparams: dict, rng: torch.Generator) -> Tensor:
    """Return the weighted mean, over the steps of the rollout, of EAGLE's two losses: smooth L1 on hidden
    states, and distillation of the next token. rng: for the noise on the input states."""
    noise = torch.rand(batch.states.shape, generator=rng, device=features.device) * 2 - 1
    noisy = batch.states.float() + noise * hparams["noise"] * batch.states.float().std()
    total: Any = 0.0  # a tensor from the first term on
    weights = 0.0
    for step, guess in enumerate(rollout_states(model, features, batch, hparams["rollout"], noisy)):
        kept, _ = batch.back(
            step + 1
        )  # positions predicted from ``step`` predictions and at least one true state
        guess = guess[batch.where[kept] - 1]
        near = F.smooth_l1_loss(guess.float(), batch.states[batch.where[kept]].float())
        probs = losses.distil(
            guess,
            features.head,
            batch.top_ids[kept],
            batch.top_logp[kept],
            batch.labels[kept],
            hparams["hard_label_weight"],
            negatives=hparams.get("negatives", 0),
        )
        weight = hparams["loss_decay"] ** step
        total, weights = (
            total + weight * (hparams["regression_weight"] * near + hparams["classification_weight"] * probs),
            weights + weight,
        )
    return total / weights


CARD = """An EAGLE head ({layers} layer of its own; embedding and output matrix are shared with the target). It
continues the target's last states ("features") one token at a time; the target verifies the draft, so a wrong token costs
time and never changes the text.

Loss: {regression_weight} times smooth L1 on features plus {classification_weight} times distillation, with uniform noise of
{noise} standard deviations on the input features, and {rollout} steps on the head's own predictions, as in later papers."""
