"""The headline of previews is the page's, word for word."""

from __future__ import annotations

import pytest

from specviz import ASSETS
from specviz.trace.files import Trace
from specviz.trace.headline import headline

RECORDINGS = sorted(file.name for file in (ASSETS / "traces").glob("*.jsonl*"))
SAY = """([text, lane, base]) => {
  board.load(text);
  const lanes = board.board.st.lanes;
  return SpecViz.headline.say(lanes.get(lane), base === null ? null : lanes.get(base), board.board.runs?.()).text;
}"""


def cut(trace: Trace) -> Trace:
    """The same trace, stopped by its visitor."""
    return Trace([r | {"finish": "stopped"} if r["type"] == "done" else r for r in trace.records])


def alone(trace: Trace) -> Trace:
    """The same trace without plain decoding."""
    found = headline(trace)
    assert found is not None
    return Trace([r for r in trace.records if r["lane"] != found.base])


@pytest.mark.parametrize("change", [lambda trace: trace, cut, alone], ids=["as it is", "stopped", "alone"])
def test_the_sentence_of_every_recording_is_the_one_on_the_page(drive, change):
    told = {}
    for name in RECORDINGS:
        trace = Trace.load(ASSETS / "traces" / name)
        if headline(trace) is not None:
            told[name] = change(trace)
    assert len(told) >= 8

    def use(page):
        for name, trace in told.items():
            found = headline(trace)
            assert found is not None
            assert page.evaluate(SAY, [trace.lines(), found.lane, found.base]) == found.sentence, name

    drive(use)


def test_a_run_of_pictures_or_one_that_has_not_ended_has_no_headline():
    assert headline(Trace.load(ASSETS / "traces" / "picture.jsonl.gz")) is None
    first = Trace.load(ASSETS / "traces" / "first.jsonl")
    assert headline(Trace([r for r in first.records if r["type"] != "done"])) is None


def test_an_exact_run_whose_text_differs_has_no_headline():
    first = Trace.load(ASSETS / "traces" / "first.jsonl")
    found = headline(first)
    assert found is not None and found.base is not None
    pieces = next(r for r in first.records if r["type"] == "text" and r["lane"] == found.lane)["pieces"]
    pieces[0]["b"] = "WA=="
    assert headline(first) is None
