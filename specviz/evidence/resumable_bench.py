"""Resumable benchmark: measure the runs that are not in the ledger file yet. Every finished group of runs
is one line of the file.

A turn is one prompt and one repeat with all methods, which takes minutes for a hundred methods, and the
machine's speed may drift meanwhile. So a turn is split into random groups of methods with a run of plain
decoding in the middle, and each method is paired with the plain run of its group. Turns are ordered breadth
first (first prompt of each task, second prompt, ..., then the next repeat), so that a short session covers
every method.
"""

from __future__ import annotations

import math
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ..core import Sampling
from ..run.request import SessionError, read_integer, read_number
from ..run.result import Result, RunFailed
from .bench_ledger import (
    BenchSession,
    Ledger,
    Requested,
    Run,
    RunGroup,
    comparable,
    finished_runs,
    progress_of,
)
from .benchmark import WARM_TOKENS, Plan, Runner, prepare
from .looping import loops
from .prompt_suites import Item

if TYPE_CHECKING:
    from ..zoo.pair import Loaded

GROUP_SIZE = 8  # methods per run of plain decoding: at most four runs apart
APART = 100_000  # seed distance between repeats; larger than any suite
TEXTS = {
    "continue": " Run the same command again to continue{left}.",
    "too_long": " Prompts too long for the context, left out: {count}.",
}


def run_session(
    loaded: Loaded,
    methods: Sequence[str],
    ledger: Ledger,
    suite: Any = None,
    *,
    tasks: Sequence[str] = (),
    prompts: Any = None,
    repeats: Any = 3,
    max_new_tokens: Any = 128,
    sampling: Sampling = Sampling(),
    reference: bool = False,
    deterministic: bool = False,
    minutes: Any = None,
    quiet: bool | None = None,
) -> dict[str, Any]:
    """Measure the requested runs that the ledger does not hold yet. Return the progress of the whole
    benchmark: {runs, of, turns, of_turns, hours, failed, skipped, too_long, interrupted, said}.

    Arguments as in ``benchmark.bench``. Runs of several sessions are combined if target, draft, suite,
    sampling and length are equal; methods, prompts and repeats may be added between sessions. minutes: no
    group of runs starts after that. Ctrl-C drops the current group. A failed run is recorded and repeated
    in the next session. Raises SessionError before anything is measured, and RunFailed if plain decoding
    fails."""
    repeats, length = (
        read_integer("repeats", repeats, 1, 1000),
        read_integer("max_new_tokens", max_new_tokens, 1),
    )
    seconds = math.inf if minutes is None else 60 * read_number("minutes", minutes)
    if seconds <= 0:
        raise SessionError("minutes must be more than 0.", "bench.minutes")
    ledger.prepare()
    plan = prepare(loaded, methods, suite, tasks, prompts, length, sampling, reference, deterministic)
    settings = {
        "target": loaded.facts["target"],
        "draft": loaded.facts["draft"],
        "suite": plan.mark,
        "max_new_tokens": length,
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "seed": sampling.seed,
        "deterministic": deterministic,
    }
    asked = Requested(
        tuple(plan.runners),
        tuple((item.number, item.task) for item in plan.items),
        repeats,
        plan.suite,
        tuple(tasks),
        plan.skipped,
    )
    bench_session = BenchSession(
        datetime.now(UTC).isoformat(timespec="seconds"), settings, loaded.facts["env"], asked
    )
    interrupted = measure_missing(ledger, bench_session, plan, repeats, length, sampling, seconds, quiet)
    at = progress_of(comparable(ledger.sessions, settings, loaded.facts["env"]), asked)
    left = f", about {at.hours * (at.of - at.runs) / at.runs:.1f} hours more" if at.runs else ""
    more = "" if at.runs == at.of else TEXTS["continue"].format(left=left)
    long = TEXTS["too_long"].format(count=plan.too_long) if plan.too_long else ""
    return {
        **vars(at),
        "skipped": plan.skipped,
        "too_long": plan.too_long,
        "interrupted": interrupted,
        "said": f"{ledger.path}: {at}.{long}{more}",
    }


