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
    sub.add_argument("--minutes", type=float, metavar="N", help="start no pair after this time")
    models(sub)


def claims(args: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    only = method_keys(args.only) if args.only else ()
    from ..evidence import claims as ledger
    from ..zoo import load
    from .terminal import table

    end = time.monotonic() + 60 * args.minutes if args.minutes else float("inf")
    path, loaded = Path(args.into), load(args.target, args.draft, args.device)
    found: dict[str, Any] = {
        name: ledger.outcome(ledger.listed()[name][1], pairs)
        for name, pairs in ledger.read_ledger(path, loaded.name).items()
        if name in ledger.listed()
    }
    stopped = False
    try:
        with interrupted_by_signals():
            for name, one in ledger.try_claims(loaded, path, only, lambda: time.monotonic() > end):
                if one.verdict != found.get(name, one).verdict or one.verdict != ledger.OPEN:
                    print(f"{name}: {one.verdict}", file=sys.stderr)
                found[name] = one
    except KeyboardInterrupt:  # finished pairs are in the ledger
        stopped = True
    if args.page:
        today = datetime.now(UTC).date().isoformat()
        named = f" --target {args.target}" if args.target else ""
        command = f"specviz claims{named} --into {args.into} --page {args.page}"
        from ..trace.file_writer import write_file

        write_file(args.page, ledger.page(found, loaded.name, today, command))
    if args.json:
        print(json.dumps({name: asdict(one) for name, one in found.items()}, indent=2))
    else:
        rows = [{"claim": name, **asdict(one)} for name, one in found.items()]
        print(table(rows, ["claim", "verdict", "pairs", "baseline", "ours", "low", "high", "why"]))
    return INTERRUPTED if stopped else 0
