"""The board in a real Chromium: what is drawn is what the trace says, and a person can find their way."""

from __future__ import annotations

import base64
import json
import random

import pytest

from specviz.trace.page import to_html, viewer_assets

from . import sample

VERDICTS = {"bonus": "bonus", "correction": "correction", "plain": "plain"}
TOKENS = "(lane) => [...document.querySelectorAll(`.lane[data-lane='${lane}'] .stage .live .t`)].map((t) => t.dataset.v)"
LOAD = "(text) => board.load(JSON.parse(text))"  # as text: the driver is slow with deep values
RACE = sample.race()
WATCH = sample.race(("plain", "chain"))


# The text of a lane as a person reads it: chips name what is no text.
SHOWN_TEXT = "(l) => { const c = document.querySelector(`.lane[data-lane='${l}'] .stage .text`).cloneNode(true); c.querySelectorAll('.chip, .t.eos').forEach((x) => x.remove()); return c.textContent; }"


def literal_of(text: str) -> str:
    """What of a text may reach the page as text: no control, no bidirectional and no invisible character."""
    return "".join(c for c in text if (c >= " " or c in "\n\t") and c not in "\u202e\u202c\u2066\u2069\u200b")


def said(records: list[dict], lane: int) -> tuple[list[str], bytes]:
    """The verdict of every committed token of a lane, and its bytes."""
    verdicts, raw = [], b""
    for r in records:
        if r["lane"] != lane:
            continue
        if r["type"] == "commit":
            verdicts += ["accepted"] * len(r["path"]) + [VERDICTS[r["tail"]["why"]]]
        elif r["type"] == "text":
            raw += b"".join(base64.b64decode(p["b"]) for p in r["pieces"])
    return verdicts, raw


def at_end(page, settled) -> None:
    page.evaluate("board.board.edge(1)")
    settled(page)


def test_colours_and_their_second_channel_match_the_trace(drive, settled) -> None:
    def use(page):
        page.evaluate(LOAD, json.dumps(RACE))
        at_end(page, settled)
        for lane in range(4):
            assert page.evaluate(TOKENS, lane) == said(RACE, lane)[0]
        style = "(v) => { const c = getComputedStyle(document.querySelector(`.stage .t[data-v='${v}']:not(.now)`)); return [c.textDecorationStyle, c.textDecorationLine]; }"
        assert page.evaluate(style, "accepted") == ["solid", "underline"]
        assert page.evaluate(style, "correction") == ["double", "underline"]
        assert page.evaluate(style, "bonus") == ["dotted", "underline"]
        assert page.evaluate(style, "plain")[1] == "none"
        rail = "getComputedStyle(document.querySelector('.cells .t[data-v=rejected]'))"
        assert page.evaluate(f"[{rail}.textDecorationLine, {rail}.outlineStyle]") == [
            "line-through",
            "dashed",
        ]

    drive(use)


def test_every_round_scrubbed_to_shows_that_prefix(drive, settled) -> None:
    verdicts, _ = said(WATCH, 1)
    ends, n = [], 0
    for r in WATCH:
        if r["lane"] == 1 and r["type"] == "commit":
            n += r["n_new"]
            ends.append(n)

    def use(page):
        page.evaluate(LOAD, json.dumps(WATCH))
        for k in [0, 9, 3, len(ends) - 1, 5, 4]:
            page.evaluate("(k) => board.board.goto(k)", k)
            settled(page)
            assert page.evaluate(TOKENS, 1) == verdicts[: ends[k]]
            assert page.get_attribute(".sv", "data-round") == str(k)

    drive(use)


