"""transformers' own decoding as rows of the benchmark: generate, assisted generation and prompt lookup on
the same weights.

Assisted generation is transformers' speculative decoding (Leviathan et al. 2211.17192; its draft length
adapts); prompt lookup is Saxena 2023. Seconds are counted after the first round, which includes the
prefill.
"""

from __future__ import annotations

import time
from copy import copy
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

import torch

from ..checkpoints.weights import read_json
from ..core import Sampling
from ..models.pretrained import from_files, open_config
from ..run.request import sentence
from ..run.result import Result
from ..run.session import Session
from ..trace.metrics import Totals
from ..zoo.registry import ZooError

if TYPE_CHECKING:
    from ..zoo.pair import Loaded

LOOKUP_TOKENS = 10  # transformers' documentation uses this


class Generator:
    """One configuration of transformers' ``model.generate`` for the benchmark: calling it with (prompt,
    sampling, length) returns a Result."""

    def __init__(self, plain: Session, models: Models, **options: Any):
        self.session = plain
        self.models = models
        self.options = options

    def __call__(self, prompt: str | list[dict[str, str]], sampling: Sampling, length: int) -> Result:
        loaded = self.session.loaded
        model = self.models.target
        watch = _Watch(self.models.spent)
        ids = self.session.encode(prompt)
        given = torch.tensor([ids], device=model.device)
        probs = {
            "do_sample": True,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,
        }
        torch.manual_seed(sampling.seed)
        with torch.inference_mode():
            out = model.generate(
                given,
                attention_mask=torch.ones_like(given),
                max_new_tokens=min(length, loaded.context - len(ids)),
                eos_token_id=sorted(loaded.end_tokens) or None,
                pad_token_id=0,
                stopping_criteria=[watch],
                **(probs if sampling.temperature else {"do_sample": False}),
                **self.options,
            )
        return watch.result(ids, out[0, len(ids) :].tolist())


@dataclass
class PassTimes:
    """Seconds inside forward passes of target and assistant model, and the number of target passes, since
    the models were loaded."""

    seconds: float = 0.0
    passes: int = 0


@dataclass
class Models:
    """The target and the assistant model as transformers models, and the time of their forward passes."""

    target: Any
    draft: Any
    spent: PassTimes


class _Watch:
    """A stopping criterion that never stops; it is called after each round and records the state after the
    first."""

    def __init__(self, spent: PassTimes):
        self._spent = spent
        self._first: tuple[float, int, PassTimes] | None = None

    def __call__(self, ids: torch.Tensor, scores: Any, **options: Any) -> torch.Tensor:
        if self._first is None:
            self._first = time.perf_counter(), ids.shape[1], copy(self._spent)
        return torch.zeros(ids.shape[0], dtype=torch.bool, device=ids.device)

    def result(self, prompt: list[int], written: list[int]) -> Result:
        assert self._first is not None  # it is called after each round
        began, length, before = self._first
        seconds, first = time.perf_counter() - began, length - len(prompt)
        totals = Totals(
            tokens=len(written) - first,
            rounds=self._spent.passes - before.passes,
            phase_seconds={"verify": seconds},
        )
        return Result(prompt, written, "", totals, self._spent.seconds - before.seconds)


def references(loaded: Loaded, plain: Session) -> dict[str, Generator]:
    """Return {row name: runner} of the baselines. Raises ZooError if transformers cannot load the target."""
    spent = PassTimes()
    models = Models(_open(loaded, loaded.folder, spent, counts=True), None, spent)
    found = {"transformers_generate": Generator(plain, models)}
    if loaded.draft_folder and "draft_vocab_size" not in read_json(
        loaded.draft_folder, "config.json"
    ):  # a layout of this project's own
        models.draft = _open(loaded, loaded.draft_folder, spent, counts=False)
        found["transformers_assisted"] = Generator(plain, models, assistant_model=models.draft)
    found["transformers_prompt_lookup"] = Generator(plain, models, prompt_lookup_num_tokens=LOOKUP_TOKENS)
    return found


def _open(loaded: Loaded, folder: Any, spent: PassTimes, counts: bool) -> Any:
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        found = from_files(folder, open_config(folder), dtype=loaded.model.dtype, local_files_only=True)
    except Exception as error:  # its loaders break in many ways
        raise ZooError(
            f"transformers cannot load {loaded.name}: {sentence(error)}", "baseline.load"
        ) from None
    model: Any = found  # transformers' types lose the model in ``to``
    forward = model.forward

    @wraps(forward)  # generate reads the forward's signature
    def timed(*args: Any, **options: Any) -> Any:
        began = time.perf_counter()
        try:
            return forward(*args, **options)
        finally:
            spent.seconds += time.perf_counter() - began
            spent.passes += counts

    model.forward = timed
    return model.to(loaded.device).eval()
