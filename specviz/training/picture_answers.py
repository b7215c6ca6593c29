"""Generate pictures of a target that paints patch by patch, as training material of its drafters (the
recipe ``generate``).

`train` and `heldout` hold pictures that the target painted; `read` holds drawings of the program that the
target learned from, with the target's distributions along them. A tenth of the prompts have no words, so
that drafters also serve classifier-free guidance.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoTokenizer

from ..models.pretrained import open_network
from ..zoo.codec import PatchCodec, open_codec
from . import text_answers as generate
from .data import TASKS
from .files import write_json
from .job import Job, fingerprint
from .pictures import Batches


@dataclass(frozen=True)
class PictureRow:
    """A prompt and its drawing, drawn when it is needed. task: shards name one of six tasks, which means
    nothing here."""

    batches: Batches
    step: int
    task: str = TASKS[0]

    def encode(self) -> tuple[list[int], int]:
        """Return the token ids of prompt, patches and end, and the index of the first patch."""
        (ids,), where, _ = self.batches.make(self.step, 1)
        return ids.tolist(), int(where[0]) + 1


def run(job: Job, hparams: dict) -> Path:
    """Generate pictures; return their folder."""
    path, root = job.model(job.target), generate.folder(job)
    words = AutoTokenizer.from_pretrained(path, trust_remote_code=False)
    codec = open_codec(path, lambda: words)
    assert isinstance(codec, PatchCodec)
    model = open_network(path, torch.float32).to(job.torch_device()).eval()
    began, spent = time.monotonic(), generate.spent_seconds(root)
    budget = 60 * (job.minutes or hparams["minutes"])
    make = generate.AnswerGenerator(model, words, hparams, job, encode=PictureRow.encode)
    rng = random.Random(job.seed)

    def some(count: int, stream: int, *temperatures: float | None) -> list[tuple[PictureRow, float | None]]:
        seed = 1000 * (job.seed + 1) + stream  # other pictures than those that the target learned from
        batches = Batches(
            codec.codes.copy(), words, hparams | {"patch": codec.codes.shape[1]}, seed, torch.device("cpu")
        )
        return [(PictureRow(batches, step), rng.choice(temperatures)) for step in range(count)]

    fixed = some(hparams["heldout_rows"], 0, 0.0)
    make.shards(
        root / "heldout", [(row, temperature) for temperature in (0.0, 1.0) for row, _ in fixed], None
    )
    make.shards(
        root / "train", some(hparams["rows"], 1, *hparams["temperatures"]), began + 0.7 * budget - spent
    )
    make.shards(root / "read", some(hparams["read_rows"], 2, None), began + budget - spent)
    if make.tokens:
        seconds = round(spent + time.monotonic() - began, 1)
        write_json(root / "progress.json", {"seconds": seconds})
        job.log("generate", target=fingerprint(path), new_answer_tokens=make.tokens, seconds=seconds)
    return root
