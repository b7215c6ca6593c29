"""Loss and replayed acceptance of drafters with mask tokens, shared by the recipes of PARD and P-EAGLE.

The text's own rows predict the first token of a draft, mask tokens predict the later ones. All rows have
equal weight, as in the papers; later positions have fewer rows, because masks were dropped
(mask_rows.py)."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from . import chains, losses, mask_rows
from .data import TASKS
from .draft import collate
from .features import Batch, Features
from .text_answers import Answer


@dataclass(frozen=True)
class MaskTrainer:
    """Loss and measurement of a drafter that is trained with mask tokens.

    states(batch, masks): its hidden states [rows * (width + masks), hidden], in each row those of the text
    first, then those of the masks; logits: function from hidden states to logits; back: as in
    mask_rows.py."""

    features: Features
    states: Callable[[Batch, mask_rows.Masks], Tensor]
    logits: Callable[[Tensor], Tensor]
    back: int = 0

    def predict(self, batch: Batch, masks: mask_rows.Masks) -> list[tuple[Tensor, Tensor]]:
        """Return, for each position of a draft, (states [n, hidden] that predict it, indices [n] into
        ``batch.where``). The first position is predicted by the text's own rows."""
        out, width = self.states(batch, masks), batch.ids.shape[1]
        kept, places = batch.back(self.back)
        first = places // width * (width + len(masks.depth)) + places % width
        deepest = int(masks.depth.max()) if len(masks.depth) else 0
        later = (masks.at_depth(depth, width) for depth in range(1, deepest + 1))
        return [(out[first], kept), *((out[at], index) for at, index in later)]

    def loss(self, batch: Batch, hparams: dict, step: int, head: Tensor) -> Tensor:
        """Return the mean distillation loss over all rows that predict a token. head [vocab, hidden]: the
        output matrix."""
        masks = mask_rows.sample_masks(
            batch, hparams, random.Random(f"{self.features.job.seed} {step}"), self.back
        )
        rows, index = (torch.cat(parts) for parts in zip(*self.predict(batch, masks)))
        return distil_rows(batch, rows, index, hparams, head)

    def measure(self, hparams: dict) -> dict[str, float]:
        """Return the mean accepted length at temperature 0 on a few held-out answers of each task. Every
        draft is a full block."""
        some = [a for a in self.features.heldout if a.greedy]
        some = some[:: max(1, len(some) // hparams["measure_rows"])]
        by_task = {}
        for task in TASKS:
            marks = [
                self.accepted_by_step(answer, hparams["block"]) for answer in some if answer.task == task
            ]
            if marks:
                by_task[task] = chains.replay_rounds(marks, hparams["block"])["block_efficiency"]
        return {
            "block_efficiency_greedy": round(sum(by_task.values()) / max(1, len(by_task)), 4),
            **{f"block_efficiency_{task}": value for task, value in by_task.items()},
        }

    @torch.inference_mode()
    def accepted_by_step(self, answer: Answer, block: int) -> list[list[bool]]:
        """Return [step][token] for a greedy answer: whether each token would be drafted correctly as the
        ``step``-th token of a draft (from 0)."""
        batch = self.features.states(collate([answer], len(answer.ids), self.features.device))
        marks = [[False] * len(batch.labels) for _ in range(block)]
        for ahead, (states, index) in enumerate(
            self.predict(batch, mask_rows.all_masks(batch, block, self.back))
        ):
            right = self.logits(states).argmax(-1) == batch.labels[index]
            for place, good in zip(index.tolist(), right.tolist()):
                marks[ahead][place] = good
        return marks


def distil_rows(batch: Batch, rows: Tensor, index: Tensor, hparams: dict, head: Tensor) -> Tensor:
    """Return the mean distillation loss of output states rows [n, hidden] that predict what the batch's tokens
    ``index`` [n] do. head [vocab, hidden]: the output matrix."""
    return losses.distil(
        rows,
        head,
        batch.top_ids[index],
        batch.top_logp[index],
        batch.labels[index],
        hparams["hard_label_weight"],
        negatives=hparams.get("negatives", 0),
    )
