"""Hydra's heads, trained on the frozen target's states along its own answers (Ankner et al. 2402.05109).

Head i reads the state and the embeddings of the i + 1 tokens behind it and learns the next one; the tokens are the text's own,
as they are on every path that is accepted. Loss and tree as for Medusa (training/medusa.py): Hydra++ too learns the target's
law and not the text. With a prefix layer the heads read the whole text's states.
"""
from __future__ import annotations

from pathlib import Path

import torch
from torch.nn import functional as F

from ..drafters.heads.shapes import shape_of
from ..models import hydra as heads_hydra
from . import attention, chains, ranks
from .draft import collate
from .features import Batch, Features
from .job import Job
from .runner import Runner

LARGEST = 36e6  # bytes, with output matrices of their own


def run(job: Job) -> Path:
    numbers = job.numbers("hydra")
    features = Features(job, numbers)
    torch.manual_seed(job.seed)
    model = heads_hydra.build(features.body, numbers)
    for matrix in model.hydra_lm_head:  # output matrices begin as the target's
        matrix.weight.data.copy_(features.head)
    runner = Runner(job, "hydra", model, numbers, features.place("hydra"))
    read = Reader(model, features)

    def loss_at(step: int):
        batch = features.batch(step, runner.done())
        return ranks.loss(model, read.guess, features, batch, numbers), len(batch.labels)

    tree = shape_of([], numbers["nodes"], 0)

    def measure():
        batch = features.states(collate(features.heldout[:1], len(features.heldout[0].ids), features.device))
        looked = {"attention_entropy": attention.entropy(model, lambda: read.guess(batch, 0))} if model.prefix else {}
        return ranks.measure(model, read.guess, features, tree.within(len(model), numbers["ranks"])) | looked

    runner.train(loss_at, measure)
    ranks.calibrate(model.eval(), read.guess, features, numbers)
    about = CARD.format(heads=len(model), front=FRONT * bool(model.prefix),
                        **{key: numbers[key] for key in ("layers", "fading", "hard")})
    return chains.export(job, job.named("hydra"), model, features, runner, about, LARGEST)


class Reader:
    """What each head says along a batch; the prefix layer is run once a batch."""

    def __init__(self, model: heads_hydra.Hydra, features: Features):
        self.model, self.features = model, features
        self._of, self._states = None, None

    def guess(self, batch: Batch, index: int):
        """(kept, states [m, hidden]) of head ``index``."""
        if self._of is not batch:
            states = batch.states.float()
            if self.model.prefix:
                states = self.model.prefix(states.view(*batch.ids.shape, -1)).flatten(0, 1)
            self._of, self._states = batch, states
        kept, places = batch.back(index + 1)
        above = batch.ids.flatten()[places[:, None] + 1 + torch.arange(index + 1, device=places.device)]  # the root and below
        tokens = F.embedding(above, self.features.embedding).flatten(1).float()
        return kept, self.model.hydra_mlp[index](torch.cat([self._states[places].float(), tokens], -1))


FRONT = "A decoder layer in front of them reads the whole text's states (Hydra++). "
CARD = """Hydra heads: {heads} of them, {layers} blocks each; the target's embedding and output matrix are lent. Each reads the target's
last state and every token drafted above its guess. {front}A tree of guesses is grown level by level and checked in one pass,
so a wrong guess costs time and never changes the text. How often each rank of each head is right is in config.json.

Distillation of the target's law with a weight of {hard} for cross-entropy; each head counts {fading} of the head before it."""
