"""The story of Learn: its figures are the recording's, its board stands where the reader is, and it stays
as it is whatever runs."""

from __future__ import annotations

import json
import re

from ..viewer import sample
from .conftest import ANSWERS

DRAWN = sample.race(tokens=60)
GREEDY = [
    {**r, "sampling": {"temperature": 0.0, "top_k": 0, "top_p": 1.0, "seed": 0}}
    if r["type"] == "header"
    else r
    for r in DRAWN
]
LIVE = [{**r, "mode": "live"} if r["type"] == "header" else r for r in DRAWN]
LIBRARY = [
    {"name": "a", "title": "A", "about": "", "temperature": 0.0, "bytes": 1},
    {"name": "b", "title": "B", "about": "", "temperature": 0.8, "bytes": 1},
]
SHIPPED = """(texts) => { const ask = ctx.ask; ctx.ask = async (name, details) => name === "library_trace" ? texts[details.name] : ask(name, details); }"""
# Scrolls a scene to the reader's eye and waits until the story has seen it and its board owes no frame.
READ = """async (key) => { const s = document.querySelector(`.pn-scene[data-scene=${key}]`), r = s.getBoundingClientRect(), story = panel.view().story;
  scrollBy(0, r.top + r.height * 0.9 - innerHeight * (innerWidth <= 980 ? 0.75 : 0.4));
  const kind = key === "odds" ? "drawn" : "greedy", board = story.figures[kind].api();
  while (story.root.dataset.scene !== key || story.frame || board.board.frame) await new Promise(requestAnimationFrame);
  const where = board.where(); story.place();
  return { at: story.current.scene.at(story.story, 0.9), where, owes: board.board.frame,
           said: s.innerText, part: story.stand.dataset.part }; }"""


def told(use, visit, records=GREEDY, **options):
    def go(page):
        page.evaluate(
            SHIPPED,
            {
                "a": "".join(json.dumps(r) + "\n" for r in GREEDY),
                "b": "".join(json.dumps(r) + "\n" for r in DRAWN),
            },
        )
        page.evaluate(
            "panel.show('methods'); panel.views.get('start').destroy(); panel.views.delete('start'); panel.show('start')"
        )
        page.wait_for_function("panel.view().story.traces.greedy && panel.view().story.traces.drawn")
        return use(page)

    return visit(go, "learn", records=records, answers=ANSWERS | {"library": LIBRARY}, **options)


def test_the_board_stands_where_the_reader_is(visit):
    def use(page):
        keys = page.evaluate("panel.view().story.scenes.map((s) => s.scene.key)")
        assert keys == page.evaluate("SpecVizPanels.story.scenes.map((s) => s.key)") and len(keys) > 9
        for key in keys:
            got = page.evaluate(READ, key)
            assert not got["owes"], "at rest the reader's place is the board's"
            assert not re.search(r"undefined|NaN|null|\[object", got["said"]), got
            if "x" not in got["at"]:
                same = [name for name in ("lane", "round", "phase", "node") if name in got["at"]]
                assert [got["where"][n] for n in same] == [got["at"][n] for n in same], key
            else:
                assert got["where"]["layout"] == "race" and got["where"]["t"] > 0
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")

    told(use, visit)
    told(use, visit, size=(390, 844))


def test_its_numbers_are_the_recordings_own(visit):
    def passes(lane):
        return sum(r["type"] == "verify" and r["lane"] == lane for r in GREEDY)

    def use(page):
        text = page.inner_text(".pn-scene[data-scene=open]")
        story = page.evaluate(
            "(({ plain, chain, tree }) => [plain.id, chain.id, tree.id])(panel.view().story.story)"
        )
        assert f"{passes(story[0])} passes" in text and re.search(rf"\b{passes(story[1])}\b", text)
        refused = page.evaluate(READ, "refused")
        (number,) = re.findall(r"Round (\d+)", refused["said"])
        commit = next(
            r
            for r in GREEDY
            if r["type"] == "commit" and r["lane"] == story[1] and r["round"] == int(number) - 1
        )
        assert commit["tail"]["why"] == "correction" and f"{commit['n_new']} token" in refused["said"]
        odds = page.evaluate(READ, "odds")
        judge = next(
            r
            for r in DRAWN
            if r["type"] == "judge"
            and r["lane"] == odds["at"]["lane"]
            and r["round"] == odds["at"]["round"]
            and r["node"] == odds["at"]["node"]
        )
        assert f"{judge['a']:.3f}" in odds["said"] and f"{judge['u']:.3f}" in odds["said"]

    told(use, visit)


def test_a_run_of_ones_own_does_not_change_the_story(visit):
    def use(page):
        assert page.evaluate("panel.view().story.traces.greedy.name") == "a", (
            "the library's, since the board holds a live run"
        )
        before = page.inner_text(".pn-prosecol")
        page.evaluate("(records) => api.load(records)", [r for r in LIVE if r["lane"] == 0])
        page.evaluate("panel.update()")
        assert page.inner_text(".pn-prosecol") == before
        page.click(".pn-scene[data-scene=refused] .pn-btn >> nth=0")
        at = page.evaluate(
            "panel.view().story.scenes.find((s) => s.scene.key === 'refused').scene.at(panel.view().story.story, 1)"
        )
        page.wait_for_function("!api.board.frame")
        where = page.evaluate("api.where()")
        assert [where[n] for n in ("lane", "round", "node")] == [
            at[n] for n in ("lane", "round", "node")
        ] and page.evaluate("tabs") == ["watch"]

    told(use, visit, records=LIVE)


def test_keys_of_the_page_do_not_move_a_board_that_is_not_in_sight(visit):
    def use(page):
        page.evaluate(
            "document.querySelector('#board').style.display = 'none'; document.activeElement.blur(); scrollTo(0, 0)"
        )
        before = page.evaluate("api.where()")
        for key in ("Space", "ArrowLeft", "Home"):
            page.keyboard.press(key)
        assert page.evaluate("api.where()") == before and page.evaluate("api.board.cur.mode") == "hold"
        page.evaluate("document.querySelector('#board').style.display = ''")
        page.keyboard.press("Space")
        assert page.evaluate("api.board.cur.mode") == "play"
        page.evaluate("api.pause()")

    told(use, visit)
