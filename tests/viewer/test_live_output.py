"""A run in progress in a notebook: the frame that was sent once shows the records that come after it."""

from __future__ import annotations

from specviz.notebook.board import Board
from specviz.notebook.live_output import LiveOutput

from ..notebook.outputs import Outputs
from . import sample


def test_a_frame_in_a_page_shows_the_records_that_come(monkeypatch, tmp_path, drive):
    """The outputs of a cell as Jupyter puts them into its page: HTML whose scripts run."""
    outputs = Outputs(monkeypatch)
    live = LiveOutput(500)
    records = [one | ({"mode": "live"} if one["type"] == "header" else {}) for one in sample.race()]
    board = Board(records)
    half = len(records) // 2
    for part in (records[:half], records[half:], *[[]] * 50):
        outputs.now += 100
        live.add(list(part))
    live.finish(board.bundle())
    put = """([number, html]) => {
      const box = document.querySelector(`#out${number}`) ?? document.body.appendChild(
        Object.assign(document.createElement("div"), { id: `out${number}` }));
      box.innerHTML = html;
      for (const old of box.querySelectorAll("script")) {
        const script = document.createElement("script");
        script.textContent = old.textContent;
        old.replaceWith(script);
      }
    }"""
    empty = tmp_path / "notebook.html"
    empty.write_text("<!doctype html><body></body>", encoding="utf-8")
    pages = [(number, page) for number, _, page in outputs.sent]

    def play(page):
        for one in pages[:-3]:  # up to the last update
            page.evaluate(put, one)
        shown = page.frame_locator("#out0 iframe").locator(
            f".sv[data-state='done'][data-records='{len(records)}']"
        )
        shown.wait_for(timeout=60_000)
        assert page.frame_locator("#out0 iframe").locator(".sv").inner_text().count("Speculative decoding")
        for one in pages[-3:]:
            page.evaluate(put, one)
        shown.wait_for(timeout=60_000)
        return page.evaluate("Object.keys(window.specvizRuns ?? {}).length"), page.inner_text("#out1")

    assert drive(play, html=empty) == (0, "")
