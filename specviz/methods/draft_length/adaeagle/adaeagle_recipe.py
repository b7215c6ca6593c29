"""Train AdaEAGLE's length predictor (2412.18910) on accepted lengths of EAGLE chains along the target's
greedy answers.

The label of a position is the number of tokens at the start of a long draft that equal the answer. A
prediction that is too short costs target passes; one that is too long costs passes of the head, which are
cheaper. So the loss is the absolute error, multiplied by ``short`` where the prediction is too short."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import torch
from torch import Tensor
from torch.nn import functional as F

from ....models import draft_length
from ....models import eagle as eagle_models
from ....training import chains
from ....training.draft import Batches, collate
from ....training.features import Batch, Features
from ....training.job import Job, TrainingError, fingerprint
from ....training.runner import Runner
from ...trained_heads.eagle import eagle_recipe as eagle


class ChainLengthFeatures(Features):
    """Batches of greedy answers of the target, with the EAGLE head whose accepted draft lengths are the
    labels."""

    def __init__(self, job: Job, hparams: dict):
        super().__init__(job, hparams)
        self.head_path = job.model(job.model_name("eagle"))
        if job.ship and fingerprint(self.head_path) != fingerprint(job.shipped_folder(self.head_path.name)):
            raise TrainingError(
                f"This would judge {self.head_path}, which is not the shipped head: ship that one first.",
                "training.not_shipped",
            )
        self.eagle = eagle_models.load(self.head_path, self.target_info).to(self.device)
        self.own = Batches([a for a in self.own.answers if a.greedy], hparams, job.seed, self.device)
        self.wide = self.own
        self.heldout = [a for a in self.heldout if a.greedy]

    def checkpoint_folder(self, name: str) -> Path:
        """Return the checkpoint folder. Its name depends on the weights of target and head, so that new
        weights start a new checkpoint."""
        return self.job.folder(name, f"{self.mark}-{fingerprint(self.head_path)}")

    @torch.no_grad()
    def lengths(self, batch: Batch, most: int) -> Tensor:
        """Return the number of accepted tokens [n] of a draft at each position of ``batch.where``. A draft
        has ``most`` tokens, the first of which is the token after that position."""
        n, passes = len(batch.where), []
        for step, states in enumerate(eagle.rollout_states(self.eagle, self, batch, most)):
            right = self.logits(states[batch.where - 1]).argmax(-1) == batch.labels
            passes.append(right & (batch.where % batch.ids.shape[1] > step))
        held, found = (
            torch.ones(n, dtype=torch.bool, device=batch.where.device),
            torch.zeros(n, device=batch.where.device),
        )
        index = torch.arange(n, device=batch.where.device)
        for step in range(most):
            at = (index + step).clamp(max=n - 1)
            held &= (index + step < n) & (batch.where[at] == batch.where + step) & passes[step][at]
            found += held
        return found


def run(job: Job) -> Path:
    """Train AdaEAGLE's length predictor; return the folder of its weights."""
    hparams = job.hparams("adaeagle")
    features = ChainLengthFeatures(job, hparams)
    torch.manual_seed(job.seed)
    model = cast(draft_length.LengthHead, draft_length.build(features.target_info, hparams))
    runner = Runner(job, "adaeagle", model, hparams, features.checkpoint_folder("adaeagle"))

    def loss_at(step: int):
        predicted, lengths = predictions(
            model, features, features.batch(step, runner.budget_spent()), hparams
        )
        return loss(predicted, lengths, hparams["short"]), len(lengths)

    runner.train(loss_at, lambda: measure(model, features, hparams))
    return chains.export(job, job.model_name("adaeagle"), model, features, runner, CARD.format(**hparams))


def predictions(
    model: draft_length.LengthHead, features: ChainLengthFeatures, batch: Batch, hparams: dict
) -> tuple[Tensor, Tensor]:
    """Return (predicted, true) accepted draft lengths, both [n]. A prediction reads the token before its
    position, so the first position of a row of text has none."""
    kept, before = batch.back(1)
    embeds = F.embedding(batch.ids.flatten()[before], features.embedding)
    return model(embeds.float(), batch.states[before].float()), features.lengths(batch, hparams["most"])[kept]


def loss(predicted: Tensor, lengths: Tensor, short: float) -> Tensor:
    """Return the mean absolute error, times ``short`` where the prediction is too short."""
    return ((predicted - lengths).abs() * torch.where(predicted < lengths, short, 1.0)).mean()


def measure(model: draft_length.LengthHead, features: ChainLengthFeatures, hparams: dict) -> dict[str, float]:
    """Return the loss on held-out answers, and the loss of the best constant length for comparison."""
    some = features.heldout[:: max(1, len(features.heldout) // hparams["measure_rows"])]
    found = [
        predictions(
            model, features, features.states(collate([a], hparams["length"], features.device)), hparams
        )
        for a in some
        if a.start < hparams["length"] - 1
    ]
    predicted, lengths = (torch.cat(parts) for parts in zip(*found))
    constant = min(
        float(loss(torch.full_like(lengths, k), lengths, hparams["short"]))
        for k in range(hparams["most"] + 1)
    )
    return {
        "loss_heldout": round(float(loss(predicted, lengths, hparams["short"])), 4),
        "loss_of_a_constant": round(constant, 4),
        "length": round(float(lengths.mean()), 4),
        "predicted": round(float(predicted.mean()), 4),
    }


CARD = """AdaEAGLE's length network: three layers, {inner} wide, on the embedding and the state of the token before the last. It
decides how long EAGLE's chain is, so a wrong guess costs time and never changes the text.

Learned from greedy answers along which EAGLE drafted {most} tokens from every place; the distance from what passed, {short} times
where too little was asked for. The paper does not publish that weight, nor how wide its layers are."""
