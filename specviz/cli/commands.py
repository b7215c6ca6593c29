"""The five commands: list, run, bench, verify, replay. An error is one line on stderr and a non-zero exit.

Nothing heavy is imported before a command needs it, so that help and mistakes are answered at once.
"""
from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any, Callable, Iterator

INTERRUPTED = 130


class UsageError(ValueError):
    """What was typed makes no sense; one sentence."""


class Parser(argparse.ArgumentParser):
    def error(self, message: str):
        raise UsageError(f"{message}; try {self.prog} --help.")


def main(argv: list[str] | None = None) -> int:
    """Run one command; the exit status."""
    try:
        try:
            args = parser().parse_args(argv)
            return args.command(args)
        finally:
            sys.stdout.flush()  # so that a reader who went away is noticed here
    except KeyboardInterrupt:
        return _complain("stopped.", INTERRUPTED)
    except BrokenPipeError:  # the reader went away, as head does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except UsageError as error:
        return _complain(str(error), 2)
    except Exception as error:  # whatever it is, a person gets one line
        if os.environ.get("SPECVIZ_DEBUG"):
            raise
        return _complain((str(error).strip().splitlines() or [type(error).__name__])[0], 1)


def _complain(sentence: str, status: int) -> int:
    print(f"specviz: {sentence}", file=sys.stderr)
    return status


def parser() -> Parser:
    top = Parser(prog="specviz", description="Watch speculative decoding accept and reject tokens.")
    commands = top.add_subparsers(required=True, metavar="command", parser_class=Parser)

    def command(name: str, run: Callable[[argparse.Namespace], int], about: str) -> Parser:
        sub = commands.add_parser(name, help=about, description=about)
        sub.set_defaults(command=run)
        sub.add_argument("--json", action="store_true", help="machine-readable output")
        return sub

    sub = command("list", list_methods, "The catalogue: every method, and whether it can run.")
    sub.add_argument("--write", action="store_true", help="write methods/cards.json and docs/TRACE.md's table of notes anew")
    _models(sub)

    sub = command("run", run_method, "One prompt through one method.")
    sub.add_argument("--method", required=True, metavar="KEY", help="a key of the list")
    sub.add_argument("--prompt", required=True, metavar="P", help="the prompt; - reads it from stdin")
    sub.add_argument("--raw", action="store_true", help="without the chat template")
    sub.add_argument("--system", metavar="TEXT", help="a system message before the prompt")
    sub.add_argument("--knob", action="append", default=[], metavar="NAME=VALUE", help="a knob of the method; may be repeated")
    sub.add_argument("--predicted", metavar="FILE", help="a text that the answer is expected to be like, to draft from")
    sub.add_argument("--stop", action="append", default=[], metavar="TEXT", help="end before this text; may be repeated")
    sub.add_argument("--deadline", metavar="SECONDS", help="end after this much wall clock")
    sub.add_argument("--trace", metavar="FILE", help="record the run as .jsonl (or .jsonl.gz)")
    sub.add_argument("--top-k-saved", default=8, metavar="K", help="best tokens of each law kept in the trace (8)")
    _sampling(sub)
    _models(sub)

    sub = command("bench", bench_methods, "Methods against plain decoding, interleaved in one run.")
    sub.add_argument("--methods", default="all", metavar="A,B", help="keys, or all")
    sub.add_argument("--suite", action="append", metavar="FILE", help="rows of {task, prompt}, or {category, turns} whose last turn is "
                     "measured, as .jsonl, .jsonl.gz or .yaml; may be repeated; ours by default, also by that name")
    sub.add_argument("--tasks", metavar="A,B", help="only these tasks")
    sub.add_argument("--prompts", default=None, metavar="N", help="at most so many prompts a task")
    sub.add_argument("--repeats", default=3, metavar="R", help="times each prompt is run (3)")
    sub.add_argument("--reference", action="store_true", help="transformers' own generate, assisted and prompt lookup as well")
    _sampling(sub)
    _models(sub)

    sub = command("verify", verify_methods, "Greedy certificate and distribution test on the real engine.")
    sub.add_argument("--method", default="all", metavar="KEY", help="a key, or all")
    _models(sub)

    sub = command("replay", replay, "A recorded trace as one stand-alone page.")
    sub.add_argument("trace", metavar="TRACE")
    sub.add_argument("--html", required=True, metavar="FILE", help="where to write the page")
    return top