@pytest.mark.parametrize("text", [sample.UNICODE, sample.HOSTILE], ids=["unicode", "hostile"])
def test_hard_text_is_literal_and_nothing_runs(drive, settled, tmp_path, text) -> None:
    """Live, and in the exported page; the texts sit in every field that reaches the page."""
    evil = "<img src=x onerror=alert(1)>${alert(1)}{{7*7}}"
    records = sample.race(
        ("plain", "tree"),
        text=text,
        prompt=evil + text,
        split=True,
        turns=[{"role": evil, "text": text}, {"role": "assistant", "text": evil}],
    )
    for r in records:
        if r["type"] == "header":
            r["method"] |= {"title": evil, "summary": evil}
            r["knobs"] = {evil: evil}
            r["target"]["name"] = r["env"]["machine"] = evil
    page_file = tmp_path / "trace.html"
    page_file.write_text(to_html(records, title=evil), encoding="utf-8")
    literal = literal_of(text)

    def look(page):
        shown = "[...document.querySelectorAll('.lane .stage .text')].map((t) => { const c = t.cloneNode(true); c.querySelectorAll('.chip, .t.eos').forEach((x) => x.remove()); return c.textContent; })"
        assert page.evaluate(shown) == [literal]
        assert (
            page.evaluate("document.querySelectorAll('.sv img, .sv script, .sv iframe, .sv a').length") == 0
        )
        for tab in ("mask", "log", "why", "token"):
            page.click(f".sub [data-tab={tab}]")
            settled(page)

    def live(page):
        for value in sample.frames(records):
            page.evaluate("(v) => board.push(v)", value)
        page.evaluate(
            "(v) => board.push(v)",
            json.dumps({"s": 10**6, "e": [], "status": {"state": "error", "text": evil}}),
        )
        at_end(page, settled)
        assert page.text_content(".notice .say").startswith(evil)
        look(page)

    def exported(page):
        page.keyboard.press("End")
        settled(page)
        look(page)

    drive(live)
    drive(exported, html=page_file)


@pytest.mark.thorough
def test_four_lanes_at_twenty_frames_a_second_lose_nothing(drive, settled) -> None:
    records = sample.interleaved(sample.race(mode="live", tokens=160))
    values = sample.frames(records, size=60, window=4)

    def use(page):
        page.evaluate(
            """(values) => new Promise((done) => { let i = 0; const t = setInterval(() => { board.push(values[i++]); if (i === values.length - 1) { clearInterval(t); done(); } }, 50); })""",
            values,
        )
        settled(page)
        before = page.evaluate("({...document.querySelector('.sv').dataset})")
        assert (before["lost"], before["gaps"], before["records"], before["mode"]) == (
            "0",
            "0",
            str(len(records)),
            "follow",
        )
        page.evaluate("(v) => board.push(v)", values[-1])
        settled(page)
        after = page.evaluate("({...document.querySelector('.sv').dataset})")
        assert (after["state"], after["records"]) == ("done", str(len(records)))
        for lane in range(4):
            assert page.evaluate(TOKENS, lane) == said(records, lane)[0]

    drive(use)


def test_a_gap_is_reported_and_the_snapshot_mends_it(drive, settled) -> None:
    values = sample.frames(sample.interleaved(RACE), size=30, window=2)

    def use(page):
        for value in values[:4] + values[8:-1]:
            page.evaluate("(v) => board.push(v)", value)
        settled(page)
        assert int(page.get_attribute(".sv", "data-lost")) > 0
        assert "missed" in page.text_content(".notice .say")
        page.evaluate("(v) => board.push(v)", values[-1])
        at_end(page, settled)
        assert page.get_attribute(".sv", "data-lost") == "0"
        for lane in range(4):
            assert page.evaluate(TOKENS, lane) == said(RACE, lane)[0]

    drive(use)


@pytest.mark.thorough
def test_two_thousand_tokens_in_four_lanes_stay_bounded(drive, settled) -> None:
    records = sample.race(tokens=2000)

    def use(page):
        page.evaluate(LOAD, json.dumps(records))
        counts = []
        for x in (1.0, 0.1, 0.55, 0.8, 1.0):
            page.evaluate("(x) => board.board.scrubTo(x)", x)
            settled(page)
            counts.append(page.evaluate("document.querySelectorAll('.sv *').length"))
        assert max(counts) < 4000, counts
        at_end(page, settled)
        for lane in range(4):
            verdicts, raw = said(records, lane)
            shown = page.evaluate(TOKENS, lane)
            assert shown == verdicts[-len(shown) :] and len(shown) >= 256
            whole = page.evaluate(
                "(l) => { const c = document.querySelector(`.lane[data-lane='${l}'] .stage .text`).cloneNode(true); c.querySelectorAll('.t.eos').forEach((x) => x.remove()); return c.textContent; }",
                lane,
            )
            assert whole == raw.decode()

    drive(use)


