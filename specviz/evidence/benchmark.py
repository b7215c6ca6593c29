"""Benchmark methods against plain decoding with paired runs.

For every prompt and repeat, plain decoding and all methods run one after another in shuffled order on the
same weights with the same sampling. A speed-up is the median of the paired ratios of seconds per token
after the prefill, its spread their interquartile range. One short warm-up run per method is discarded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, quantiles
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ..core import Sampling
from ..methods import catalogue
from ..run.request import SessionError, read_integer
from ..run.result import Result, collect
from ..run.session import Session, find_method
from ..run.turns import shuffled_turns
from ..trace.answer_places import lengths_by_place
from ..trace.events import Event
from ..trace.files import Trace
from ..trace.metrics import Totals, walltime_speedup
from ..trace.recorder import Recorder
from .looping import loops
from .prompt_suites import Item, read_suites, select_items, suite_path

if TYPE_CHECKING:
    from ..zoo.pair import Loaded

MEAN = "mean"  # task name of the row over all tasks
COLUMNS = [
    "method",
    "task",
    "block_efficiency",
    "acceptance_rate",
    "tokens_per_second",
    "walltime_speedup",
    "spread",
    "of_possible",
    "overhead_share",
    "same_tokens",
    "looping_share",
    "walltime_speedup_without_loops",
]
WARM_TOKENS = 12

Runner = Callable[[str | list[dict[str, str]], Sampling, int], Result]  # (prompt, sampling, max_new_tokens)


@dataclass
class Cell:
    """The accumulated results of one method on one task. ratios: speed-ups over the paired runs of plain
    decoding; same: runs with the same tokens as plain decoding; looping: runs whose answer repeats itself
    endlessly; non_looping...: figures without these."""

    totals: Totals = field(default_factory=Totals)
    forward_seconds: float = 0.0
    memory: dict[str, int] = field(default_factory=dict)  # of the last run
    ratios: list[float] = field(default_factory=list)
    same: int = 0
    runs: int = 0
    looping: int = 0
    non_looping: Totals = field(default_factory=Totals)  # of answers that do not loop
    non_looping_ratios: list[float] = field(default_factory=list)

    def add(self, result: Result, plain: Result) -> None:
        """Add a run and the run of plain decoding that it is paired with."""
        self.totals += result.totals
        self.forward_seconds += result.forward_seconds
        self.memory = result.memory
        self.runs += 1
        self.same += result.token_ids == plain.token_ids
        ratio = walltime_speedup(plain.totals.run_time, result.totals.run_time)
        circles = loops(result.token_ids)
        self.looping += circles
        if not circles:
            self.non_looping += result.totals
        if ratio is not None:
            self.ratios.append(ratio)
            self.non_looping_ratios += [] if circles else [ratio]

    def row(self, greedy: bool) -> dict[str, Any]:
        """Return the results as a row of the table. greedy: whether tokens are compared with plain
        decoding's."""
        figures, seconds = self.totals.metrics(), self.totals.seconds
        low, middle, high = quartiles(self.ratios)
        non_looping = quartiles(self.non_looping_ratios)[1]
        return {
            "block_efficiency": figures["block_efficiency"],
            "acceptance_rate": figures["acceptance_rate"],
            "tokens_per_second": figures["tokens_per_second"],
            "walltime_speedup": middle,
            "spread": [low, high],
            "overhead_share": 1 - self.forward_seconds / seconds if seconds else None,
            "same_tokens": self.same / self.runs if greedy and self.runs else None,
            "looping_share": self.looping / self.runs if self.runs else None,
            "walltime_speedup_without_loops": non_looping,
            "block_efficiency_without_loops": self.non_looping.metrics()["block_efficiency"],
            "runs": self.runs,
            "tokens": self.totals.tokens,
            "draft_weight_bytes": self.memory.get("weights"),
            "draft_cache_bytes": self.memory.get("cache"),
            "along_the_answer": lengths_by_place(self.totals.by_place),
        }


