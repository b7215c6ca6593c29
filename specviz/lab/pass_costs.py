"""Measure T(k), the duration of a forward pass over k tokens. Speculative decoding is faster while passes
are bound by memory bandwidth: then verifying eight tokens costs little more than generating one."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from statistics import median
from typing import TYPE_CHECKING, Any

import torch

from ..core import DraftTree
from ..run.turns import shuffled_turns

if TYPE_CHECKING:
    from ..zoo.pair import Loaded

ROWS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
PAST = 128  # cached tokens
TURNS = 9
SECONDS = 12.0  # no new turn starts after this


def cost_curve(loaded: Loaded, payload: dict[str, Any], stop: Callable[[], bool]) -> Iterator[dict[str, Any]]:
    """Measure forward passes; yield the growing report {rows, seconds (median), draft_seconds, one,
    machine, turns}. rows: numbers of tokens k; draft_seconds: a one-token pass of the draft model, null
    without one; one: a one-token pass of the target. The order of k is shuffled in each turn."""
    kit = loaded.kit()
    target = kit.target
    past = min(PAST, loaded.context // 2)
    rows = [k for k in ROWS if past + k < loaded.context]
    text = _tokens(loaded.vocab, past + max(rows))
    took: dict[Any, list[float]] = {k: [] for k in (*rows, "draft")}
    began = time.monotonic()
    with closing(kit):
        draft = kit.open("draft") if loaded.draft is not None else None
        with torch.inference_mode():
            choices: list[int | str] = [*rows, *(["draft"] if draft else [])]
            for turn, order in enumerate(shuffled_turns(choices, TURNS + 1)):
                for k in order:
                    model, count = (draft, 1) if isinstance(k, str) else (target, k)
                    seconds = time_pass(model, text[:past], text[past : past + count - 1])
                    if turn:  # the first turn warms up
                        took[k].append(seconds)
                if turn:
                    yield _report(loaded, rows, took, turn)
                if turn and (stop() or time.monotonic() - began > SECONDS):
                    return


def time_pass(model: Any, past: list[int], more: list[int]) -> float:
    """Return the seconds of one forward pass over the root and a chain. past: the cached tokens; more: the
    chain's tokens."""
    model.sync([*past[:-1], past[-1]])
    model.drop_draft_rows()
    _synchronise(model)
    began = time.perf_counter()
    model.score(DraftTree.chain(more))
    _synchronise(model)
    return time.perf_counter() - began


def _synchronise(model: Any) -> None:
    """Synchronise the GPU, if there is one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _tokens(vocab: int, count: int) -> list[int]:
    rng = random.Random(1)
    return [rng.randrange(vocab) for _ in range(count)]


def _report(loaded: Loaded, rows: list[int], took: dict[Any, list[float]], turns: int) -> dict[str, Any]:
    seconds = [median(took[k]) for k in rows]
    return {
        "rows": rows,
        "seconds": seconds,
        "one": seconds[0],
        "turns": turns,
        "draft_seconds": median(took["draft"]) if took["draft"] else None,
        "machine": machine(loaded),
    }


def machine(loaded: Loaded) -> str:
    """Return one line that describes machine and models."""
    facts = loaded.facts
    env, draft = facts["env"], facts["draft"]
    pair = facts["target"]["name"] + (f" with {draft['name']}" if draft else "")
    return f"{env['machine']}, {env['device']}, {env['dtype']}, {pair}"
