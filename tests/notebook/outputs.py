"""The outputs of a notebook's cell."""

from __future__ import annotations

from types import SimpleNamespace


class Outputs:
    """The outputs of a cell: what ``display`` and the updates of its handles sent, with the time."""

    def __init__(self, monkeypatch):
        self.sent, self.now = [], 0.0
        monkeypatch.setattr("IPython.display.display", self.display)
        monkeypatch.setattr("specviz.notebook.live_output.time.monotonic", lambda: self.now)

    def display(self, bundle, raw, display_id):
        assert raw and display_id
        number = len({number for number, *_ in self.sent})
        self.update(number, bundle)
        return SimpleNamespace(update=lambda bundle, raw: self.update(number, bundle))

    def update(self, number, bundle):
        assert set(bundle) == {"text/html", "text/plain"}
        self.sent.append((number, self.now, bundle["text/html"]))
