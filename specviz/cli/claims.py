"""``specviz claims``: try the claims of papers, each method beside its own baseline, and write the page."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .errors import INTERRUPTED
from .option_lists import method_keys
from .run_output import interrupted_by_signals


def add(command: Callable[..., Any], models: Callable[[Any], None]) -> None:
    """Add the command to the parser. models(parser): adds the options of models."""
    sub = command("claims", claims, "Try what papers claim: each method beside its own baseline, in turns.")
    sub.add_argument("--only", metavar="A,B", help="keys of methods (default: all that have claims)")
    sub.add_argument(
        "--into",
        default="claims.jsonl",
        metavar="FILE",
        help="ledger of finished pairs; the same command continues it (default: claims.jsonl)",
    )
    sub.add_argument("--page", metavar="FILE", help="write the table of all claims here, as Markdown")
    sub.add_argument(
        "--cards", metavar="FILE", help="write the verdicts here, as the page's cards read them (JSON)"
    )
    sub.add_argument("--minutes", type=float, metavar="N", help="start no pair after this time")
    sub.add_argument(
        "--again",
        type=int,
        metavar="N",
        help="repeat N decided claims, drawn at random with --draw, on other prompts and seeds",
    )
    sub.add_argument(
        "--draw", type=int, default=0, metavar="SEED", help="seed of the draw of --again (default: 0)"
    )
    models(sub)


def claims(args: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    only = method_keys(args.only) if args.only else ()
    from ..evidence import claims as ledger
    from ..zoo import load
    from ..zoo.registry import register
    from .terminal import table

    end = time.monotonic() + 60 * args.minutes if args.minutes else float("inf")
    path, target = Path(args.into), args.target or register().default
    first = ledger.outcomes(path, target)
    suite = 1 if args.again is not None else 0
    names = ledger.drawn(first, target, args.again or 0, args.draw) if suite else list(ledger.listed(only))
    found = {
        name: ledger.outcome(ledger.listed()[name][1], pairs, suite)
        for name, pairs in ledger.read_ledger(path, target, suite).items()
        if name in names
    }
    stopped = False

    def open_target(name: str) -> Any:
        return load(name, args.draft if name == target else None, args.device)

    try:
        with interrupted_by_signals():
            stop = lambda: time.monotonic() > end  # noqa: E731
            for name, one in ledger.try_claims(open_target, target, path, names, stop, suite):
                if one.verdict != found.get(name, one).verdict or one.verdict != ledger.OPEN:
                    print(f"{name}: {one.verdict}", file=sys.stderr)
                found[name] = one
    except KeyboardInterrupt:  # finished pairs are in the ledger
        stopped = True
    if args.page or args.cards:
        cannot = {name: one for name, one in found.items() if one.verdict == ledger.CANNOT}
        _write(args, cannot | ledger.outcomes(path, target), target)
    if args.json:
        print(json.dumps({name: asdict(one) for name, one in found.items()}, indent=2))
    else:
        rows = [{"claim": name, **asdict(one)} for name, one in found.items()]
        print(table(rows, ["claim", "verdict", "pairs", "baseline", "ours", "low", "high", "why"]))
    if suite:
        same = [first[name].verdict == one.verdict for name, one in found.items()]
        print(f"{sum(same)} of {len(same)} verdicts are the same")
    return INTERRUPTED if stopped else 0


def _write(args: argparse.Namespace, found: dict[str, Any], target: str) -> None:
    from ..evidence import claims as ledger
    from ..trace.file_writer import write_file

    today = datetime.now(UTC).date().isoformat()
    named = f" --target {args.target}" if args.target else ""
    named += f" --page {args.page}" if args.page else ""
    named += f" --cards {args.cards}" if args.cards else ""
    if args.page:
        repeated = ledger.repeated(Path(args.into), target, found)
        command = f"specviz claims --into {args.into}{named}"
        write_file(args.page, ledger.page(found, target, today, command, repeated))
    if args.cards:
        cards = ledger.cards(found, Path(args.into), target, today)
        write_file(args.cards, json.dumps(cards, indent=1, sort_keys=True) + "\n")
