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
from ..viewer import sample
from ..viewer.test_served import served

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


def rarer_kinds() -> dict[str, list[dict]]:
    """Records of what is rarer: other work on the machine, servers, several prompts or answers, structured
    output, texts that differ, runs that were stopped at other places."""
    greedy, lossy, sampled = (
        steady(records(method, temperature=temperature))
        for method, temperature in (("speculative", 0.0), ("typical_acceptance", 0.0), ("speculative", 1.0))
    )
    runs = {f"stopped at {stop}": steady(records("speculative", stop=stop)) for stop in (8, 60)}
    runs["stopped, sampled"] = steady(records("speculative", temperature=1.0, stop=40))
    runs["busy, seen by the engine"] = [*greedy, {"type": "check", "seq": 10**6, "lane": 0, "kind": "busy"}]
    runs["busy"] = [_timed(r, 9 if r.get("round", 0) % 4 == 1 else 1) for r in greedy]
    runs["times say little"] = [_timed(r, 1, 10**8 * (r.get("round", 0) % 2 == 0)) for r in greedy]
    runs["times say little, sampled"] = [_timed(r, 1, 10**8 * (r.get("round", 0) % 2 == 0)) for r in sampled]
    runs["server"] = [*sample.race(("plain",)), *served(1, why="")]
    runs["differs"], runs["lossy differs"] = _differing(greedy), _differing(lossy)
    runs["remembered"] = [
        r | {"totals": r["totals"] | {"remembered": 9, "reused": 4}} if r["type"] == "done" else r
        for r in greedy
    ]
    notes = {"prompts": ["a", "b"], "written": [30, 40], "seconds": 0.5}
    faster, slower = notes | {"seconds": 0.1}, notes | {"seconds": 2.0}
    for name, mine in (("several prompts", notes), ("several prompts, faster", faster)):
        runs[name] = _noted(
            _noted(greedy, "class", mine, 0), "class", notes if mine is not notes else faster, 1
        )
    runs["several prompts, slower"] = _noted(_noted(greedy, "class", slower, 0), "class", notes, 1)
    runs["several prompts, level"] = _noted(_noted(greedy, "class", notes, 0), "class", notes, 1)
    runs["several prompts, alone"] = _noted(runs["several prompts"], "class", notes, 0)
    runs["several prompts, under way"] = [r for r in runs["several prompts"] if r["type"] != "done"]
    grammar = {"tokens": [], "allowed": [], "removed": [], "top": []}
    for tok in sorted({p["tok"] for r in greedy if r["type"] == "text" for p in r["pieces"]}):
        grammar["tokens"].append(tok)
        grammar["allowed"].append(1 + tok % 3)
        grammar["removed"].append(0.25 * (tok % 2))
        grammar["top"].append([tok + tok % 2, 0.5])
    runs["grammar"] = _noted(greedy, "grammar", grammar, 0, every=True)
    second = [r | {"lane": 2} for r in greedy if r["lane"] == 0]
    runs["answers"] = [
        r | {"answer": {"index": 1 if r["lane"] == 2 else 0, "of": 2, "seed": r["lane"]}}
        if r["type"] == "header" and r["lane"] != 1
        else r
        for r in [*greedy, *second]
    ]
    runs["written on"] = [r | {"mode": "live"} if r["type"] == "header" else r for r in greedy]
    return runs


def steady(records: list[dict]) -> list[dict]:
    """The records with the same times of every round, whatever the machine did."""
    times = {
        "draft_ns": 10**6,
        "verify_ns": 5 * 10**6,
        "judge_ns": 10**5,
        "cache_ns": 10**4,
        "other_ns": 10**4,
    }
    return [
        r | times | ({"draft_ns": 0} if r["lane"] else {}) if r["type"] == "timing" else r for r in records
    ]


def _timed(record: dict, verify: int, other: int = 0) -> dict:
    """The record with its pass that many times as long, and so many nanoseconds of anything else."""
    if record["type"] != "timing":
        return record
    return record | {"verify_ns": record["verify_ns"] * verify, "other_ns": record["other_ns"] + other}


def _differing(records: list[dict]) -> list[dict]:
    """The records with another last token of lane 0."""
    last = max(r["round"] for r in records if r["type"] == "commit" and r["lane"] == 0)

    def other(record: dict) -> dict:
        if record["lane"] or record.get("round") != last:
            return record
        if record["type"] == "commit":
            return record | {"tail": record["tail"] | {"tok": 5}}
        if record["type"] == "text":
            return record | {"pieces": [*record["pieces"][:-1], record["pieces"][-1] | {"tok": 5}]}
        return record

    return [other(r) for r in records]


def _noted(records: list[dict], kind: str, data: dict, lane: int, every: bool = False) -> list[dict]:
    """The records with a note at the last round of a lane, or at every one."""
    out, seq = [], {}
    last = max(r["round"] for r in records if r["type"] == "commit" and r["lane"] == lane)
    for r in records:
        seq[r["lane"]] = seq.get(r["lane"], -1) + 1
        out.append(r | {"seq": seq[r["lane"]]})
        if r["type"] == "timing" and r["lane"] == lane and (every or r["round"] == last):
            seq[lane] += 1
            out.append(
                {
                    "type": "lens",
                    "seq": seq[lane],
                    "lane": lane,
                    "round": r["round"],
                    "kind": kind,
                    "data": data,
                }
            )
    return out


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
