"""Train a KV-borrowing assistant on the target's keys, values and hidden states along its own answers.

The drafter has no self-attention, so a step of a draft is a pass over all positions at once: step i of the
draft that began after position t reads the keys up to t, from position t, and its own state of step i - 1.
The loss is the divergence of the drafter's distribution from the target's at each step of the rollout. A
second loss teaches the centroids which clusters the target's tokens are in. The clusters are found before
training, by k-means over the target's output matrix, all of equal size. Gemma's recipe is not published.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional as F

from ....training import chains, losses
from ....training.features import Batch
from ....training.job import Job
from ....training.runner import Runner
from ..glide.glide_recipe import KeyValueFeatures
from . import kv_assistant_network as network

ROUNDS = 8  # of k-means
SAMPLE = 8192  # tokens from which it finds the centres


class AssistantFeatures(KeyValueFeatures):
    """Batches with the target's keys and values of the layers that the assistant reads."""

    def layers_read(self, hparams: dict) -> Sequence[int]:
        return network.build(self.target_info, hparams).reads


def run(job: Job) -> Path:
    """Train the assistant; return the folder of its weights."""
    hparams = job.hparams("kv_assistant")
    features = AssistantFeatures(job, hparams)
    torch.manual_seed(job.seed)
    model = network.build(features.target_info, hparams)
    clusters = cast(network.Clusters, model.masked_embedding)
    order = equal_clusters(features.head.float(), clusters.centroids.out_features, job.seed)
    clusters.token_ordering.copy_(order.flatten())
    runner = Runner(job, "kv_assistant", model, hparams, features.checkpoint_folder("kv_assistant"))

    def loss_at(step: int):
        batch = features.batch(step, runner.budget_spent())
        return loss(model, features, batch, hparams), len(batch.labels)

    runner.train(
        loss_at, lambda: chains.measure(chain_states_function(model, features), features, hparams, model)
    )
    about = CARD.format(**hparams | dict(reads=" and ".join(str(at) for at in dict.fromkeys(model.reads))))
    return chains.export(job, job.model_name("kv_assistant"), model, features, runner, about)


def equal_clusters(rows: Tensor, count: int, seed: int = 0) -> Tensor:
    """Return the token ids of ``count`` clusters of equal size, [count, vocab / count]: k-means over the
    directions of the rows [vocab, hidden] of an output matrix. The tokens nearest to their centres choose
    first; a full cluster takes no more."""
    rows = F.normalize(rows, dim=-1)
    rng = torch.Generator().manual_seed(seed)
    some = rows[torch.randperm(len(rows), generator=rng)[:SAMPLE].to(rows.device)]
    centres = some[:count].clone()
    for _ in range(ROUNDS):
        mine = (some @ centres.T).argmax(-1)
        sums = torch.zeros_like(centres).index_add_(0, mine, some)
        filled = sums.norm(dim=-1, keepdim=True) > 0
        centres = torch.where(filled, F.normalize(sums, dim=-1), centres)
    near = (rows @ centres.T).cpu()
    size = len(rows) // count
    found: list[list[int]] = [[] for _ in range(count)]
    left = torch.arange(len(rows))
    open_clusters = torch.ones(count, dtype=torch.bool)
    while len(left):  # each pass fills at least one cluster, or places every token
        scores, mine = near[left].masked_fill(~open_clusters, -torch.inf).max(-1)
        kept = []
        for i in scores.argsort(descending=True, stable=True).tolist():
            cluster = int(mine[i])
            if len(found[cluster]) < size:
                found[cluster].append(int(left[i]))
            else:
                kept.append(i)
                open_clusters[cluster] = False
        left = left[kept] if kept else left[:0]
    return torch.tensor(found, device=rows.device)


def rollout(
    model: network.KvAssistant, features: AssistantFeatures, batch: Batch, steps: int
) -> list[tuple[Tensor, Tensor]]:
    """Return, for each step of a draft, (drafter's states [rows, width, own width], states [rows, width,
    hidden]), which predict the token after each position. Step i of position p belongs to the draft that
    began at position p - i; the first i + 1 positions of a row are no predictions."""
    rows, width = batch.ids.shape
    parts = (
        batch.captured.float().view(rows, width, len(model.reads), 2, *model.keys).permute(2, 3, 0, 4, 1, 5)
    )
    kv = [(pair[0], pair[1]) for pair in parts]
    embeds = F.embedding(batch.ids, features.embedding).float()
    states, places = batch.states.float().view(rows, width, -1), torch.arange(width, device=batch.ids.device)
    found = []
    for step in range(steps):
        base = places - 1 - step  # the last position that the target has computed
        sees = places <= base[:, None]
        own, states, _ = model(embeds, states.roll(1, 1), base.clamp(min=0), kv, sees)
        found.append((own, states))
    return found


def loss(
    model: network.KvAssistant, features: AssistantFeatures, batch: Batch, hparams: dict[str, Any]
) -> Tensor:
    """Return the mean loss over the steps of the rollout, step i weighted by ``loss_decay`` ** i."""
    total: Any = 0.0  # a tensor from the first term on
    weights = 0.0
    clusters = cast(network.Clusters, model.masked_embedding)
    of_token = clusters.cluster_of()
    for step, (own, wide) in enumerate(rollout(model, features, batch, hparams["rollout"])):
        kept, _ = batch.back(step + 1)
        at = batch.where[kept]
        found = losses.distil(
            wide.flatten(0, 1)[at],
            features.head,
            batch.top_ids[kept],
            batch.top_logp[kept],
            batch.labels[kept],
            hparams["hard_label_weight"],
            negatives=hparams.get("negatives", 0),
        )
        scores = clusters.centroids(own.flatten(0, 1)[at]).log_softmax(-1)
        picked = scores.gather(1, of_token[batch.top_ids[kept]])
        found = found - hparams["cluster_weight"] * (batch.top_logp[kept].exp() * picked).sum(-1).mean()
        weight = hparams["loss_decay"] ** step
        total, weights = total + weight * found, weights + weight
    return total / weights


def chain_states_function(model: network.KvAssistant, features: AssistantFeatures) -> chains.ChainStates:
    """Return the function (batch, steps) -> predicted hidden states for each step of a chain, as
    ``chains.tables`` takes it. The replay scores the whole vocabulary, not the best clusters only."""
    return lambda batch, steps: [
        wide.roll(-1, 1).flatten(0, 1) for _, wide in rollout(model, features, batch, steps)
    ]


CARD = """A KV-borrowing assistant ({layers} layers of width {width}; embedding and output matrix are shared with the
target). Its layers have queries only: they read the target's KV cache of layers {reads} (0 is the first) and write nothing, and all
steps of a draft look from one position. It scores the tokens of the {best} best of {clusters} clusters of the vocabulary. The target
verifies the draft, so a wrong token costs time and never changes the text.

Loss: distillation plus {hard_label_weight} times cross-entropy on the generated tokens, over {rollout} steps on the drafter's own
states; step i's loss is multiplied by {loss_decay}^i. The centroids learn the target's clusters with weight {cluster_weight}."""
