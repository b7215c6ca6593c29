"""Train corrections of a frozen block drafter (Domino, TreeFlash, LiLiCorr, DFlash2, TAPS) on the target's
own answers.

Blocks are drafted after sampled answer tokens, as in masked_block.py. The correction reads the true tokens
before each position, as on an accepted path, and scores the drafter's top candidates of the position. The
loss is the cross-entropy of the target's probabilities on these candidates, so a position whose candidates
the target finds improbable counts little. Positions near the start of the block weigh more, because tokens
after a rejected one are lost."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..drafters.heads.reduced_output import read_draft_tokens
from ..models import masked_block as network
from . import chains
from .data import TASKS
from .draft import collate
from .features import Batch
from .job import Job, TrainingError
from .masked_block import AuxStateFeatures, sample_anchors
from .runner import Runner
from .text_answers import Answer

DRAFTER = "dflash"


@dataclass(frozen=True)
class Blocks:
    """Drafts of the frozen block drafter after n anchors, with its candidates at each of their positions.

    states, raw [n, positions, hidden]: the drafter's hidden states after and before its final norm; text
    [n, hidden]: the target's hidden states before the anchor, projected by the drafter; before [n,
    positions]: the true token before each position; embeds [n, positions, hidden]: the embeddings of these
    tokens; index [n, positions]: indices into ``Batch.where``; inside [n, positions]: whether the position
    is within the answer; ids, log_probs, logits [n, positions, m]: the drafter's top candidates, best
    first; entropy [n, positions]: of the drafter's distribution, in nats."""

    states: Tensor
    raw: Tensor
    text: Tensor
    before: Tensor
    embeds: Tensor
    index: Tensor
    inside: Tensor
    ids: Tensor
    log_probs: Tensor
    logits: Tensor
    entropy: Tensor


Scores = Callable[[Any, "Corrected", Blocks], Tensor]  # (the recipe's network, ...) -> [n, positions, m]


