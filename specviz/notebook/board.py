"""``watch``: the live board in a notebook. The viewer of the page runs in a sandboxed frame (HTML in
``srcdoc``), so no server is needed and a saved notebook still plays the run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from ..trace.files import Trace
from ..trace.page import show
from .lanes import Records, method_keys, run_lanes

HEIGHT = 1000  # pixels of the frame
EVERY = 1.5  # seconds between two pictures of a run in progress
RATE = 250_000  # bytes a second of them at most: Jupyter drops output above 1 MB/s


class Board:
    """A recorded run of several methods that displays itself in a notebook. ``trace``: its records."""

    def __init__(self, records: Records, height: int = HEIGHT):
        self.trace, self.height = Trace(records), height
        self._shown_in: int | None = None  # the cell that has displayed it already

    def __repr__(self) -> str:
        """Return the lanes as text."""
        return repr(show(self.trace, self.height))

    def _repr_html_(self) -> str:
        return show(self.trace, self.height)._repr_html_()

    def bundle(self) -> dict[str, str]:
        """Return what a notebook stores of the board: HTML, and text for programs that show no HTML."""
        shown = show(self.trace, self.height)
        return {"text/html": shown._repr_html_(), "text/plain": repr(shown)}

    def _ipython_display_(self) -> None:
        if self._shown_in is not None and self._shown_in == _cell():
            return  # it is on display above
        from IPython.display import display

        display(self.bundle(), raw=True)

    def save(self, path: str) -> None:
        """Write the trace as .jsonl or .jsonl.gz."""
        self.trace.save(path)


def watch(
    prompt: str | list[dict[str, str]],
    methods: str | Sequence[str] = ("speculative",),
    *,
    plain: bool = True,
    live: bool = True,
    height: int = HEIGHT,
    **options: Any,
) -> Board:
    """Run methods side by side and show the board, in a notebook while they run.

    plain: add plain decoding as the last lane; live: update the board during the run; height: in pixels.
    options: target, draft, device, max_new_tokens, temperature, top_k, top_p, seed, knobs {method: {knob:
    value}}, repeats, request {field: value} (docs/requests.md). Raises SessionError or ZooError."""
    records: Records = []
    screen = _Screen(height) if live and _cell() is not None else None
    for new in run_lanes(prompt, method_keys(methods, plain), **options):
        records += new
        if screen:
            screen.update(records)
    board = Board(records, height)
    if screen:
        screen.finish(board)
    return board


class _Screen:
    """One output area of a cell, replaced while a run grows."""

    def __init__(self, height: int):
        from IPython.display import display

        self._height, self._due = height, time.monotonic() + EVERY
        self._handle = display({"text/html": "<p>Loading the models.</p>"}, raw=True, display_id=True)

    def update(self, records: Records) -> None:
        if time.monotonic() < self._due or not any(record["type"] == "commit" for record in records):
            return
        shown = show(records, self._height, autoplay=False)._repr_html_()
        self._show({"text/html": shown, "text/plain": ""})
        self._due = time.monotonic() + max(EVERY, len(shown) / RATE)

    def finish(self, board: Board) -> None:
        self._show(board.bundle())
        board._shown_in = _cell()

    def _show(self, bundle: dict[str, str]) -> None:
        if self._handle is not None:
            self._handle.update(bundle, raw=True)


def _cell() -> int | None:
    """Return the number of the running cell; None outside a notebook."""
    try:
        from IPython import get_ipython
    except ImportError:
        return None
    shell = get_ipython()
    return shell.execution_count if shell is not None and getattr(shell, "kernel", None) is not None else None
