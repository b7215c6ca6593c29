"""Lenses, the ledger and the winner: every kind is drawn, no data breaks one, and noise is called noise."""

from __future__ import annotations

import json

import pytest

from ..message_codes import begins, viewer_texts
from . import sample
from .lenses import LENSES, lensed
from .test_board import LOAD, RACE, at_end

TEXTS = viewer_texts()

ODD = [
    None,
    -1,
    10**12,
    1e308,
    "<b>",
    [],
    [[]],
    {},
    {"tok": {}},
    True,
    [None, "a", [1], {}],
    -0.5,
    "\u202e" * 40,
    [10**9] * 600,
    {"__proto__": 1},
]
DRAW = """(kind) => { const b = board.board, v = b.inspector.v; v.inner = 480;
  const card = SpecViz.lens.draw({ ...v, round: { ...v.round, lens: [{ kind: kind[0], data: kind[1] }] } }, b);
  document.body.replaceChildren(b.root, card); card.classList.add('sv');
  return [card.querySelectorAll('.ltable').length, card.querySelectorAll('*').length, card.textContent.length, card.querySelector('h3')?.textContent ?? '']; }"""


@pytest.mark.thorough
def test_every_kind_has_its_picture_and_no_data_breaks_one(drive, settled) -> None:
    records = lensed(sample.race(("plain", "tree", "lookup"), tokens=40), 1)

    def use(page):
        page.evaluate(LOAD, json.dumps(records))
        page.evaluate("board.goto({ layout: 'watch', lane: 1, round: 5, tab: 'lens' })")
        settled(page)
        assert {*LENSES, "copied"} == set(
            page.evaluate("Object.keys(SpecViz.lens)")
        )  # copied: of the nodes, not of a note
        for kind in page.evaluate("Object.keys(SpecViz.lens)"):
            page.evaluate(DRAW, [kind, {}])
        for kind, data in LENSES.items():
            fallback, nodes, words, title = page.evaluate(DRAW, [kind, data])
            assert (fallback, title != "") == (0, True) and nodes > 3 and words > 20, kind
        drawn = page.evaluate(
            DRAW, ["something new", {"a": [1, 2], "b": "<img src=x onerror=alert(1)>\u202e"}]
        )
        assert drawn[0] == 1 and page.evaluate("document.querySelectorAll('.lens img').length") == 0
        for i, kind in enumerate(LENSES):  # whatever a trace says, a lens draws something
            for k, (name, _) in enumerate(LENSES[kind].items()):
                page.evaluate(DRAW, [kind, {**LENSES[kind], name: ODD[(i + k) % len(ODD)]}])
            page.evaluate(
                DRAW, [kind, {name: ODD[(i + 3 * k) % len(ODD)] for k, name in enumerate(LENSES[kind])}]
            )
            page.evaluate(DRAW, [kind, {}])
        for name in ("__proto__", "constructor", "any", "draw", "tools"):
            page.evaluate(DRAW, [name, {"x": 1}])

    drive(use)


def test_experts_of_several_layers_stand_below_each_other_where_they_do_not_fit(drive, settled) -> None:
    data = {
        "experts": 32,
        "used": [[[0, 31], [1, 30]] for _ in range(4)],
        "bytes": 1,
        "whole": 2,
        "separately": 2,
        "other": 1,
    }
    draw = """(data) => { const b = board.board, v = b.inspector.v; v.inner = 300;
      const card = SpecViz.lens.draw({ ...v, round: { ...v.round, lens: [{ kind: "expert_union", data }] } }, b);
      card.style.width = "300px"; document.body.replaceChildren(b.root, card); card.classList.add("sv");
      const whole = card.getBoundingClientRect();
      return [...card.querySelectorAll("svg")].map((svg) => svg.getBoundingClientRect()).filter((box) => box.width > 100)
        .map((box) => [Math.round(box.top), box.right <= whole.right + 1]); }"""

    def use(page):
        page.evaluate(LOAD, json.dumps(lensed(sample.race(("plain", "chain"), tokens=20), 1)))
        page.evaluate("board.goto({ layout: 'watch', lane: 1, round: 2, tab: 'lens' })")
        settled(page)
        boxes = page.evaluate(draw, data)
        assert (
            len(boxes) >= 4
            and len({top for top, _ in boxes}) == len(boxes)
            and all(inside for _, inside in boxes)
        ), boxes

    drive(use)


