"""Watch and the public api: one lane large, steps inside a round, links between the views, blanks, big
trees, the phone."""

from __future__ import annotations

import json

import pytest

from specviz.trace.page import to_html

from . import sample
from .test_board import LOAD, RACE, SHOWN_TEXT, at_end

BIG = sample.bushy(sample.race(("plain", "tree"), tokens=40), 150)
ARABIC = "\u0627\u0644\u0633\u0645\u0627\u0621 \u0632\u0631\u0642\u0627\u0621 \u0644\u0623\u0646 \u0627\u0644\u0647\u0648\u0627\u0621 \u064a\u0628\u0639\u062b\u0631 \u0627\u0644\u0636\u0648\u0621 \u0627\u0644\u0623\u0632\u0631\u0642. "


def test_the_api_says_where_it_is_goes_elsewhere_and_tells_of_changes(drive, settled) -> None:
    def use(page):
        page.evaluate("globalThis.heard = []; globalThis.off = board.on('change', (w) => heard.push(w)); 0")
        page.evaluate(LOAD, json.dumps(RACE))
        assert page.evaluate("board.trace()") == RACE
        page.evaluate("board.setLayout('watch'); board.goto({ lane: 2, round: 4, node: 1, tab: 'mask' })")
        settled(page)
        where = page.evaluate("board.where()")
        assert {k: where[k] for k in ("layout", "lane", "round", "phase", "node", "tab")} == {
            "layout": "watch",
            "lane": 2,
            "round": 4,
            "phase": 4,
            "node": 1,
            "tab": "mask",
        }
        assert page.evaluate("heard.at(-1)") == where
        link = page.evaluate("board.link()")
        assert link == "#layout=watch&lane=2&round=4&phase=4&node=1&tab=mask"
        page.evaluate("board.goto({ lane: 1, round: 0 }); board.setLayout('race')")
        settled(page)
        assert page.get_attribute(".sv", "data-layout") == "race" and page.locator(".lane").count() == 4
        assert page.evaluate("(l) => board.follow(l)", link) is True
        settled(page)
        assert page.evaluate("board.where()") == where
        told = page.evaluate("off(), heard.length")
        page.evaluate("board.goto({ round: 2 })")
        settled(page)
        assert page.evaluate("heard.length") == told
        for odd in ("", "#", "#x=1", "#lane=999&round=99999&node=88&tab=<b>&layout=no", "#round=-1&lane=zz"):
            page.evaluate("(l) => board.follow(l)", odd)
            settled(page)

    drive(use)


def test_one_lane_is_large_and_the_switch_keeps_the_moment(drive, settled) -> None:
    def use(page):
        page.evaluate(LOAD, json.dumps(RACE))
        page.evaluate("board.setLayout('watch'); board.goto({ lane: 1, round: 6 })")
        settled(page)
        t = page.evaluate("board.where().t")
        page.click("[data-pick='3']")
        settled(page)
        where = page.evaluate("board.where()")
        assert where["lane"] == 3 and abs(where["t"] - t) < 0.06
        assert page.evaluate("[...document.querySelectorAll('.lane')].map((l) => l.dataset.lane)") == ["3"]
        assert page.locator(".prow").count() == 2  # plain decoding's passes stand above the open lane's
        assert (
            page.evaluate("document.querySelector('[data-pick=\"3\"]').getAttribute('aria-pressed')")
            == "true"
        )
        page.evaluate("board.goto({ lane: 2, round: 3 })")
        settled(page)
        for step, phase in ((1, "1"), (3, "3"), (4, "4")):  # inside the round, from the inspector
            page.click(f"[data-step='{step}']")
            settled(page)
            assert page.get_attribute(".sv", "data-phase") == phase
        page.click("[data-do=phaseback]")
        settled(page)
        assert page.get_attribute(".sv", "data-phase") == "3" and "slowed" in page.text_content(".where")

    drive(use)


def test_node_mask_row_and_text_are_one_thing(drive, settled) -> None:
    """Pointing at any of the three lights the other two; choosing one chooses all."""

    def use(page):
        page.evaluate(LOAD, json.dumps(RACE))
        page.evaluate("board.setLayout('watch'); board.goto({ lane: 2, round: 4, tab: 'mask' })")
        settled(page)
        lit = "[...document.querySelectorAll('.hot')].map((e) => e.closest('.tree') ? 'tree' : e.closest('.mask') ? 'mask' : e.closest('.stage') ? 'text' : e.closest('.cells') ? 'rail' : 'cache').sort().join()"
        kept = page.evaluate("board.board.inspector.v.round.path[1]")
        for spot in (f".tree [data-node='{kept}']", f".mask [data-node='{kept}'] .band"):
            page.hover(spot)
            assert page.evaluate(lit) == "cache,mask,text,tree", spot
            page.mouse.move(2, 2)
        page.hover(".lane .stage .live .now >> nth=1")
        assert page.evaluate(lit) == "cache,mask,text,tree"
        assert "drafted token" in page.text_content(".said")
        page.mouse.move(2, 2)
        assert page.evaluate(lit) == ""
        page.click(f".mask [data-node='{kept}'] .band")
        settled(page)
        assert (
            page.evaluate(
                "document.querySelectorAll('.tree .node.sel, .mask .mrow.sel, .stage .t.sel').length"
            )
            == 3
        )

    drive(use)