@pytest.mark.parametrize(
    "width", [360, 1400, *(pytest.param(width, marks=pytest.mark.thorough) for width in (390, 768))]
)
def test_no_sideways_scroll(drive, settled, width) -> None:
    long = sample.race(("plain", "tree"), text=sample.HOSTILE + " " + "x" * 400, prompt="y" * 300)

    def use(page):
        for records in (long, RACE):
            page.evaluate(LOAD, json.dumps(records))
            at_end(page, settled)
            if page.is_visible(".p-insp.shut .opens"):  # in a race the round opens when asked
                page.click(".p-insp .opens")
            for tab in ("log", "mask", "why"):
                page.click(f".sub [data-tab={tab}]")
                settled(page)
                assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")

    drive(use, size=(width, 800))


def test_nothing_below_moves_while_rounds_change(drive, settled) -> None:
    def use(page):
        page.evaluate(LOAD, json.dumps(WATCH))
        tops = set()
        for k in range(0, 27, 3):
            page.evaluate("(k) => board.board.goto(k, 1 + (k % 4))", k)
            settled(page)
            tops.add(
                page.evaluate(
                    "JSON.stringify([...document.querySelectorAll('.panel, .rail, .sub')].map((p) => Math.round(p.getBoundingClientRect().top)))"
                )
            )
        assert len(tops) == 1, tops

    drive(use)


def test_the_newest_text_stays_in_sight_and_a_reader_is_left_in_peace(drive, settled) -> None:
    values = sample.frames(
        sample.interleaved(sample.race(("plain", "chain"), mode="live", tokens=400)), size=80, window=1
    )
    last = "(() => { const b = document.querySelector('.lane .stage'), t = b.querySelectorAll('.live .t'), a = b.getBoundingClientRect(), c = t[t.length - 1].getBoundingClientRect(); return c.bottom <= a.bottom + 1 && c.top >= a.top - 1; })()"
    top = "(() => { const b = document.querySelector('.lane .stage'); return b.querySelector('.page').getBoundingClientRect().top - b.getBoundingClientRect().top; })()"

    def use(page):
        push = lambda some: [page.evaluate("(v) => board.push(v)", v) for v in some] and settled(page)  # noqa: E731
        page.evaluate("board.setLayout('watch')")
        push(values[:2])
        assert page.evaluate(top) > -1  # a short text begins at the top of its box
        push(values[2:12])
        assert page.evaluate(last) and page.evaluate(top) < -50
        page.evaluate("document.querySelector('.lane .stage').scrollTop = -120")
        settled(page)
        push(values[12:16])
        assert not page.evaluate(last)
        page.evaluate("board.board.edge(1)")
        settled(page)
        page.evaluate("board.board.stepBy(-1)")
        settled(page)
        assert page.evaluate(last)

    drive(use)


def test_live_follows_a_scrub_stays_and_the_live_button_returns(drive, settled) -> None:
    values = sample.frames(
        sample.interleaved(sample.race(("plain", "chain"), mode="live")), size=30, window=3
    )

    def use(page):
        push = lambda some: [page.evaluate("(v) => board.push(v)", v) for v in some] and settled(page)  # noqa: E731
        here = lambda: page.evaluate("({...document.querySelector('.sv').dataset})")  # noqa: E731
        push(values[:6])
        first = here()
        push(values[6:9])
        assert (here()["state"], here()["mode"]) == ("live", "follow") and int(here()["round"]) > int(
            first["round"]
        )
        page.evaluate("board.board.goto(2)")
        push(values[9:12])
        assert (here()["mode"], here()["round"]) == ("hold", "2")
        page.click(".golive")
        push(values[12:14])
        assert here()["mode"] == "follow" and int(here()["round"]) > 2

    drive(use)


