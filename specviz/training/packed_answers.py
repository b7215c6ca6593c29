"""Generate answers with the int8 weights that the engine serves, in packed passes with continuous batching.

The rows of a pass are the next tokens of all unfinished answers and the prompts of those that begin, without
padding (targets/packed_pass.py). A finished answer gives its KV cache to the next prompt, so no lane waits for
the longest answer of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..core.errors import InvalidUse
from ..kernels.memory import aligned
from ..kernels.sequence_rows import chain_rows
from ..targets.int8 import Int8Model

Sampler = Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]


class PackedAnswer(NamedTuple):
    """tokens [n]; the target's top tokens and their log-probabilities at temperature 1, [n, top]; states
    [prompt + n, width]: hidden states of prompt and answer, zeros for the last token, which no pass read."""

    tokens: Tensor
    top_ids: Tensor
    top_logp: Tensor
    states: Tensor


class Lane:
    """A KV cache and the answer that is generated in it. pending: the tokens that the next pass reads."""

    def __init__(self, model: Int8Model, capacity: int):
        self.cache = model.new_slots(capacity)
        self.index = -1  # of the prompt, -1: none
        self.pending: list[int] = []
        self.used = 0  # cached tokens
        self.made = 0

    def begin(self, index: int, prompt: Sequence[int]) -> None:
        """Start the answer to a prompt."""
        self.index, self.pending, self.used, self.made = index, list(prompt), 0, 0


class PackedGenerator:
    """Generates answers in at most ``lanes`` KV caches at once. folder: of the target; end: id of the end
    token; prefill: prompt tokens that may join one pass; capture: layers whose inputs an answer's states hold,
    followed by the final hidden states; None: no states."""

    def __init__(
        self,
        folder: Path,
        end: int,
        lanes: int = 64,
        prefill: int = 256,
        capture: Sequence[int] | None = None,
    ):
        self.model = Int8Model(folder, torch.device("cpu"))
        self.end, self.prefill, self.capture = end, prefill, capture
        self.lanes: list[Lane] = []
        self.most = lanes
        self.capacity = 0

    @torch.inference_mode()
    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        temperatures: Sequence[float],
        new_tokens: int,
        sample: Sampler,
    ) -> list[PackedAnswer]:
        """Return an answer of at most ``new_tokens`` to each prompt (token ids), in their order. sample:
        (logits [rows, vocab], temperatures [rows]) -> (tokens, top ids, top log-probabilities)."""
        if not all(prompts):
            raise InvalidUse("an empty prompt has no answer", "prompt.empty")
        self._reserve(max(map(len, prompts), default=0) + new_tokens)
        waiting = list(range(len(prompts)))[::-1]
        temps = torch.tensor(temperatures)
        found: list[list[tuple[Tensor, ...]]] = [[] for _ in prompts]
        states: list[list[Tensor]] = [[] for _ in prompts]
        for lane in self.lanes:
            lane.index = -1
        while True:
            budget = self.prefill
            for lane in self.lanes:
                if (
                    lane.index < 0
                    and waiting
                    and (budget == self.prefill or len(prompts[waiting[-1]]) <= budget)
                ):
                    index = waiting.pop()
                    lane.begin(index, prompts[index])
                    budget -= len(prompts[index])
            live = [lane for lane in self.lanes if lane.index >= 0]
            if not live:
                break
            made = sample(self._logits(live, states), temps[[lane.index for lane in live]])
            for lane, token, *rest in zip(live, made[0].tolist(), *made):
                found[lane.index].append((rest[0], rest[1].int(), rest[2].half()))
                lane.made += 1
                if token == self.end or lane.made == new_tokens:
                    lane.index = -1
                else:
                    lane.pending = [token]
        answers = []
        for steps, parts in zip(found, states):
            tokens, ids, logp = (torch.stack(part) for part in zip(*steps))
            unread = torch.zeros_like(parts[0][:1])
            answers.append(PackedAnswer(tokens, ids, logp, torch.cat([*parts, unread])))
        return answers

    def _reserve(self, capacity: int) -> None:
        """Allocate KV caches of at least this many slots."""
        if capacity > self.capacity:
            self.lanes, self.capacity = [], capacity
            self.model.rotations(capacity)
        while len(self.lanes) < self.most:
            self.lanes.append(Lane(self.model, self.capacity))

    def _logits(self, live: list[Lane], states: list[list[Tensor]]) -> Tensor:
        """Read the pending tokens of all lanes, and append their hidden states to those of their prompts. Return
        the logits [lanes, vocab] after the last token of each."""
        network = self.model.compiled
        assert network is not None and network.output is not None
        rows, owners = [], []
        for lane in live:
            if len(lane.pending) > 1:
                rows.append(self._rows(lane, lane.pending[:-1], lane.used))
                owners.append(lane.index)
                lane.used += len(lane.pending) - 1
        for lane in live:  # after the prompts, so that only these rows get logits
            rows.append(self._rows(lane, lane.pending[-1:], lane.used))
            owners.append(lane.index)
            lane.used += 1
        count = sum(len(part.tokens) for part in rows)
        x = aligned((count, network.sizes.hidden), np.float32)
        logits = np.empty((len(live), network.output.outputs), np.float32)
        captured = {i: np.empty_like(x) for i in self.capture or ()}
        network.run(rows, x, True, 0, network.sizes.layers, logits, captured)
        read = self._states(x, captured).split([len(part.tokens) for part in rows])
        for owner, part in zip(owners, read):
            states[owner].append(part)
        return self.model.compiled_logits(torch.from_numpy(logits))[:, : self.model.vocab]

    def _states(self, x: np.ndarray, captured: dict[int, np.ndarray]) -> Tensor:
        """Return the states of a pass in the checkpoint's basis, [rows, width], 16 bits."""
        model = self.model
        if self.capture is None:
            return torch.empty(len(x), 0, dtype=torch.bfloat16)
        parts = [model.to_checkpoint(torch.from_numpy(captured[i])[:, : model.hidden]) for i in self.capture]
        parts.append(model.final_states(model.norm_output(torch.from_numpy(x)[:, : model.hidden])))
        return torch.cat([part.bfloat16() for part in parts], 1)

    def _rows(self, lane: Lane, tokens: list[int], slot: int):
        """Return consecutive tokens of a lane as the compiled pass reads them."""
        return chain_rows(
            lane.cache.data_ptr(), lane.cache.shape[3], tokens, slot, slot, self.model.positions
        )