class Corrected(AuxStateFeatures):
    """Training batches for a correction: the target's captured hidden states and the frozen block drafter
    that is corrected. ``tokens``: ids that the drafter may propose, None for all."""

    def __init__(self, job: Job, hparams: dict, recipe: str):
        super().__init__(
            job, hparams, lambda target_info, _: network.load(job.model(job.model_name(DRAFTER)), target_info)
        )
        self.drafter = (
            network.load(job.model(job.model_name(DRAFTER)), self.target_info).float().to(self.device)
        )
        self.tokens = read_draft_tokens(job.shipped_folder(job.model_name(recipe)), self.target_info.vocab)
        self.candidates = min(
            hparams["candidates"], self.target_info.vocab if self.tokens is None else len(self.tokens)
        )
        if self.drafter.markov_head is not None or self.drafter.anchored:
            raise TrainingError(f"{job.model_name(DRAFTER)} corrects itself already.", "training.drafter")

    @torch.no_grad()
    def blocks(self, batch: Batch, anchors: Tensor) -> Blocks:
        """Draft blocks after anchors [rows, blocks], given as indices into ``batch.where``; return them
        flattened, n = rows * blocks."""
        net, (rows, width) = self.drafter, batch.ids.shape
        ids = torch.full((*anchors.shape, net.block), net.mask_token, device=batch.ids.device)
        ids[..., 0] = batch.ids.flatten()[batch.where[anchors]]
        captured = batch.captured.float()
        raw = net.raw(
            captured.view(rows, width, -1),
            F.embedding(ids, self.embedding).float(),
            batch.where[anchors] % width,
        )
        raw = raw.flatten(0, 1)[:, 1:]
        states = net.norm(raw)
        first = anchors.flatten()
        index = first[:, None] + torch.arange(net.length, device=first.device)
        inside = index < len(batch.where)
        index = index.clamp(max=len(batch.where) - 1)
        inside &= batch.where[index] == batch.where[first][:, None] + torch.arange(
            net.length, device=first.device
        )
        before = batch.ids.flatten()[batch.where[index]]
        text = net.hidden_norm(net.fc(captured[(batch.where[first] - 1).clamp(min=0)]))
        found = self._candidates(states)
        return Blocks(
            states, raw, text, before, F.embedding(before, self.embedding).float(), index, inside, *found
        )

    def _candidates(self, states: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        head = self.head if self.tokens is None else self.head[self.tokens.to(self.head.device)]
        logits = (states.to(head.dtype) @ head.T).float()
        log_probs = logits.log_softmax(-1)
        entropy = -(log_probs.exp() * log_probs).sum(-1)
        values, at = logits.topk(self.candidates, dim=-1)
        ids = at if self.tokens is None else self.tokens.to(at.device)[at]
        return ids, log_probs.gather(-1, at), values, entropy


def run(
    job: Job,
    recipe: str,
    build: Callable,
    scores: Scores,
    card: str,
    loss: Callable | None = None,
    scaled: Callable[[Any, Corrected], AbstractContextManager] = lambda *_: nullcontext(),
) -> Path:
    """Train the correction of a recipe; return the folder of its weights. scores: the recipe's network as a
    function to candidate scores [n, positions, m]; loss(scores, batch, blocks, hparams): its loss, default
    ``distil``; scaled(model, features): the context in which it is trained and measured."""
    hparams = job.hparams(recipe)
    features = Corrected(job, hparams, recipe)
    torch.manual_seed(job.seed)
    model = build(
        features.target_info, hparams | {"block": features.drafter.block, "draft_tokens": features.tokens}
    )
    runner = Runner(job, recipe, model, hparams, features.checkpoint_folder(recipe))
    if not runner.progress.step and hasattr(model, "begin"):
        model.begin(features.embedding.float(), features.head.float())

    def loss_at(step: int):
        batch = features.batch(step, runner.budget_spent())
        blocks = features.blocks(
            batch, sample_anchors(batch, hparams["anchors"], random.Random(f"{job.seed} {step}"))
        )
        return (loss or distil)(scores(model, features, blocks), batch, blocks, hparams), len(batch.labels)

    with scaled(model, features):
        runner.train(loss_at, lambda: measure(model, features, scores, hparams))
    return chains.export(
        job, job.model_name(recipe), model, features, runner, card.format(**hparams), most=2.2e6
    )


def target_probs(batch: Batch, blocks: Blocks) -> Tensor:
    """Return the target's probability of each candidate, [n, positions, m]; 0 for candidates outside the
    target's stored top tokens."""
    ids, probs = batch.top_ids[blocks.index], batch.top_logp[blocks.index].exp()
    return ((blocks.ids[..., None] == ids[..., None, :]) * probs[..., None, :]).sum(-1)


def weights(blocks: Blocks, hparams: dict) -> Tensor:
    """Return the loss weight of each position, [n, positions]: it decreases with the distance from the
    anchor, is 0 after the end of the answer, and sums to 1."""
    places = torch.arange(blocks.inside.shape[1], device=blocks.inside.device)
    weight = blocks.inside * torch.exp(-places / hparams["loss_decay_length"])
    return weight / weight.sum().clamp(min=1e-9)


def distil(scores: Tensor, batch: Batch, blocks: Blocks, hparams: dict) -> Tensor:
    """Return the cross-entropy of the scores, renormalised over the candidates, with the target's
    probabilities plus ``hard_label_weight`` on the generated token; positions are weighted by ``weights``.
    A score of minus infinity: the correction does not score this candidate."""
    log_probs = scores.float().log_softmax(-1).nan_to_num(neginf=0.0)
    wanted = target_probs(batch, blocks) + hparams["hard_label_weight"] * (
        blocks.ids == batch.labels[blocks.index][..., None]
    )
    return -(weights(blocks, hparams) * (wanted * log_probs).sum(-1)).sum()


@torch.inference_mode()
def measure(model: nn.Module, features: Corrected, scores: Scores, hparams: dict) -> dict[str, float]:
    """Return the mean accepted length at temperature 0 on a few held-out answers of each task, with and
    without the correction."""
    some = [a for a in features.heldout if a.greedy]
    some = some[:: max(1, len(some) // hparams["measure_rows"])]
    found = {}
    for name, corrected in (
        ("block_efficiency_greedy", scores),
        ("block_efficiency_uncorrected", lambda _, __, blocks: blocks.logits),
    ):
        by_task = []
        for task in TASKS:
            marks = [
                accepted_by_step(model, features, answer, corrected) for answer in some if answer.task == task
            ]
            if marks:
                by_task.append(chains.replay_rounds(marks, features.drafter.length)["block_efficiency"])
        found[name] = round(sum(by_task) / max(1, len(by_task)), 4)
    return found


def accepted_by_step(
    model: nn.Module, features: Corrected, answer: Answer, scores: Scores
) -> list[list[bool]]:
    """Return [position in the draft][token of the answer] for a greedy answer: whether the token would be
    drafted correctly at that position, if the draft tokens before it are correct."""
    batch = features.states(collate([answer], len(answer.ids), features.device))
    blocks = features.blocks(batch, torch.arange(len(batch.where), device=batch.ids.device)[None])
    top = scores(model, features, blocks).argmax(-1, keepdim=True)
    right = (blocks.ids.gather(-1, top)[..., 0] == batch.labels[blocks.index]) & blocks.inside
    marks = [[False] * len(batch.labels) for _ in range(right.shape[1])]
    for index, row, inside in zip(blocks.index.tolist(), right.tolist(), blocks.inside.tolist()):
        for place, (at, good, there) in enumerate(zip(index, row, inside)):
            if there:
                marks[place][at] = good
    return marks
