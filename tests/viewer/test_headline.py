"""The headline of previews is the page's, word for word."""

from __future__ import annotations

import pytest

from specviz import ASSETS
from specviz.trace.answer_places import add_round, lengths_by_place
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


def test_the_board_says_the_accepted_length_along_the_answer_as_python_counts_it(drive):
    first = Trace.load(ASSETS / "traces" / "first.jsonl")
    rounds = [r for r in first.records if r["lane"] == 0]
    passes = {r["round"]: 0 for r in rounds if r["type"] == "commit"}
    for record in rounds:
        if record["type"] == "verify":
            passes[record["round"]] += 1
    places, at = [], 0
    for record in rounds:
        if record["type"] == "commit":
            add_round(places, at, (passes[record["round"]], record["n_new"], 0, 0))
            at += record["n_new"]
    lengths = list(lengths_by_place(places).values())
    assert len(lengths) == 2 and lengths[0] != lengths[1]

    def use(page):
        page.evaluate("(text) => board.load(text)", first.lines())
        lane = "board.board.st.lanes.get(0)"
        assert page.evaluate(f"SpecViz.metrics.alongAnswer({lane}, {lane}.committed)") == pytest.approx(
            lengths
        )
        assert len(page.evaluate(f"SpecViz.metrics.alongAnswer({lane}, 3)")) == 1
        page.evaluate("board.board.seekEnd?.() ?? board.follow('#layout=watch&lane=0&round=99')")
        page.wait_for_function(
            "(said) => document.querySelector('.metrics').textContent.includes(said)",
            arg=", ".join(f"{one:.2f}" for one in lengths),
        )

    drive(use)
