"""Compare methods that share one idea on the same prompts: adaptive verification beside other choices of
what to verify, chains of drafters beside their parts, and the oracle's set acceptance beside the measured.

    python -m specviz.evidence.comparisons [--only verification,clocked,chains,oracle] [--minutes N]

Every finished run is one line of docs/comparisons.jsonl; the same command continues and then writes
docs/comparisons.md. All figures but the times of ``clocked`` are counts; measure those on a quiet machine."""

from __future__ import annotations

import argparse
import math
import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from ..core import Sampling
from ..core.claim import Claim
from ..methods import catalogue
from ..run.machine import Machine
from ..run.session import Session
from ..trace.file_writer import write_file
from .claim_counts import Counts
from .claims import Asked, Runs, prompts, t_quantile
from .ledger_lines import append_row, rows_of
from .prompt_suites import Item

DOCS = Path(__file__).resolve().parents[2] / "docs"
OPENS = b'{"tokens": '  # start of every line of the ledger
REQUESTS = (1, 2, 4, 8, 16)
KINDS = ("verification", "clocked", "chains", "oracle")
CLOCKED = 4  # batches behind each clocked figure
Rows = Sequence[dict[str, Any]]
Value = Callable[[Rows], float]


@dataclass(frozen=True)
class Cell:
    """One cell of a table: a method with its knobs on some prompts. kind: the table; label: its row; each:
    tokens of an answer; count: prompts; seeds: answers to each."""

    kind: str
    label: str
    method: str
    knobs: dict[str, Any] = field(default_factory=dict[str, Any], hash=False)
    tasks: tuple[str, ...] = ()
    requests: int = 1
    temperature: float = 0.0
    each: int = 48
    count: int = 3
    seeds: int = 1
    target: str = ""

    @property
    def name(self) -> str:
        """Identifier in the ledger."""
        knobs = ",".join(f"{name}={value}" for name, value in self.knobs.items())
        where = "+".join(self.tasks) or str(self.requests)
        return "/".join((self.kind, self.label, self.method, knobs, where, str(self.each)))


def cells() -> list[Cell]:
    """Return all cells."""
    return [*_verification(), *_verification("clocked", CLOCKED), *_chains(), *_oracle()]


def _verification(kind: str = "verification", count: int = 3) -> Iterable[Cell]:
    rows = (
        ("plain decoding", "autoregressive", {}),
        ("speculative decoding, 4 tokens", "speculative", {"gamma": 4}),
        ("speculative decoding, 8 tokens", "speculative", {"gamma": 8}),
        ("adaptive verification, at most 8", "adaptive_verification", {"most": 8}),
        ("length from the cost ratio, at most 8", "cost_ratio", {"most": 8}),
        ("SmartSpec, at most 8", "smartspec", {"most": 8}),
        ("TETRIS, 4 and 2 more", "tetris", {"gamma": 4, "extra": 2}),
    )
    for requests in REQUESTS:
        for label, method, knobs in rows:
            yield Cell(kind, label, method, knobs, requests=requests, count=count)


CHAINS = (  # first, then, last, fewest equal tokens that a copy continues
    ("prompt lookup", "draft model", "none", 1),
    ("suffixes", "EAGLE-3", "none", 1),
    ("suffixes", "Medusa", "none", 1),
    ("prompt lookup", "draft model", "none", 3),
    ("suffixes", "EAGLE-3", "none", 3),
    ("suffixes", "Medusa", "none", 3),
    ("suffixes", "n-gram pool", "draft model", 3),
    ("n-gram pool", "prompt lookup", "EAGLE-3", 3),
    ("n-gram pool", "suffixes", "Medusa", 3),
)
PARTS = {
    "prompt lookup": ("prompt_lookup", {}),
    "suffixes": ("suffix_decoding", {}),
    "n-gram pool": ("ngram_mod", {}),
    "draft model": ("speculative", {}),
    "EAGLE-3": ("eagle3", {}),
    "Medusa": ("medusa", {}),
}
CHAIN_TASKS = (("quote",), ("code",), ("chat",))


def _chains() -> Iterable[Cell]:
    for tasks in CHAIN_TASKS:
        for first, then, last, match in CHAINS:
            label = ", then ".join(name for name in (first, then, last) if name != "none")
            label += f" (copies from {match} equal tokens on)" if match > 1 else ""
            knobs = {"first": first, "then": then, "last": last, "match": match}
            yield Cell("chains", label, "chain_of_drafters", knobs, tasks, count=4)
        for label, (method, knobs) in PARTS.items():
            yield Cell("chains", label, method, knobs, tasks, count=4)


