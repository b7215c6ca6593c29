"""``specviz load-test`` (also ``load``): measure methods with many concurrent users."""

from __future__ import annotations

import argparse
import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .errors import INTERRUPTED, UsageError
from .messages import TEXTS
from .option_lists import split_list
from .output_files import write_output


def add(command: Callable[..., Any], options: Callable[[Any], object]) -> None:
    """Add the command to the parser. options(parser): adds the options of models and sampling."""
    sub = command(
        "load-test",
        run_load_test,
        "Measure latency, throughput and goodput of methods with many concurrent users and the same arrivals.",
        aliases=["load"],
    )
    sub.add_argument(
        "--methods",
        default=None,
        metavar="A,B",
        help="keys of methods (autoregressive,speculative,smartspec,tetris)",
    )
    sub.add_argument(
        "--users",
        default="8",
        metavar="N,N",
        help="closed loads: numbers of users; each user sends the next request after the last answer (8)",
    )
    sub.add_argument("--rate", default=None, metavar="R,R", help="open loads instead: requests per second")
    sub.add_argument("--requests", default=16, metavar="N", help="number of requests per load (16)")
    sub.add_argument("--slots", default=16, metavar="N", help="maximum number of requests in a batch (16)")
    sub.add_argument("--suite", metavar="FILE", help="file of prompts, as for bench (this project's suite)")
    sub.add_argument("--tasks", metavar="A,B", help="only these tasks")
    sub.add_argument("--out", metavar="FILE", help="also write the result as JSON")
    sub.add_argument(
        "--table",
        metavar="FILE",
        help="measure nothing; print table and criteria of a file written by --out, in Markdown",
    )
    sub.add_argument("--write", metavar="PAGE", help="with --table: write them into this page (docs/load.md)")
    options(sub)


def run_load_test(args: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    if args.write and not args.table:
        raise UsageError("load.write")
    if args.table:
        return _table(args)
    from ..evidence.load_test import COLUMNS, METHODS, load_test
    from ..evidence.prompt_suites import read_suites, select_items
    from ..run.request import read_integer, read_sampling
    from ..run.session import find_method
    from ..zoo import load as load_models
    from .run_output import CancelOnSignal
    from .terminal import table

    lists = {
        name: split_list(getattr(args, name), f"--{name}") for name in ("methods", "users", "rate", "tasks")
    }
    # Mistakes are reported before anything is loaded.
    for key in lists["methods"]:
        find_method(key)
    select_items(read_suites([args.suite])[0], lists["tasks"])
    read_integer("max_new_tokens", args.max_new_tokens, 1)
    cancel = threading.Event()
    sampling = read_sampling(args.temperature, args.top_k, args.top_p, args.seed)
    loaded = load_models(args.target, args.draft, args.device, deterministic=args.deterministic)
    with CancelOnSignal(cancel):
        report = load_test(
            loaded,
            lists["methods"] or METHODS,
            users=lists["users"],
            rates=lists["rate"],
            tasks=lists["tasks"],
            requests=args.requests,
            suite=args.suite,
            max_new_tokens=args.max_new_tokens,
            sampling=sampling,
            slots=args.slots,
            cancel=cancel,
            deterministic=args.deterministic,
            progress=_show if sys.stderr.isatty() else None,
        )
    written = json.dumps(report, ensure_ascii=False, indent=2)
    if args.out:
        write_output(args.out, written + "\n")
    if args.json:
        print(written)
    else:
        print(json.dumps(report["environment"], ensure_ascii=False))
        print(table(report["rows"], COLUMNS))
        print(*report["said"], sep="\n")
        if any(row.get("busy") for row in report["rows"]):
            print(TEXTS["run.busy"], file=sys.stderr)
    return INTERRUPTED if report["environment"]["interrupted"] else 0


def _table(args: argparse.Namespace) -> int:
    from ..evidence.load_page import generated_text, read, with_generated_text

    table = generated_text(read(Path(args.table)))
    if args.write:
        try:
            page = Path(args.write).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(
                "file.read", path=args.write, why=getattr(error, "strerror", None) or TEXTS["file.not_text"]
            ) from None
        write_output(args.write, with_generated_text(page, table), read=args.table)
    print(json.dumps({"page": table}) if args.json else table)
    return 0


def _show(at: dict[str, Any]) -> None:
    """Show progress on one line of the terminal."""
    load = f"{at['users']:g} users" if "users" in at else f"{at['rate']:g} requests/s"
    line = f"{at['method']}, {load}: {at['done']} of {at['of']} answered, {at['tokens']} tokens"
    print(f"\r{line}\033[K", end="", file=sys.stderr, flush=True)
