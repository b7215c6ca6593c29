"""Train variants of EAGLE's head on the target's answers: FSPAD (2408.15562), Jakiro (2502.06282), Falcon
(2412.12639).

All use EAGLE's losses (smooth L1 on the predicted hidden state, and distillation) and noise on the input
states. FSPAD applies one loss to each of its two output states. Jakiro applies the same losses to its
second prediction, one token later, with half the weight. Falcon predicts a block at once: after a first
prediction, some of the wrong tokens' input states are replaced by true states before the loss is computed
(glancing).
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..methods.trained_heads.eagle import eagle_recipe as eagle
from ..methods.trained_heads.falcon import falcon_network as falcon
from ..methods.trained_heads.fspad import fspad_network as fspad
from ..methods.trained_heads.jakiro import jakiro_network as jakiro
from . import attention, chains, losses
from .features import Batch, Features
from .job import Job
from .runner import Runner


def run(job: Job, recipe: str) -> Path:
    """Train the head of a recipe ("fspad", "jakiro" or "falcon"); return the folder of its weights."""
    hparams, variant = job.hparams(recipe), VARIANTS[recipe]
    features = Features(job, hparams)
    torch.manual_seed(job.seed)
    model = variant.build(features.target_info, hparams)
    runner = Runner(job, recipe, model, hparams, features.checkpoint_folder(recipe))

    def loss_at(step: int):
        batch = features.batch(step, runner.budget_spent())
        attention.limit_scores(model, lambda: chain_states_function(model, features)(batch, 1), step, hparams)
        rng = torch.Generator(features.device).manual_seed(1_000_003 * job.seed + step)
        noise = torch.rand(batch.states.shape, generator=rng, device=features.device) * 2 - 1
        noisy = batch.states.float() + noise * hparams["noise"] * batch.states.float().std()
        glance = (
            random.Random(f"{job.seed} {step}"),
            hparams["glance"] * (1 - runner.budget_spent()) if "glance" in hparams else 0.0,
        )
        return LOSSES[recipe](model, features, batch, noisy, hparams, glance), len(batch.labels)

    runner.train(
        loss_at, lambda: chains.measure(chain_states_function(model, features), features, hparams, model)
    )
    about, most = CARDS[recipe].format(**hparams), 1.1e7  # bytes, most of them of Falcon's recurrence
    return chains.export(job, job.model_name(recipe), model, features, runner, about, most)


def weighted_losses(
    features: Features, batch: Batch, hparams: dict, kept: Tensor, feature: Tensor, states: Tensor
) -> Tensor:
    """Return EAGLE's two losses, weighted and summed: smooth L1 of predicted hidden states ``feature`` [n,
    hidden], and distillation of the tokens that ``states`` [n, hidden] predict. kept [n]: indices into
    ``batch.where``."""
    near = F.smooth_l1_loss(feature.float(), batch.states[batch.where[kept]].float())
    probs = losses.distil(
        states,
        features.head,
        batch.top_ids[kept],
        batch.top_logp[kept],
        batch.labels[kept],
        hparams["hard_label_weight"],
        negatives=hparams.get("negatives", 0),
    )
    return hparams["regression_weight"] * near + hparams["classification_weight"] * probs


def fspad_loss(
    model: fspad.Fspad, features: Features, batch: Batch, noisy: Tensor, hparams: dict, _
) -> Tensor:
    """Return FSPAD's loss: smooth L1 on one of its output states, distillation on the other. noisy: the
    input states with noise."""
    total: Any = 0.0  # a tensor from the first term on
    weights = 0.0
    for step, out in enumerate(eagle.rollout_states(model, features, batch, hparams["rollout"], noisy)):
        kept, _ = batch.back(step + 1)
        rows, weight = out[batch.where[kept] - 1], hparams["loss_decay"] ** step
        total = total + weight * weighted_losses(
            features, batch, hparams, kept, model.feedback(rows), model.predict(rows)
        )
        weights += weight
    return total / weights


def jakiro_loss(
    model: jakiro.Jakiro, features: Features, batch: Batch, noisy: Tensor, hparams: dict, _
) -> Tensor:
    """Return Jakiro's loss: that of the prediction of the next hidden state, plus ``later`` times that of
    the one after it. noisy: the input states with noise."""
    total: Any = 0.0  # a tensor from the first term on
    weights = 0.0
    for step, out in enumerate(eagle.rollout_states(model, features, batch, hparams["rollout"], noisy)):
        weight = hparams["loss_decay"] ** step
        for back, share, part in ((1, 1.0, model.predict), (2, hparams["later"], model.after_next)):
            kept, _ = batch.back(step + back)
            rows = part(out[batch.where[kept] - back])
            total, weights = (
                total + weight * share * weighted_losses(features, batch, hparams, kept, rows, rows),
                weights + weight * share,
            )
    return total / weights


def falcon_loss(
    model: falcon.Falcon, features: Features, batch: Batch, noisy: Tensor, hparams: dict, glance
) -> Tensor:
    """Return Falcon's loss over its block of k tokens: each token is predicted by the row k positions
    before it. noisy: the input states with noise; glance: (rng, share of the wrong predictions whose input
    states are replaced by true ones)."""
    rng, share = glance
    k, (rows, width) = model.size, batch.ids.shape
    offset = rng.randrange(k)
    embeds = F.embedding(batch.ids.roll(-1, 1), features.embedding).float().flatten(0, 1)
    kept, at = batch.back(k)
    with torch.no_grad():
        first = model(embeds.view(rows, width, -1), noisy.view(rows, width, -1), offset).flatten(0, 1)[at]
        wrong = int((features.logits(first).argmax(-1) != batch.labels[kept]).sum())
    starts = ((at % width - offset) % k == 0).nonzero()[:, 0].tolist()
    chosen = torch.tensor(
        rng.sample(starts, min(len(starts), int(share * wrong))), dtype=torch.long, device=at.device
    )
    seen_embeds, seen_states = embeds.clone(), noisy.clone()
    seen_embeds[at[chosen]] = F.embedding(batch.labels[kept[chosen]], features.embedding).float()
    seen_states[at[chosen]] = batch.states[at[chosen] + k].float()
    out = model(seen_embeds.view(rows, width, -1), seen_states.view(rows, width, -1), offset).flatten(0, 1)[
        at
    ]
    return weighted_losses(features, batch, hparams, kept, out, out)


def chain_states_function(model, features: Features) -> chains.ChainStates:
    """Return the function (batch, steps) -> predicted hidden states for each step of a chain, as
    ``chains.tables`` takes it."""
    if isinstance(model, falcon.Falcon):
        return lambda batch, steps: falcon_block_states(model, features, batch, steps)
    if isinstance(model, jakiro.Jakiro):
        return lambda batch, steps: jakiro_chain_states(model, features, batch, steps)
    return lambda batch, steps: [
        model.predict(out) for out in eagle.rollout_states(model, features, batch, steps)
    ]


def jakiro_chain_states(model: jakiro.Jakiro, features: Features, batch: Batch, steps: int) -> list[Tensor]:
    """Return the predicted hidden states for each token of a chain of ``steps`` tokens. The last one is
    predicted by Jakiro's contrast from the row of the token before, without another forward pass."""
    out = eagle.rollout_states(model, features, batch, max(1, steps - 1))
    return [model.predict(rows) for rows in out] + [model.after_next(out[-1]).roll(1, 0)] * (steps > 1)


