"""An answer on a terminal with its figures below it while it grows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TextIO

from rich.ansi import AnsiDecoder
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

TAB = "    "


class LiveAnswer:
    """A text stream for a TokenPrinter on a terminal. Full lines are printed once; the last line and the
    figures, right-aligned below it, are drawn anew at each flush, and on leaving the context only the line
    stays. figures(): the current figures."""

    def __init__(self, stream: TextIO, figures: Callable[[], str]):
        self._stream, self._figures = stream, figures
        self._console = Console(file=stream, highlight=False)
        self._live = Live(
            console=self._console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
        )
        self._decoder = AnsiDecoder()
        self._line = Text()  # what is not printed yet

    def __enter__(self) -> LiveAnswer:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.update(self._line, refresh=True)
        self._live.stop()

    def isatty(self) -> bool:
        """Return whether the stream is a terminal."""
        return self._stream.isatty()

    def write(self, text: str) -> int:
        """Add text, with its colours as escape sequences. No colour spans a line's end."""
        for number, part in enumerate(text.replace("\t", TAB).split("\n")):
            if number:
                self._print([self._line], Text())
            self._line.append_text(self._decoder.decode_line(part))
        return len(text)

    def flush(self) -> None:
        """Draw the text so far and the figures."""
        *full, last = self._line.wrap(self._console, self._console.width) or [Text()]
        # A slice, because wrapping removes spaces at a line's end.
        self._print(full, self._line[self._line.plain.rindex(last.plain) :] if full else self._line)

    def _print(self, lines: list[Text], rest: Text) -> None:
        """Print full lines above ``rest``, which is drawn with the figures below it."""
        self._line = rest
        figures = Text(self._figures(), style="dim", justify="right", no_wrap=True, overflow="ellipsis")
        self._live.update(Group(rest, figures), refresh=True)
        if lines:
            self._console.print(Text("\n").join(lines))
