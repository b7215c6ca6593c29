"""Text for a terminal: tables, and a run's tokens as they arrive, marked by verdict with a colour and a
second style for readers without colour.

Model output is untrusted: its control characters are printed escaped.
"""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Callable
from typing import Any, Protocol

from ..trace.events import Committed, Event, TextEmitted
from ..zoo.text import TokenTable, Transcript

RESET = "\033[0m"
STYLES = {  # verdict: (colour and, for who sees no colour, a second channel; its name)
    "accepted": ("\033[38;5;33;4m", "underlined"),
    "correction": ("\033[38;5;175;7m", "reversed"),
    "bonus": ("\033[38;5;36;1m", "bold"),
}
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u061c\u2028\u2029\u202a-\u202e\u2066-\u2069]")


class OutputStream(Protocol):
    """The part of a text stream that printing needs."""

    def write(self, text: str, /) -> int: ...

    def flush(self) -> None: ...

    def isatty(self) -> bool: ...


def use_colour(stream: OutputStream) -> bool:
    """Return whether to print in colour: only on a terminal that supports it, and without NO_COLOR."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def escape_control_characters(text: str) -> str:
    """Return the text with control and direction characters as visible escapes."""
    return _CONTROL.sub(lambda m: f"\\x{ord(m[0]):02x}" if ord(m[0]) < 256 else f"\\u{ord(m[0]):04x}", text)


class TokenPrinter:
    """Prints a run's text as it grows, each token in the style of its verdict. Text that later tokens could
    still change is held back."""

    def __init__(
        self,
        stream: OutputStream,
        table: TokenTable,
        stops: tuple[str, ...] = (),
        min_tokens: int = 0,
        decode: Callable[..., str] | None = None,
    ):
        self._stream = stream
        self._colour = use_colour(stream)
        self._tty = stream.isatty()
        self._transcript = Transcript(table, stops, min_tokens)
        self._verdicts: list[str] = []
        self._spans: list[tuple[int, int, str]] = []  # not yet printed
        self._printed = 0
        self._decode = decode or codecs.getincrementaldecoder("utf-8")("replace").decode

    def print_event(self, event: Event) -> None:
        """Print the text that an event of the run adds."""
        if isinstance(event, Committed):
            self._verdicts = ["accepted"] * len(event.path) + [event.kind] * (
                len(event.tokens) - len(event.path)
            )
        elif isinstance(event, TextEmitted):
            for piece, verdict in zip(event.pieces, self._verdicts):
                _, _, start, end = self._transcript.add(piece[0])
                self._spans.append((start, end, verdict))
            self._print(self._transcript.stable_length)

    def close(self) -> None:
        """Print what is still held back at the end of the run."""
        self._print(self._transcript.length)
        self._show(self._decode(b"", True), "")

    def _print(self, upto: int) -> None:
        while self._spans and self._printed < upto:
            start, end, verdict = self._spans[0]
            data = bytes(self._transcript.data[max(start, self._printed) : min(end, upto)])
            self._show(self._decode(data), verdict)
            self._printed = min(end, upto)
            if end > upto:
                break
            self._spans.pop(0)
        self._stream.flush()

    def _show(self, text: str, verdict: str) -> None:
        text = escape_control_characters(text) if self._tty else text
        if self._colour and text and verdict in STYLES:  # a style never spans a line's end
            text = "\n".join(
                f"{STYLES[verdict][0]}{line}{RESET}" if line else "" for line in text.split("\n")
            )
        self._stream.write(text)


def legend() -> str:
    """Return one line that explains the styles of tokens."""
    return "  ".join(f"{style}{name}{RESET} ({channel})" for name, (style, channel) in STYLES.items())


def table(rows: list[dict[str, Any]], columns: list[str]) -> str:
    """Return rows as aligned columns: numbers to the right, text to the left. A long last column is not
    padded."""
    cells = [[format_value(row.get(column)) for column in columns] for row in rows]
    widths = [max(len(line[i]) for line in [columns, *cells]) for i in range(len(columns))]
    right = [
        bool(rows) and all(isinstance(row.get(c), (int, float, type(None))) for row in rows) for c in columns
    ]
    lines = [columns, ["-" * width for width in widths], *cells]
    return "\n".join(
        "  ".join(c.rjust(w) if r else c.ljust(w) for c, w, r in zip(line, widths, right)).rstrip()
        for line in lines
    )


def format_value(value: Any) -> str:
    """Return a value as text: a number with three digits, a dash for None, two numbers as an interval."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"
    if isinstance(value, (list, tuple)):
        return " to ".join(format_value(v) for v in value)
    return str(value)