def test_keyboard(drive, settled) -> None:
    def use(page):
        page.evaluate(LOAD, json.dumps(WATCH))
        at_end(page, settled)
        here = lambda: (  # noqa: E731
            settled(page),
            page.evaluate(
                "(() => { const d = document.querySelector('.sv').dataset; return [d.mode, +d.round, +d.phase]; })()"
            ),
        )[1]
        page.keyboard.press("Home")
        assert here() == ["hold", 0, 1]
        page.keyboard.press("Shift+ArrowRight")
        assert here() == ["hold", 0, 2]
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        assert here() == ["hold", 1, 4]
        page.keyboard.press("ArrowLeft")
        assert here() == ["hold", 0, 4]
        page.keyboard.press(" ")
        assert here()[0] == "play"
        page.keyboard.press(" ")
        assert here()[0] == "hold"
        page.keyboard.press("End")
        assert here()[1] == 27
        for _ in range(30):  # every control can be reached, and shows that it is
            page.keyboard.press("Tab")
            assert page.evaluate(
                "document.activeElement === document.body || getComputedStyle(document.activeElement).outlineStyle !== 'none' || document.activeElement.matches('.node')"
            )
        page.evaluate(
            "() => { const i = document.createElement('input'); document.body.append(i); i.focus(); }"
        )
        page.keyboard.press("Home")
        assert here()[1] == 27

    drive(use)


def test_a_token_leads_to_its_sampling_card_and_back(drive, settled) -> None:
    first = next(r for r in WATCH if r["type"] == "judge" and r["verdict"] == "rejected")

    def use(page):
        page.evaluate(LOAD, json.dumps(WATCH))
        page.evaluate("(k) => board.board.goto(k)", first["round"])
        settled(page)
        assert page.text_content(".card .verdict") == "Rejected"
        assert f"u = {first['u']:.3f}" in page.text_content(".ruler")
        assert f"a = {first['a']:.3f}" in page.text_content(".ruler")
        assert "Residual" in page.text_content(".card")
        page.click(".lane .stage .live .t[data-v=accepted] >> nth=-1")
        settled(page)
        assert page.text_content(".card .verdict") == "Accepted"
        assert page.evaluate("document.querySelectorAll('.stage .t.sel, .tree .node.sel').length") == 2
        page.click(".cells .cell .t[data-v=rejected]")
        settled(page)
        assert page.text_content(".card .verdict") == "Rejected"

    drive(use)


def test_playback_reaches_the_end_and_rests_there(drive, settled) -> None:
    def use(page):
        page.evaluate(LOAD, json.dumps(WATCH))
        settled(page)
        assert page.get_attribute(".sv", "data-mode") == "play"  # a finished trace begins moving by itself
        page.evaluate("board.board.setSpeed(0)")
        page.wait_for_function("document.querySelector('.sv').dataset.mode === 'hold'", timeout=30_000)
        assert page.get_attribute(".sv", "data-round") == "27"
        assert page.evaluate(TOKENS, 1) == said(WATCH, 1)[0]

    drive(use)


@pytest.mark.thorough
def test_a_jump_shows_words_that_were_still_to_appear(drive, settled) -> None:
    """While playing, committed words appear one after another; who jumps elsewhere sees all of them at
    once."""

    def use(page):
        page.evaluate(LOAD, json.dumps(WATCH))
        page.evaluate("board.board.setSpeed(0.25)")
        page.wait_for_selector(".sv .stage .land, .sv .text .land", state="attached")
        page.evaluate("board.goto({ lane: 1, round: 9, phase: 4 })")
        settled(page)
        assert page.get_attribute(".sv", "data-round") == "9"
        hidden = "[...document.querySelectorAll('.sv .text .t')].filter((e) => e.textContent.trim() && getComputedStyle(e).opacity < 1).length"
        assert (
            page.evaluate("document.querySelectorAll('.sv .text .land').length") == page.evaluate(hidden) == 0
        )

    drive(use)


def test_reduced_motion_rests_on_a_finished_round(drive, settled) -> None:
    def use(page):
        page.evaluate(LOAD, json.dumps(WATCH))
        settled(page)
        assert page.evaluate(
            "[document.querySelector('.sv').dataset.mode, document.querySelector('.sv').dataset.phase]"
        ) == ["hold", "4"]
        assert page.evaluate("document.getAnimations().length") == 0

    drive(use, reduced_motion="reduce")


