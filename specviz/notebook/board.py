"""``watch``: the live board in a notebook. The viewer of the page runs in a sandboxed frame (HTML in
``srcdoc``), so no server is needed and a saved notebook still plays the run (live_output.py: while it runs)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..trace.files import Trace
from ..trace.page import show
from .lanes import Records, method_keys, run_lanes
from .live_output import LiveOutput

HEIGHT = 1000  # pixels of the frame


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
    screen = LiveOutput(height) if live and _cell() is not None else None
    for new in run_lanes(prompt, method_keys(methods, plain), **options):
        records += new
        if screen:
            screen.add(new)
    board = Board(records, height)
    if screen:
        screen.finish(board.bundle())
        board._shown_in = _cell()
    return board


def _cell() -> int | None:
    """Return the number of the running cell; None outside a notebook."""
    try:
        from IPython import get_ipython
    except ImportError:
        return None
    shell = get_ipython()
    return shell.execution_count if shell is not None and getattr(shell, "kernel", None) is not None else None
