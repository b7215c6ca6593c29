"""The commands list, run, verify and replay; the others are in files of their own. A failing command prints
one line on stderr and has a non-zero exit status.

Large packages are imported only when a command needs them, so that help and usage errors are fast."""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import (
    bench,
    chat,
    claims,
    completion,
    context_costs,
    doctor,
    export,
    labs,
    load_test,
    models,
    recommend,
    request_options,
    run_server,
    serve,
    serve_vllm,
    site,
)
from .errors import INTERRUPTED, WRONG_USAGE, status_of
from .messages import LONGEST, TEXTS, UsageError, busy_line
from .open_page import open_page
from .option_lists import method_keys
from .output_files import check_files, write_output
from .run_output import escape_unprintable, interrupted_by_signals, read_stdin, read_text_argument

if TYPE_CHECKING:
    from ..zoo.pair import Loaded


MAY_BE_EMPTY = (
    "prompt",
    "system",
    "knob",
    "method",
    "methods",
    "tasks",
    "users",
    "rate",
    "stop",
)  # or have errors of their own
CERTIFICATES = ("greedy", "distribution", "answers")  # tests of verify


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are raised as UsageError, with the nearest known word."""

    def error(self, message: str):
        """Raise UsageError with this message."""
        raise UsageError("usage", why=message, program=self.prog)

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[override]
        """Parse the arguments; an unknown one is an error here, where the command's options are known."""
        found, extra = super().parse_known_args(args, namespace)
        if extra:
            near = get_close_matches(extra[0].partition("=")[0], self._option_string_actions, 1)
            hint = f"; did you mean {near[0]}" if near else ""
            self.error(f"unrecognized arguments: {' '.join(extra)}{hint}")
        return found, extra

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        choices = [str(choice) for choice in action.choices or ()]
        if choices and value not in choices and (near := get_close_matches(str(value), choices, 1)):
            raise argparse.ArgumentError(action, f"invalid choice: {value!r}; did you mean {near[0]}")
        super()._check_value(action, value)


def main(argv: list[str] | None = None) -> int:
    """Run one command with these arguments (None: those of the process); return the exit status."""
    escape_unprintable()
    try:
        try:
            if not (sys.argv[1:] if argv is None else argv):
                return open_page()
            args = parser().parse_args(argv)
            refuse_empty_options(args)
            check_files(args)
            return args.command(args)
        finally:
            sys.stdout.flush()  # so that a closed pipe is noticed here
    except KeyboardInterrupt:
        return _print_error(TEXTS["stopped"], INTERRUPTED)
    except BrokenPipeError:  # the reader went away, as head does
        _discard_stdout()
        return 1
    except UsageError as error:
        return _print_error(str(error), WRONG_USAGE)
    except Exception as error:  # any error is one line
        if os.environ.get("SPECVIZ_DEBUG"):
            raise
        if isinstance(
            error, OSError
        ):  # maybe nothing more can be written, and Python would report it again at exit
            _discard_stdout()
        return _print_error((str(error).strip().splitlines() or [type(error).__name__])[0], status_of(error))


def refuse_empty_options(args: argparse.Namespace) -> None:
    """Refuse options that were given without a value: `--key "$KEY"` of an unset variable must not serve
    without a key. Raises UsageError."""
    for name, value in vars(args).items():
        if name not in MAY_BE_EMPTY and (
            value == "" and type(value) is str or isinstance(value, list) and "" in value
        ):
            raise UsageError("option.empty", option="--" + name.replace("_", "-"))


def _discard_stdout() -> None:
    with suppress(OSError, ValueError, AttributeError):  # it is closed, or no file at all
        os.dup2(
            os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno()
        )  # output that is still buffered goes nowhere


def _print_error(sentence: str, status: int) -> int:
    """Print an error on stderr; typed words in it are escaped: no control characters, no lone surrogates."""
    sentence = "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in sentence[:LONGEST]
    )
    print(f"specviz: {sentence}", file=sys.stderr)
    return status