def bench(
    loaded: Loaded,
    methods: Sequence[str],
    suite: str | Path | Sequence[str | Path] | None = None,
    *,
    tasks: Sequence[str] = (),
    prompts: Any = None,
    repeats: Any = 3,
    max_new_tokens: Any = 128,
    sampling: Sampling = Sampling(),
    reference: bool = False,
    quiet: bool | None = None,
    deterministic: bool = False,
    knobs: Mapping[str, dict[str, Any]] = MappingProxyType({}),
    traces: str | Path | None = None,
) -> dict[str, Any]:
    """Benchmark methods. Return {environment, rows}: a row for each method and task, and for each method
    its mean over the tasks (task "mean"). With ``reference``, where passes can be timed, also {passes}: the
    rows of ``pass_times.pass_times``.

    suite: a file of prompts, or several ("ours" for the shipped one), as in ``read_suite``; tasks: only
    these; prompts: number per task; reference: add rows for transformers' decoding with the same weights,
    and for llama.cpp if installed; quiet: no progress bar (None: none if stderr is not a terminal);
    deterministic: as in Session; knobs: {method: its knobs}; traces: a folder for the trace of each
    run. Ctrl-C ends the measurement and returns what was measured. Raises
    SessionError before anything is measured."""
    repeats, length = (
        read_integer("repeats", repeats, 1, 1000),
        read_integer("max_new_tokens", max_new_tokens, 1),
    )
    folder = None if traces is None else TraceFolder(Path(traces))
    plan = prepare(
        loaded, methods, suite, tasks, prompts, length, sampling, reference, deterministic, knobs, folder
    )
    cells, interrupted = measure(plan.runners, plan.items, repeats, length, sampling, quiet, folder)
    env = {
        **loaded.facts["env"],
        "target": loaded.facts["target"],
        "draft": loaded.facts["draft"],
        "suite": plan.suite,
        "prompts": len(plan.items),
        "too_long": plan.too_long,
        "repeats": repeats,
        "max_new_tokens": length,
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "seed": sampling.seed,
        "deterministic": deterministic,
        "spread": "interquartile range of the paired ratios",
        "skipped": plan.skipped,
        "interrupted": interrupted,
    }
    table = rows(cells, sampling.temperature == 0)
    add_share_of_oracle(table, {key for key, method in catalogue().items() if method.bound})
    report: dict[str, Any] = {"environment": env, "rows": table}
    if reference and not interrupted:
        from .pass_times import can_time, pass_times

        if can_time(loaded):
            try:
                report["passes"] = pass_times(loaded)
            except KeyboardInterrupt:
                env["interrupted"] = True
    return report


@dataclass(frozen=True)
class Plan:
    """What is measured. runners: {row name: function that runs it}, plain decoding first; items: the
    prompts; suite, mark: names and content hash of the prompt files; skipped: {unavailable method: reason};
    too_long: number of prompts that do not fit into the context."""

    runners: dict[str, Runner]
    items: list[Item]
    suite: str
    mark: str
    skipped: dict[str, str]
    too_long: int


def prepare(
    loaded: Loaded,
    methods: Sequence[str],
    suite: Any,
    tasks: Sequence[str],
    prompts: Any,
    length: int,
    sampling: Sampling,
    reference: bool,
    deterministic: bool,
    knobs: Mapping[str, dict[str, Any]] = MappingProxyType({}),
    traces: TraceFolder | None = None,
) -> Plan:
    """Validate the arguments of ``bench`` and return the plan. length: tokens per answer. Raises
    SessionError."""
    most = None if prompts is None else read_integer("prompts", prompts, 1)
    files = [suite] if isinstance(suite, (str, Path)) or not suite else list(suite)
    items, mark = read_suites(files)
    asked = select_items(items, tasks, most)
    runners, skipped = _runners(loaded, methods, sampling, deterministic, knobs, traces)
    items = [
        item for item in with_earlier_answers(runners, asked, length) if fits_context(runners, item, length)
    ]
    if not items:
        raise SessionError(
            f"No prompt of the suite leaves room for {length} tokens in the context of {loaded.context}.",
            "suite.too_long",
        )
    others: dict[str, Runner] = {}
    if reference:
        from . import llamacpp_baseline, transformers_baseline

        plain = next(iter(runners.values())).session
        others = {
            **transformers_baseline.references(loaded, plain),
            **llamacpp_baseline.references(loaded, plain),
        }
    return Plan(
        {**runners, **others},
        items,
        ", ".join(suite_path(one).name for one in files),
        mark,
        skipped,
        len(asked) - len(items),
    )


