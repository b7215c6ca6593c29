"""Methods against plain decoding, measured so that the ratio means something.

For every prompt and repeat, plain decoding and all methods run one after another in a shuffled order, on the same loaded
weights, with the same sampling; a speed-up is the median of those paired ratios of seconds per token after the prefill, its
spread their interquartile range. One short run of each method comes first and is thrown away.
"""
from __future__ import annotations

import gzip
import json
import random
import zlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, quantiles
from typing import Any, Callable, Iterator, Sequence

import yaml

from ..core import Sampling

from ..trace.metrics import Totals, walltime_speedup
from ..methods import catalogue
from .. import ASSETS
from ..run.request import SessionError, read_whole
from ..run.result import Result, collect
from ..run.session import Session, find_method

SUITE = ASSETS / "prompts" / "bench.yaml"
MEAN = "mean"  # the row over the tasks
COLUMNS = ["method", "task", "block_efficiency", "acceptance_rate", "tokens_per_second", "walltime_speedup", "spread",
           "overhead_share", "same_tokens"]
WARM_TOKENS = 12
LARGEST = 64 * 2**20  # bytes of a suite

Runner = Callable[[str, Sampling, int], Result]  # (prompt, sampling, max_new_tokens)


@dataclass(frozen=True)
class Item:
    """A prompt and its task. before: earlier messages of the same user, which plain decoding answers before anything is timed."""

    task: str
    prompt: str | list[dict[str, str]]
    before: tuple[str, ...] = ()


@dataclass
class Cell:
    """What one method did on one task."""

    totals: Totals = field(default_factory=Totals)
    forward_seconds: float = 0.0
    ratios: list[float] = field(default_factory=list)
    same: int = 0
    runs: int = 0

    def take(self, result: Result, plain: Result) -> None:
        self.totals += result.totals
        self.forward_seconds += result.forward_seconds
        self.runs += 1
        self.same += result.token_ids == plain.token_ids
        ratio = walltime_speedup(plain.totals, result.totals)
        if ratio is not None:
            self.ratios.append(ratio)

    def row(self, greedy: bool) -> dict[str, Any]:
        figures, seconds = self.totals.metrics(), self.totals.seconds
        low, middle, high = quartiles(self.ratios)
        return {"block_efficiency": figures["block_efficiency"], "acceptance_rate": figures["acceptance_rate"],
                "tokens_per_second": figures["tokens_per_second"], "walltime_speedup": middle, "spread": [low, high],
                "overhead_share": 1 - self.forward_seconds / seconds if seconds else None,
                "same_tokens": self.same / self.runs if greedy and self.runs else None, "runs": self.runs,
                "tokens": self.totals.tokens}


def bench(loaded: Any, methods: Sequence[str], suite: str | Path | Sequence[str | Path] | None = None, *,
          tasks: Sequence[str] = (), prompts: Any = None, repeats: Any = 3, max_new_tokens: Any = 128,
          sampling: Sampling = Sampling(), reference: bool = False,
          quiet: bool | None = None, deterministic: bool = False) -> dict[str, Any]:
    """{environment, rows}: a row for each method and task, and for each method over the tasks (task "mean").

    suite: a file, or several ("ours" for our own), as ``read_suite`` takes them. tasks, prompts: only these tasks, so many
    prompts of each. reference: rows of transformers' own decoding on the same weights, and of llama.cpp's where it is installed.
    quiet: no progress bar (None: none where stderr is no terminal). deterministic: as of Session. Ctrl-C ends the measurement and
    reports what there is. Raises SessionError or a suite's sentence before anything is measured.
    """
    repeats, length = read_whole("repeats", repeats, 1, 1000), read_whole("max_new_tokens", max_new_tokens, 1)
    files = [suite] if isinstance(suite, (str, Path)) or not suite else list(suite)
    most = None if prompts is None else read_whole("prompts", prompts, 1)
    items = choose([item for one in files for item in read_suite(one)], tasks, most)
    runners, skipped = _runners(loaded, methods, sampling, deterministic)
    asked, items = items, [item for item in answered(runners, items, length) if fits(runners, item, length)]
    if not items:
        raise SessionError(f"No prompt of the suite leaves room for {length} tokens in the context of {loaded.context}.")
    if reference:
        from . import llamacpp_baseline, transformers_baseline

        plain = next(iter(runners.values())).session
        runners |= transformers_baseline.references(loaded, plain) | llamacpp_baseline.references(loaded, plain)
    cells, interrupted = measure(runners, items, repeats, length, sampling, quiet)
    env = {**loaded.facts["env"], "target": loaded.facts["target"], "draft": loaded.facts["draft"],
           "suite": ", ".join(located(one).name for one in files), "prompts": len(items), "too_long": len(asked) - len(items),
           "repeats": repeats,
           "max_new_tokens": length,
           "temperature": sampling.temperature, "top_k": sampling.top_k, "top_p": sampling.top_p, "seed": sampling.seed,
           "deterministic": deterministic,
           "spread": "interquartile range of the paired ratios", "skipped": skipped, "interrupted": interrupted}
    return {"environment": env, "rows": rows(cells, sampling.temperature == 0)}


