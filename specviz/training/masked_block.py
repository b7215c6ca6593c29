"""Train block drafters (models/masked_block.py) on the target's answers: DFlash's plain block, and DSpark's
with Markov and confidence heads.

Each step samples answer positions as anchors. The block after an anchor sees the target's hidden states up
to the anchor and the anchor's token, and learns the target's distribution of every following token. Tokens
near the anchor weigh more, because tokens after a rejected one are lost. The Markov head is trained with
the true previous token. The confidence head learns the overlap of draft and target distribution, which is
the acceptance probability."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..models import masked_block as network
from . import chains, losses
from .data import TASKS
from .draft import collate
from .features import Batch, Features
from .job import Job
from .runner import Runner
from .shared_weights import freeze_untrained
from .text_answers import TRAIN, Answer

# (drafter, features, batch, states [n, hidden], indices [n] into ``batch.where``) -> (rows, matrix) whose
# product is the logits
Predict = Callable[[Any, Features, Batch, Tensor, Tensor], tuple[Tensor, Tensor]]


class AuxStateFeatures(Features):
    """Batches whose ``layer`` holds the hidden states of several target layers, concatenated: [rows *
    width, layers * hidden]."""

    keeps = "layer"

    def __init__(self, job: Job, hparams: dict, build: Callable = network.build):
        super().__init__(job, hparams)
        self.hidden_states = tuple(
            int(capture.removeprefix("layer:")) for capture in build(self.target_info, hparams).hidden_states
        )
        self.kept = self.cache("states-" + "-".join(map(str, self.hidden_states)), len(self.hidden_states))
        if self.kept is not None and list(self.hidden_states) == job.hparams("generate")["states"]:
            width = len(self.hidden_states) * self.head.shape[1]
            self.kept.fill(self.root / TRAIN, slice(width))

    @torch.no_grad()
    def states(self, material) -> Batch:
        """Run the target over the output of ``draft.collate``; return it as a Batch with these hidden
        states."""
        ids, where, top_ids, top_logp, labels = material
        out = self.target.model(ids, output_hidden_states=True)
        read = torch.cat([out.hidden_states[capture] for capture in self.hidden_states], -1)
        return Batch(
            ids, out.last_hidden_state.flatten(0, 1), read.flatten(0, 1), where, labels, top_ids, top_logp
        )


def run(
    job: Job,
    recipe: str,
    build: Callable[..., network.BlockDrafter] = network.build,
    card: str | None = None,
    begin: Callable[[Any, AuxStateFeatures], None] | None = None,
    corrected: Predict | None = None,
) -> Path:
    """Train a block drafter; return the folder of its weights.

    build(body, hparams): the untrained drafter; card: template of the model card; begin(model, features):
    initialises weights before the first step; corrected: predictions with a correction, as when drafting,
    whose loss is added to that of the plain block. hparams ``trained``: see shared_weights.py."""
    hparams = job.hparams(recipe)
    features = AuxStateFeatures(job, hparams, build)
    torch.manual_seed(job.seed)
    model = freeze_untrained(build(features.target_info, hparams), hparams)
    runner = Runner(job, recipe, model, hparams, features.checkpoint_folder(recipe))
    if begin is not None and not runner.progress.step:
        begin(model, features)

    def loss_at(step: int):
        batch = features.batch(step, runner.budget_spent())
        anchors = sample_anchors(batch, hparams["anchors"], random.Random(f"{job.seed} {step}"))
        drafted = blocks(model, features, batch, anchors)
        found = loss(model, features, batch, drafted, hparams)
        if corrected is not None:
            found = found + loss(model, features, batch, drafted, hparams, corrected)
        return found, len(batch.labels)

    runner.train(loss_at, lambda: measure(model, features, hparams, corrected))
    about = (card or CARD).format(
        **hparams
        | dict(
            heads=" with a Markov and a confidence head" if model.markov_head else "",
            after=list(model.read_layers),
            length=model.length,
        )
    )
    return chains.export(
        job, job.model_name(recipe), model, features, runner, about, most=1.1e7
    )  # a Markov head has rows for every token


def sample_anchors(batch: Batch, each: int, rng: random.Random) -> Tensor:
    """Sample ``each`` anchors per row of text, as indices into ``batch.where``, [rows, each]. A row with
    fewer answer tokens repeats some."""
    width = batch.ids.shape[1]
    owner = (batch.where // width).tolist()
    places: dict[int, list[int]] = {}
    for index, row in enumerate(owner):
        places.setdefault(row, []).append(index)
    rows = [places.get(row) or [0] for row in range(len(batch.ids))]
    return torch.tensor([[rng.choice(found) for _ in range(each)] for found in rows], device=batch.ids.device)


def blocks(
    model: network.BlockDrafter, features: Features, batch: Batch, anchors: Tensor
) -> list[tuple[Tensor, Tensor]]:
    """Return, for each position of the blocks after anchors [rows, n], (the states [m, hidden] that predict
    its token, indices [m] into ``batch.where`` of these tokens). Blocks end where the row's answer ends."""
    rows, width = batch.ids.shape
    ids = torch.full((*anchors.shape, model.block), model.mask_token, device=batch.ids.device)
    ids[..., 0] = batch.ids.flatten()[batch.where[anchors]]
    embeds = F.embedding(ids, features.embedding).float()
    out = model(batch.captured.float().view(rows, width, -1), embeds, batch.where[anchors] % width)
    out = out if model.anchored else out[:, :, 1:]
    found = []
    for ahead in range(out.shape[2]):
        index = anchors + ahead
        inside = index < len(batch.where)
        inside &= batch.where[index.clamp(max=len(batch.where) - 1)] == batch.where[anchors] + ahead
        found.append((out[:, :, ahead][inside], index[inside]))
    return found


