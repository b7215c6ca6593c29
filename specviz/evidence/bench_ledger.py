"""The ledger: a file with the runs of a resumable benchmark, as JSON Lines. Each line is complete or absent.

A session line holds request, settings and machine. A group line holds one run of plain decoding and the
runs measured with it, so that pairs stay together. Sessions with other settings or on other machines may
share the file; their runs are never combined: see ``comparable``. A change of weights under the same name
is not detected."""

from __future__ import annotations

import gzip
import json
import secrets
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..run.request import SessionError
from ..trace.file_writer import check_place
from .ledger_lines import append_row, read_rows

GZIP = b"\x1f\x8b"
OPENS = b'{"sitting": '  # start of every line; other text is never truncated
COUNTS = ("tokens", "rounds", "drafted", "accepted", "tried")  # fields of a run that are counts
MEMORY = ("draft_weight_bytes", "draft_cache_bytes")  # None in old files
SECONDS = ("seconds", "prefill_seconds", "forward_seconds")  # fields of a run that are seconds


@dataclass(frozen=True)
class Run:
    """One measured run of a method. Times in seconds, ``seconds`` after the prefill, with the
    lane's median for interrupted passes (trace/speed.py; entries before 2026-11-28: as the clock measured them); same: whether the
    tokens equal plain decoding's, None when sampling; failed: the error message of a failed run, whose
    other fields are meaningless; loops: whether the answer repeats itself endlessly, None in old files;
    draft_weight_bytes, draft_cache_bytes: memory of the method besides the target."""

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
    loops: bool | None = None
    draft_weight_bytes: int | None = None
    draft_cache_bytes: int | None = None

    @classmethod
    def read(cls, row: dict[str, Any]) -> Run:
        """Parse a row. Raises KeyError, TypeError or ValueError if it is malformed."""
        figures: dict[str, Any] = {name: int(row[name]) for name in COUNTS} | {
            name: float(row[name]) for name in SECONDS
        }
        return cls(
            str(row["method"]),
            **figures,
            same=None if row["same"] is None else bool(row["same"]),
            failed=str(row["failed"]),
            loops=None if row.get("loops") is None else bool(row["loops"]),
            **{name: int(row[name]) for name in MEMORY if row.get(name) is not None},
        )


@dataclass(frozen=True)
class RunGroup:
    """The runs measured together with one run of plain decoding, on one prompt. prompt: its number; repeat:
    from 1; wall: total seconds, warm-up included."""

    prompt: int
    task: str
    repeat: int
    wall: float
    plain: Run
    runs: tuple[Run, ...] = ()

    def all_runs(self) -> Iterator[Run]:
        """Yield all runs of the group, plain decoding first."""
        yield self.plain
        yield from self.runs


@dataclass(frozen=True)
class Requested:
    """The runs that were requested over all sessions.

    prompts: (number, task) of each; repeats: per prompt; tasks: those that were named, empty for all;
    skipped: {unavailable method: reason}."""

    methods: tuple[str, ...]
    prompts: tuple[tuple[int, str], ...]
    repeats: int
    suite: str = ""
    tasks: tuple[str, ...] = ()
    skipped: dict[str, str] = field(default_factory=dict)

    def __or__(self, other: Requested) -> Requested:
        """Return the union of two requests."""
        every = tuple(dict.fromkeys((*self.methods, *other.methods)))
        return Requested(
            every,
            tuple(sorted({*self.prompts, *other.prompts})),
            max(self.repeats, other.repeats),
            other.suite,
            tuple(dict.fromkeys((*self.tasks, *other.tasks))) if self.tasks and other.tasks else (),
            {key: why for key, why in {**self.skipped, **other.skipped}.items() if key not in every},
        )

    @classmethod
    def read(cls, row: dict[str, Any]) -> Requested:
        """Parse a row. Raises KeyError, TypeError or ValueError if it is malformed."""
        return cls(
            tuple(map(str, row["methods"])),
            tuple((int(n), str(task)) for n, task in row["prompts"]),
            int(row["repeats"]),
            str(row["suite"]),
            tuple(map(str, row["tasks"])),
            {str(key): str(why) for key, why in row["skipped"].items()},
        )


@dataclass
class BenchSession:
    """One session of a benchmark. began: UTC, ISO 8601; settings, machine: plain JSON, compared for
    equality; asked: the request."""

    began: str
    settings: dict[str, Any]
    machine: dict[str, Any]
    asked: Requested
    run_groups: list[RunGroup] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.settings, self.machine = json.loads(
            json.dumps([self.settings, self.machine])
        )  # normalise as after reading


