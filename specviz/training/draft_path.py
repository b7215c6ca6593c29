"""Train a second path through the frozen target for draft rows (Uno, 2609.04010; Orthrus, 2605.12825):
extra weights that are used at drafted positions only.

The target runs over the text once, without gradients; the blocks read its KV cache, as when drafting. Each
step samples answer positions as anchors. The block after an anchor holds the anchor's token, then noise or
masks, and its rows use the second path; row j learns the target's distribution of the token j + 1 positions
after the anchor. A row that uses the target's own weights needs no training and is left out: its keys and
values are the text's. Positions near the anchor weigh more, because tokens after a rejected one are
lost."""

from __future__ import annotations

import math
import random
from pathlib import Path

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache

from ..methods.trained_heads.specdiff.specdiff_recipe import TextFeatures
from ..models import draft_path
from ..models.pretrained import decoder_layers, with_cache
from . import chains, losses
from .data import TASKS
from .draft import collate
from .features import Batch
from .job import Job
from .masked_block import sample_anchors
from .runner import Runner
from .text_answers import Answer

ROWS = 1024  # most rows of a pass when measuring


def run(job: Job, recipe: str) -> Path:
    """Train the second path of a recipe ("uno" or "orthrus"); return the folder of its weights."""
    hparams = job.hparams(recipe)
    features = TextFeatures(job, hparams)
    torch.manual_seed(job.seed)
    path = draft_path.build(recipe, features.target_info, hparams)
    trainer = Trainer(path, features, hparams)
    runner = Runner(job, recipe, path, hparams, features.checkpoint_folder(recipe))

    def loss_at(step: int):
        batch, rng = features.batch(step, runner.budget_spent()), random.Random(f"{job.seed} {step}")
        size = (
            path.block if path.first else rng.randint(2, path.block)
        )  # causal rows do not depend on those after them
        return trainer.loss(batch, sample_anchors(batch, hparams["anchors"], rng), size, rng), len(
            batch.labels
        )

    runner.train(loss_at, trainer.measure)
    card = CARD.format(**hparams | {"what": WHAT[recipe]})
    return chains.export(job, job.model_name(recipe), path, features, runner, card, most=3e6)