def test_what_a_recording_is_about_stands_above_its_draft(drive, settled) -> None:
    order = """() => [".body", ".treewrap"].map((name) => document.querySelector(".p-insp " + name).getBoundingClientRect().top)"""

    def use(page):
        page.evaluate(
            LOAD,
            json.dumps(lensed(sample.race(("plain", "chain"), tokens=20), 1, {"length": LENSES["length"]})),
        )
        page.evaluate("board.goto({ layout: 'watch', lane: 1, round: 2 })")
        for tab, first in (("lens", True), (None, False)):
            page.evaluate("tab => board.lead(tab)", tab)
            settled(page)
            body, tree = page.evaluate(order)
            assert (body < tree) == first and page.evaluate("board.where().tab") == "lens"
        tab = page.evaluate("board.where().tab")
        page.evaluate("board.lead('draft')")
        settled(page)
        assert page.evaluate(
            "[...document.querySelector('.sv').classList].filter((x) => /^(lead|draftfirst)$/.test(x))"
        ) == ["draftfirst"]
        assert page.evaluate("board.where().tab") == tab
        page.evaluate("board.lead('lens')")
        page.evaluate(
            LOAD,
            json.dumps(
                [
                    row | {"run_id": "another"} if row["type"] == "header" else row
                    for row in sample.race(("plain", "chain"), tokens=20)
                ]
            ),
        )
        settled(page)
        assert not page.evaluate("document.querySelector('.sv').classList.contains('lead')"), (
            "the next run is about something else"
        )

    drive(use)


def test_a_round_that_reported_nothing_shows_what_was_reported_last(drive, settled) -> None:
    records = lensed(sample.race(("plain", "chain"), tokens=60), 1, {"length": LENSES["length"]}, every=4)

    def use(page):
        page.evaluate(LOAD, json.dumps(records))
        page.evaluate("board.goto({ lane: 1, round: 6, tab: 'lens' })")
        settled(page)
        assert TEXTS["lens.last"].format(round=5) in page.text_content(".lens")
        page.evaluate("board.goto({ round: 8 })")
        settled(page)
        assert page.evaluate("board.where().tab") == "lens" and begins(
            TEXTS, "lens.last"
        ) not in page.text_content(".lens")

    drive(use)


def test_no_drift_is_zero_on_its_axes(drive, settled) -> None:
    records = lensed(
        sample.race(("plain", "chain"), tokens=40), 1, {"drift": {"nats": [0.0, 0.0], "threshold": 0.3}}
    )

    def use(page):
        page.evaluate(LOAD, json.dumps(records))
        page.evaluate("board.goto({ lane: 1, round: 6, tab: 'lens' })")
        settled(page)
        plots = page.evaluate(
            "[...document.querySelectorAll('.lens .lplot')].map((s) => [...s.querySelectorAll('.ax')].map((t) => t.textContent))"
        )
        assert len(plots) == 2 and all("0" in marks for marks in plots)
        assert not [m for marks in plots for m in marks if "e" in m and "round" not in m]
        assert page.evaluate(
            "[...document.querySelectorAll('.lens .lplot *')].every((e) => ![...e.attributes].some((a) => a.value.includes('NaN')))"
        )

    drive(use)


def _repeated(seconds: dict[int, list[float]]) -> list[dict]:
    """The sample race, its lanes' clocks scaled to these seconds per run; the first is the recorded run."""
    whole = {r["lane"]: r["totals"]["seconds"] for r in RACE if r["type"] == "done"}
    out = []
    for r in RACE:
        own, *more = seconds[r["lane"]]
        scale = own / whole[r["lane"]]
        clock = {name: r[name] * scale for name in ("t", "t0", "t1") if name in r}
        parts = {name: round(r[name] * scale) for name in r if name.endswith("_ns")}
        r = {**r, **clock, **parts}
        if r["type"] == "done":
            repeats = [{"tokens": r["totals"]["tokens"], "seconds": s} for s in more]
            r["totals"] = {**r["totals"], "seconds": own, "repeats": repeats}
        out.append(r)
    return out