def test_a_shipped_recording_says_what_it_shows_and_other_traces_say_nothing(drive, settled) -> None:
    about = {"title": "A state", "text": "<b>No</b> keys & values."}

    def use(page):
        page.evaluate(LOAD, json.dumps([r | {"about": about} if r["type"] == "header" else r for r in RACE]))
        for layout in ("watch", "race"):
            page.evaluate("(layout) => board.setLayout(layout)", layout)
            settled(page)
            assert page.inner_text(".hero .about") == f"{about['title']}. {about['text']}"
        page.evaluate(LOAD, json.dumps(RACE))
        settled(page)
        assert page.is_hidden(".hero .about")

    drive(use)


def test_blanks_and_open_bytes_are_shown_on_demand_and_change_no_text(drive, settled) -> None:
    records = sample.race(("plain", "chain"), text=sample.UNICODE, split=True)

    def use(page):
        page.evaluate(LOAD, json.dumps(records))
        at_end(page, settled)
        assert page.evaluate(SHOWN_TEXT, 1) == sample.UNICODE
        page.click(".marks")
        settled(page)
        assert page.evaluate(SHOWN_TEXT, 1) == sample.UNICODE
        assert page.evaluate("document.querySelectorAll('.stage .ws').length") > 5
        assert "\\xE4" in page.evaluate(
            "[...document.querySelectorAll('.stage .chip')].map((c) => c.textContent).join()"
        )
        page.keyboard.press("m")
        settled(page)
        assert (
            page.evaluate("document.querySelectorAll('.stage .ws').length") == 0
            and page.evaluate(SHOWN_TEXT, 1) == sample.UNICODE
        )

    drive(use)


def test_a_tree_of_150_nodes_is_readable_first_and_whole_on_demand(drive, settled) -> None:
    def use(page):
        page.evaluate(LOAD, json.dumps(BIG))
        page.evaluate("board.goto({ lane: 1, round: 2, tab: 'mask' })")
        settled(page)
        count = "document.querySelectorAll('.tree .node:not([data-node=tail])').length"
        few = page.evaluate(count)
        assert 8 < few < 60 and page.locator(".mask .mrow").count() == 150
        path = page.evaluate("board.board.inspector.v.round.path.concat(board.board.inspector.v.round.tests)")
        assert all(page.locator(f".tree [data-node='{i}']").count() == 1 for i in path)
        page.click("[data-zoom=all]")
        settled(page)
        assert page.evaluate(count) == 150
        wide = "+document.querySelector('.tree').getAttribute('width')"
        before = page.evaluate(wide)
        page.click("[data-zoom=in]")
        assert page.evaluate(wide) > before
        page.focus(".treebox")
        page.keyboard.press("0")
        assert page.evaluate(wide) < before
        page.evaluate(
            "document.querySelector('.treebox').dispatchEvent(new WheelEvent('wheel', { deltaY: -120, ctrlKey: true, bubbles: true, cancelable: true }))"
        )
        zoomed = page.evaluate(wide)
        page.click("[data-zoom=in]")
        page.click("[data-zoom=in]")
        box = page.locator(".treebox").bounding_box()
        page.mouse.move(box["x"] + 200, box["y"] + 200)
        page.mouse.down()
        page.mouse.move(box["x"] + 120, box["y"] + 90, steps=4)
        page.mouse.up()
        assert (
            page.evaluate(
                "(() => { const b = document.querySelector('.treebox'); return b.scrollLeft + b.scrollTop; })()"
            )
            > 20
            and zoomed > 0
        )
        page.focus(".treebox")
        page.keyboard.press("ArrowDown")
        settled(page)
        assert page.locator(".tree .node.sel").count() == 1
        assert page.evaluate("document.querySelectorAll('.sv *').length") < 4000

    drive(use)


@pytest.mark.thorough
def test_on_a_phone_the_inspector_follows_in_the_page(drive, settled) -> None:
    def use(page):
        page.evaluate(LOAD, json.dumps(sample.race(("plain", "tree"))))
        page.evaluate("board.goto({ lane: 1, round: 4 })")
        settled(page)
        where = "(s) => document.querySelector(s).getBoundingClientRect().top"
        assert page.evaluate(where, ".p-stage") < page.evaluate(where, ".p-insp") and page.is_visible(
            ".tlist"
        )
        page.tap(".lane .stage .live .now >> nth=0")
        page.tap(".tlist button >> nth=1")
        settled(page)
        page.tap("[data-step='1']")
        settled(page)
        assert page.get_attribute(".sv", "data-phase") == "1"
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        small = page.evaluate(
            "[...document.querySelectorAll('.keys button, .seg button, .steps button')].filter((b) => b.offsetParent && b.getBoundingClientRect().height < 32).length"
        )
        assert small == 0

    drive(use, size=(390, 844), has_touch=True)


