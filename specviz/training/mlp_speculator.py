"""MLPSpeculator's levels, trained on the frozen target's last states along its own answers (Wertheimer et al. 2404.19124).

Level i reads the state i + 1 places back and the true tokens behind it, as on every path that is accepted, and learns the next one.
The paper's two stages are cross-entropy on long texts, then on text of the target; here it is one stage, which begins with all texts
that the target has read and ends with its own, and learns the target's distribution.
"""
from __future__ import annotations

from pathlib import Path

import torch

from ..models import mlp_speculator
from ..trees import product
from . import chains, ranks
from .features import Batch, Features
from .job import Job
from .runner import Runner

LARGEST = 36e6  # bytes: embeddings and output matrices are its own


def run(job: Job) -> Path:
    numbers = job.numbers("mlp_speculator")
    features = Features(job, numbers)
    torch.manual_seed(job.seed)
    model = mlp_speculator.build(features.body, numbers)
    runner = Runner(job, "mlp_speculator", model, numbers, features.place("mlp_speculator"))
    guess = guesses(model)

    def loss_at(step: int):
        batch = features.batch(step, runner.done())
        return ranks.loss(model, guess, features, batch, numbers), len(batch.labels)

    runner.train(loss_at, lambda: ranks.measure(model, guess, features, product(model.top)))
    about = CARD.format(levels=len(model), inner=model.inner, **{key: numbers[key] for key in ("fading", "hard")})
    return chains.export(job, job.named("mlp_speculator"), model, features, runner, about, LARGEST)


def guesses(model: mlp_speculator.MLPSpeculator) -> ranks.Guess:
    """What each level says along a batch."""
    def guess(batch: Batch, index: int):
        kept, places = batch.back(index + 1)
        states, ids = batch.states[places].float(), batch.ids.flatten()
        for level in range(index + 1):
            states = model.step(level, states, ids[places + 1 + level])
        return kept, states
    return guess


CARD = """An MLPSpeculator of {levels} levels, {inner} numbers wide. From the target's last state and the token guessed before it, each
level guesses the next token; the likeliest paths are checked in one pass, so a wrong guess costs time and never changes the text.

Distillation of the target's distribution with a weight of {hard} for cross-entropy; each level counts {fading} of the one before."""
