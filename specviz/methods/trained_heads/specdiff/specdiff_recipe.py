"""Train SpecDiff's masked diffusion drafter (2408.05636) on the target's answers, for its use: a text
without masks, followed by a block with masks.

Each step samples answer positions as anchors. The block after an anchor holds the anchor's token and
positions that are masked in one of three ways: all of them (the first step of a draft), each with a
probability t drawn uniformly (MDLM, 2406.07524), or all but the first few (later steps, from left to
right). Masked positions learn the target's distribution. MDLM's weight 1/t is left out, and positions near
the anchor weigh more, because tokens after a rejected one are lost."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ....models.heads import HeadWeights, config_of
from ....training import chains, losses
from ....training.data import TASKS
from ....training.draft import collate
from ....training.features import Batch, Features
from ....training.job import Job
from ....training.masked_block import sample_anchors
from ....training.reduced_draft import ReducedHead
from ....training.runner import Runner
from ....training.text_answers import Answer
from . import specdiff_network as network


class TextFeatures(Features):
    """Batches of text and the target's distributions along it, without the target's hidden states."""

    keeps = None

    def states(self, material) -> Batch:
        """Return the output of ``draft.collate`` as a Batch without hidden states; the target does not
        run."""
        ids, where, top_ids, top_logp, labels = material
        return Batch(ids, ids.new_zeros(0).float(), None, where, labels, top_ids, top_logp)


@dataclass(frozen=True)
class Blocks:
    """The input of the drafter: rows of text, each followed by the blocks of its anchors.

    ids, masked, places [rows, n] with n = width + blocks * size: token ids, whether a mask stands there,
    positions in the text; mask, bool [rows, 1, n, n]: True where a row may attend; index [rows, blocks,
    size - 1]: indices into ``batch.where`` of the tokens that the masks stand for, -1 after the end of the
    answer."""

    ids: Tensor
    masked: Tensor
    places: Tensor
    mask: Tensor
    index: Tensor


def run(job: Job) -> Path:
    """Train SpecDiff's drafter; return the folder of its weights."""
    hparams = job.hparams("specdiff")
    features = TextFeatures(job, hparams)
    torch.manual_seed(job.seed)
    model = initialised_network(job, features, hparams)
    trainer = Trainer(model, features, hparams)
    runner = Runner(job, "specdiff", model, hparams, features.checkpoint_folder("specdiff"))

    def loss_at(step: int):
        batch, rng = features.batch(step, runner.budget_spent()), random.Random(f"{job.seed} {step}")
        size = model.block if rng.random() < 0.5 else rng.randint(1, model.block)
        anchors = sample_anchors(batch, hparams["anchors"], rng)
        rows, count = anchors.shape
        return trainer.loss(batch, anchors, sample_masked_positions(rows, count, size, rng)), len(
            batch.labels
        )

    runner.train(loss_at, trainer.measure)
    card = CARD.format(**hparams | {"draft_vocab": len(model.tokens)})
    return chains.export(job, job.model_name("specdiff"), model, features, runner, card, most=4e6)


def initialised_network(job: Job, features: TextFeatures, hparams: dict) -> network.DiffusionDrafter:
    """Return the untrained network. If the recipe names a draft model with a reduced vocabulary in
    ``from``, its weights are copied and its most frequent tokens are kept."""
    model = network.build(features.target_info, hparams)
    table = features.embedding.float()
    if "from" in hparams:
        folder = job.model(hparams["from"])
        weights, config = HeadWeights(folder, features.target_info), config_of(folder)
        d = config["hidden_size"]
        tokens = weights.ids("draft_tokens", len(table))
        count = len(model.tokens)
        found = {
            name: weights.get(f"model.{name}", *tensor.shape)
            for name, tensor in model.state_dict().items()
            if name.startswith(("layers.", "norm."))
        }
        found["in_proj.weight"] = weights.get("model.embed_projection.weight", d, table.shape[1])
        rows = most_frequent(features.answers, tokens, count)
        found["lm_head.weight"], found["tokens"] = (
            weights.get("lm_head.weight", len(tokens), d)[rows],
            tokens[rows],
        )
        model.load_state_dict(found, strict=False)
    with torch.no_grad():
        model.mask_embedding.copy_(model.in_proj(table[model.tokens]).mean(0))
    return model


