"""Train GliDe's drafter on the target's KV cache along its own answers (Du et al. 2402.02082).

While drafting, the target has no keys for the drafted tokens. Training imitates this: a token sees only the
target's keys before its own block of tokens. The paper trains with cross-entropy on text; here the main
loss is distillation, plus a little cross-entropy.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import DynamicCache

from ....models.pretrained import with_cache
from ....training import attention, chains, losses
from ....training.features import Batch, Features
from ....training.job import Job
from ....training.runner import Runner
from . import glide_network as glide


class KeyValueFeatures(Features):
    """Batches whose ``layer`` holds the target's keys and values of the layers that the drafter reads,
    concatenated, [rows * width, layers * 2 * kv_heads * head_dim]."""

    keeps = None

    def __init__(self, job: Job, hparams: dict):
        super().__init__(job, hparams)
        self.reads = self.layers_read(hparams)

    def layers_read(self, hparams: dict) -> Sequence[int]:
        """Return the target's layers whose keys and values the drafter reads."""
        return glide.build(self.target_info, hparams).reads

    @torch.no_grad()
    def states(self, material) -> Batch:
        """Run the target over the output of ``draft.collate``; return it as a Batch with keys and values."""
        ids, where, top_ids, top_logp, labels = material
        cache = DynamicCache()
        out = self.target.model(ids, use_cache=True, **with_cache(self.target.model, cache))
        held: list[Any] = [cache.layers[layer] for layer in self.reads]
        rows = torch.cat(
            [part.transpose(1, 2).flatten(2) for one in held for part in (one.keys, one.values)], -1
        )
        return Batch(
            ids, out.last_hidden_state.flatten(0, 1), rows.flatten(0, 1), where, labels, top_ids, top_logp
        )


def run(job: Job) -> Path:
    """Train GliDe's drafter; return the folder of its weights."""
    hparams = job.hparams("glide")
    features = KeyValueFeatures(job, hparams)
    torch.manual_seed(job.seed)
    model = glide.build(features.target_info, hparams)
    runner = Runner(job, "glide", model, hparams, features.checkpoint_folder("glide"))

    def loss_at(step: int):
        batch = features.batch(step, runner.budget_spent())
        attention.limit_scores(model, lambda: predict(model, features, batch), step, hparams)
        rows = predict(model, features, batch).flatten(0, 1)[batch.where]
        return losses.distil(
            rows,
            features.head,
            batch.top_ids,
            batch.top_logp,
            batch.labels,
            hparams["hard_label_weight"],
            negatives=hparams.get("negatives", 0),
        ), len(batch.labels)

    runner.train(
        loss_at, lambda: chains.measure(chain_states_function(model, features), features, hparams, model)
    )
    about = CARD.format(**hparams | dict(layers=len(model.layers), last=model.reads.start))
    return chains.export(job, job.model_name("glide"), model, features, runner, about)


def predict(model: glide.Glide, features: KeyValueFeatures, batch: Batch, lag: int | None = None) -> Tensor:
    """Return the drafter's hidden states [rows, width, hidden], which predict the token after each
    position. lag: the drafter does not see the target's keys of the last ``lag`` tokens, as when drafting
    that many tokens ahead; None: blocks as in training."""
    rows, width = batch.ids.shape
    parts = (
        batch.captured.float().view(rows, width, len(model.layers), 2, *model.keys).permute(2, 3, 0, 4, 1, 5)
    )
    places = range(width)
    horizons = torch.tensor(
        [model.horizon(at) if lag is None else max(0, at - lag) for at in places], device=batch.ids.device
    )
    return model(
        F.embedding(batch.ids, features.embedding).float(), [tuple(pair) for pair in parts], horizons
    )


def chain_states_function(model: glide.Glide, features: KeyValueFeatures) -> chains.ChainStates:
    """Return the function (batch, steps) -> predicted hidden states for each step of a chain, as
    ``chains.tables`` takes it. At step i the drafter does not see the target's keys of the last i
    tokens."""
    return lambda batch, steps: [
        predict(model, features, batch, step).roll(-1, 1).flatten(0, 1) for step in range(steps)
    ]


CARD = """A GliDe drafter ({layers} layer; embedding and output matrix are shared with the target). Its self-attention
is followed by cross-attention to the target's KV cache, from layer {last} on (0 is the first); the target verifies the draft, so a
wrong token costs time and never changes the text.

Loss: distillation plus {hard_label_weight} times cross-entropy on the generated tokens. A token does not see the target's keys of its
own block of {block} tokens, as in the paper. The paper first pre-trains on plain text, and its drafter has an embedding of its own."""
