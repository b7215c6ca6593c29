"""Disk cache of the target's last hidden states along its answers, shared by all heads that are trained on
them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from .text_answers import Answer, states_file


class StateCache:
    """A disk cache of hidden states [tokens of all answers, hidden] in 16 bits, in a sparse file that is
    filled on demand. A stored state is never recomputed, so that training data do not depend on
    interruptions.

    folder: holds the states of these answers only; other answers, or a target of another width, replace its
    content."""

    def __init__(self, folder: Path, answers: list[Answer], hidden: int):
        folder.mkdir(parents=True, exist_ok=True)
        self.index = {id(answer): i for i, answer in enumerate(answers)}
        self.answers, self.starts = answers, [0, *accumulate(len(a.ids) for a in answers)]
        name = f"{len(answers)}-{self.starts[-1]}-{hidden}"
        for old in folder.glob("*-*-*-*"):
            if not old.name.endswith(f"-{name}"):
                old.unlink()  # for fewer answers, and gigabytes large
        self.states = open_array(folder / f"states-{name}", self.starts[-1] * hidden, torch.bfloat16).view(
            -1, hidden
        )
        self.done = open_array(folder / f"done-{name}", len(answers), torch.uint8)

    def fill(self, shards: Path, columns: slice) -> None:
        """Take states that were kept with the answers' shards (text_answers.states_file), these columns of
        them. The shards in the folder hold the first answers of this cache, in order."""
        at = 0
        for shard in sorted(shards.glob("shard-*.safetensors")):
            with safe_open(shard, "pt") as file:
                count = len(file.get_tensor("lengths"))
            kept = states_file(shard)
            if kept.is_file() and not self.done[at : at + count].all():
                with safe_open(kept, "pt") as file:
                    self.states[self.starts[at] : self.starts[at + count]] = file.get_slice("states")[
                        :, columns
                    ]
                self.done[at : at + count] = 1
            at += count

    def rows(self, answers: list[Answer], width: int, compute: Callable[[], Tensor]) -> Tensor:
        """Return the hidden states [rows, width, hidden] of some answers, right-padded with zeros.
        compute(): called for states that are not stored yet. Answers longer than ``width`` are truncated
        and not cached."""
        at = [self.index[id(answer)] for answer in answers]
        missing = [row for row, i in enumerate(at) if not self.done[i]]
        fresh = compute() if missing else None
        whole = torch.zeros(len(at), width, self.states.shape[1], dtype=torch.bfloat16)
        for row, (i, answer) in enumerate(zip(at, answers)):
            kept, length = self.states[self.starts[i] : self.starts[i + 1]], len(answer.ids)
            if self.done[i]:
                whole[row, :length] = kept[:width]
                continue
            assert fresh is not None  # this row is missing
            whole[row, :length] = fresh[row, :length]
            if length <= width:
                kept.copy_(fresh[row, :length])
                self.done[i] = 1
        return whole


def open_array(path: Path, size: int, dtype: torch.dtype) -> Tensor:
    """Open a file as a memory-mapped tensor of ``size`` numbers. A new file is sparse and all zeros."""
    if not path.is_file():
        with path.open("wb") as file:
            file.truncate(size * dtype.itemsize)
    return torch.from_file(str(path), shared=True, size=size, dtype=dtype)
