"""The job of a recipe: paths, time budget and hyperparameters.

A run writes nothing into the checkout: generated answers, checkpoints, curves and the log are in the work
folder. Finished models are written to `<work>/models`, and with `--ship` also to assets/models, where the
app reads them.
"""

import hashlib
import json
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch

from .. import ASSETS
from ..checkpoints.split import joined_folder
from ..core.errors import CodedError
from ..methods import trained_parts
from ..zoo.found_weights import FOLDER
from ..zoo.registry import register
from .recipes import sections

SHIPPED = ASSETS / "models"
TARGET = "Llama-specviz-16M"  # the first target; what drafts for it is named without it


class TrainingError(CodedError, RuntimeError):
    """A training run cannot continue."""


def default_work() -> Path:
    """Return the default work folder, ~/.cache/specviz/training."""
    return Path.home() / ".cache" / "specviz" / "training"


@dataclass
class Job:
    """What a recipe is run with: paths, device, time budget, target, and options of the command line."""

    data: Path | None = None
    work: Path = field(default_factory=default_work)
    device: str = "auto"
    minutes: float | None = None  # wall-clock budget of one recipe, over all its resumptions
    steps: int | None = None  # a budget in steps instead: the same run on every machine
    seed: int = 0
    size: str = "default"
    target: str = TARGET  # the model that drafters are trained for
    ship: bool = False
    shipped: Path = SHIPPED
    prefer_shipped: bool = False  # read models where the app reads them
    quiet: bool = False
    speed: bool = True  # the report also times drafters
    report_kinds: tuple[str, ...] = ()  # kinds of drafters whose cards the report writes; empty: all

    def hparams(self, recipe: str) -> dict:
        """Return the recipe's hyperparameters: its `default` section, overridden by the section of the
        chosen size. `like`: another recipe, or defaults.yaml, whose sections lie below its own."""
        if self.size not in sections(recipe):
            raise TrainingError(
                f"{recipe}.yaml has no size {self.size!r}; it has {', '.join(sections(recipe))}.",
                "training.size",
            )
        return self._section(recipe, "default") | self._section(recipe, self.size)

    def _section(self, recipe: str, size: str) -> dict:
        own = sections(recipe)
        like = own["default"].get("like")
        return (self._section(like, size) if like else {}) | own.get(size, {})

    @property
    def options(self) -> str:
        """The command-line options that reproduce this job's target and size, for model cards; empty for
        the defaults."""
        return ("" if self.target == TARGET else f" --target {self.target}") + (
            "" if self.size == "default" else f" --size {self.size}"
        )

    def folder(self, *parts: str) -> Path:
        """Return a folder inside the work folder; it is created if missing."""
        path = self.work.joinpath(*parts)
        path.mkdir(parents=True, exist_ok=True)
        return path

    def torch_device(self) -> torch.device:
        """Return the job's torch device; "auto" is CUDA if available, else the CPU."""
        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        return torch.device(self.device)

    def model(self, name: str) -> Path:
        """Return the folder of a model, in the work folder or shipped; split weight files are joined
        first."""
        return joined_folder(self.model_folder(name))

    def model_folder(self, name: str) -> Path:
        """Return the folder of a model and its card: that in the work folder if it exists, else the shipped
        one; with ``prefer_shipped`` the shipped one first. Raises TrainingError if there is none."""
        places = [self.work / "models" / name, self.shipped_folder(name)]
        for place in reversed(places) if self.prefer_shipped else places:
            if (place / "config.json").is_file():
                return place
        raise TrainingError(
            f"There is no {name} in {self.work / 'models'} or {self.shipped}: train it first.",
            "training.missing",
        )

    def model_name(self, kind: str) -> str:
        """Return the name of the model of a kind that is trained for this job's target, such as
        "Llama-specviz-draft" for "draft"."""
        return f"{'Llama-specviz' if self.target == TARGET else self.target}-{kind}"

    def draft_name(self) -> str:
        """Return the name of the target's draft model: the one that was trained under
        ``model_name("draft")``, else the one that models.yaml names for the target."""
        name = self.model_name("draft")
        entry = register().entries.get(self.target)
        trained = any(
            (place / name / "config.json").is_file() for place in (self.work / "models", self.shipped)
        )
        return name if trained or entry is None or not entry.draft else entry.draft

    def shipped_folder(self, name: str) -> Path:
        """Return the folder where a model is shipped: inside the target's folder for trained heads and
        drafts, unless an older folder next to the target exists."""
        kind, beside = name.removeprefix(self.model_name("")), self.shipped / name
        return (
            beside
            if kind not in trained_parts() or beside.is_dir()
            else self.shipped / self.target / FOLDER / kind
        )

    def output_folders(self, name: str) -> list[Path]:
        """Return the folders to which a finished model is written: in the work folder, and with ``--ship``
        in the assets."""
        return [self.work / "models" / name] + ([self.shipped_folder(name)] if self.ship else [])

    def log(self, recipe: str, **figures) -> None:
        """Append one line about a run to the training log, which the model cards quote."""
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        line = {"recipe": recipe, "of": self.target, "time": now, "size": self.size, **figures}
        with (self.folder() / "log.jsonl").open("a", encoding="utf-8") as log:
            log.write(json.dumps(line) + "\n")

    def last_log(self, recipe: str) -> dict | None:
        """Return a recipe's last log entry for this job's target, or None. Entries without a target were
        written when there was only one."""
        path = self.work / "log.jsonl"
        if not path.is_file():
            return None
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        return next(
            (
                line
                for line in reversed(lines)
                if line["recipe"] == recipe and line.get("of", TARGET) == self.target
            ),
            None,
        )


def fingerprint(model: Path) -> str:
    """Return eight hex digits of a hash of the weights, to detect that data were made with other weights."""
    digest = hashlib.sha256()
    place = joined_folder(model)
    for part in sorted(place.glob("*.safetensors")) or sorted(place.glob("*.gguf*")):
        digest.update(part.read_bytes())
    return digest.hexdigest()[:8]
