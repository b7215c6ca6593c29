"""The file of a measurement that takes several sittings: plain lines of JSON, each whole or not there.

A sitting's line says what was asked, with which settings, on which machine. A leg's line holds a run of plain decoding and those
of the methods that were run beside it, so that a pair is never torn apart. A sitting of other settings, or of another machine,
stands in the same file and is never mixed with these: see ``alike``. Weights that changed under the same name are not noticed.
"""
from __future__ import annotations

import json
import secrets
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Iterable, Iterator

from ..run.request import SessionError

OPENS = b'{"sitting": '  # every line's beginning: what does not begin so is not ours to cut
COUNTS, SECONDS = ("tokens", "rounds", "drafted", "accepted", "tried"), ("seconds", "prefill_seconds", "forward_seconds")


@dataclass(frozen=True)
class Run:
    """One method's run. seconds: after the prefill; same: whether it wrote plain decoding's tokens, None with dice; failed: why
    it broke, and then nothing else counts."""

    method: str
    tokens: int = 0
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    tried: int = 0
    seconds: float = 0.0
    prefill_seconds: float = 0.0
    forward_seconds: float = 0.0
    same: bool | None = None
    failed: str = ""

    @classmethod
    def read(cls, row: dict[str, Any]) -> Run:
        """Raises KeyError, TypeError or ValueError for what is none."""
        return cls(str(row["method"]), *(int(row[name]) for name in COUNTS), *(float(row[name]) for name in SECONDS),
                   None if row["same"] is None else bool(row["same"]), str(row["failed"]))


@dataclass(frozen=True)
class Leg:
    """Methods beside one run of plain decoding: the prompt's number and task, the repeat from 1. wall: seconds that all of it
    took, warm-up runs included."""

    prompt: int
    task: str
    repeat: int
    wall: float
    plain: Run
    runs: tuple[Run, ...] = ()

    def all(self) -> Iterator[Run]:
        """Plain decoding's run too."""
        yield self.plain
        yield from self.runs


@dataclass(frozen=True)
class Asked:
    """The whole of which a sitting measures a part. prompts: (number, task) of each; tasks: those named, all when none is;
    skipped: methods that cannot run, and why."""

    methods: tuple[str, ...]
    prompts: tuple[tuple[int, str], ...]
    repeats: int
    suite: str = ""
    tasks: tuple[str, ...] = ()
    skipped: dict[str, str] = field(default_factory=dict)

    def __or__(self, other: Asked) -> Asked:
        """What either asked for."""
        every = tuple(dict.fromkeys((*self.methods, *other.methods)))
        return Asked(every, tuple(sorted({*self.prompts, *other.prompts})), max(self.repeats, other.repeats), other.suite,
                     tuple(dict.fromkeys((*self.tasks, *other.tasks))) if self.tasks and other.tasks else (),
                     {key: why for key, why in {**self.skipped, **other.skipped}.items() if key not in every})

    @classmethod
    def read(cls, row: dict[str, Any]) -> Asked:
        """Raises KeyError, TypeError or ValueError for what is none."""
        return cls(tuple(map(str, row["methods"])), tuple((int(n), str(task)) for n, task in row["prompts"]), int(row["repeats"]),
                   str(row["suite"]), tuple(map(str, row["tasks"])), {str(key): str(why) for key, why in row["skipped"].items()})


@dataclass
class Sitting:
    """began: UTC, as ISO 8601 has it. settings, machine: plain JSON; one that differs in a word is another."""

    began: str
    settings: dict[str, Any]
    machine: dict[str, Any]
    asked: Asked
    legs: list[Leg] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.settings, self.machine = json.loads(json.dumps([self.settings, self.machine]))  # as they will be read


