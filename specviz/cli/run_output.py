"""A run's output on a terminal: events as they arrive, the trace file, the summary line, and signals."""

from __future__ import annotations

import argparse
import codecs
import io
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .messages import TEXTS, UsageError
from .output_files import FileText

if TYPE_CHECKING:
    from ..zoo.pair import Loaded


def stream_run(
    events: Iterator[Any],
    args: argparse.Namespace,
    loaded: Loaded,
    request: Any,
    lane: int,
    records: list[dict[str, Any]],
) -> Iterator[Any]:
    """Print and record the events of an answer while yielding them. The trace is saved even if the run
    fails. records: those of earlier answers, which precede this one's in the trace."""
    from ..trace.files import Trace
    from ..trace.recorder import Recorder
    from .terminal import TokenPrinter, legend, use_colour

    writer = (
        None
        if args.json
        else TokenPrinter(
            sys.stdout, loaded.token_bytes, request.stop, request.min_tokens, loaded.codec.decoder()
        )
    )
    recorder = Recorder(lane, loaded.token_bytes, loaded.token_bytes.special) if args.trace else None
    try:
        for event in events:
            if writer:
                writer.print_event(event)
            if recorder:
                records += recorder.take(event)
            yield event
    finally:
        try:
            if records:
                Trace(records).save(args.trace)
        finally:
            if writer:
                writer.close()
                print(flush=True)
                if use_colour(sys.stdout):
                    print(legend(), file=sys.stderr)


def summary(result: Any) -> str:
    """Return the line that is printed after a run."""
    from .terminal import format_value

    m = result.metrics()
    return (
        f"{m['tokens']} tokens in {format_value(m['seconds'])} s after a prefill of {format_value(m['prefill_seconds'])} s"
        f" | {TEXTS['run.figures'].format_map({name: format_value(m[name]) for name in ('tokens_per_second', 'block_efficiency')})}"
        f" | accepted / tried {format_value(m['acceptance_rate'])} | ended by {result.finish_reason}"
    )


class CancelOnSignal:
    """Context manager: the first Ctrl-C, SIGTERM or SIGHUP ends the run after the current round, so that
    its trace is saved; the second ends it immediately. ``status``: the exit status, 0 or 128 + the signal's
    number, as in shells."""

    SIGNALS = tuple(
        getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
    )

    def __init__(self, cancel: threading.Event):
        self._cancel = cancel
        self.status = 0

    def __enter__(self) -> CancelOnSignal:
        def stop(number, frame):
            self.status = 128 + number
            if self._cancel.is_set():
                raise KeyboardInterrupt
            self._cancel.set()

        self._before = {number: signal.signal(number, stop) for number in self.SIGNALS}
        return self

    def __exit__(self, *error) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


@contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """Context manager: SIGTERM and SIGHUP interrupt as Ctrl-C does, so that what a long command found is
    printed and written."""
    numbers = [number for number in CancelOnSignal.SIGNALS if number != signal.SIGINT]
    before = {number: signal.signal(number, signal.default_int_handler) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def read_text_argument(path: str) -> str:
    """Return the text of a file, for argparse."""
    try:
        text = FileText(Path(path).read_text(encoding="utf-8-sig"))
        text.path = path
        return text
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or TEXTS["file.not_text"]
        raise argparse.ArgumentTypeError(TEXTS["file.read"].format(path=path, why=why)) from None


def read_stdin() -> str:
    """Return the text on stdin: UTF-8, with or without a byte order mark, else in the console's encoding.
    Raises UsageError."""
    data = sys.stdin.buffer.read()
    for encoding in ("utf-8-sig", sys.stdin.encoding):
        with suppress(UnicodeDecodeError):
            return data.decode(encoding).replace("\r\n", "\n")
    raise UsageError("file.read", path="stdin", why=TEXTS["file.not_text"])


def escape_unprintable() -> None:
    """Let stdout and stderr write characters that their encoding lacks as escapes, so that no output is
    lost. In JSON the escapes are valid."""
    codecs.register_error("specviz.escape", _escaped)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="specviz.escape")


def _escaped(error: UnicodeError) -> tuple[str, int]:
    """Return UTF-16 escapes, as JSON has them, for what cannot be encoded."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    pairs = (units[i : i + 2].hex() for i in range(0, len(units), 2))
    return "".join(f"\\u{pair}" for pair in pairs), error.end
