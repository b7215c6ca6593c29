"""A run in progress in a notebook. The viewer is sent once, in a frame; after it only new records, as scripts in
a second output that hand them to the frame. Jupyter drops what a cell sends above 1 MB/s.

Where the outputs of a cell cannot reach one another, the frame stays empty until the run is over. Then it is
replaced by the finished board, and the second output is emptied: nothing of it is left in the saved notebook."""

from __future__ import annotations

import time
import uuid
from collections import deque
from typing import Any

from ..trace.page import frame_element, inert_json, to_frame
from .lanes import Records

EVERY = 0.25  # seconds between two updates
RATE = 250_000  # bytes a second of updates at most
MOST = 100_000  # characters of records in an update; the others wait for the next one

# Keeps the lines of a run, and answers its frame, which asks for those from a number on.
_HAND_OVER = """<script>(() => {
  const id = ID, line = LINE, runs = (window.specvizRuns ??= {}), run = (runs[id] ??= []);
  const frame = () => document.getElementById(id)?.contentWindow;
  if (!run.length)
    addEventListener("message", ({ source, data }) => {
      const from = data?.specviz, lines = runs[id]?.slice(from);
      if (Number.isInteger(from) && lines?.length && source && source === frame()) source.postMessage({ from, lines }, "*");
    });
  run.push(line);
  frame()?.postMessage("specviz.more", "*");
})();</script>"""
_FORGET = "<script>if (window.specvizRuns) delete window.specvizRuns[ID];</script>"


class LiveOutput:
    """The two outputs of a run in progress: the viewer's frame, and the updates."""

    def __init__(self, height: int):
        from IPython.display import display

        self._id, self._sent = f"specviz-{uuid.uuid4().hex[:12]}", 0
        self._waiting: deque[str] = deque()  # records as JSON
        self._due = 0.0
        frame = frame_element(to_frame(), height, f'id="{self._id}"')
        self._frame = display(_bundle(frame), raw=True, display_id=True)
        self._updates = display(_bundle(""), raw=True, display_id=True)

    def add(self, records: Records) -> None:
        """Take new records; send those that wait when an update is due. A run that writes more than RATE is shown
        late, and whole at its end."""
        self._waiting.extend(map(inert_json, records))
        if self._waiting and time.monotonic() >= self._due:
            sent = self._send()
            self._due = time.monotonic() + max(EVERY, sent / RATE)

    def finish(self, bundle: dict[str, str]) -> None:
        """Replace the frame by the finished board, and empty the updates."""
        self._show(self._updates, _bundle(_FORGET.replace("ID", inert_json(self._id))))
        self._show(self._frame, bundle)
        self._show(self._updates, _bundle(""))

    def _send(self) -> int:
        records: list[str] = []
        while self._waiting and sum(map(len, records)) < MOST:
            records.append(self._waiting.popleft())
        name = inert_json(self._id)
        first = f',"new":true,"run":{name}' if not self._sent else ""
        line = f'{{"s":{self._sent},"e":[{",".join(records)}]{first}}}'
        script = _HAND_OVER.replace("ID", name).replace("LINE", inert_json(line))
        self._sent += 1
        self._show(self._updates, _bundle(script))
        return len(script.encode("utf-8"))

    @staticmethod
    def _show(handle: Any, bundle: dict[str, str]) -> None:
        if handle is not None:
            handle.update(bundle, raw=True)


def _bundle(page: str) -> dict[str, str]:
    return {"text/html": page, "text/plain": ""}