def test_states_are_reported(drive, settled) -> None:
    def use(page):
        state = (  # noqa: E731
            lambda s, t: (
                page.evaluate(
                    "(f) => board.push(JSON.stringify(f))",
                    {"s": state.n, "e": [], "status": {"state": s, "text": t}},
                ),
                setattr(state, "n", state.n + 1),
                settled(page),
                page.get_attribute(".sv", "data-state"),
                page.text_content(".notice"),
            )[3:]
        )
        state.n = 1
        assert page.get_attribute(".sv", "data-state") == "idle"
        assert page.is_visible(".blank")
        for s, t in (
            ("loading", "Loading the models."),
            ("queued", "2 runs before this one."),
            ("error", "The engine failed."),
            ("stopped", "Stopped; what was decoded is kept."),
        ):
            got = state(s, t)
            assert got[0] == s and t in got[1]
        page.evaluate(LOAD, json.dumps(sample.race(("chain",), mode="recorded")))
        settled(page)
        assert (
            "Recorded" in page.text_content(".notice")
            and "sample machine" in page.text_content(".notice")
            and "20 November 2026" in page.text_content(".notice")
        )
        page.evaluate(
            "(f) => board.push(JSON.stringify(f))",
            {"s": 99, "new": True, "e": [], "status": {"state": "idle", "text": "A new chat."}},
        )
        settled(page)
        assert (
            page.is_visible(".blank")
            and page.locator(".lane").count() == 0
            and "A new chat." in page.text_content(".notice")
        )
        assert (
            "Simulated"
            in (page.evaluate(LOAD, json.dumps(WATCH)), settled(page), page.text_content(".notice"))[2]
        )

    drive(use)


def test_figures_agree_with_the_records_and_define_themselves(drive, settled) -> None:
    def use(page):
        page.evaluate(LOAD, json.dumps(WATCH))
        at_end(page, settled)
        m = page.evaluate(
            "(() => { const b = board.board, l = b.focus(); return SpecViz.metrics.of(l, l.committed, SpecViz.metrics.baselineOf(b.st)); })()"
        )
        shown = page.evaluate(
            "[...document.querySelectorAll('.metric .v')].map((v) => v.firstChild.textContent)"
        )
        assert shown[:3] == [
            f"{m['tokens_per_second']:.1f}",
            f"{m['walltime_speedup']:.2f}\u00d7",
            f"{m['block_efficiency']:.2f}",
        ]
        for i in range(6):
            page.focus(f".metric:nth-child({i + 1})")
            page.wait_for_function(
                f"getComputedStyle(document.querySelector('.metric:nth-child({i + 1}) .tip')).visibility === 'visible'"
            )

    drive(use)


def test_dark_by_a_class_anywhere_above(drive, settled) -> None:
    def use(page):
        page.evaluate(LOAD, json.dumps(WATCH))
        colour = "getComputedStyle(document.querySelector('.sv')).getPropertyValue('--sv-acc').trim()"
        assert page.evaluate(colour) == "#0072b2"
        page.evaluate("document.body.classList.add('dark')")
        assert page.evaluate(colour) == "#56b4e9"
        settled(page)
        assert page.evaluate("board.board.colors.acc") == "#56b4e9"

    drive(use)


def test_the_style_sheet_survives_being_written_out_again(drive, settled) -> None:
    """Gradio parses the sheet and writes each rule's cssText; a shorthand with var() beside its longhand
    would be lost."""
    _, css = viewer_assets()
    probe = """() => [...document.querySelectorAll('.sv *:not(.chart *)')].filter((e, i) => i % 3 === 0).map((e) => { const c = getComputedStyle(e);
      return [e.className.baseVal ?? e.className, c.color, c.backgroundColor, c.borderTopWidth, c.borderTopColor, c.fontFamily, c.fontSize, c.lineHeight, c.textDecoration, c.display, c.gridTemplateAreas, c.padding].join('|'); })"""

    def use(page):
        page.evaluate(LOAD, json.dumps(RACE))
        at_end(page, settled)
        before = page.evaluate(probe)
        page.evaluate(
            """(css) => { const s = new CSSStyleSheet(); s.replaceSync(css);
              const out = [...s.cssRules].map((r) => r instanceof CSSMediaRule ? `@media ${r.media.mediaText} {${[...r.cssRules].map((x) => x.cssText).join(' ')}}` : r.cssText).join('\\n');
              document.querySelector('style').textContent = out; }""",
            css,
        )
        settled(page)
        assert page.evaluate(probe) == before
        kinds = page.evaluate(
            "(css) => { const s = new CSSStyleSheet(); s.replaceSync(css); return [...new Set([...s.cssRules].map((r) => r.constructor.name))]; }",
            css,
        )
        assert set(kinds) <= {
            "CSSStyleRule",
            "CSSMediaRule",
            "CSSKeyframesRule",
        }  # Gradio drops every other kind

    drive(use)


