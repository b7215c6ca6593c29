"""Imported traces are hostile: refused with a sentence or drawn, never a crash, never a hang, and nothing
in them runs."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from . import sample
from .lenses import lensed
from .test_board import SHOWN_TEXT, at_end, literal_of

BASE = lensed(sample.race(("plain", "tree"), tokens=24), 1, every=3)
ODD = [
    None,
    -1,
    0,
    10**15,
    1e308,
    "x",
    "<img src=x onerror=alert(1)>",
    [],
    [[]],
    {},
    {"tok": {}},
    True,
    [None, "a", [1]],
    -0.5,
    "\u202e",
    "A" * 5000,
    [0] * 5000,
]
# Loads it as a file, then, where it is JSON at all, past the suspicion; walks through it, and says how long
# all this took.
WALK = """(text) => { const t0 = performance.now(), b = board.board, why = board.load(text);
  let records = []; for (const line of text.split('\\n')) { try { const r = JSON.parse(line); if (r !== null) records.push(r); } catch {} }
  for (const walk of why ? [1] : [0, 1]) {
    if (walk) b.load(records);
    for (const layout of ['watch', 'race']) for (const x of [0, 0.5, 1]) { board.setLayout(layout); b.scrubTo(x); for (const tab of ['why', 'mask', 'log', 'lens']) { b.inspector.show(tab); b.inspector.last = 0; b.paint(); } }
    const v = b.inspector.v; if (v && v.round) for (const n of [0, 3, 'tail']) { b.selectNode(v.lane.id, v.round.i, n, true); b.inspector.last = 0; b.paint(); }
    b.setMarks(true); b.paint(); b.setMarks(false); b.edge(0); b.play(); b.advance(0); b.advance(200); b.toggle(); board.link();
  }
  return [why, performance.now() - t0, document.querySelectorAll('.sv *').length]; }"""


@st.composite
def spoilt(draw) -> str:
    """A real trace with fields replaced, records dropped, doubled, swapped or cut short, numbers that are
    none, endless depth."""
    records = copy.deepcopy(BASE)
    for _ in range(draw(st.integers(1, 6))):
        i = draw(st.integers(0, len(records) - 1))
        how = draw(st.sampled_from(["field", "inner", "drop", "double", "swap", "huge", "deep"]))
        r = records[i]
        if how == "field" and r:
            r[draw(st.sampled_from(sorted(r)))] = draw(st.sampled_from(ODD))
        elif how == "inner":
            inner = [v for v in r.values() if isinstance(v, dict) and v] + [
                x for v in r.values() if isinstance(v, list) for x in v if isinstance(x, dict)
            ]
            if inner:
                one = draw(st.sampled_from(inner))
                one[draw(st.sampled_from(sorted(one)))] = draw(st.sampled_from(ODD))
        elif how == "drop" and len(records) > 2:
            del records[i]
        elif how == "double":
            records.insert(draw(st.integers(0, len(records))), copy.deepcopy(r))
        elif how == "swap":
            j = draw(st.integers(0, len(records) - 1))
            records[i], records[j] = records[j], records[i]
        elif how == "huge":
            r["nodes"] = [
                {"id": k, "parent": k - 1, "depth": k + 1, "tok": 11, "q": 0.5, "how": "iid"}
                for k in range(3000)
            ]
        elif how == "deep":
            deep: list = []
            for _ in range(300):
                deep = [deep]
            r["data"] = {"x": deep}
    text = "\n".join(json.dumps(r) for r in records)
    how = draw(st.sampled_from(["as it is", "as it is", "cut", "infinite", "nan", "rubbish"]))
    if how == "cut":
        return text[: draw(st.integers(0, len(text)))]
    if how == "infinite":
        return text.replace("0.62", "1e999", 3)
    if how == "nan":
        return text.replace("0.62", "NaN", 1)
    return (
        draw(st.sampled_from(["", "7", "null", "[]", "\x00\x01", "{", '{"type":"header"}']))
        if how == "rubbish"
        else text
    )


@pytest.mark.thorough
def test_whatever_is_imported_is_refused_with_a_sentence_or_drawn(drive) -> None:
    def use(page):
        told = {"drawn": 0, "refused": 0}

        @settings(
            max_examples=24,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(spoilt())
        def holds(text: str) -> None:
            why, ms, nodes = page.evaluate(WALK, text)
            assert why == "" or (why[0].isupper() and why.endswith(".") and 12 < len(why) < 240), why
            assert ms < 20_000 and nodes < 8_000  # a hang would be minutes
            told["refused" if why else "drawn"] += 1

        holds()
        assert min(told.values()) > 0, told

    drive(use)


def test_what_a_refusal_says(drive, settled) -> None:
    good = [json.dumps(r) for r in BASE]
    cases = {
        "": "The trace holds no records.", "hello": "Line 1 is not JSON.", "7": "Record 1 is of no known type.",
        "\n".join(good[1:]): "Record 1: lane 0 begins without a header.",
        "\n".join([good[0].replace("trace/1", "trace/9"), *good[1:]]): "This viewer reads specviz-trace/1, and the trace says specviz-trace/9.",
        "\n".join([*good[:3], good[2]]): "Record 4: seq must rise within a lane.",
        "\n".join(good[:-1]).replace('"t0": 0.0', '"t0": 1e999', 1): "holds a number that is not finite.",
    }  # fmt: skip

    def use(page):
        for text, why in cases.items():
            got = page.evaluate("(t) => board.load(t)", text)
            assert why in got, (got, why)
            settled(page)  # the sentence is drawn with the next frame
            assert (
                page.text_content(".notice .say").startswith(got)
                and page.get_attribute(".sv", "data-state") == "error"
            )
        assert (
            page.evaluate("(t) => board.load(t)", "\n".join(good)) == ""
            and page.evaluate("SpecViz.reader.read(7).why") != ""
        )

    drive(use)


def test_hostile_strings_in_an_imported_trace_stay_strings(drive, settled) -> None:
    """In every lens, label and title, with and without visible blanks; the text equals the reference
    decode."""
    evil = "<img src=x onerror=alert(1)>${alert(1)}{{7*7}}</script>"
    records = sample.race(("plain", "tree"), text=sample.HOSTILE, prompt=evil, split=True)
    kinds = {
        evil: {evil: evil, "x": [evil]},
        "suffix": {"source": evil, "n": 2, "nodes": 3},
        "retrieved": {"source": evil, "n": 1},
        "fused": {"by": [evil] * 4},
        "alignment": {"theirs": [[evil, 0, 40]], "tokens": [11], "ours": [[0, 40]]},
    }
    text = "\n".join(json.dumps(r) for r in lensed(records, 1, kinds, every=2))

    def use(page):
        assert page.evaluate("(t) => board.load(t)", text) == ""
        for marks in (False, True):
            page.evaluate(
                "(m) => { board.board.setMarks(m); board.goto({ lane: 1, round: 4, tab: 'lens' }); }", marks
            )
            settled(page)
            assert evil[:28] in page.text_content(".lens")
            at_end(page, settled)
            assert page.evaluate(SHOWN_TEXT, 1) == literal_of(sample.HOSTILE)
        assert (
            page.evaluate("document.querySelectorAll('.sv img, .sv script, .sv iframe, .sv a').length") == 0
        )

    drive(use)