def test_the_winner_has_a_spread_and_noise_is_called_noise(drive, settled) -> None:
    one = {0: [3.0], 1: [1.0], 2: [1.2], 3: [2.0]}
    clear = {0: [3.0, 3.1, 3.0], 1: [1.0, 1.02, 0.99], 2: [1.3, 1.31, 1.29], 3: [2.0, 2.0, 2.0]}
    noise = {0: [3.0, 3.0, 3.0], 1: [1.0, 1.2, 1.1], 2: [1.05, 1.0, 1.2], 3: [2.0, 2.0, 2.0]}

    def use(page):
        said = lambda seconds: (  # noqa: E731
            page.evaluate(LOAD, json.dumps(_repeated(seconds))),
            at_end(page, settled),
            page.text_content(".won:not(.wait)"),
        )[2]
        assert (
            begins(TEXTS, "verdict.once", first="Speculative decoding") in said(one)
            and TEXTS["verdict.once.repeat"] in said(one)
            and "%" not in said(one)
        )
        won = said(clear)
        assert (
            won.startswith("Speculative decoding ")
            and TEXTS["verdict.repeats"].rpartition("{runs}")[2] in won
        )
        page.wait_for_function(
            "document.querySelector('.p-rate .small').textContent.includes('of 3 runs the first')"
        )
        beside = page.evaluate(
            "[...document.querySelectorAll('.prow:not(.open) .speed')].map((e) => e.textContent.split(' ')[0])"
        )
        assert (
            beside
            == page.evaluate(
                "[...document.querySelectorAll('.rtable tbody tr')].map((r) => r.cells[1].textContent)"
            )
            and len(beside) == 4
        )
        assert said(noise).startswith("No winner") and "noise" in said(noise)
        close = said({0: [3.0], 1: [1.0], 2: [1.01], 3: [2.0]})
        assert begins(TEXTS, "verdict.level", first="Speculative decoding", second="Draft tree") in close

    drive(use)


def test_the_ledger_counts_passes_and_the_texts_are_aligned_by_place(drive, settled) -> None:
    away = [dict(r) for r in sample.race(("plain", "chain"), tokens=60)]
    piece = next(r for r in away if r["lane"] == 1 and r["type"] == "text" and r["round"] == 3)
    place = sum(len(r["pieces"]) for r in away if r["lane"] == 1 and r["type"] == "text" and r["round"] < 3)
    piece["pieces"] = [{**piece["pieces"][0], "tok": 11}, *piece["pieces"][1:]]
    away.append(
        {
            "type": "check",
            "lane": 1,
            "seq": 10**6,
            "kind": "near_tie",
            "detail": {"at": place, "margin": 0.0021},
        }
    )

    def use(page):
        page.evaluate(LOAD, json.dumps(RACE))
        at_end(page, settled)
        assert page.locator(".p-race.shut").count() == 1 and not page.is_visible(
            ".ledger"
        )  # the detail opens when asked
        page.click(".p-race .phead")
        page.wait_for_function(
            "document.querySelectorAll('.ledger tbody tr').length === 4 && document.querySelector('.won:not(.wait)')"
        )
        rows = {
            r[0]: [c.replace("\u2013", "") for c in r[1:5]]
            for r in page.evaluate(
                "[...document.querySelectorAll('.ledger tbody tr')].map((r) => [...r.children].map((c) => c.textContent))"
            )
        }
        for lane, title in ((0, "Plain decoding"), (1, "Speculative decoding"), (2, "Draft tree")):
            mine = [r for r in RACE if r["lane"] == lane and r["type"] == "verify"]
            n = sum(r["n_new"] for r in RACE if r["lane"] == lane and r["type"] == "commit")
            assert rows[title] == [
                str(len(mine)),
                f"{sum(r['n_in'] for r in mine) / len(mine):.1f}",
                str(n),
                str(n - len(mine)),
            ]
        assert page.text_content(".parts").count(TEXTS["race.same"].partition("{")[0]) == 3
        page.evaluate(LOAD, json.dumps(away))
        page.evaluate("board.setLayout('race')")
        at_end(page, settled)
        page.wait_for_function(
            "(t) => document.querySelector('.parts').textContent.includes(t)",
            arg=TEXTS["race.differs"].format(at=place + 1),
        )
        text = page.text_content(".parts")
        assert TEXTS["race.differs"].format(at=place + 1) in text and "0.0021" in text

    drive(use)