def parser() -> Parser:
    """Return the parser of all commands."""
    top = Parser(prog="specviz", description="Watch speculative decoding accept and reject tokens.")
    commands = top.add_subparsers(required=True, metavar="command", parser_class=Parser)

    def command(name: str, run: Callable[[argparse.Namespace], int], about: str, **options: Any) -> Parser:
        sub = commands.add_parser(name, help=about, description=about, **options)
        sub.set_defaults(command=run)
        sub.add_argument("--json", action="store_true", help="machine-readable output")
        return sub

    sub = command("list", list_methods, "List all methods, and whether each can run on the target.")
    sub.add_argument(
        "--write",
        action="store_true",
        help="write the table of notes (annotations of a trace) into docs/TRACE.md",
    )
    sub.add_argument(
        "--fidelity",
        action="store_true",
        help="print how each method differs from its paper, in Markdown (docs/fidelity.md)",
    )
    _models(sub)

    sub = command(
        "run", run_method, "Run one method on one prompt, or stream the answer of an inference server."
    )
    _run_options(sub)

    bench.add(command, lambda sub: (_sampling(sub), _models(sub)))

    sub = command(
        "verify",
        verify_methods,
        "Test whether methods are exact: greedy answers, distribution of the first tokens, distribution of sampled answers.",
    )
    sub.add_argument("--method", default="all", metavar="KEY", help="key of a method, or all")
    sub.add_argument(
        "--knob",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="setting of the method, if there is one; may be repeated",
    )
    sub.add_argument(
        "--tests",
        nargs="+",
        default=list(CERTIFICATES),
        choices=CERTIFICATES,
        metavar="TEST",
        help="tests to run, of " + ", ".join(CERTIFICATES) + ": greedy is the quickest by far (default: all)",
    )
    request_options.add_image(sub)
    _models(sub)

    load_test.add(command, lambda sub: (_sampling(sub), _models(sub)))
    context_costs.add(command, _models)
    claims.add(command, _models)
    for module in (models, export, labs, recommend, serve, serve_vllm, site):
        module.add(command)
    chat.add(command, lambda sub: (_sampling(sub), _models(sub)))
    doctor.add(command, _models)
    completion.add(command, parser)

    sub = command(
        "replay",
        replay,
        "Write a recorded trace as one stand-alone HTML page, which replays the run, or for Perfetto.",
    )
    sub.add_argument("trace", metavar="TRACE", help="a trace as .jsonl or .jsonl.gz")
    form = sub.add_mutually_exclusive_group(required=True)
    form.add_argument("--html", metavar="FILE", help="path of the page")
    form.add_argument(
        "--chrome",
        metavar="FILE",
        help="path of a .json file of Chrome trace events, for Perfetto (ui.perfetto.dev) or chrome://tracing",
    )
    return top


def _run_options(sub: Parser) -> None:
    sub.add_argument("--method", metavar="KEY", help="key of a method (`specviz list`)")
    sub.add_argument(
        "--server",
        metavar="S",
        help="instead of a method: an inference server, by its name in models.yaml or as ENGINE=URL#MODEL",
    )
    sub.add_argument("--prompt", required=True, metavar="P", help="the prompt; - reads it from stdin")
    sub.add_argument("--raw", action="store_true", help="do not apply the chat template")
    sub.add_argument("--system", metavar="TEXT", help="system message before the prompt")
    sub.add_argument(
        "--knob",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="setting of the method; may be repeated",
    )
    sub.add_argument(
        "--predicted",
        type=read_text_argument,
        metavar="FILE",
        help="file with a text that the answer is expected to resemble (predicted output)",
    )
    request_options.add(sub)
    sub.add_argument("--deadline", metavar="SECONDS", help="end the run after this wall-clock time")
    sub.add_argument("--trace", metavar="FILE", help="record the run as .jsonl (or .jsonl.gz)")
    sub.add_argument(
        "--save",
        metavar="FILE",
        help="write the answer to a file: text, or a picture as PNG; of several answers the last one",
    )
    sub.add_argument(
        "--top-k-saved",
        default=8,
        metavar="K",
        help="number of most probable tokens of each distribution in the trace (8)",
    )
    _sampling(sub)
    _models(sub)


def _models(sub: Parser) -> None:
    sub.add_argument(
        "--target",
        metavar="MODEL",
        help="a name of models.yaml, a folder in Hugging Face format, a GGUF file, or org/name@commit",
    )
    sub.add_argument(
        "--draft", metavar="MODEL", help="the draft model, in the same forms; `none`: no draft model"
    )
    sub.add_argument("--device", default="auto", help="auto, cpu or cuda")


