"""Make the recordings that the page plays before anybody has started a run.

    python -m tools.make_recordings all          every recording that assets/traces/index.yaml describes
    python -m tools.make_recordings first edit   some of them
    python -m tools.make_recordings claims       the pair with the largest effect of each claim that is shown
    python -m tools.make_recordings --out run.jsonl [--methods a,b,c] [--prompt P] [--max-new-tokens N]
                                    [--seed S]

The same engine and the same lanes as a press of Run, written as one trace file with ``mode: recorded``.
Make them on a quiet machine: their times are shown to everybody.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from specviz.engine.engine import Engine, run_lanes
from specviz.engine.limits import RUN_SECONDS, read_request
from specviz.engine.messages import Refused
from specviz.lab.recordings import CLAIMS
from specviz.trace.speed import STEADY, is_busy, lane_times, steady, step
from specviz.ui.claim_rows import SHOWN as SHOWN_CLAIM
from specviz.ui.claim_rows import choice_of, verdicts
from specviz.ui.start_content import RECORDED, start_content
from specviz.zoo.codec import SAMPLE, sample_picture
from specviz.zoo.registry import register

SHOWN = ("title", "about", "layout", "panel")  # how the page shows a recording, not what is run


def record(out: Path, engine: Engine, **asked: Any) -> int:
    """Run a request and save its trace; return the number of records. Raises Refused, also where the passes of
    a lane became slower or faster on the way."""
    from specviz.trace.file_writer import write_file
    from specviz.trace.files import Trace

    image = (asked.get("generation") or {}).get("image", "")
    if image.startswith(SAMPLE):
        asked["generation"] |= {"image": sample_picture(register().find(asked.get("target")).path, image)}
    request = read_request(engine.cards, **asked)
    engine.load(request.target)
    records: list[dict] = []
    for _ in range(2):  # the first run of a process also pays for what is done once: tables, kernels
        records = [
            r
            for batch in run_lanes(engine.loaded(request.target), request, RUN_SECONDS, mode="recorded")
            if isinstance(batch, list)
            for r in batch
        ]
    failed = next((r["why"] for r in records if r["type"] == "error"), None)
    if failed:
        raise Refused("run.engine", why=failed)
    unsteady = unsteady_lanes(records)
    if unsteady:
        raise Refused("recording.unsteady", lanes=", ".join(unsteady))
    out.parent.mkdir(parents=True, exist_ok=True)
    if out.suffix == ".gz":
        text = "".join(
            json.dumps(r, ensure_ascii=False, separators=(",", ":"), allow_nan=False) + "\n" for r in records
        )
        write_file(out, gzip.compress(text.encode(), mtime=0))
    else:
        Trace(records).save(out)
    return len(records)


def unsteady_lanes(records: list[dict[str, Any]]) -> list[str]:
    """Return the methods of a trace whose passes became slower or faster on the way, or of which many were
    interrupted: their times are not fit to be shown."""
    heads = {r["lane"]: r["method"]["key"] for r in records if r["type"] == "header"}
    found = []
    for lane, key in heads.items():
        rounds = lane_times(records, lane).rounds
        own = steady(rounds)
        if step(rounds) > STEADY or is_busy(own.replaced, own.of):
            found.append(key)
    return found


def main(arguments: list[str] | None = None) -> int:
    """Make recordings as the command line asks; return the exit status."""
    parse = argparse.ArgumentParser(
        prog="python -m tools.make_recordings", description="Record a run for the page's first load."
    )
    parse.add_argument("names", nargs="*", help="recordings of assets/traces/index.yaml, or all; or claims")
    parse.add_argument("--out", type=Path, default=RECORDED)
    parse.add_argument("--methods", help="comma-separated; plain decoding is always the last lane")
    parse.add_argument("--prompt", help="the first example of the page where left out")
    parse.add_argument("--max-new-tokens", type=int, default=96)
    parse.add_argument("--temperature", type=float, default=0.0)
    parse.add_argument("--seed", type=int, default=0)
    parse.add_argument("--target")
    parse.add_argument("--draft")
    given = parse.parse_args(arguments)
    engine = Engine(given.target, given.draft)
    try:
        if given.names == ["claims"]:
            return _record_claims(engine)
        for out, asked in _jobs(given, engine):
            print(f"{out}: {record(out, engine, **asked)} records")
    except Refused as why:
        print(why, file=sys.stderr)
        return 1
    return 0


def _record_claims(engine: Engine) -> int:
    """Record the claims that are shown, those that have a recording left out; return the exit status."""
    status = 0
    for key, card in engine.cards.items():
        for number, claim in enumerate(card.claims, 1):
            found = verdicts().get(f"{key}/{number}", {})
            out = RECORDED.parent / CLAIMS / f"{key}-{number}.jsonl.gz"
            if found.get("verdict") != SHOWN_CLAIM or "show" not in found or out.exists():
                continue
            choice = choice_of(card, claim, found)
            choice["max_new_tokens"] = choice.pop("length")
            choice["target"] = choice["target"] or claim.target
            try:
                print(f"{out}: {record(out, engine, **choice)} records")
            except Refused as why:
                print(f"{key}/{number}: {why}", file=sys.stderr)
                status = 1
    return status


def _jobs(given: argparse.Namespace, engine: Engine) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield the file and the request of each recording."""
    if not given.names:
        start = start_content(engine.cards)
        methods = given.methods.split(",") if given.methods else list(start.chosen)
        yield (
            given.out,
            {
                "prompt": given.prompt or start.examples[0]["prompt"],
                "methods": methods,
                "seed": given.seed,
                "max_new_tokens": given.max_new_tokens,
                "temperature": given.temperature,
            },
        )
        return
    recipes = yaml.safe_load((RECORDED.parent / "index.yaml").read_text(encoding="utf-8"))
    for name in recipes if given.names == ["all"] else given.names:
        if name not in recipes:
            raise Refused("recording.name", name=name, names=", ".join(recipes))
        plain = name == RECORDED.stem  # the recording that is part of the page is read uncompressed
        yield (
            RECORDED.parent / (f"{name}.jsonl" if plain else f"{name}.jsonl.gz"),
            {key: value for key, value in recipes[name].items() if key not in SHOWN},
        )


if __name__ == "__main__":
    sys.exit(main())