def most_frequent(answers: list[Answer], tokens: Tensor, count: int) -> Tensor:
    """Return the indices into ``tokens`` of the ``count`` that are most frequent in the answers,
    ascending."""
    counts = torch.zeros(int(tokens.max()) + 1, dtype=torch.long)
    for answer in answers:
        ids = answer.ids[answer.start :].long()
        counts += torch.bincount(ids[ids < len(counts)], minlength=len(counts))
    return counts[tokens].argsort(descending=True, stable=True)[:count].sort().values


def sample_masked_positions(rows: int, blocks: int, size: int, rng: random.Random) -> Tensor:
    """Sample which positions of each block are masked, bool [rows, blocks, size]: all of them in half of
    the blocks, some of them in the others, as in later steps of a draft."""
    gen = torch.Generator().manual_seed(rng.getrandbits(31))
    shape = (rows, blocks, 1)
    kind, t, first = (torch.rand(shape, generator=gen) for _ in range(3))
    each = torch.rand(rows, blocks, size, generator=gen) < t
    later = torch.arange(size) >= (first * size).long()
    return torch.where(kind < 0.5, True, torch.where(kind < 0.75, each, later))


def blocks(batch: Batch, anchors: Tensor, hidden: Tensor) -> Blocks:
    """Return the drafter's input for blocks after anchors [rows, blocks] (indices into ``batch.where``),
    with masks where ``hidden`` [rows, blocks, size - 1] is True."""
    (rows, width), count, size, device = (
        batch.ids.shape,
        anchors.shape[1],
        hidden.shape[2] + 1,
        anchors.device,
    )
    start, ahead = batch.where[anchors] % width, torch.arange(size, device=device)
    index = anchors[..., None] + ahead[:-1]
    inside = index < len(batch.where)
    inside &= (
        batch.where[index.clamp(max=len(batch.where) - 1)] == batch.where[anchors][..., None] + ahead[:-1]
    )
    places = (start[..., None] + ahead).flatten(1)
    ids = batch.ids.gather(1, places.clamp(max=width - 1))
    masked = torch.cat(
        [torch.zeros_like(anchors, dtype=torch.bool)[..., None], hidden.to(device) | ~inside], 2
    ).flatten(1)
    text, own = torch.arange(width, device=device), torch.arange(count, device=device).repeat_interleave(size)
    above = torch.cat(
        [(text <= text[:, None]).expand(rows, -1, -1), text.new_zeros(rows, width, count * size).bool()], 2
    )
    below = torch.cat(
        [text < start.repeat_interleave(size, 1)[..., None], (own == own[:, None]).expand(rows, -1, -1)], 2
    )
    return Blocks(
        torch.cat([batch.ids, ids], 1),
        torch.cat([torch.zeros_like(batch.ids, dtype=torch.bool), masked], 1),
        torch.cat([text.expand(rows, -1), places], 1),
        torch.cat([above, below], 1)[:, None],
        torch.where(inside, index, -1),
    )