def answered(runners: dict[str, Any], items: list[Item], length: int) -> Iterator[Item]:
    """The items with their earlier messages answered, greedily; those whose conversation does not fit are left out."""
    session = next(iter(runners.values())).session
    for item in items:
        messages: list[dict[str, str]] = []
        try:
            for turn in item.before:
                messages.append({"role": "user", "content": turn})
                said = collect(Session(session.loaded, session.method).run(messages, length)).text
                messages.append({"role": "assistant", "content": said})
        except SessionError:
            continue
        yield replace(item, prompt=[*messages, {"role": "user", "content": item.prompt}]) if messages else item


def fits(runners: dict[str, Any], item: Item, length: int) -> bool:
    """Whether the prompt and its answer fit into the context, so that no run is cut short by it."""
    session = next(iter(runners.values())).session
    try:
        return len(session.encode(item.prompt)) + length <= session.loaded.context
    except SessionError:
        return False


@dataclass(frozen=True)
class Ours:
    """A method of the catalogue as a runner."""

    session: Session

    def __call__(self, prompt: str, sampling: Sampling, length: int) -> Result:
        mine = self.session
        return collect(Session(mine.loaded, mine.method, mine.knobs, sampling, deterministic=mine.deterministic).run(prompt, length))


def _runners(loaded: Any, keys: Sequence[str], sampling: Sampling,
             deterministic: bool = False) -> tuple[dict[str, Runner], dict[str, str]]:
    """Plain decoding first, then the methods that can run; and why the others cannot."""
    chosen = [find_method(key) for key in keys]
    plain = next(iter(catalogue().values()))  # plain decoding opens the catalogue
    runners, skipped = {plain.key: Ours(Session(loaded, plain, None, sampling, deterministic=deterministic))}, {}
    for method in chosen:
        try:
            runners.setdefault(method.key, Ours(Session(loaded, method, None, sampling, deterministic=deterministic)))
        except SessionError as error:
            skipped[method.key] = str(error)
    if skipped and len(skipped) == len(chosen):
        raise SessionError(next(iter(skipped.values())))
    return runners, skipped


def measure(runners: dict[str, Runner], items: list[Item], repeats: int, length: int, sampling: Sampling,
            quiet: bool | None = None) -> tuple[dict[tuple[str, str], Cell], bool]:
    """Cells by (method, task), and whether Ctrl-C cut the measurement short. The first runner is the baseline."""
    from tqdm import tqdm

    cells: dict[tuple[str, str], Cell] = {}
    dice, plain = random.Random(sampling.seed), next(iter(runners))
    plan = items * repeats
    bar = tqdm(total=len(plan) * len(runners), disable=quiet, unit="run", desc="bench")
    try:
        for run in runners.values():
            run(items[0].prompt, sampling, WARM_TOKENS)
        for count, item in enumerate(plan):
            law = replace(sampling, seed=sampling.seed + count)
            done: dict[str, Result] = {}
            for name in dice.sample(list(runners), len(runners)):
                bar.set_postfix_str(f"{name}, {item.task}")
                done[name] = runners[name](item.prompt, law, length)
                bar.update()
            for name in runners:
                cells.setdefault((name, item.task), Cell()).take(done[name], done[plain])
    except KeyboardInterrupt:
        return cells, True
    finally:
        bar.close()
    return cells, False