SET = (  # label, knobs, the set figure: acceptance of a place reached, or tokens a pass
    *((f"acceptance {a:g}", {"by": "acceptance", "acceptance": a}, a) for a in (0.3, 0.5, 0.7, 0.8, 0.9)),
    *((f"{n:g} tokens a pass", {"by": "mean length", "length": n}, n) for n in (1.5, 2.5, 3.5)),
)


def _oracle() -> Iterable[Cell]:
    for label, knobs, _ in SET:
        yield Cell(
            "oracle",
            label,
            "oracle",
            knobs,
            each=64,
            count=36,
            seeds=2,
            target="Llama-specviz-16M",
            temperature=1.0,
        )


def run(open_target: Any, target: str, ledger: Path, kinds: Sequence[str], minutes: float) -> None:
    """Run what the ledger does not hold yet, until the time is up."""
    end = time.monotonic() + 60 * minutes
    done = {(row["cell"], row["number"]) for row in read(ledger)}
    todo = [
        (cell, number)
        for cell in cells()
        for number in range(cell.count * cell.seeds)
        if cell.kind in kinds and (cell.name, number) not in done
    ]
    runs: dict[str, Runs] = {}
    clock = Clocked()
    rng = random.Random(0)
    # Methods of the same batch take turns in shuffled order, so that a slow minute of the machine falls on all.
    for cell, number in sorted(
        todo, key=lambda one: (one[0].target or target, one[1], one[0].kind, one[0].requests, rng.random())
    ):
        if time.monotonic() > end:
            return
        where = cell.target or target
        if where not in runs:
            runs[where] = Runs(open_target(where))
        found = clock.figures if cell.kind == "clocked" else figures
        row = found(runs[where], cell, number) | {"cell": cell.name, "number": number, "target": where}
        append_row(ledger, row)


def _asked(cell: Cell, number: int) -> list[Item]:
    """Return the prompts of a batch of a cell."""
    items = prompts(cell.tasks, "", 0)
    return [items[(number + i) % len(items)] for i in range(cell.requests)]


def figures(runs: Runs, cell: Cell, number: int) -> dict[str, int]:
    """Run one answer of a cell (in a batch, if it has several requests) and return its counts."""
    claim = Claim("", cell.method, "accepted_length", temperature=cell.temperature, tokens=cell.each)
    counts = runs.counts(catalogue()[cell.method], cell.knobs, Asked(claim, _asked(cell, number), number))
    return _counted(counts)


def _counted(counts: Counts) -> dict[str, int]:
    totals = counts.totals
    return {
        "tokens": int(counts.sums.get("batch_tokens", totals.tokens)),
        "rows": int(counts.sums.get("batch_rows", counts.rows)),
        "passes": totals.rounds,
        "steps": counts.steps,
        "tried": totals.tried,
        "accepted": totals.accepted,
    }


class Clocked:
    """Runs batches by the clock: policies measure what a pass costs, from the beginning of each batch, and
    decide by it. The number of threads is the fastest when the first batch of a target begins."""

    def __init__(self):
        self._machines: dict[int, Machine] = {}
        self._warm: set[tuple[str, bool]] = set()

    def figures(self, runs: Runs, cell: Cell, number: int) -> dict[str, Any]:
        """Return the counts of a batch, the microseconds of its decoding on the engine's clock, and the
        threads and processor. A method's first batch of one request, and of several, runs twice, and the second
        one counts."""
        machine = self._machine(runs)
        if (cell.method, cell.requests > 1) not in self._warm:
            self._warm.add((cell.method, cell.requests > 1))
            self._run(runs, cell, number)
        counts = self._run(runs, cell, number)
        env = runs.loaded.facts["env"]
        found = {
            "micros": round(1e6 * counts.totals.seconds),
            "threads": machine.threads,
            "on": env["machine"],
        }
        return _counted(counts) | found

    def _machine(self, runs: Runs) -> Machine:
        if id(runs) not in self._machines:
            self._machines[id(runs)] = Machine(runs.loaded)
        return self._machines[id(runs)]

    def _run(self, runs: Runs, cell: Cell, number: int) -> Counts:
        first, *others = [str(item.prompt) for item in _asked(cell, number)]
        sampling = Sampling(cell.temperature, seed=number)
        session = Session(runs.loaded, cell.method, cell.knobs, sampling, batch_prompts=others)
        counts = Counts()
        for event in session.run(first, cell.each):
            counts.take(event)
        return counts