def _sampling(sub: Parser) -> None:
    sub.add_argument("--max-new-tokens", default=128, metavar="N", help="maximum number of new tokens (128)")
    sub.add_argument("--temperature", default=0.0, metavar="T", help="0 is greedy (the default)")
    sub.add_argument(
        "--top-k",
        default=0,
        metavar="K",
        help="sample among the K most probable tokens; 0: among all (the default)",
    )
    sub.add_argument(
        "--top-p",
        default=1.0,
        metavar="P",
        help="sample among the most probable tokens whose probabilities sum to P (1: all)",
    )
    sub.add_argument(
        "--seed",
        default=0,
        metavar="S",
        help="seed of all random draws (0); the i-th of several prompts uses S + i. "
        "Without --deterministic, methods whose decisions depend on measured times (by_time in `list --json`) may "
        "sample other "
        "tokens in each run",
    )
    sub.add_argument(
        "--deterministic",
        action="store_true",
        help="the same seed gives the same run; timing measurements are ignored",
    )


def _loaded(args: argparse.Namespace):
    from ..zoo import load

    return load(args.target, args.draft, args.device, deterministic=getattr(args, "deterministic", False))


def _print(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False, indent=2))


def list_methods(args: argparse.Namespace) -> int:
    """Print the methods, or write the pages that are generated from their cards; return the exit status."""
    if args.write:
        from .. import ROOT
        from ..core import note_kinds
        from ..methods import catalogue

        catalogue()  # methods declare kinds of notes, too
        path = ROOT / "docs" / "TRACE.md"
        write_output(path, note_kinds.with_table(path.read_text(encoding="utf-8")))
        print(path)
        return 0
    from ..core.needs import input_kind, output_kind
    from ..methods import catalogue
    from ..zoo import survey
    from .terminal import table

    if args.fidelity:
        from ..evidence.fidelity import page

        print(page(catalogue().values()), end="")
        return 0
    unsupported_reason, rows = survey(args.target, args.draft), []
    for method in catalogue().values():
        reason = unsupported_reason(method)
        rows.append(
            {
                "key": method.key,
                "title": method.title,
                "family": method.family,
                "paper": method.paper,
                "exactness": method.exactness,
                "writes": output_kind(method.needs),
                "reads": input_kind(method.needs),
                "differs": method.differs,
                "compared": method.compared,
                "published": method.published,
                "aliases": list(method.aliases),
                "available": reason is None,
                "reason": reason,
                "knob_limits": unsupported_reason.knob_limits(method),
                "by_time": method.decides_by_time,
            }
        )
    if args.json:
        _print(rows)
    else:
        print(table(rows, ["key", "title", "family", "exactness", "writes", "reads", "available", "reason"]))
        for row in rows:
            for name, most in row["knob_limits"].items():
                knob = next(knob for knob in catalogue()[row["key"]].knobs if knob.name == name)
                print(
                    f"{row['key']}: {name} up to {knob.value_at(most)} here, since {unsupported_reason.name} has no further draft "
                    "models."
                )
        for note in unsupported_reason.notes:
            print(f"{unsupported_reason.name}: {note}.")
    return 0


def run_method(args: argparse.Namespace) -> int:
    """Run a method, or a server, on one prompt and print the answer; return the exit status."""
    if bool(args.method) == bool(args.server):
        raise UsageError("run.method_or_server")
    if args.server:
        return run_server.run_server(args)
    fields = request_options.given_fields(args)
    from ..run.machine import Machine
    from ..run.request import read_integer, read_seconds
    from ..run.session import Session, find_method
    from ..trace.files import writable_path
    from .run_output import CancelOnSignal, stream_run

    method, knobs = find_method(args.method), dict(_pairs(args.knob))
    method.read_knobs(knobs)  # a mistake is reported before anything is loaded
    read_seconds(args.deadline)
    read_integer("top_k_saved", args.top_k_saved, 0)
    if args.trace:
        writable_path(args.trace)  # before the run, not after it
    loaded = _loaded(args)
    prompt = read_stdin() if args.prompt == "-" else args.prompt
    messages = [{"role": "system", "content": args.system}] * bool(args.system) + [
        {"role": "user", "content": prompt}
    ]
    cancel = threading.Event()
    results = []
    records = []
    machine = Machine(loaded)
    sessions = Session(
        loaded,
        method,
        knobs,
        deterministic=args.deterministic,
        predicted=args.predicted or "",
        request=request_options.request_for(fields, loaded),
    ).each()
    with CancelOnSignal(cancel) as stop:
        for answer, session in enumerate(sessions):
            if cancel.is_set():
                break
            events = session.run(
                messages,
                raw=args.raw,
                deadline=args.deadline,
                cancel=cancel,
                top_k_saved=args.top_k_saved if args.trace else 0,
            )
            results.append(
                _run_answer(
                    stream_run(machine.watch(events), args, loaded, session.request, answer, records),
                    args,
                    loaded,
                )
            )
    if args.json:
        found = [result.record() for result in results]
        _print(found[0] if len(sessions) == 1 else {"answers": found})
    return stop.status