def test_plotly_draws_the_chart_where_the_page_has_it(drive, settled) -> None:
    def use(page):
        page.evaluate(
            "globalThis.Plotly = { calls: [], react(box, data, layout, config) { this.calls.push({ data, layout, config }); }, purge() {} }"
        )
        page.evaluate(LOAD, json.dumps(RACE))
        at_end(page, settled)
        page.wait_for_function("Plotly.calls.length && Plotly.calls.at(-1).data[0].x.length > 10")
        last = page.evaluate("Plotly.calls.at(-1)")
        assert [d["line"]["dash"] for d in last["data"]] == ["solid", "dash", "dot", "solid"]
        assert last["config"]["displayModeBar"] is False and last["layout"]["uirevision"]
        assert len(last["layout"]["annotations"]) == 4  # end labels instead of a legend

    drive(use)


def test_destroy_leaves_nothing_behind(drive, settled) -> None:
    def use(page):
        page.evaluate(LOAD, json.dumps(WATCH))
        settled(page)
        page.evaluate("board.destroy()")
        settled(page)
        assert page.evaluate("document.querySelector('.sv').childNodes.length") == 0

    drive(use)


def mutated(records: list[dict], seed: int) -> list[dict]:
    """A trace with fields of the wrong type, missing, huge or swapped, records dropped, doubled and out of
    order."""
    rng, odd = (
        random.Random(seed),
        [
            None,
            -1,
            10**12,
            1e308,
            "x",
            "<b>",
            [],
            [[]],
            {},
            {"tok": {}},
            True,
            [None, "a", [1]],
            -0.5,
            "\u202e" * 40,
        ],
    )

    def spoil(value, depth=0):
        if rng.random() < 0.03:
            return rng.choice(odd)
        if isinstance(value, dict):
            return {k: spoil(v, depth + 1) for k, v in value.items() if rng.random() > 0.01}
        if isinstance(value, list):
            return [spoil(v, depth + 1) for v in value]
        return value

    out = []
    for r in records:
        keep = {k: r[k] for k in ("type", "lane", "seq") if k in r}
        if rng.random() > 0.02:
            bad = {k: spoil(v) for k, v in r.items()}
            out.append({**bad, **(keep if rng.random() > 0.05 else {})})
        if rng.random() < 0.02 and out:
            out.insert(rng.randrange(len(out)), rng.choice(records))
    return out


@pytest.mark.parametrize("seed", range(4))
def test_a_spoilt_trace_is_drawn_or_dropped_but_breaks_nothing(drive, settled, seed) -> None:
    records = mutated(sample.race(("plain", "chain", "tree") if seed % 2 else ("plain", "tree")), seed)

    def use(page):
        page.evaluate(LOAD, json.dumps(records))
        for x in (0.2, 0.6, 1.0):
            page.evaluate("(x) => board.board.scrubTo(x)", x)
            for tab in ("mask", "log", "lens", "why"):
                page.evaluate("(t) => { board.board.inspector.tab = t; board.board.paint(); }", tab)
            for sel in (0, 3, "tail"):
                page.evaluate(
                    "(n) => { const v = board.board.inspector.v; if (v.round) board.board.selectNode(v.lane.id, v.round.i, n, true); board.board.paint(); }",
                    sel,
                )
        page.evaluate("(x) => { board.board.setSpeed(0); board.board.edge(0); board.board.play(); }", 0)
        settled(page)

    drive(use, size=(1400 if seed < 2 else 390, 900))