def with_earlier_answers(runners: dict[str, Any], items: list[Item], length: int) -> Iterator[Item]:
    """Yield the items; earlier user messages of a conversation are answered greedily. Conversations that do
    not fit into the context are left out."""
    session = next(iter(runners.values())).session
    for item in items:
        messages: list[dict[str, str]] = []
        try:
            for turn in item.before:
                messages.append({"role": "user", "content": turn})
                answer = collect(Session(session.loaded, session.method).run(messages, length)).text
                messages.append({"role": "assistant", "content": answer})
        except SessionError:
            continue
        yield (
            replace(item, prompt=[*messages, {"role": "user", "content": item.prompt}]) if messages else item
        )


def fits_context(runners: dict[str, Any], item: Item, length: int) -> bool:
    """Return whether prompt and answer (``length`` tokens) fit into the context."""
    session = next(iter(runners.values())).session
    try:
        return len(session.encode(item.prompt)) + length <= session.loaded.context
    except SessionError:
        return False


@dataclass
class TraceFolder:
    """Writes the trace of each measured run to a folder, as NUMBER-METHOD.jsonl.gz. active: False until the
    warm-up is over."""

    folder: Path
    active: bool = False
    counts: dict[str, int] = field(default_factory=dict)

    def watch(self, loaded: Loaded, method: str, events: Iterable[Event]) -> Iterator[Event]:
        """Yield the events; write them as a trace at the end. Recording is outside the engine's clock."""
        recorder = Recorder(0, loaded.token_bytes, loaded.token_bytes.special)
        records: list[dict[str, Any]] = []
        for event in events:
            if self.active:
                records += recorder.take(event)
            yield event
        if self.active:
            self.counts[method] = self.counts.get(method, 0) + 1
            self.folder.mkdir(parents=True, exist_ok=True)
            Trace(records).save(self.folder / f"{self.counts[method]:04}-{method}.jsonl.gz")


@dataclass(frozen=True)
class CatalogueRunner:
    """Runs a method of the catalogue for the benchmark: calling it with (prompt, sampling, length) returns
    a Result. traces: where its traces are written, or None."""

    session: Session
    traces: TraceFolder | None = None

    def __call__(self, prompt: str | list[dict[str, str]], sampling: Sampling, length: int) -> Result:
        mine = self.session
        session = Session(mine.loaded, mine.method, mine.knobs, sampling, deterministic=mine.deterministic)
        events: Iterable[Event] = session.run(prompt, length)
        if self.traces is not None:
            events = self.traces.watch(mine.loaded, mine.method.key, events)
        return collect(events)


def _runners(
    loaded: Loaded,
    keys: Sequence[str],
    sampling: Sampling,
    deterministic: bool = False,
    knobs: Mapping[str, dict[str, Any]] = MappingProxyType({}),
    traces: TraceFolder | None = None,
) -> tuple[dict[str, CatalogueRunner], dict[str, str]]:
    """Return runners (plain decoding first) and the reasons for skipped methods. knobs: {method: its
    knobs}."""
    chosen = [find_method(key) for key in keys]
    plain = next(iter(catalogue().values()))  # plain decoding is the first method
    runners = {
        plain.key: CatalogueRunner(
            Session(loaded, plain, None, sampling, deterministic=deterministic), traces
        )
    }
    skipped: dict[str, str] = {}
    for method in chosen:
        try:
            runners.setdefault(
                method.key,
                CatalogueRunner(
                    Session(loaded, method, knobs.get(method.key), sampling, deterministic=deterministic),
                    traces,
                ),
            )
        except SessionError as error:
            skipped[method.key] = str(error)
    if skipped and len(skipped) == len(chosen):
        raise SessionError(next(iter(skipped.values())), "method.missing")
    return runners, skipped