class Ledger:
    """The ledger file at ``path``, optionally gzipped, read when the object is made. there: the file must
    exist. Raises SessionError for a file that is not a ledger.

    If a session was killed, its incomplete last line is ignored; ``prepare`` removes it."""

    def __init__(self, path: str | Path, there: bool = False):
        self.path = Path(path)
        self.sessions: list[BenchSession] = []
        self._name = ""
        self._packed = False
        try:
            data = self.path.read_bytes() if there or self.path.exists() else b""
        except OSError as error:
            raise SessionError(f"{path} cannot be read: {error.strerror}.", "ledger.read") from None
        self._packed = data.startswith(GZIP)
        try:
            data = gzip.decompress(data) if self._packed else data
        except (OSError, EOFError, zlib.error):
            raise SessionError(f"{path} is damaged or cut short.", "ledger.damaged") from None
        named: dict[str, BenchSession] = {}
        self._whole = read_rows(self.path, data, OPENS, lambda row: self._take(row, named))
        self._torn = self._whole < len(data)

    def _take(self, row: dict[str, Any], named: dict[str, BenchSession]) -> None:
        if "leg" in row:
            run_group = row["leg"]
            named[row["sitting"]].run_groups.append(
                RunGroup(
                    int(run_group["prompt"]),
                    str(run_group["task"]),
                    int(run_group["repeat"]),
                    float(run_group["wall"]),
                    Run.read(run_group["plain"]),
                    tuple(Run.read(run) for run in run_group["runs"]),
                )
            )
            return
        bench_session = BenchSession(
            str(row["began"]), dict(row["settings"]), dict(row["machine"]), Requested.read(row["asked"])
        )
        named[row["sitting"]] = bench_session
        self.sessions.append(bench_session)

    def prepare(self) -> None:
        """Create the file if it is missing, check that it is writable, and remove an incomplete last line.
        Raises SessionError."""
        if self._packed:
            raise SessionError(
                f"{self.path} is compressed and only read: gunzip it to continue it.", "ledger.compressed"
            )
        try:
            check_place(self.path)
            with self.path.open("ab") as file:
                if self._torn:
                    file.truncate(self._whole)
        except OSError as error:
            raise SessionError(f"{self.path} cannot be written: {error.strerror}.", "ledger.write") from None

    def begin(self, bench_session: BenchSession) -> None:
        """Append a session; groups that are added later belong to it."""
        self._name = secrets.token_hex(4)
        self._write({name: value for name, value in asdict(bench_session).items() if name != "run_groups"})
        self.sessions.append(bench_session)

    def add(self, run_group: RunGroup) -> None:
        """Append a group of runs to the current session."""
        self._write({"leg": asdict(run_group)})
        self.sessions[-1].run_groups.append(run_group)

    def _write(self, row: dict[str, Any]) -> None:
        append_row(self.path, {"sitting": self._name, **row})


def comparable(
    sessions: Iterable[BenchSession], settings: dict[str, Any], machine: dict[str, Any]
) -> list[BenchSession]:
    """Return the sessions with these settings and this machine, whose runs may be combined."""
    settings, machine = json.loads(json.dumps([settings, machine]))
    return [one for one in sessions if one.settings == settings and one.machine == machine]


def finished_runs(sessions: Iterable[BenchSession]) -> set[tuple[int, int, str]]:
    """Return (prompt number, repeat, method) of every successful run."""
    return {
        (run_group.prompt, run_group.repeat, run.method)
        for one in sessions
        for run_group in one.run_groups
        for run in run_group.all_runs()
        if not run.failed
    }


@dataclass(frozen=True)
class Progress:
    """The measured part of a request. runs, of: measured and requested runs; turns, of_turns: measured and
    requested turns, a turn being one prompt and one repeat with all methods; hours: spent so far; failed:
    {method: number of failed runs}."""

    runs: int
    of: int
    turns: int
    of_turns: int
    hours: float
    failed: dict[str, int]  # failed runs not repeated yet, by method

    def __str__(self) -> str:
        text = f"All {self.of} runs ({self.of_turns} turns; in a turn every method runs once on one prompt) were measured"
        if self.runs < self.of:
            text = (
                f"{self.runs} of {self.of} runs are measured ({100 * self.runs / self.of:.1f} %, {self.turns} of "
                f"{self.of_turns} turns complete)"
            )
        broke = ", ".join(f"{key} ({times})" for key, times in self.failed.items())
        return f"{text} in {60 * self.hours:.0f} minutes" + (f"; failed runs: {broke}" if broke else "")


def progress_of(sessions: list[BenchSession], asked: Requested) -> Progress:
    """Return the progress of comparable sessions towards a request."""
    there = finished_runs(sessions)
    each = Counter((number, repeat) for number, repeat, method in there if method in asked.methods)
    turns = [(number, repeat) for number, _ in asked.prompts for repeat in range(1, asked.repeats + 1)]
    run_groups = [run_group for one in sessions for run_group in one.run_groups]
    broke = {
        (run_group.prompt, run_group.repeat, run.method)
        for run_group in run_groups
        for run in run_group.runs
        if run.failed
    } - there
    hours = sum(run_group.wall for run_group in run_groups) / 3600
    return Progress(
        sum(each[turn] for turn in turns),
        len(turns) * len(asked.methods),
        sum(each[turn] == len(asked.methods) for turn in turns),
        len(turns),
        hours,
        dict(sorted(Counter(method for *_, method in broke).items())),
    )