def _models(sub: Parser) -> None:
    sub.add_argument("--target", metavar="MODEL", help="a name of models.yaml, a folder in Hugging Face format, or org/name@commit")
    sub.add_argument("--draft", metavar="MODEL", help="the draft model, likewise; none for none")
    sub.add_argument("--device", default="auto", help="auto, cpu or cuda")


def _sampling(sub: Parser) -> None:
    sub.add_argument("--max-new-tokens", default=128, metavar="N")
    sub.add_argument("--temperature", default=0.0, metavar="T", help="0 is greedy (the default)")
    sub.add_argument("--top-k", default=0, metavar="K")
    sub.add_argument("--top-p", default=1.0, metavar="P")
    sub.add_argument("--seed", default=0, metavar="S")


def _loaded(args: argparse.Namespace):
    from ..zoo import load

    return load(args.target, args.draft, args.device)


def _drawn(args: argparse.Namespace):
    from ..run.request import read_sampling

    return read_sampling(args.temperature, args.top_k, args.top_p, args.seed)


def _print(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False, indent=2))


def list_methods(args: argparse.Namespace) -> int:
    if args.write:
        from .. import ROOT
        from ..core import notes
        from ..ui import cards

        print(cards.write(), notes.write(ROOT / "docs" / "TRACE.md"), sep="\n")
        return 0
    from ..methods import catalogue
    from .terminal import table
    from ..zoo import survey

    why_not, rows = survey(args.target, args.draft), []
    for method in catalogue().values():
        reason = why_not(method)
        rows.append({"key": method.key, "title": method.title, "family": method.family, "paper": method.paper,
                     "exactness": method.exactness, "available": reason is None, "reason": reason})
    if args.json:
        _print(rows)
    else:
        print(table(rows, ["key", "title", "family", "exactness", "available", "reason"]))
    return 0


def run_method(args: argparse.Namespace) -> int:
    from ..run.result import Result, RunFailed
    from ..run.session import Session, find_method

    method, sampling, knobs = find_method(args.method), _drawn(args), dict(_pairs(args.knob))
    method.read_knobs(knobs)  # a slip is told before anything is loaded
    predicted = _text_of(args.predicted) if args.predicted else ""
    loaded = _loaded(args)
    prompt = sys.stdin.read() if args.prompt == "-" else args.prompt
    messages = [{"role": "system", "content": args.system}] * bool(args.system) + [{"role": "user", "content": prompt}]
    cancel = threading.Event()
    events = Session(loaded, method, knobs, sampling, predicted=predicted).run(
        messages, args.max_new_tokens, tuple(args.stop), raw=args.raw, deadline=args.deadline, cancel=cancel,
        top_k_saved=args.top_k_saved if args.trace else 0)
    result = Result()
    with _ctrl_c(cancel):
        for event in _watched(events, args, loaded):
            result.take(event)
    if result.why:
        raise RunFailed(result.why)
    if args.json:
        _print(result.record())
    else:
        print(_summary(result), file=sys.stderr)
    return INTERRUPTED if cancel.is_set() else 0