def measure(
    runners: dict[str, Runner],
    items: list[Item],
    repeats: int,
    length: int,
    sampling: Sampling,
    quiet: bool | None = None,
    traces: TraceFolder | None = None,
) -> tuple[dict[tuple[str, str], Cell], bool]:
    """Run every method on every prompt. Return ({(method, task): Cell}, whether Ctrl-C interrupted). The
    first runner is the baseline."""
    from tqdm import tqdm

    cells: dict[tuple[str, str], Cell] = {}
    plain = next(iter(runners))
    plan = items * repeats
    bar = tqdm(total=len(plan) * len(runners), disable=quiet, unit="run", desc="bench")
    try:
        for run in runners.values():
            run(items[0].prompt, sampling, WARM_TOKENS)
        if traces is not None:
            traces.active = True
        turns = shuffled_turns(runners, len(plan), sampling.seed)
        for count, (item, names) in enumerate(zip(plan, turns)):
            probs = replace(sampling, seed=sampling.seed + count)
            done: dict[str, Result] = {}
            for name in names:
                bar.set_postfix_str(f"{name}, {item.task}")
                done[name] = runners[name](item.prompt, probs, length)
                bar.update()
            for name in runners:
                cells.setdefault((name, item.task), Cell()).add(done[name], done[plain])
    except KeyboardInterrupt:
        return cells, True
    finally:
        bar.close()
    return cells, False


def rows(cells: dict[tuple[str, str], Cell], greedy: bool) -> list[dict[str, Any]]:
    """Return the rows of the result table: for each method one per task, then the mean of every figure over
    the tasks."""
    out = []
    for name in dict.fromkeys(name for name, _ in cells):
        mine = [
            {"method": name, "task": task, **cell.row(greedy)}
            for (who, task), cell in cells.items()
            if who == name
        ]
        counts = {key: sum(row[key] for row in mine) for key in ("runs", "tokens")}
        figures = {
            key: _mean(
                [row[key] for row in mine if not key.endswith("_without_loops") or row[key] is not None]
                or [None]
            )
            for key in mine[0]
            if key not in ("method", "task", *counts)
        }
        out += [*mine, {"method": name, "task": MEAN, **figures, **counts}]
    return out


def add_share_of_oracle(table: list[dict[str, Any]], bounds: set[str]) -> None:
    """Add ``of_possible`` to the rows: the speed-up divided by that of the oracle method (a key in
    ``bounds``) on the same task; None if it was not run."""
    limits = {row["task"]: row["walltime_speedup"] for row in table if row["method"] in bounds}
    for row in table:
        limit, ours = limits.get(row["task"]), row["walltime_speedup"]
        row["of_possible"] = ours / limit if ours is not None and limit else None


def quartiles(values: list[float]) -> Sequence[float | None]:
    """Return [lower quartile, median, upper quartile]; None for each without values."""
    return nonempty_quartiles(values) if values else [None] * 3


def nonempty_quartiles(values: list[float]) -> list[float]:
    """Return [lower quartile, median, upper quartile] of at least one value."""
    return values * 3 if len(values) == 1 else quantiles(values, n=4, method="inclusive")


def _mean(values: list[Any]) -> Any:
    """Return the mean of numbers, or of intervals bound by bound; None if any is unknown."""
    if isinstance(values[0], list):
        return [_mean([value[0] for value in values]), _mean([value[1] for value in values])]
    if isinstance(values[0], dict):
        return {key: _mean([value.get(key) for value in values]) for key in max(values, key=len)}
    return None if any(value is None for value in values) else fmean(values)