class Trainer:
    """Loss and replayed acceptance of a second path."""

    def __init__(self, path: draft_path.DraftPath, features: TextFeatures, hparams: dict):
        self.path = path
        self.features = features
        self.hparams = hparams
        self.net = features.target
        self.layers = decoder_layers(self.net, self.net.config)

    @torch.no_grad()
    def text_cache(self, ids: Tensor) -> DynamicCache:
        """Return the target's KV cache of a text, ids [rows, width]."""
        cache = DynamicCache(config=self.net.config)
        self.net.model(ids, use_cache=True, **with_cache(self.net.model, cache))
        return cache

    def states(self, ids: Tensor, cache: DynamicCache, at: Tensor, size: int, rng: random.Random) -> Tensor:
        """Return the final hidden states [rows, n, size - first, hidden] of the rows that use the second
        path, after anchors at positions ``at`` [rows, n] of texts ids [rows, width]. The cache is unchanged
        afterwards."""
        path, (rows, width), device, first = self.path, ids.shape, ids.device, self.path.first
        ahead = torch.arange(first, size, device=device)
        fillers = path.fillers([rng.random() for _ in range(at.numel() * (size - 1))])
        tokens = torch.tensor(fillers, device=device).view(*at.shape, size - 1)
        if not first:
            tokens = torch.cat([ids.gather(1, at)[..., None], tokens], 2)
        places, own = (
            (at[..., None] + ahead).flatten(1),
            torch.arange(at.shape[1], device=device).repeat_interleave(len(ahead)),
        )
        text = (
            torch.arange(width, device=device) < (at + first).repeat_interleave(len(ahead), 1)[..., None]
        )  # the root, where it is text
        block = own == own[:, None]
        block = (
            block
            if path.both
            else block & (ahead.repeat(at.shape[1])[None] <= ahead.repeat(at.shape[1])[:, None])
        )
        sees = torch.cat([text, block.expand(rows, -1, -1)], 2)[:, None]
        mask = torch.zeros(sees.shape, dtype=self.net.dtype, device=device).masked_fill_(
            ~sees, torch.finfo(self.net.dtype).min
        )
        with path.through(self.layers, lambda x: None):
            out = self.net.model(
                tokens.flatten(1),
                attention_mask=mask,
                position_ids=places,
                use_cache=True,
                **with_cache(self.net.model, cache),
            )
        cache.crop(-at.shape[1] * len(ahead))
        return out.last_hidden_state.unflatten(1, (at.shape[1], -1))

    def index(self, batch: Batch, anchors: Tensor, size: int) -> Tensor:
        """Return indices [rows, n, size - first] into ``batch.where`` of the tokens that the rows predict,
        -1 after the answer's end."""
        index = anchors[..., None] + torch.arange(self.path.first, size, device=anchors.device)
        held = index.clamp(max=len(batch.where) - 1)
        inside = (index == held) & (
            batch.where[held] == batch.where[anchors][..., None] + index - anchors[..., None]
        )
        return torch.where(inside, index, -1)

    def loss(self, batch: Batch, anchors: Tensor, size: int, rng: random.Random) -> Tensor:
        """Return the mean distillation loss of the rows that use the second path, weighted by the distance
        from the anchor."""
        width = batch.ids.shape[1]
        states = self.states(batch.ids, self.text_cache(batch.ids), batch.where[anchors] % width, size, rng)
        index = self.index(batch, anchors, size)
        total = states.sum() * 0.0
        weights = 0.0
        for place in range(states.shape[2]):
            kept = index[:, :, place] >= 0
            at = index[:, :, place][kept]
            if not len(at):
                continue
            weight = math.exp(-place / self.hparams["loss_decay_length"])
            found = losses.distil(
                states[:, :, place][kept].float(),
                self.features.head,
                batch.top_ids[at],
                batch.top_logp[at],
                batch.labels[at],
                self.hparams["hard_label_weight"],
                self.hparams["divergence"],
                negatives=self.hparams.get("negatives", 0),
            )
            total, weights = total + weight * found, weights + weight
        return total / max(weights, 1e-9)

    def measure(self) -> dict[str, float]:
        """Return the mean accepted length at temperature 0 (tokens a round of two passes) on a few held-out
        answers of each task."""
        some = [answer for answer in self.features.heldout if answer.greedy]
        some = some[:: max(1, len(some) // self.hparams["measure_rows"])]
        by_task = {}
        for task in TASKS:
            marks = [self.accepted_by_step(answer) for answer in some if answer.task == task]
            if marks:
                by_task[task] = chains.replay_rounds(marks, self.path.block)["block_efficiency"]
        return {
            "block_efficiency_greedy": round(sum(by_task.values()) / max(1, len(by_task)), 4),
            **{f"block_efficiency_{task}": value for task, value in by_task.items()},
        }

    @torch.inference_mode()
    def accepted_by_step(self, answer: Answer) -> list[list[bool]]:
        """Return [step][token] for a greedy answer: whether each token would be drafted correctly as the
        ``step``-th token of a draft (from 0)."""
        path, first = self.path, self.path.first
        batch = self.features.states(collate([answer], len(answer.ids), self.features.device))
        marks = [[step < first] * len(batch.labels) for step in range(path.block)]
        cache, rng = self.text_cache(batch.ids), random.Random(0)
        every = torch.arange(len(batch.where), device=batch.ids.device)[None]
        for anchors in every.split(max(1, ROWS // path.block), 1):
            states = self.states(
                batch.ids, cache, batch.where[anchors] % batch.ids.shape[1], path.block, rng
            )[0]
            index = self.index(batch, anchors, path.block)[0]
            best = self.features.logits(states.flatten(0, 1)).argmax(-1).view(index.shape)
            for place in range(states.shape[1]):
                inside = index[:, place] >= 0
                at = index[:, place][inside]
                for token, right in zip(at.tolist(), (best[:, place][inside] == batch.labels[at]).tolist()):
                    marks[first + place][token] = right
        return marks


WHAT = {
    "uno": "A diffusion LoRA on all matrices of the target's layers, for rows of noise",
    "orthrus": "A second attention path through the target's layers, for a block of mask tokens: a low-rank change of its attention",
}

CARD = """{what} (rank {rank}). The target drafts with it in one pass and verifies without it, over one KV cache; a wrong token
costs time and never changes the text.

Loss: distillation at the rows of {anchors} blocks of up to {block} places per row of text, multiplied by e^(-place / {loss_decay_length}),
plus {hard_label_weight} times cross-entropy on the generated tokens. The target's weights are frozen."""
