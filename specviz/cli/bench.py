"""``specviz bench``: measure methods against plain decoding, in one run or over several sessions, and print
the table."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .errors import INTERRUPTED, UsageError
from .option_lists import method_keys, split_list
from .run_output import interrupted_by_signals

if TYPE_CHECKING:
    from ..zoo.pair import Loaded


def add(command: Callable[..., Any], options: Callable[[Any], object]) -> None:
    """Add the command to the parser. options(parser): adds the options of models and sampling."""
    sub = command(
        "bench", bench, "Measure the speed of methods relative to plain decoding, interleaved in one run."
    )
    sub.add_argument("--methods", default="all", metavar="A,B", help="keys of methods, or all")
    sub.add_argument(
        "--suite",
        action="append",
        metavar="FILE",
        help="file of prompts (.jsonl, .jsonl.gz, .yaml): rows "
        "of {task, prompt}, or of {category, turns}, of which the last turn is measured; may be repeated; `ours`, the "
        "default: the suite of this project",
    )
    sub.add_argument("--tasks", metavar="A,B", help="only these tasks")
    sub.add_argument("--prompts", default=None, metavar="N", help="at most N prompts per task")
    sub.add_argument(
        "--knob",
        action="append",
        default=[],
        metavar="METHOD.NAME=VALUE",
        help="a knob of a method (not with --into); may be repeated",
    )
    sub.add_argument(
        "--traces",
        metavar="DIR",
        help="also write the trace of each run to this folder, as NUMBER-METHOD.jsonl.gz (not with --into)",
    )
    sub.add_argument("--repeats", default=3, metavar="R", help="number of runs of each prompt (3)")
    sub.add_argument(
        "--reference",
        action="store_true",
        help="also measure transformers' generate, assisted generation and prompt lookup, llama.cpp in 16 and 8 "
        "bits and on the target's own GGUF file, and, without --into, passes over 1 to 33 tokens in each engine",
    )
    sub.add_argument(
        "--into",
        metavar="FILE",
        help="measure in several sessions: append the runs to this file, and continue "
        "where it ends; use a new file if weights have changed under the same name",
    )
    sub.add_argument("--minutes", metavar="N", help="with --into: end the session after N minutes")
    sub.add_argument(
        "--table",
        metavar="FILE",
        help="measure nothing; print the table of a file written by --into, in Markdown "
        "(docs/bench.md); --target and --draft select models if it has several",
    )
    sub.add_argument(
        "--csv",
        metavar="FILE",
        help="also write the rows to this file; with --table or --into one row for each run",
    )
    sub.add_argument("--parquet", metavar="FILE", help="as --csv, in Parquet format")
    sub.add_argument(
        "--write",
        action="store_true",
        help="with --table: write docs/bench.md, and assets/bench.json, whose speeds the "
        "page shows; with --response-format: the table of docs/requests.md",
    )
    sub.add_argument(
        "--response-format",
        metavar="JSON",
        help="test structured output instead: how many answers are valid and equal to "
        "plain constrained decoding, and the speed compared with unconstrained decoding (docs/requests.md); `default`: a "
        "built-in schema",
    )
    options(sub)


def bench(args: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    if args.table and args.into:
        raise UsageError("bench.table_and_into")
    if args.into and (args.knob or args.traces):
        raise UsageError("bench.into_knobs")
    if args.minutes is not None and not args.into:
        raise UsageError("bench.minutes")
    if args.write and not (args.table or args.response_format):
        raise UsageError("bench.write")
    if args.table:
        return _table(args)
    if args.response_format:
        return _structured(args)
    from ..evidence.prompt_suites import read_suites, select_items
    from ..run.request import read_integer, read_number, read_sampling

    # Mistakes are reported before anything is loaded.
    args.methods = method_keys(args.methods)
    tasks = split_list(args.tasks, "--tasks")
    prompts = None if args.prompts is None else read_integer("prompts", args.prompts, 1)
    select_items(read_suites(args.suite or [None])[0], tasks, prompts)
    if args.minutes is not None:
        read_number("minutes", args.minutes)
    asked: dict[str, Any] = {
        "tasks": tasks,
        "prompts": prompts,
        "repeats": read_integer("repeats", args.repeats, 1, 1000),
        "max_new_tokens": read_integer("max_new_tokens", args.max_new_tokens, 1),
        "sampling": read_sampling(args.temperature, args.top_k, args.top_p, args.seed),
        "reference": args.reference,
        "deterministic": args.deterministic,
    }
    if args.into:
        return _sitting(args, asked)
    return _at_once(args, asked | {"knobs": _knobs(args.knob), "traces": args.traces})


def _knobs(given: list[str]) -> dict[str, dict[str, Any]]:
    """Return {method: {knob: value}} of METHOD.NAME=VALUE. Raises UsageError, SessionError, ValueError."""
    from ..run.session import find_method

    found: dict[str, dict[str, Any]] = {}
    for one in given:
        name, equals, value = one.partition("=")
        key, dot, knob = name.partition(".")
        if not (equals and dot and knob):
            raise UsageError("bench.knob")
        found.setdefault(find_method(key).key, {})[knob] = value
    for key, knobs in found.items():
        find_method(key).read_knobs(knobs)  # a mistake is reported before anything is loaded
    return found


def _at_once(args: argparse.Namespace, asked: dict[str, Any]) -> int:
    from ..evidence.bench_files import write_rows
    from ..evidence.benchmark import COLUMNS, bench
    from ..evidence.pass_times import COLUMNS as PASS_COLUMNS
    from .terminal import table

    loaded = _loaded(args)
    with interrupted_by_signals():
        report = bench(loaded, args.methods, args.suite, **asked)
    write_rows(report["rows"], args.csv, args.parquet)
    if args.json:
        _print(report)
    else:
        print(json.dumps(report["environment"], ensure_ascii=False))
        print(table(report["rows"], COLUMNS))
        _print_places(report["rows"])
        if "passes" in report:
            print(
                "",
                "Passes, ms, and the bound that memory bandwidth sets:",
                table(report["passes"], PASS_COLUMNS),
                sep="\n",
            )
    return INTERRUPTED if report["environment"]["interrupted"] else 0


def _print_places(rows: list[dict[str, Any]]) -> None:
    """Print the tokens per pass along the answers, where they have more than one stretch."""
    from .terminal import table

    places = [row.get("along_the_answer") or {} for row in rows]
    names = max(places, key=len, default={})
    if len(names) > 1:
        found = [{"method": row["method"], "task": row["task"], **place} for row, place in zip(rows, places)]
        print("", "Tokens per pass from this token of the answer on:", sep="\n")
        print(table(found, ["method", "task", *names]))


def _structured(args: argparse.Namespace) -> int:
    from .. import ROOT
    from ..evidence.structured_bench import COLUMNS, PROMPTS, structured_bench, with_table
    from ..run.request import read_integer
    from .output_files import write_output
    from .terminal import table

    try:
        given = None if args.response_format == "default" else json.loads(args.response_format)
    except ValueError:
        raise UsageError("bench.response_format") from None
    rows = []
    chosen = None if args.methods == "all" else method_keys(args.methods)
    prompts = PROMPTS[
        : read_integer("prompts", len(PROMPTS) if args.prompts is None else args.prompts, 1, len(PROMPTS))
    ]
    loaded = _loaded(args)
    for row in structured_bench(
        loaded, chosen, given, prompts, report=lambda words: print(words, file=sys.stderr)
    ):
        rows.append(row.record())
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    _print(rows) if args.json else print(table(rows, COLUMNS))
    if args.write and rows:
        page = ROOT / "docs" / "requests.md"
        write_output(page, with_table(page.read_text(encoding="utf-8"), rows, loaded.facts))
    return 0


def _sitting(args: argparse.Namespace, asked: dict[str, Any]) -> int:
    from ..evidence.bench_ledger import Ledger
    from ..evidence.resumable_bench import run_session

    ledger = Ledger(args.into)  # a malformed file is reported before anything is loaded
    loaded = _loaded(args)
    with interrupted_by_signals():
        report = run_session(loaded, args.methods, ledger, args.suite, minutes=args.minutes, **asked)
    _write_runs(args.into, args)
    if args.json:
        _print(report)
    else:
        print(*(f"Left out: {why}" for why in report["skipped"].values()), report["said"], sep="\n")
    return INTERRUPTED if report["interrupted"] else 0


def _table(args: argparse.Namespace) -> int:
    from ..evidence.bench_ledger import Ledger
    from ..evidence.bench_page import page

    ledger = Ledger(args.table, there=True)
    shown = page(ledger, args.target, args.draft)
    _write_runs(args.table, args)
    if args.write:
        _write(ledger, shown, args)
    if args.json:
        _print({"page": shown})
    elif not args.write:
        print(shown, end="")
    return 0


def _write_runs(ledger: str, args: argparse.Namespace) -> None:
    from ..evidence.bench_files import ledger_rows, write_rows

    if args.csv or args.parquet:
        write_rows(ledger_rows(ledger), args.csv, args.parquet)


def _write(ledger: Any, shown: str, args: argparse.Namespace) -> None:
    from .. import ROOT
    from ..evidence.bench_figures import FIGURES, figures_json, speedup_figures
    from ..trace.file_writer import write_file

    for place, data in (
        (ROOT / "docs" / "bench.md", shown),
        (FIGURES, figures_json(speedup_figures(ledger, args.target, args.draft))),
    ):
        write_file(place, data, read=args.table)
        print(place)


def _loaded(args: argparse.Namespace) -> Loaded:
    from ..zoo import load

    return load(args.target, args.draft, args.device, deterministic=args.deterministic)


def _print(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False, indent=2))