def measure_missing(
    ledger: Ledger,
    bench_session: BenchSession,
    plan: Plan,
    repeats: int,
    length: int,
    sampling: Sampling,
    seconds: float = math.inf,
    quiet: bool | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> bool:
    """Measure the missing runs; return whether Ctrl-C interrupted. seconds: no group of runs starts after
    that."""
    from tqdm import tqdm

    there = finished_runs(comparable(ledger.sessions, bench_session.settings, bench_session.machine))
    plain = next(iter(plan.runners))
    began = clock()
    warm = set()
    begun = False
    todo = [
        (item, repeat, [name for name in plan.runners if (item.number, repeat, name) not in there])
        for item, repeat in turns(plan.items, repeats)
    ]
    bar = tqdm(total=sum(len(missing) for *_, missing in todo), disable=quiet, unit="run", desc="bench")
    try:
        for item, repeat, missing in todo:
            for names in run_groups(missing, plain, random.Random(f"{sampling.seed} {item.number} {repeat}")):
                if clock() - began >= seconds:
                    return False
                bar.set_postfix_str(f"{item.task}, prompt {item.number}, repeat {repeat}")
                start = clock()
                for name in [name for name in names if name not in warm]:
                    _run(plan.runners[name], item, sampling, WARM_TOKENS)
                    warm.add(name)
                probs = replace(sampling, seed=sampling.seed + item.number + APART * (repeat - 1))
                found = {name: _run(plan.runners[name], item, probs, length) for name in names}
                base = found.pop(plain)
                if isinstance(base, str):
                    raise RunFailed(base, "bench.baseline")
                runs = [ledger_entry(name, result, base, sampling) for name, result in found.items()]
                if not begun:
                    ledger.begin(bench_session)
                    begun = True
                baseline = ledger_entry(plain, base, base, sampling)
                ledger.add(RunGroup(item.number, item.task, repeat, clock() - start, baseline, tuple(runs)))
                bar.update(len(set(names) & set(missing)))
    except KeyboardInterrupt:
        return True
    finally:
        bar.close()
    return False


def turns(items: list[Item], repeats: int) -> Iterator[tuple[Item, int]]:
    """Yield (item, repeat) breadth first: each task's first prompt, second prompt, ...; then the same with
    the next repeat."""
    seen: Counter[str] = Counter()
    ranked = []
    for item in items:
        ranked.append((seen[item.task], item))
        seen[item.task] += 1
    ranked.sort(key=lambda pair: pair[0])
    yield from ((item, repeat) for repeat in range(1, repeats + 1) for _, item in ranked)


def run_groups(missing: list[str], plain: str, rng: random.Random) -> list[list[str]]:
    """Shuffle the missing methods of a turn and split them into groups of even size, with plain decoding in
    the middle of each."""
    others = [name for name in missing if name != plain]
    rng.shuffle(others)
    count = math.ceil(len(others) / GROUP_SIZE) or bool(missing)
    cut = [others[n::count] for n in range(count)]
    return [[*names[: len(names) // 2], plain, *names[len(names) // 2 :]] for names in cut]


def ledger_entry(name: str, result: Result | str, plain: Result, sampling: Sampling) -> Run:
    """Return a finished run as an entry of the ledger. result: the run, or its error message; plain: the
    paired run of plain decoding."""
    if isinstance(result, str):
        return Run(name, failed=result)
    of = result.totals
    return Run(
        name,
        of.tokens,
        of.rounds,
        of.drafted,
        of.accepted,
        of.tried,
        of.steady_seconds,
        of.prefill_seconds,
        result.forward_seconds,
        result.token_ids == plain.token_ids if sampling.greedy else None,
        loops=loops(result.token_ids),
        draft_weight_bytes=result.memory.get("weights"),
        draft_cache_bytes=result.memory.get("cache"),
    )


def _run(runner: Runner, item: Item, sampling: Sampling, length: int) -> Result | str:
    """Return the result, or the error message of a failed run, so that one method does not end the
    session."""
    try:
        return runner(item.prompt, sampling, length)
    except RunFailed as error:
        return str(error) or "The run failed."