def _text_of(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {getattr(error, 'strerror', None) or 'it is not UTF-8 text'}.") from None


def _watched(events: Iterator[Any], args: argparse.Namespace, loaded: Any) -> Iterator[Any]:
    """The events, streamed to the terminal and recorded on the way; what was recorded is saved whatever happens."""
    from ..trace.recorder import Recorder
    from ..trace.files import Trace
    from .terminal import Writer, colours, legend

    writer = None if args.json else Writer(sys.stdout, loaded.token_bytes, tuple(args.stop))
    recorder = Recorder(0, loaded.token_bytes, loaded.token_bytes.special) if args.trace else None
    records: list[dict[str, Any]] = []
    try:
        for event in events:
            if writer:
                writer.take(event)
            if recorder:
                records += recorder.take(event)
            yield event
    finally:
        if writer:
            writer.close()
            print(flush=True)
            if colours(sys.stdout):
                print(legend(), file=sys.stderr)
        if records:
            Trace(records).save(args.trace)


def _summary(result: Any) -> str:
    from .terminal import shown

    m = result.metrics()
    return (f"{m['tokens']} tokens in {shown(m['seconds'])} s after a prefill of {shown(m['prefill_seconds'])} s"
            f" | {shown(m['tokens_per_second'])} tokens/s | {shown(m['block_efficiency'])} tokens per target pass"
            f" | accepted / tried {shown(m['acceptance_rate'])} | ended by {result.finish_reason}")


def _pairs(knobs: list[str]) -> Iterator[tuple[str, str]]:
    for knob in knobs:
        name, equals, value = knob.partition("=")
        if not equals:
            raise UsageError(f"--knob takes NAME=VALUE, not {knob!r}.")
        yield name.strip(), value.strip()


class _ctrl_c:
    """While inside, the first Ctrl-C ends the run after its round; the second one at once."""

    def __init__(self, cancel: threading.Event):
        self._cancel = cancel

    def __enter__(self) -> None:
        def stop(number, frame):
            if self._cancel.is_set():
                raise KeyboardInterrupt
            self._cancel.set()
        self._before = signal.signal(signal.SIGINT, stop)

    def __exit__(self, *error) -> None:
        signal.signal(signal.SIGINT, self._before)


def bench_methods(args: argparse.Namespace) -> int:
    from ..evidence.benchmark import COLUMNS, bench
    from .terminal import table

    report = bench(_loaded(args), _keys(args.methods), args.suite, tasks=_listed(args.tasks), prompts=args.prompts,
                   repeats=args.repeats, max_new_tokens=args.max_new_tokens, sampling=_drawn(args), reference=args.reference)
    if args.json:
        _print(report)
    else:
        print(json.dumps(report["environment"], ensure_ascii=False))
        print(table(report["rows"], COLUMNS))
    return INTERRUPTED if report["environment"]["interrupted"] else 0


def verify_methods(args: argparse.Namespace) -> int:
    from ..methods import catalogue
    from .terminal import table

    keys = _keys(args.method)
    from tqdm import tqdm

    from ..evidence import certificate as certify

    loaded, rows = _loaded(args), []
    for key in tqdm(keys, unit="method", desc="verify", disable=None):
        found = {"greedy": certify.greedy(loaded, key), "distribution": certify.distribution(loaded, key)}
        rows.append({"key": key, **{test: result["status"] for test, result in found.items()}, "detail": found})
    if args.json:
        _print(rows)
    else:
        told = [{**row, "detail": " ".join(dict.fromkeys(d["detail"] for d in row["detail"].values()))} for row in rows]
        print(table(told, ["key", "greedy", "distribution", "detail"]))
    bound = [row for row in rows if catalogue()[row["key"]].exactness in ("exact", "greedy only")]  # the others promise nothing
    return 1 if any(row["greedy"] == "diverged" or row["distribution"] == "fail" for row in bound) else 0


def replay(args: argparse.Namespace) -> int:
    from ..trace.files import Trace
    from ..trace.page import to_html

    page = to_html(Trace.load(Path(args.trace)))
    try:
        Path(args.html).write_text(page, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{args.html} cannot be written: {error.strerror}.") from None
    if args.json:
        _print({"html": args.html, "bytes": len(page.encode())})
    else:
        print(f"{args.html}: {len(page.encode()) / 1e6:.2f} MB, opens by itself")
    return 0


def _listed(words: str | None) -> list[str]:
    return [word.strip() for word in (words or "").split(",") if word.strip()]


def _keys(words: str) -> list[str]:
    from ..methods import catalogue
    from ..run.session import find_method

    return list(catalogue()) if words == "all" else [find_method(key).key for key in _listed(words)]