def falcon_block_states(model: falcon.Falcon, features: Features, batch: Batch, steps: int) -> list[Tensor]:
    """Return the predicted hidden states for the tokens of one Falcon pass, nearest first. Raises
    ValueError for more tokens than a pass drafts.

    The state that predicts i tokens ahead is in the row k positions before the predicted token, in a block
    that ends i positions before that token."""
    if steps > model.size:
        raise ValueError(f"a pass has {model.size} tokens, not {steps}")
    rows, width = batch.ids.shape
    embeds = F.embedding(batch.ids.roll(-1, 1), features.embedding).float()
    states = batch.states.float().view(rows, width, -1)
    every = torch.stack(
        [model(embeds, states, offset) for offset in range(model.size)]
    )  # [k, rows, width, hidden]
    place = torch.arange(width, device=embeds.device)
    return [
        every[(place + 1 - step) % model.size, :, (place + 1 - model.size).clamp(min=0)]
        .transpose(0, 1)
        .flatten(0, 1)
        for step in range(steps)
    ]


VARIANTS = {"fspad": fspad, "jakiro": jakiro, "falcon": falcon}
LOSSES = {"fspad": fspad_loss, "jakiro": jakiro_loss, "falcon": falcon_loss}
_ALL = """ It continues the target's last hidden states ("features"); the target verifies the draft, so a wrong token costs
time and never changes the text.

Loss: {regression_weight} times smooth L1 on features plus {classification_weight} times distillation, with uniform noise of
{noise} standard deviations on the input features"""
CARDS = {
    "fspad": "An FSPAD head (one layer and a feed-forward that samples its input; embedding and head are shared with the target)."
    + _ALL
    + """: the first on the state that the next step reads, the second on the state that gives the logits.
{rollout} steps on the head's own predictions; the paper has one.""",
    "jakiro": "A Jakiro head (one layer with two experts; embedding and output matrix are shared with the target)."
    + _ALL
    + """; both
also on the second prediction, one token further, with weight {later}. {rollout} steps on the head's own predictions; the paper has
one.""",
    "falcon": """A Falcon head (two levels of a recurrent network and one layer; the target's embedding and output matrix are
shared) that drafts {block} tokens a pass."""
    + _ALL
    + """. At first {glance} of its mistakes are answered before it learns, at the
end none,
as in the paper.""",
}
