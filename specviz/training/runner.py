"""The training loop of all recipes: budget, schedule, checkpoint, resume, progress, log and loss curve.

A recipe supplies a model and a function from the step number to a loss. Every random choice of a recipe is
a function of (seed, step), so a resumed run continues with the same batches and losses.
"""

import json
import math
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import nn
from tqdm import tqdm

from .curve import draw
from .files import write_tensors, write_text
from .job import Job, TrainingError
from .optimise import Optimisers, learning_rate_share
from .warm_start import copy_head_weights

KEPT = 60.0  # seconds of training that a kill may cost
LONGEST_STEP = 60.0  # seconds; what is over was a suspended process or a sleeping machine, not training


@dataclass
class Progress:
    """How far a training run is: steps, seconds, tokens with a loss, loss history and measurements. Stored
    in the checkpoint."""

    step: int = 0
    seconds: float = 0.0  # time spent training, over all resumptions
    tokens: int = 0  # tokens that carried loss
    history: list = field(default_factory=list)  # [step, seconds, tokens, mean loss since the last entry]
    measures: list = field(
        default_factory=list
    )  # [step, seconds, {name: figure}, tokens]; no figures: the measurement failed


class Runner:
    """Train ``model`` until the time or step budget is spent, with checkpoints in the folder ``place``. An
    interrupted run resumes from its checkpoint."""

    def __init__(self, job: Job, name: str, model: nn.Module, hparams: dict, place: Path):
        self.job = job
        self.name = name
        self.hparams = hparams
        self.place = place
        self.device = job.torch_device()
        self.model = model.float().to(self.device)
        self.half = bfloat16_is_faster(self.device)
        self.optimisers = Optimisers(self.model, hparams)
        self.progress = Progress()
        self.minutes = job.minutes or hparams["minutes"]
        self.checkpoint = place / "checkpoint.safetensors"
        self.copied = 0.0  # share of the weights that came from another head just now
        if self.checkpoint.is_file():
            self.resume()
        elif hparams.get("begin"):
            self.copied = copy_head_weights(job, model, hparams["begin"], hparams.get("begin_names"))

    def budget_spent(self) -> float:
        """Return the share of the budget that is spent, from 0 to 1."""
        return self.share(self.progress.step, self.progress.seconds)

    def share(self, step: int, seconds: float) -> float:
        """Return the share of the budget that this many steps and seconds are."""
        return seconds / (60 * self.minutes) if self.job.steps is None else step / self.job.steps

    def measurement_due(self) -> bool:
        """Return whether the share of the budget spent has passed one of the recipe's ``measure_at`` values
        since the last measurement."""
        last = self.share(*self.progress.measures[-1][:2]) if self.progress.measures else 0.0
        return any(last < mark <= self.budget_spent() < 1 for mark in self.hparams.get("measure_at", ()))

    def train(self, loss_at: Callable, measure: Callable[[], dict] | None = None) -> dict:
        """Train, or resume, until the budget is spent; return the final figures. A finished run returns
        immediately. loss_at(step): (loss, number of tokens in it); measure: called at intervals and at the
        end."""
        if self.budget_spent() >= 1:
            return self.figures()
        bar = tqdm(
            desc=self.name, unit="step", initial=self.progress.step, disable=self.job.quiet, mininterval=2
        )
        self.model.train()
        try:
            self.loop(loss_at, measure, bar)
        except KeyboardInterrupt:
            self.save()
            raise
        bar.close()
        if measure:
            self.save()  # what follows may take long
            self.measure(measure)
        self.save()
        return self.finish()

    def loop(self, loss_at: Callable, measure: Callable[[], dict] | None, bar: tqdm) -> None:
        """Run training steps until the budget is spent, with measurements and checkpoints in between."""
        progress, each = self.progress, self.hparams.get("history_steps", 10)
        saved = measured = time.monotonic()
        recent: list[float] = []
        while self.budget_spent() < 1:
            began = time.monotonic()
            loss, tokens = self.update(loss_at)
            recent.append(loss)
            progress.step += 1
            progress.tokens += tokens
            progress.seconds += min(time.monotonic() - began, LONGEST_STEP)
            if progress.step % each == 0 or self.budget_spent() >= 1:
                progress.history.append(
                    [progress.step, round(progress.seconds, 1), progress.tokens, sum(recent) / len(recent)]
                )
                recent.clear()
            bar.update()
            speed = tokens / (time.monotonic() - began)
            bar.set_postfix_str(
                refresh=False, s=f"loss {loss:.3f}, {speed:.0f} tokens/s, {self.budget_spent():.1%}"
            )
            if measure and (
                self.measurement_due() or time.monotonic() - measured > 60 * self.hparams["measure_minutes"]
            ):
                self.save()  # a measurement may take longer than a kill may cost
                self.measure(measure)
                measured = time.monotonic()
            step = min(time.monotonic() - began, LONGEST_STEP)
            if time.monotonic() - saved > KEPT - 2 * step:  # the next step may be slower than this one
                self.save()
                saved = time.monotonic()

    def update(self, loss_at: Callable) -> tuple[float, int]:
        """Run one training step; return (loss, number of tokens in it). Raises TrainingError for a loss
        that is not finite."""
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.half):
            loss, tokens = loss_at(self.progress.step)
        value = float(loss.detach())
        if not math.isfinite(value):
            raise TrainingError(
                f"The loss of {self.name} became {value} at step {self.progress.step}: stopped; the last checkpoint"
                f" is whole, lower the learning rates in {self.name}.yaml and resume.",
                "training.loss",
            )
        loss.backward()
        self.optimisers.step(learning_rate_share(self.budget_spent(), self.progress.step, self.hparams))
        return value, tokens

    def measure(self, measure: Callable[[], dict]) -> None:
        """Record a measurement of the current weights. An error in it is printed and does not stop the
        training."""
        progress = self.progress
        figures = {}
        measured = {}
        self.model.eval()
        try:
            with torch.inference_mode():
                measured = figures = measure()
        except Exception as error:
            measured = {"failed": f"{type(error).__name__}: {error}"}
            print(
                f"{self.name} was not measured at step {progress.step} ({measured['failed']}); the training goes on.",
                file=sys.stderr,
            )
        self.model.train()
        progress.measures.append([progress.step, progress.seconds, figures, progress.tokens])
        line = {
            "step": progress.step,
            "minutes": round(progress.seconds / 60, 1),
            "tokens": progress.tokens,
            **measured,
        }
        with (self.place / "measures.jsonl").open("a", encoding="utf-8") as log:
            log.write(json.dumps(line) + "\n")

    def save(self) -> None:
        """Write weights, optimiser state and progress into one file, so that they always belong to the same
        step."""
        tensors = {f"model.{name}": weight for name, weight in untied_tensors(self.model).items()}
        tensors |= {f"optimiser.{name}": value for name, value in self.optimisers.tensors().items()}
        write_tensors(self.checkpoint, tensors, {"progress": json.dumps(asdict(self.progress))})
        write_text(self.place / "loss.svg", draw(self.name, self.progress.history))

    def resume(self) -> None:
        """Load the checkpoint: weights, optimiser state and progress. Raises TrainingError if it does not
        fit this run."""
        try:
            with safe_open(self.checkpoint, "pt") as file:
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (a safetensors file, not a dict)
                self.progress = Progress(**json.loads(file.metadata()["progress"]))
            weights = {n.removeprefix("model."): t for n, t in tensors.items() if n.startswith("model.")}
            self.model.load_state_dict(weights, strict=False)
            missing = untied_tensors(self.model).keys() - weights.keys()
            if missing:
                raise KeyError(min(missing))
            self.optimisers.load(
                {n.removeprefix("optimiser."): t for n, t in tensors.items() if n.startswith("optimiser.")}
            )
        except (SafetensorError, KeyError, ValueError, TypeError, RuntimeError) as error:
            raise TrainingError(
                f"{self.checkpoint} does not fit this run ({error}): delete it to start anew.",
                "training.checkpoint",
            ) from error

    def finish(self) -> dict:
        """Write the run's figures to the training log and return them."""
        figures = self.figures()
        self.job.log(self.name, **figures)
        return figures

    def figures(self) -> dict:
        """Return steps, tokens, minutes, last loss and last measurement."""
        progress = self.progress
        return {
            "steps": progress.step,
            "tokens": progress.tokens,
            "minutes": round(progress.seconds / 60, 2),
            "loss": round(progress.history[-1][3], 4) if progress.history else None,
            **(progress.measures[-1][2] if progress.measures else {}),
        }


def bfloat16_is_faster(device: torch.device) -> bool:
    """Return whether bfloat16 matrix products are faster than float32 on this device: on an accelerator,
    and on a CPU with bfloat16 instructions.

    Measured: 4.6 times faster with AVX512-BF16, 1.8 times slower without (docs/log/2026-11/models.md).
    Decided by the hardware, not by timing, so that a resumed run continues identically."""
    asked = ("_is_amx_tile_supported", "_is_avx512_bf16_supported")
    return device.type != "cpu" or any(getattr(torch.cpu, name, bool)() for name in asked)


def untied_tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    """Return the state dict with every shared tensor once. Safetensors refuses duplicates; loading ties
    them again."""
    seen, kept = set(), {}
    for name, tensor in model.state_dict().items():
        if tensor.data_ptr() not in seen:
            seen.add(tensor.data_ptr())
            kept[name] = tensor
    return kept