def _run_answer(events: Iterator[Any], args: argparse.Namespace, loaded: Loaded) -> Any:
    """Return the Result of an answer, whose figures are printed. Raises RunFailed."""
    from ..run.result import Result, RunFailed
    from .run_output import summary

    result = Result()
    for event in events:
        result.take(event)
    if result.why:
        raise RunFailed(result.why)
    if args.save:
        write_output(args.save, loaded.codec.file(result.data))
    if not args.json:
        print(summary(result), file=sys.stderr)
        if result.busy:
            print(busy_line(result), file=sys.stderr)
        if result.head_unused:
            print(TEXTS["run.head_unused"].format(target=loaded.name, **result.head_unused), file=sys.stderr)
    return result


def _pairs(knobs: list[str]) -> Iterator[tuple[str, str]]:
    for knob in knobs:
        name, equals, value = knob.partition("=")
        if not equals:
            raise UsageError("knob.form", given=knob[:80])
        yield name.strip(), value.strip()


def verify_methods(args: argparse.Namespace) -> int:
    """Test methods with the certificates of exactness and print the results; return the exit status."""
    from ..methods import catalogue
    from .terminal import table

    chosen, knobs = method_keys(args.method), dict(_pairs(args.knob))
    if knobs and len(chosen) != 1:
        raise UsageError("knob.one_method")
    catalogue()[chosen[0]].read_knobs(knobs)  # a mistake is reported before anything is loaded
    from tqdm import tqdm

    from ..evidence import certificate as certify
    from ..evidence.whole_answers import certify_with_small_target

    image = request_options.given_image(args) if args.image else None
    loaded, rows = _loaded(args), []
    loaded = loaded.with_picture(image) if image else loaded
    through = certify.fix_bucket(loaded)
    tests = {
        "greedy": certify.greedy,
        "distribution": certify.distribution,
        "answers": certify_with_small_target,
    }
    tests = {name: test for name, test in tests.items() if name in args.tests}
    try:
        with interrupted_by_signals():
            for key in tqdm(chosen, unit="method", desc="verify", disable=None):
                found = {name: test(loaded, key, knobs=knobs) for name, test in tests.items()}
                verdicts = {name: result["status"] for name, result in found.items()}
                rows.append({"key": key, "forward": through, **verdicts, "detail": found})
                if len(chosen) > 1:  # a long command that is killed has printed what it found
                    tqdm.write(
                        f"{key}: " + ", ".join(f"{name} {status}" for name, status in verdicts.items()),
                        file=sys.stderr,
                    )
    except KeyboardInterrupt:  # minutes of work are shown, not lost
        if not rows:
            raise
    if args.json:
        _print(rows)
    else:
        flat = [
            {**row, "detail": " ".join(dict.fromkeys(d["detail"] for d in row["detail"].values()))}
            for row in rows
        ]
        print(f"The forward looked at: {through}.")
        print(table(flat, ["key", *tests, "detail"]))
    if len(rows) < len(chosen):
        return INTERRUPTED
    bound = [
        row for row in rows if catalogue()[row["key"]].exactness in ("exact", "greedy only")
    ]  # the others promise nothing
    return 1 if any(row[name] in ("diverged", "fail") for row in bound for name in tests) else 0


def replay(args: argparse.Namespace) -> int:
    """Write a trace file as a stand-alone HTML page or as Chrome trace events; return the exit status."""
    from ..trace.chrome import chrome_trace
    from ..trace.files import Trace
    from ..trace.page import to_html

    trace = Trace.load(Path(args.trace))
    form, path = ("html", args.html) if args.html else ("chrome", args.chrome)
    written = to_html(trace) if args.html else json.dumps(chrome_trace(trace), allow_nan=False)
    write_output(path, written, read=args.trace)
    if args.json:
        _print({form: path, "bytes": len(written.encode())})
    else:
        print(TEXTS[f"replay.{form}"].format(path=path, size=len(written.encode()) / 1e6))
    return 0