def test_right_to_left_text_keeps_its_order(drive, settled) -> None:
    records = sample.race(("plain", "chain"), text=ARABIC, prompt=ARABIC)

    def use(page):
        page.evaluate(LOAD, json.dumps(records))
        at_end(page, settled)
        assert (
            page.evaluate("getComputedStyle(document.querySelector('.lane .stage .text')).direction") == "rtl"
        )
        x = page.evaluate(
            "[...document.querySelectorAll('.lane[data-lane=\"1\"] .stage .live .t')].slice(0, 4).map((t) => t.getBoundingClientRect().left)"
        )
        assert x == sorted(x, reverse=True) and len(x) == 4
        mark = page.evaluate(
            "(() => { const t = document.querySelector('.stage .t.cor'); return [getComputedStyle(t, '::before').right, getComputedStyle(t, '::before').left]; })()"
        )
        assert mark[0] == "-4px"

    drive(use)


def test_a_copy_points_at_its_source(drive, settled) -> None:
    """The sample's lookups copy from the first tokens of the output; its prompt is three tokens long."""
    records = sample.race(("plain", "lookup"))
    at = next(r["round"] for r in records if r["lane"] == 1 and r["type"] == "commit" and len(r["path"]) > 1)

    def use(page):
        page.evaluate(LOAD, json.dumps(records))
        page.evaluate("(k) => board.goto({ lane: 1, round: k, tab: 'lens' })", at)
        settled(page)
        assert page.locator(".arcs path").count() >= 1
        assert page.evaluate("[...document.querySelectorAll('.stage .src')].map((t) => +t.dataset.i)")[
            :2
        ] == [0, 1]
        assert page.locator(".lens .arc").count() >= 2
        page.evaluate("board.setLayout('race')")
        settled(page)
        assert page.locator(".arcs path").count() == 0

    drive(use)


def test_an_exported_page_opens_where_its_link_points_and_can_sit_in_a_slide(
    drive, settled, tmp_path
) -> None:
    path = tmp_path / "trace.html"
    path.write_text(to_html(RACE), encoding="utf-8")

    def use(page):
        page.evaluate("location.hash = '#layout=watch&lane=2&round=4&node=1&tab=log'")
        page.locator(".sv[data-round='4']").wait_for()
        assert (
            page.locator(".sub [aria-selected=true]").text_content() == "Log"
            and page.locator(".tree .node.sel").count() == 1
        )
        for text in page.locator(".lane .page").all():  # the page's own rules stay outside the board
            assert text.evaluate(
                "(e) => { const c = getComputedStyle(e); return [c.paddingTop, c.paddingLeft, c.paddingBottom, c.maxWidth]; }"
            ) == ["0px", "0px", "0px", "none"]
        page.evaluate("location.hash = '#layout=watch&lane=2&round=5&embed=1'")
        page.locator(".sv[data-round='5']").wait_for()
        seen = page.evaluate(
            "[...document.querySelectorAll('.sv > *, .grid > *')].filter((e) => e.offsetHeight > 1 && !e.matches('.grid')).map((e) => e.classList[0] + ' ' + (e.classList[1] || ''))"
        )
        assert seen == ["hero ", "panel passes", "panel p-stage"]

    drive(use, html=path)


def test_while_guesses_stand_what_is_still_to_come_is_pale_and_begins_with_a_word(drive, settled) -> None:
    """Else it reads as if the guess went on with the rest of a word."""
    look = """() => { const rest = document.querySelector(".lane .stage .rest"); return [rest.classList.contains("behind"), rest.textContent]; }"""

    def use(page):
        page.evaluate(LOAD, json.dumps(RACE))
        for phase, behind in ((1, True), (4, False)):
            page.evaluate("phase => board.goto({ layout: 'watch', lane: 1, round: 3, phase })", phase)
            settled(page)
            found, text = page.evaluate(look)
            assert found == behind and text and not (behind and text[0].isalnum())

    drive(use)


def test_at_temperature_0_a_chain_shows_softmax_under_its_tokens(drive, settled) -> None:
    records = [
        row | {"top_softmax": [[row["top_p"][0][0], 0.999]]}
        if row["type"] == "judge" and row.get("top_p")
        else row
        for row in sample.race(("plain", "chain"), tokens=20)
    ]

    def use(page):
        for temperature, words in ((0.0, "softmax"), (1.0, "target p")):
            rows = [
                row | {"sampling": row["sampling"] | {"temperature": temperature}}
                if row["type"] == "header"
                else row
                for row in records
            ]
            page.evaluate(LOAD, json.dumps(rows))
            page.evaluate("board.goto({ layout: 'watch', lane: 1, round: 2, phase: 4 })")
            settled(page)
            drawn = page.text_content(".treebox svg")
            assert words in drawn and ("target p" in drawn) != ("softmax" in drawn), drawn

    drive(use)
