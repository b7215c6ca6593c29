"""Runs of every kind on the tests' small models, as records: what every sentence of the page must be true of."""

from __future__ import annotations

import threading
from typing import Any

from specviz.core import Sampling
from specviz.run.racing import race
from specviz.run.session import Session
from specviz.trace.files import Trace
from specviz.trace.recorder import Recorder
from specviz.ui.start_content import RECORDED

from ..run.fakes import FakeLoaded

PROMPT = "the cat"
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "greedy": ("speculative", {}),
    "sampled": ("speculative", {"temperature": 1.0}),
    "tree": ("draft_tree", {}),
    "sampled tree": ("specinfer", {"temperature": 1.0}),
    "copied": ("prompt_lookup", {"temperature": 1.0}),
    "lossy": ("lenience", {"temperature": 1.0}),
    "lossy greedy": ("typical_acceptance", {}),
    "block": ("block_verification", {"temperature": 1.0}),
    "one token": ("speculative", {"tokens": 1}),
    "cut": ("speculative", {"stop": 30}),
}


def records(method: str, *, temperature: float = 0.0, tokens: int = 40, stop: int = 0) -> list[dict]:
    """A race of a method with plain decoding; stop: events after which it is stopped."""
    loaded, cancel = FakeLoaded(), threading.Event()
    sessions = [
        Session(loaded, key, None, Sampling(temperature, seed=3)) for key in (method, "autoregressive")
    ]
    recorders = [Recorder(lane, lambda token: f" {token}".encode()) for lane in range(2)]
    out: list[dict] = []
    for count, (lane, event) in enumerate(race(sessions, PROMPT, tokens, cancel=cancel)):
        if stop and count == stop:
            cancel.set()
        if event is not None:
            out += recorders[lane].take(event)
    return out


def every_kind() -> dict[str, list[dict]]:
    """Records by kind of run."""
    runs = {kind: records(method, **more) for kind, (method, more) in KINDS.items()}
    greedy = runs["greedy"]
    failed = [r for r in greedy if not (r["lane"] == 0 and (r.get("round", 0) > 2 or r["type"] == "done"))]
    last = max(r["seq"] for r in failed if r["lane"] == 0)
    runs["failed"] = [*failed, {"type": "error", "seq": last + 1, "lane": 0, "why": "out of memory"}]
    runs["under way"] = [r for r in greedy if r["type"] != "done" and r.get("round", 0) < 4]
    runs["header only"] = [r for r in greedy if r["type"] == "header"]
    runs["no plain lane"] = [r for r in greedy if r["lane"] == 0]
    runs["repeated"] = _with_repeats(greedy)
    runs["empty"] = []
    runs["shipped"] = Trace.load(RECORDED).records
    runs["shipped sampled"] = Trace.load(RECORDED.parent / "sampled.jsonl.gz").records
    return runs


def _with_repeats(records: list[dict]) -> list[dict]:
    return [
        r
        | {
            "totals": r["totals"]
            | {"repeats": [{"tokens": r["totals"]["tokens"], "seconds": 1.0 + r["lane"]}] * 2}
        }
        if r["type"] == "done"
        else r
        for r in records
    ]
