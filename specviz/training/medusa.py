"""Medusa's heads, trained on the frozen target's last states along its own answers (Cai et al. 2401.10774: Medusa-1).

Head i learns the token i + 2 places after the state it reads. The paper takes cross-entropy on the text; here, where the text is
the target's own and its law is known, the divergence from that law, with a little cross-entropy beside it. Later heads count
for less. Afterwards the ranks of each head are counted, and the best tree for this machine is kept with the weights.
"""
from __future__ import annotations

from pathlib import Path

import torch

from ..drafters.heads.shapes import shape_of
from ..models import medusa as heads_medusa
from . import chains, ranks
from .features import Batch, Features
from .job import Job
from .runner import Runner

LARGEST = 36e6  # bytes, with output matrices of their own


def run(job: Job) -> Path:
    numbers = job.numbers("medusa")
    features = Features(job, numbers)
    torch.manual_seed(job.seed)
    model = heads_medusa.build(features.body, numbers)
    for matrix in model.lm_heads:  # output matrices begin as the target's
        matrix.weight.data.copy_(features.head)
    runner = Runner(job, "medusa", model, numbers, features.place("medusa"))

    def guess(batch: Batch, index: int):
        kept, places = batch.back(index + 1)
        return kept, model.blocks[index](batch.states[places].to(model.blocks[index].layers[0].weight.dtype))

    def loss_at(step: int):
        batch = features.batch(step, runner.done())
        return ranks.loss(model, guess, features, batch, numbers), len(batch.labels)

    tree = shape_of([], numbers["nodes"], 0)
    runner.train(loss_at, lambda: ranks.measure(model, guess, features, tree.within(len(model), numbers["ranks"])))
    ranks.calibrate(model.eval(), guess, features, numbers)
    about = CARD.format(heads=len(model), **{key: numbers[key] for key in ("layers", "output", "fading", "hard")})
    return chains.export(job, job.named("medusa"), model, features, runner, about, LARGEST)


CARD = """Medusa heads: {heads} of them, {layers} residual blocks each, output matrix: {output}. Each reads the target's last state and
guesses one token further ahead; a sparse tree of their guesses is checked in one pass, so a wrong guess costs time and never
changes the text. How often each rank of each head is right is in config.json, from which the tree is made.

Distillation of the target's law with a weight of {hard} for cross-entropy; each head counts {fading} of the head before it."""
