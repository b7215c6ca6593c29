"""Compare methods that share one idea on the same prompts: adaptive verification beside other choices of
what to verify, chains of drafters beside their parts, and the oracle's set acceptance beside the measured.

    python -m specviz.evidence.comparisons [--only verification,chains,oracle] [--minutes N] [--target NAME]

Every finished run is one line of docs/comparisons.jsonl; the same command continues and then writes
docs/comparisons.md. All figures are counts; times are modelled from them."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from ..core.claim import Claim
from ..methods import catalogue
from ..trace.file_writer import write_file
from .claims import Asked, Runs, prompts, t_quantile
from .ledger_lines import append_row, rows_of

DOCS = Path(__file__).resolve().parents[2] / "docs"
OPENS = b'{"tokens": '  # start of every line of the ledger
REQUESTS = (1, 2, 4, 8, 16)
PASS_MS = 4.9  # of a pass of the default target on two cores with AMX; fitted to docs/log/2026-11/speed.md
ROW_MS = 0.24  # of a token of the pass
REQUEST_MS = 0.45  # of each request of the pass but the first
STEP_MS = 0.45  # of a draft step there: 1.8 ms for four
KINDS = ("verification", "chains", "oracle")
Rows = Sequence[dict[str, Any]]
Value = Callable[[Rows, int, Rows], float]


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
    return [*_verification(), *_chains(), *_oracle()]


def _verification() -> Iterable[Cell]:
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
            yield Cell("verification", label, method, knobs, requests=requests)


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
    for cell, number in sorted(todo, key=lambda one: (one[0].target or target, one[1])):
        if time.monotonic() > end:
            return
        where = cell.target or target
        if where not in runs:
            runs[where] = Runs(open_target(where))
        row = figures(runs[where], cell, number) | {"cell": cell.name, "number": number, "target": where}
        append_row(ledger, row)


def figures(runs: Runs, cell: Cell, number: int) -> dict[str, int]:
    """Run one answer of a cell (in a batch, if it has several requests) and return its counts."""
    items = prompts(cell.tasks, "", 0)
    claim = Claim("", cell.method, "accepted_length", temperature=cell.temperature, tokens=cell.each)
    asked = [items[(number + i) % len(items)] for i in range(cell.requests)]
    counts = runs.counts(catalogue()[cell.method], cell.knobs, Asked(claim, asked, number))
    totals = counts.totals
    return {
        "tokens": int(counts.sums.get("batch_tokens", totals.tokens)),
        "rows": int(counts.sums.get("batch_rows", counts.rows)),
        "passes": totals.rounds,
        "steps": counts.steps,
        "tried": totals.tried,
        "accepted": totals.accepted,
    }


def read(ledger: Path) -> list[dict[str, Any]]:
    """Return the rows of the ledger. Raises SessionError for a file that is not one."""
    return rows_of(ledger, OPENS)


def page(rows: Sequence[dict[str, Any]]) -> str:
    """Return docs/comparisons.md."""
    by: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by.setdefault(row["cell"], []).append(row)
    return "\n".join([TEXTS["title"], "", *_verification_page(by), *_chains_page(by), *_oracle_page(by)])


def _sum(rows: Iterable[dict[str, Any]], name: str) -> int:
    return sum(row[name] for row in rows)


def _verification_page(by: dict[str, list[dict[str, Any]]]) -> Iterable[str]:
    runs = [len(by.get(cell.name, [])) for cell in _verification()]
    most = f"{min(runs)} to {max(runs)}" if min(runs) < max(runs) else str(max(runs))
    yield from (TEXTS["verification"].format(runs=most, **globals()), "")
    for title, value in FIGURES.items():
        yield from _table(title, value, by)


def _table(title: str, value: Value, by: dict[str, list[dict[str, Any]]]) -> Iterable[str]:
    """Yield the lines of one table: a row for each method, a column for each number of requests."""
    cells: dict[str, list[Cell]] = {}
    for cell in _verification():
        cells.setdefault(cell.label, []).append(cell)
    yield f"| {title} | " + " | ".join(f"{n} request{'s' * (n > 1)}" for n in REQUESTS) + " |"
    yield "|---|" + "---:|" * len(REQUESTS)
    plain = [by.get(cell.name, []) for cell in next(iter(cells.values()))]
    for label, row in cells.items():
        found = [
            f"{value(rows, cell.requests, base):.2f}" if rows and base else ""
            for cell, base in zip(row, plain)
            for rows in [by.get(cell.name, [])]
        ]
        yield f"| {label} | " + " | ".join(found) + " |"
    yield ""


def modelled(rows: Sequence[dict[str, Any]], requests: int) -> float:
    """Return the modelled milliseconds of a generated token of batches of so many requests."""
    passes = PASS_MS + REQUEST_MS * (requests - 1)
    total = passes * _sum(rows, "passes") + ROW_MS * _sum(rows, "rows") + STEP_MS * _sum(rows, "steps")
    return total / max(1, _sum(rows, "tokens"))


# (rows of a cell, its requests, plain decoding's rows) -> figure
FIGURES: dict[str, Value] = {
    "tokens of the passes per generated token": lambda rows, *_: (
        _sum(rows, "rows") / max(1, _sum(rows, "tokens"))
    ),
    "generated tokens a pass": lambda rows, *_: _sum(rows, "tokens") / max(1, _sum(rows, "passes")),
    "modelled ms a token": lambda rows, requests, _: modelled(rows, requests),
    "modelled speed, times plain decoding": lambda rows, requests, plain: (
        modelled(plain, requests) / modelled(rows, requests)
    ),
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
    "specviz.evidence.comparisons`. All figures are counts on the embedded models, greedy unless another temperature is named; they do "
    "not depend on the machine's speed.",
    "verification": "## Which draft tokens to verify\n\nThe default target with its draft model; prompts of all tasks, 48 tokens each, "
    "in one batch. The modelled time is {PASS_MS} ms for a pass, {ROW_MS} ms for each of its tokens, {REQUEST_MS} ms for each request but "
    "the first and {STEP_MS} ms for a draft step. The first three are fitted to passes of 1 to 33 tokens and requests on two quiet cores "
    "of a Xeon with AMX ([speed.md](log/2026-11/speed.md), 28 November), a draft step to four of 1.8 ms (29 November). "
    "Batches behind each figure: {runs}.",
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