def read(ledger: Path) -> list[dict[str, Any]]:
    """Return the rows of the ledger. Raises SessionError for a file that is not one."""
    return rows_of(ledger, OPENS)


def page(rows: Sequence[dict[str, Any]]) -> str:
    """Return docs/comparisons.md."""
    by: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by.setdefault(row["cell"], []).append(row)
    parts = (_verification_page(by), _clocked_page(by), _chains_page(by), _oracle_page(by))
    return "\n".join([TEXTS["title"], "", *chain.from_iterable(parts)])


def _sum(rows: Iterable[dict[str, Any]], name: str) -> int:
    return sum(row[name] for row in rows)


def _verification_page(by: dict[str, list[dict[str, Any]]]) -> Iterable[str]:
    runs = [len(by.get(cell.name, [])) for cell in _verification()]
    most = f"{min(runs)} to {max(runs)}" if min(runs) < max(runs) else str(max(runs))
    yield from (TEXTS["verification"].format(runs=most), "")
    for title, value in FIGURES.items():
        yield from _table(title, value, by)


def _clocked_page(by: dict[str, list[dict[str, Any]]]) -> Iterable[str]:
    every = [row for cell in _verification("clocked") for row in by.get(cell.name, [])]
    if not every:
        return
    runs = sorted(len(by.get(cell.name, [])) for cell in _verification("clocked"))
    said = {
        "threads": " or ".join(str(one) for one in sorted({row["threads"] for row in every})),
        "on": " and ".join(sorted({row["on"] for row in every})),
        "runs": f"{runs[0]} to {runs[-1]}" if runs[0] < runs[-1] else str(runs[-1]),
    }
    yield from (TEXTS["clocked"].format(**said), "")
    for title, value in FIGURES.items():
        yield from _table(title, value, by, "clocked")
    yield "| measured speed, times plain decoding | " + " | ".join(_requests(n) for n in REQUESTS) + " |"
    yield "|---|" + "---:|" * len(REQUESTS)
    cells: dict[str, dict[int, Rows]] = {}
    for cell in _verification("clocked"):
        cells.setdefault(cell.label, {})[cell.requests] = by.get(cell.name, [])
    plain = cells.pop(next(iter(cells)))
    for label, row in cells.items():
        yield f"| {label} | " + " | ".join(_ratio(row[n], plain[n]) for n in REQUESTS) + " |"
    yield ""


def _ratio(rows: Rows, plain: Rows) -> str:
    """Return the geometric mean of the ratios of speed of the same batches, and its 95 % interval."""
    base = {row["number"]: row["tokens"] / row["micros"] for row in plain}
    logs = [
        math.log(row["tokens"] / row["micros"] / base[row["number"]]) for row in rows if row["number"] in base
    ]
    if len(logs) < 2:
        return ""
    wide = t_quantile(0.975, len(logs) - 1) * stdev(logs) / math.sqrt(len(logs))
    low, mid, high = (math.exp(fmean(logs) + d) for d in (-wide, 0.0, wide))
    return f"{mid:.2f} ({low:.2f} to {high:.2f})"


def _requests(n: int) -> str:
    return f"{n} request{'s' * (n > 1)}"


def _table(
    title: str, value: Value, by: dict[str, list[dict[str, Any]]], kind: str = "verification"
) -> Iterable[str]:
    """Yield the lines of one table: a row for each method, a column for each number of requests."""
    cells: dict[str, list[Cell]] = {}
    for cell in _verification(kind):
        cells.setdefault(cell.label, []).append(cell)
    yield f"| {title} | " + " | ".join(_requests(n) for n in REQUESTS) + " |"
    yield "|---|" + "---:|" * len(REQUESTS)
    for label, row in cells.items():
        found = [by.get(cell.name, []) for cell in row]
        yield f"| {label} | " + " | ".join(f"{value(rows):.2f}" if rows else "" for rows in found) + " |"
    yield ""


FIGURES: dict[str, Value] = {
    "tokens of the passes per generated token": lambda rows: (
        _sum(rows, "rows") / max(1, _sum(rows, "tokens"))
    ),
    "generated tokens a pass": lambda rows: _sum(rows, "tokens") / max(1, _sum(rows, "passes")),
}