def rows(cells: dict[tuple[str, str], Cell], greedy: bool) -> list[dict[str, Any]]:
    """The table: each method's tasks, then their plain mean, figure by figure."""
    out = []
    for name in dict.fromkeys(name for name, _ in cells):
        mine = [{"method": name, "task": task, **cell.row(greedy)} for (who, task), cell in cells.items() if who == name]
        counts = {key: sum(row[key] for row in mine) for key in ("runs", "tokens")}
        figures = {key: _mean([row[key] for row in mine]) for key in mine[0] if key not in ("method", "task", *counts)}
        out += [*mine, {"method": name, "task": MEAN, **figures, **counts}]
    return out


def quartiles(values: list[float]) -> Sequence[float | None]:
    if len(values) < 2:
        return values * 3 or [None] * 3
    return quantiles(values, n=4, method="inclusive")


def _mean(values: list[Any]) -> Any:
    """Of numbers, or of intervals end by end; None where one is unknown."""
    if isinstance(values[0], list):
        return [_mean([value[0] for value in values]), _mean([value[1] for value in values])]
    return None if any(value is None for value in values) else fmean(values)


def choose(items: list[Item], tasks: Sequence[str] = (), most: int | None = None) -> list[Item]:
    """The items of these tasks (all when none is named), the first ``most`` of each. Raises SessionError."""
    known = list(dict.fromkeys(item.task for item in items))
    for task in tasks:
        if task not in known:
            raise SessionError(f"The suite has no task {task!r}; it has {', '.join(known)}.")
    kept: dict[str, list[Item]] = {task: [] for task in tasks or known}
    for item in items:
        if item.task in kept and (most is None or len(kept[item.task]) < most):
            kept[item.task].append(item)
    return [item for task in kept.values() for item in task]


def located(path: str | Path | None) -> Path:
    """Where a suite lies; None or "ours" is our own."""
    return SUITE if path is None or str(path) in ("", "ours") else Path(path)


def read_suite(path: str | Path | None = None) -> list[Item]:
    """Prompts with their tasks: {task: [prompt, ...]} in YAML, or in JSON Lines rows {task, prompt}, or {category, turns} as
    MT-Bench has them, whose last turn is measured. Raises SessionError.
    """
    path = located(path)
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
            data = file.read(LARGEST + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise SessionError(f"The suite {path} cannot be read: {getattr(error, 'strerror', None) or 'it is damaged'}.") from None
    if len(data) > LARGEST:
        raise SessionError(f"The suite {path} is larger than {LARGEST >> 20} MB.")
    try:
        text = data.decode("utf-8")
        if path.suffix in (".yaml", ".yml"):
            rows = [(task, (prompt,)) for task, prompts in yaml.safe_load(text).items() for prompt in prompts]
        else:
            found = [json.loads(line) for line in text.splitlines() if line.strip()]
            rows = [(row["category"], (*row["turns"],)) if isinstance(row.get("turns"), list) else (row["task"], (row["prompt"],))
                    for row in found]
    except (ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError):
        raise SessionError(f"The suite {path} must hold rows with a task and a prompt.") from None
    if not rows or not all(isinstance(word, str) and word.strip() for task, turns in rows for word in (task, *turns)):
        raise SessionError(f"The suite {path} must hold rows with a task and a prompt.")
    if not all(turns for _, turns in rows):
        raise SessionError(f"The suite {path} has a conversation without a turn.")
    return [Item(task, turns[-1], turns[:-1]) for task, turns in rows]
