"""The benchmark over several sittings: what is not in the file yet is measured, and every finished leg is a line of it.

A turn is one prompt and one repeat, for all methods. A hundred of them take minutes, and by then the machine may be another than
when plain decoding ran. So a turn is walked in legs: a few methods, drawn by lot, with plain decoding in their midst; each is
paired with its leg's plain run, which is the nearest in time. Turns come breadth first, so that a short sitting says something of
every method: the first prompt of each task, the second, ...; then all of them again for the next repeat.
"""
from __future__ import annotations

import math
import random
import time
from collections import Counter
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any, Callable, Iterator, Sequence

from ..core import Sampling
from ..run.request import SessionError, read_number, read_whole
from ..run.result import Result, RunFailed
from .benchmark import WARM_TOKENS, Plan, Runner, prepare
from .ledger import Asked, Ledger, Leg, Run, Sitting, alike, done, standing
from .suites import Item

LEG = 8  # methods beside one run of plain decoding: none is further from it than four runs
APART = 100_000  # between the seeds of a prompt's repeats; more than a suite has prompts


def sit(loaded: Any, methods: Sequence[str], ledger: Ledger, suite: Any = None, *, tasks: Sequence[str] = (), prompts: Any = None,
        repeats: Any = 3, max_new_tokens: Any = 128, sampling: Sampling = Sampling(), reference: bool = False,
        deterministic: bool = False, minutes: Any = None, quiet: bool | None = None) -> dict[str, Any]:
    """{runs, of, turns, of_turns, hours, failed, skipped, too_long, interrupted, said}: how much of the whole the ledger holds.

    What is asked is as of ``benchmark.bench``; target, draft, suite, sampling and length are what makes settings others, and how
    many methods, prompts and repeats are asked for may grow from sitting to sitting. minutes: no leg begins after so many. Ctrl-C
    drops the leg it falls into. A run that breaks is written down and made again in the next sitting. Raises SessionError before
    anything is measured, and RunFailed where plain decoding breaks.
    """
    repeats, length = read_whole("repeats", repeats, 1, 1000), read_whole("max_new_tokens", max_new_tokens, 1)
    seconds = math.inf if minutes is None else 60 * read_number("minutes", minutes)
    if seconds <= 0:
        raise SessionError("minutes must be more than 0.")
    ledger.ready()
    plan = prepare(loaded, methods, suite, tasks, prompts, length, sampling, reference, deterministic)
    settings = {"target": loaded.facts["target"], "draft": loaded.facts["draft"], "suite": plan.mark, "max_new_tokens": length,
                "temperature": sampling.temperature, "top_k": sampling.top_k, "top_p": sampling.top_p, "seed": sampling.seed,
                "deterministic": deterministic}
    asked = Asked(tuple(plan.runners), tuple((item.number, item.task) for item in plan.items), repeats, plan.suite, tuple(tasks),
                  plan.skipped)
    sitting = Sitting(datetime.now(timezone.utc).isoformat(timespec="seconds"), settings, loaded.facts["env"], asked)
    interrupted = walk(ledger, sitting, plan, repeats, length, sampling, seconds, quiet)
    at = standing(alike(ledger.sittings, settings, loaded.facts["env"]), asked)
    left = f", about {at.hours * (at.of - at.runs) / at.runs:.1f} hours more" if at.runs else ""
    more = "" if at.runs == at.of else f" The same command goes on from here{left}."
    long = f" Prompts too long for the context, left out: {plan.too_long}." if plan.too_long else ""
    return {**vars(at), "skipped": plan.skipped, "too_long": plan.too_long, "interrupted": interrupted,
            "said": f"{ledger.path}: {at}.{long}{more}"}


def walk(ledger: Ledger, sitting: Sitting, plan: Plan, repeats: int, length: int, sampling: Sampling, seconds: float = math.inf,
         quiet: bool | None = None, clock: Callable[[], float] = time.monotonic) -> bool:
    """Measure what the ledger does not have; whether Ctrl-C ended it. seconds: no leg begins later, by the clock."""
    from tqdm import tqdm

    there = done(alike(ledger.sittings, sitting.settings, sitting.machine))
    plain, began, warm, begun = next(iter(plan.runners)), clock(), set(), False
    todo = [(item, repeat, [name for name in plan.runners if (item.number, repeat, name) not in there])
            for item, repeat in turns(plan.items, repeats)]
    bar = tqdm(total=sum(len(missing) for *_, missing in todo), disable=quiet, unit="run", desc="bench")
    try:
        for item, repeat, missing in todo:
            for names in legs(missing, plain, random.Random(f"{sampling.seed} {item.number} {repeat}")):
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
                    raise RunFailed(base)
                told = [timed(name, result, base, sampling) for name, result in found.items()]
                if not begun:
                    ledger.begin(sitting)
                    begun = True
                ledger.add(Leg(item.number, item.task, repeat, clock() - start, timed(plain, base, base, sampling), tuple(told)))
                bar.update(len(set(names) & set(missing)))
    except KeyboardInterrupt:
        return True
    finally:
        bar.close()
    return False


def turns(items: list[Item], repeats: int) -> Iterator[tuple[Item, int]]:
    """(item, repeat) breadth first: each task's first prompt, each task's second, ...; then the next repeat."""
    seen: Counter[str] = Counter()
    ranked = []
    for item in items:
        ranked.append((seen[item.task], item))
        seen[item.task] += 1
    ranked.sort(key=lambda pair: pair[0])
    yield from ((item, repeat) for repeat in range(1, repeats + 1) for _, item in ranked)


def legs(missing: list[str], plain: str, rng: random.Random) -> list[list[str]]:
    """The methods that a turn lacks, shuffled and cut into legs of one size or nearly, plain decoding in the middle of each."""
    others = [name for name in missing if name != plain]
    rng.shuffle(others)
    count = math.ceil(len(others) / LEG) or bool(missing)
    cut = [others[n::count] for n in range(count)]
    return [[*names[:len(names) // 2], plain, *names[len(names) // 2:]] for names in cut]


def timed(name: str, result: Result | str, plain: Result, sampling: Sampling) -> Run:
    """What the ledger keeps of a run."""
    if isinstance(result, str):
        return Run(name, failed=result)
    of = result.totals
    return Run(name, of.tokens, of.rounds, of.drafted, of.accepted, of.tried, of.seconds, of.prefill_seconds,
               result.forward_seconds, result.token_ids == plain.token_ids if sampling.greedy else None)


def _run(runner: Runner, item: Item, sampling: Sampling, length: int) -> Result | str:
    """The run, or why it broke: one method's mistake does not end a night."""
    try:
        return runner(item.prompt, sampling, length)
    except RunFailed as error:
        return str(error) or "It broke."