class Ledger:
    """The file at ``path``, which ``ready`` makes; there: it must be there already. The torn last line of a sitting that was
    killed is passed over, and cut off by ``ready``; nothing else ever is. Raises SessionError for a file that bench did not write."""

    def __init__(self, path: str | Path, there: bool = False):
        self.path = Path(path)
        self.sittings: list[Sitting] = []
        self._whole, self._torn, self._name = 0, False, ""
        try:
            data = self.path.read_bytes() if there or self.path.exists() else b""
        except OSError as error:
            raise SessionError(f"{path} cannot be read: {error.strerror}.") from None
        named: dict[str, Sitting] = {}
        for count, line in enumerate(data.splitlines(keepends=True), 1):
            if not line.endswith(b"\n") and (line.startswith(OPENS) or OPENS.startswith(line)):
                self._torn = True
                break
            try:
                self._take(json.loads(line.decode("utf-8") if line.startswith(OPENS) else ""), named)
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                raise SessionError(f"Line {count} of {path} was not written by bench.") from None
            self._whole += len(line)

    def _take(self, row: dict[str, Any], named: dict[str, Sitting]) -> None:
        if "leg" in row:
            leg = row["leg"]
            named[row["sitting"]].legs.append(Leg(int(leg["prompt"]), str(leg["task"]), int(leg["repeat"]), float(leg["wall"]),
                                                  Run.read(leg["plain"]), tuple(Run.read(run) for run in leg["runs"])))
            return
        sitting = Sitting(str(row["began"]), dict(row["settings"]), dict(row["machine"]), Asked.read(row["asked"]))
        named[row["sitting"]] = sitting
        self.sittings.append(sitting)

    def ready(self) -> None:
        """Make sure that the file can be written, and cut a torn line off. Raises SessionError."""
        try:
            with open(self.path, "ab") as file:
                if self._torn:
                    file.truncate(self._whole)
        except OSError as error:
            raise SessionError(f"{self.path} cannot be written: {error.strerror}.") from None

    def begin(self, sitting: Sitting) -> None:
        self._name = secrets.token_hex(4)
        self._write({name: value for name, value in asdict(sitting).items() if name != "legs"})
        self.sittings.append(sitting)

    def add(self, leg: Leg) -> None:
        """To the sitting that began last."""
        self._write({"leg": asdict(leg)})
        self.sittings[-1].legs.append(leg)

    def _write(self, row: dict[str, Any]) -> None:
        line = json.dumps({"sitting": self._name, **row}, ensure_ascii=False) + "\n"
        with open(self.path, "ab") as file:  # one write: a reader of the file sees a line or none
            file.write(line.encode())


def alike(sittings: Iterable[Sitting], settings: dict[str, Any], machine: dict[str, Any]) -> list[Sitting]:
    """The sittings of these settings on this machine."""
    settings, machine = json.loads(json.dumps([settings, machine]))
    return [one for one in sittings if one.settings == settings and one.machine == machine]


def done(sittings: Iterable[Sitting]) -> set[tuple[int, int, str]]:
    """(prompt, repeat, method) of every run that is there and did not break."""
    return {(leg.prompt, leg.repeat, run.method) for one in sittings for leg in one.legs for run in leg.all() if not run.failed}


@dataclass(frozen=True)
class Standing:
    """How much of what was asked is there: runs and whole turns (a prompt and a repeat, with all methods)."""

    runs: int
    of: int
    turns: int
    of_turns: int
    hours: float
    failed: dict[str, int]  # runs that broke and were not made since, by method

    def __str__(self) -> str:
        said = f"All {self.of} runs of {self.of_turns} turns of a prompt and a repeat are measured"
        if self.runs < self.of:
            said = (f"{self.runs} of {self.of} runs are measured ({100 * self.runs / self.of:.1f} %, {self.turns} of "
                    f"{self.of_turns} turns of a prompt and a repeat whole)")
        broke = ", ".join(f"{key} ({times})" for key, times in self.failed.items())
        return f"{said} in {self.hours:.1f} hours" + (f"; broken runs: {broke}" if broke else "")


def standing(sittings: list[Sitting], asked: Asked) -> Standing:
    """Of sittings that are alike."""
    there = done(sittings)
    each = Counter((number, repeat) for number, repeat, method in there if method in asked.methods)
    turns = [(number, repeat) for number, _ in asked.prompts for repeat in range(1, asked.repeats + 1)]
    legs = [leg for one in sittings for leg in one.legs]
    broke = {(leg.prompt, leg.repeat, run.method) for leg in legs for run in leg.runs if run.failed} - there
    hours = sum(leg.wall for leg in legs) / 3600
    return Standing(sum(each[turn] for turn in turns), len(turns) * len(asked.methods),
                    sum(each[turn] == len(asked.methods) for turn in turns), len(turns), hours,
                    dict(sorted(Counter(method for *_, method in broke).items())))