def _chains_page(by: dict[str, list[dict[str, Any]]]) -> Iterable[str]:
    yield from (TEXTS["chains"], "")
    yield "| drafter | " + " | ".join(tasks[0] for tasks in CHAIN_TASKS) + " |"
    yield "|---|" + "---:|" * len(CHAIN_TASKS)
    for label in dict.fromkeys(cell.label for cell in _chains()):
        some = [by.get(cell.name, []) for cell in _chains() if cell.label == label]
        yield f"| {label} | " + " | ".join(_passes(rows) for rows in some) + " |"
    yield ""


def _passes(rows: Sequence[dict[str, Any]]) -> str:
    """Return generated tokens a pass, and in brackets tokens of the passes per generated token."""
    if not rows:
        return ""
    earned = fmean(row["tokens"] / row["passes"] for row in rows)
    return f"{earned:.2f} ({_sum(rows, 'rows') / _sum(rows, 'tokens'):.1f})"


def _oracle_page(by: dict[str, list[dict[str, Any]]]) -> Iterable[str]:
    yield from (TEXTS["oracle"], "")
    yield "| set | measured | off by | places tried | interval, 95 % |"
    yield "|---|---:|---:|---:|---|"
    for cell, (label, knobs, wanted) in zip(_oracle(), SET):
        rows = by.get(cell.name, [])
        if len(rows) < 2:  # no interval
            continue
        share = knobs["by"] == "acceptance"
        top, below = ("accepted", "tried") if share else ("tokens", "passes")
        value = _sum(rows, top) / _sum(rows, below)
        low, high = _interval(rows, top, below)
        off = value / wanted - 1
        yield (f"| {label} | {value:.3f} | {off:+.1%} | {_sum(rows, 'tried')} | {low:.3f} to {high:.3f} |")
    yield ""


def _interval(rows: Sequence[dict[str, Any]], top: str, below: str) -> tuple[float, float]:
    """Return the 95 % interval of a ratio of sums over answers (linearised)."""
    value = _sum(rows, top) / _sum(rows, below)
    left = [row[top] - value * row[below] for row in rows]
    error = stdev(left) * math.sqrt(len(rows)) / _sum(rows, below)
    wide = t_quantile(0.975, len(rows) - 1) * error
    return value - wide, value + wide


TEXTS = {
    "title": "# Comparisons: what to verify, whom to ask for drafts, and a set acceptance\n\nWritten by `python -m "
    "specviz.evidence.comparisons`. All figures but the clocked ones are counts on the embedded models, greedy unless another "
    "temperature is named; they do not depend on the machine's speed.",
    "verification": "## Which draft tokens to verify\n\nThe default target with its draft model; prompts of all tasks, 48 tokens each, "
    "in one batch; policies that decide by costs use fixed ones. Batches behind each figure: {runs}.",
    "clocked": "### By the clock\n\nBatches of the same prompts and tokens on {on}, {threads} threads, on the engine's clock without the "
    "prefill. The methods took turns, batch by batch, in shuffled order; their policies measure what a pass costs, and begin "
    "each batch without knowledge of earlier ones, so they decide otherwise than above. A ratio is the geometric mean over batches, "
    "each beside plain decoding's of the same prompts, with its 95 % interval. Batches behind each figure: {runs}.",
    "chains": "## Chains of drafters beside their parts\n\nGenerated tokens a pass on four prompts of each task (quote: copies of a "
    "text in the prompt); in brackets tokens of the passes per generated token. A chain asks its first drafter and, where that finds "
    "nothing, the next one.",
    "oracle": "## The oracle's set acceptance beside the measured one\n\nLlama-specviz-16M, temperature 1, 36 prompts twice, 64 tokens.",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status."""
    from ..zoo import load
    from ..zoo.registry import register

    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--only", default=",".join(KINDS), help=f"of {', '.join(KINDS)} (default: all)")
    parser.add_argument("--minutes", type=float, default=60.0, help="start no run after this time")
    parser.add_argument("--target", help="instead of the default target")
    parser.add_argument("--into", default=str(DOCS / "comparisons.jsonl"), help="ledger of finished runs")
    parser.add_argument("--page", default=str(DOCS / "comparisons.md"), help="the page that is written")
    args = parser.parse_args(argv)
    run(load, args.target or register().default, Path(args.into), args.only.split(","), args.minutes)
    write_file(args.page, page(read(Path(args.into))))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