class Trainer:
    """Loss and replayed acceptance of SpecDiff's drafter."""

    def __init__(self, model: network.DiffusionDrafter, features: TextFeatures, hparams: dict):
        self.model = model
        self.features = features
        self.hparams = hparams
        self.vocabulary = ReducedHead(torch.zeros(len(model.tokens), 1), model.tokens.cpu(), model.vocab).to(
            features.device
        )

    def states(self, block_rows: Blocks) -> Tensor:
        """Return the hidden states that predict the blocks' tokens, [rows, blocks, size - 1, hidden]."""
        embeds = F.embedding(block_rows.ids, self.features.embedding).float()
        out = self.model(self.model.rows(embeds, block_rows.masked), block_rows.places, block_rows.mask)
        rows, count, ahead = block_rows.index.shape
        return out[:, -count * (ahead + 1) :].unflatten(1, (count, ahead + 1))[:, :, :-1]

    def loss(self, batch: Batch, anchors: Tensor, hidden: Tensor) -> Tensor:
        """Return the mean distillation loss over masked positions, weighted by the distance from the
        anchor."""
        block_rows = blocks(batch, anchors, hidden)
        states, hidden = self.states(block_rows), hidden.to(anchors.device) & (block_rows.index >= 0)
        total: Any = 0.0  # a tensor from the first term on
        weights = 0.0
        for ahead in range(states.shape[2]):
            chosen = hidden[:, :, ahead]
            index = block_rows.index[:, :, ahead][chosen]
            order = torch.arange(len(index), device=index.device)
            _, kept, top_ids, top_logp, labels = self.vocabulary.to_reduced_vocabulary(
                (batch.ids, order, batch.top_ids[index], batch.top_logp[index], batch.labels[index])
            )
            if not len(kept):
                continue
            weight = math.exp(-ahead / self.hparams["loss_decay_length"])
            found = losses.distil(
                states[:, :, ahead][chosen][kept],
                self.model.lm_head.weight,
                top_ids,
                top_logp,
                labels,
                self.hparams["hard_label_weight"],
                negatives=self.hparams.get("negatives", 0),
            )
            total, weights = total + weight * found, weights + weight
        return total / weights if weights else states.sum() * 0

    def measure(self) -> dict[str, float]:
        """Return the mean accepted length at temperature 0 with one diffusion step, on a few held-out
        answers of each task. Every draft is a full block."""
        some = [a for a in self.features.heldout if a.greedy]
        some = some[:: max(1, len(some) // self.hparams["measure_rows"])]
        by_task = {}
        for task in TASKS:
            marks = [self.accepted_by_step(answer) for answer in some if answer.task == task]
            if marks:
                by_task[task] = chains.replay_rounds(marks, self.model.block)["block_efficiency"]
        return {
            "block_efficiency_greedy": round(sum(by_task.values()) / max(1, len(by_task)), 4),
            **{f"block_efficiency_{task}": value for task, value in by_task.items()},
        }

    @torch.inference_mode()
    def accepted_by_step(self, answer: Answer) -> list[list[bool]]:
        """Return [step][token] for a greedy answer: whether each token would be drafted correctly as the
        ``step``-th token of a draft (from 0)."""
        batch = self.features.states(collate([answer], len(answer.ids), self.features.device))
        marks = [[False] * len(batch.labels) for _ in range(self.model.block)]
        every = torch.arange(len(batch.where), device=batch.ids.device)[None]
        block_rows = blocks(batch, every, torch.ones(*every.shape, self.model.block, dtype=torch.bool))
        states = self.states(block_rows)
        for ahead in range(self.model.block):
            inside = block_rows.index[0, :, ahead] >= 0
            index = block_rows.index[0, :, ahead][inside]
            right = (
                self.model.tokens[self.model.lm_head(states[0, :, ahead][inside]).argmax(-1)]
                == batch.labels[index]
            )
            for place, good in zip(index.tolist(), right.tolist()):
                marks[ahead][place] = good
        return marks


CARD = """A masked diffusion drafter ({layers} layers of width {hidden}; it reads the target's embedding through a projection and may
draft {draft_vocab:,} tokens). It fills in up to {block} places in one pass or several; the target checks them, so a
wrong guess costs time and never changes the text.

Loss: distillation at the masked places of {anchors} blocks per row of text, multiplied by e^(-place / {loss_decay_length}), plus
{hard_label_weight} times cross-entropy on the generated tokens. Half of the blocks are masked whole, the others in part, as in later
steps. The authors train a diffusion model on text at large, with MDLM's weights, for days."""