def loss(
    model: network.BlockDrafter,
    features: Features,
    batch: Batch,
    drafted: list[tuple[Tensor, Tensor]],
    hparams: dict,
    corrected: Predict | None = None,
) -> Tensor:
    """Return the mean distillation loss of drafted blocks, as ``blocks`` returns them, weighted by the
    distance from the anchor, plus the loss of a confidence head."""
    total: Any = 0.0  # a tensor from the first term on
    weights = 0.0
    for ahead, (states, index) in enumerate(drafted):
        if not len(index):
            break
        joined, head = (corrected or predict)(model, features, batch, states, index)
        leaders = batch.top_ids[index], batch.top_logp[index]
        weight = math.exp(-ahead / hparams["loss_decay_length"])
        found = losses.distil(
            joined,
            head,
            *leaders,
            batch.labels[index],
            hparams["hard_label_weight"],
            negatives=hparams.get("negatives", 0),
        )
        if model.confidence_head is not None:
            with torch.no_grad():
                passes = overlap(joined @ head.to(joined.dtype).T, *leaders)
            sure = model.confidence(states, batch.ids.flatten()[batch.where[index]]).float()
            found = found + hparams["sure"] * F.binary_cross_entropy_with_logits(sure, passes)
        total, weights = total + weight * found, weights + weight
    return total / weights


def predict(model: network.BlockDrafter, features: Features, batch: Batch, states: Tensor, index: Tensor):
    """Return (inputs [n, a], matrix [vocab, a]) whose product is the logits. With a Markov head its
    low-rank factors are concatenated to hidden states and output matrix."""
    if model.markov_head is None:
        return states, features.head.float()
    latent = model.markov_head.latent(batch.ids.flatten()[batch.where[index]], states)
    head = torch.cat([features.head.float(), model.markov_head.markov_w2.weight], 1)
    return torch.cat([states, latent], -1), head


def overlap(logits: Tensor, top_ids: Tensor, top_logp: Tensor) -> Tensor:
    """Return an upper bound [n] of the acceptance probability sum(min(p, q)), computed over the target's
    top tokens and one outcome for all others."""
    q = logits.float().softmax(-1).gather(1, top_ids)
    p = top_logp.exp()
    rest = torch.minimum((1 - q.sum(-1)).clamp(min=0), (1 - p.sum(-1)).clamp(min=0))
    return (torch.minimum(p, q).sum(-1) + rest).clamp(0, 1)


def measure(
    model: network.BlockDrafter, features: Features, hparams: dict, corrected: Predict | None = None
) -> dict[str, float]:
    """Return the mean accepted length at temperature 0 on a few held-out answers of each task. Every draft
    is a full block."""
    some = [a for a in features.heldout if a.greedy]
    some = some[:: max(1, len(some) // hparams["measure_rows"])]
    by_task = {}
    for task in TASKS:
        marks = [
            accepted_by_step(model, features, answer, corrected) for answer in some if answer.task == task
        ]
        if marks:
            by_task[task] = chains.replay_rounds(marks, model.length)["block_efficiency"]
    return {
        "block_efficiency_greedy": round(sum(by_task.values()) / max(1, len(by_task)), 4),
        **{f"block_efficiency_{task}": value for task, value in by_task.items()},
    }


@torch.inference_mode()
def accepted_by_step(
    model: network.BlockDrafter, features: Features, answer: Answer, corrected: Predict | None = None
) -> list[list[bool]]:
    """Return [step][token] for a greedy answer: whether each token would be drafted correctly as the
    ``step``-th token of a draft (from 0)."""
    batch = features.states(collate([answer], len(answer.ids), features.device))
    marks = [[False] * len(batch.labels) for _ in range(model.length)]
    every = torch.arange(len(batch.where), device=batch.ids.device)[None]
    for ahead, (states, index) in enumerate(blocks(model, features, batch, every)):
        if len(index):
            joined, head = (corrected or predict)(model, features, batch, states, index)
            right = (joined.float() @ head.T).argmax(-1) == batch.labels[index]
            for place, good in zip(index.tolist(), right.tolist()):
                marks[ahead][place] = good
    return marks


CARD = """A block drafter ({layers} layers{heads}; embedding and output matrix are shared with the target). It reads
the outputs of the target's layers {after} (0 is the first) and drafts {length} tokens in one pass; the target checks them, so a
wrong guess costs time and never changes the text.

Loss: distillation at every position of a block, multiplied by e^(-position / {loss_decay_length}), plus {hard_label_weight} times
cross-entropy on the generated tokens; {anchors} blocks per row of text. The authors use cross-entropy and L1 distance, more layers
and about a hundred times the text."""
