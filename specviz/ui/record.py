"""Make the recordings that the page plays before anybody has run anything.

    python -m specviz.ui.record --out assets/traces/first.jsonl [--methods a,b,c] [--prompt P] [--max-new-tokens N] [--seed S]

The same engine and the same lanes as a press of Run, written as one trace file with ``mode: recorded``.
"""
from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from .engine import Engine, play
from .limits import RUN_SECONDS, Refused, read
from .offer import RECORDED, offer


def record(out: Path, engine: Engine, **asked: Any) -> int:
    """Play one run and save it; returns the number of records. Raises Refused with a sentence."""
    from ..core.trace import Trace

    ask = read(engine.cards, **asked)
    engine.load(ask.target)
    records = [r for batch in play(engine.loaded(ask.target), ask, RUN_SECONDS, mode="recorded") for r in batch]
    failed = next((r["why"] for r in records if r["type"] == "error"), None)
    if failed:
        raise Refused(failed)
    out.parent.mkdir(parents=True, exist_ok=True)
    Trace(records).save(out)
    return len(records)


def main(arguments: list[str] | None = None) -> int:
    parse = argparse.ArgumentParser(prog="python -m specviz.ui.record", description="Record a run for the page's first load.")
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
    offered = offer(engine.cards)
    methods = given.methods.split(",") if given.methods else list(offered.chosen)
    try:
        count = record(given.out, engine, prompt=given.prompt or offered.examples[0]["prompt"], methods=methods,
                       max_new_tokens=given.max_new_tokens, temperature=given.temperature, seed=given.seed)
    except Refused as why:
        print(why, file=sys.stderr)
        return 1
    print(f"{given.out}: {count} records")
    return 0


if __name__ == "__main__":
    sys.exit(main())
