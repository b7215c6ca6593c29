"""The tabs Lab, Learn and Traces in a real Chromium: what a person presses does what it says, on any width,
in any theme."""

from __future__ import annotations

import gzip
import json
import re
import xml.etree.ElementTree as ET

import pytest

from specviz import ASSETS
from specviz.evidence.scaling import report

from ..message_codes import begins, viewer_texts
from ..viewer import sample
from .conftest import ANSWERS, DRAFTS, EVIL, catalogue

TEXTS = viewer_texts()

RACE = sample.race(tokens=60)
GREEDY = [
    {**r, "sampling": {"temperature": 0.0, "top_k": 0, "top_p": 1.0, "seed": 0}}
    if r["type"] == "header"
    else r
    for r in RACE
]
LIVE = [{**r, "mode": "live"} if r["type"] == "header" else r for r in RACE]
VIEWS = {
    "lab": [
        "whatif",
        "cost",
        "contexts",
        "predict",
        "hardware",
        "distribution",
        "breakit",
        "batched",
        "mask",
        "killers",
        "dial",
        "verify",
        "sweep",
        "grid",
        "prompts",
        "load",
        "scaling",
    ],
    "learn": ["start", "methods", "server", "formula", "numbers", "quiz", "glossary", "present"],
    "traces": ["library", "take", "history", "predictability", "states"],
}


def painted(page) -> None:
    page.evaluate(
        "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))"
    )


def show(page, view: str):
    page.evaluate("(v) => panel.show(v)", view)
    painted(page)
    return page.text_content(".pn-body")


# What the first frame of a width shows. Sizes are observed behind a frame's callbacks and before it is
# painted, so what they lead to is there once the frame is over, and not within its callback.
WIDER = """() => new Promise((say) => requestAnimationFrame(() => setTimeout(() => say(
    document.documentElement.scrollWidth <= innerWidth ? [] :
    [...document.querySelectorAll('body *')].filter((e) => e.getBoundingClientRect().right > innerWidth + 1)
        .map((e) => e.tagName + ' ' + e.className).slice(0, 9).concat(String(document.documentElement.scrollWidth))))))"""


@pytest.mark.parametrize("kind", VIEWS)
def test_every_view_at_every_width_in_both_themes(visit, kind) -> None:
    def use(page):
        for size, theme in (((1280, 900), ""), ((390, 844), "dark"), ((320, 640), "")):
            page.set_viewport_size({"width": size[0], "height": size[1]})
            assert page.evaluate(WIDER) == [], size
            page.evaluate("(t) => { document.documentElement.className = t; }", theme)
            for view in VIEWS[kind]:
                text = show(page, view)
                assert len(text) > 80, view
                assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (view, size)
                assert page.evaluate("document.querySelectorAll('.svp *').length") < 2500, view
                small = page.evaluate(
                    "[...document.querySelectorAll('.svp button, .svp input, .svp select')].filter((b) => b.offsetParent && b.getBoundingClientRect().height < 19 && b.type !== 'radio' && b.type !== 'file' && b.type !== 'checkbox').map((b) => b.outerHTML.slice(0, 120))"
                )
                assert small == [], small
                nameless = page.evaluate(
                    "[...document.querySelectorAll('.svp button, .svp input, .svp select, .svp textarea')].filter((b) => b.checkVisibility() && !b.textContent.trim() && !b.getAttribute('aria-label') && !(b.labels && b.labels.length)).length"
                )
                assert nameless == 0, view

    visit(use, kind, records=GREEDY)


@pytest.mark.parametrize("kind", VIEWS)
def test_without_a_trace_and_without_a_server_each_view_says_so(visit, kind) -> None:
    def use(page):
        page.evaluate(
            "() => { ctx.ask = async () => { throw new Error('The server cannot be reached.'); }; }"
        )
        for view in VIEWS[kind]:
            assert len(show(page, view)) > 60, view
        bare = page.evaluate(
            "(k) => { const h = document.createElement('div'); document.body.append(h); const p = SpecVizPanels.mount(h, k, {}); const n = h.textContent.length; p.destroy(); h.remove(); return n; }",
            kind,
        )
        assert bare > 60

    visit(use, kind, records=[])


@pytest.mark.parametrize("kind", VIEWS)
def test_hostile_text_is_only_ever_text(visit, kind) -> None:
    records = sample.race(("plain", "chain", "tree"), text=sample.HOSTILE, prompt=EVIL, split=True)
    for r in records:
        if r["type"] == "header":
            r["method"] |= {"title": EVIL, "family": EVIL}
            r["target"]["name"] = r["env"]["machine"] = EVIL
            r["knobs"] = {EVIL: EVIL}
    answers = json.loads(json.dumps(ANSWERS))
    answers["distribution"]["tokens"] = [EVIL] * 4
    answers["mistakes"][0] |= {"title": EVIL, "why": EVIL}
    answers["break_it"] |= {"title": EVIL, "why": EVIL, "verdict": EVIL}
    answers["library"][0] |= {"title": EVIL, "about": EVIL}
    answers["load"] |= {
        "said": [EVIL],
        "machine": EVIL,
        "rows": [{**r, "method": EVIL, "load": EVIL} for r in answers["load"]["rows"]],
    }
    answers["tasks"] = [{"task": EVIL}]
    for one in answers["scaling"]["targets"][0]["drafts"]:
        one["name"] = EVIL
    answers["scaling"]["targets"][0] |= {"target": EVIL, "began": [EVIL], "missing": [EVIL]}
    answers["cost_curve"]["machine"] = answers["sweep"]["knob"] = answers["context_costs"]["machine"] = EVIL
    answers["context_costs"]["methods"][0]["title"] = EVIL

    def use(page):
        cards = (
            "() => { for (const c of ctx.catalogue) Object.assign(c, { title: c.title + %s, summary: %s, look: %s, paper: %s }); }"
            % ((json.dumps(EVIL),) * 4)
        )
        page.evaluate(cards)
        for view in VIEWS[kind]:
            show(page, view)
            for press in page.query_selector_all(".pn-body .pn-btn.primary, .pn-body .pn-choice"):
                if (
                    press.is_visible()
                    and press.is_enabled()
                    and view not in ("library", "history", "present", "methods", "take")
                ):
                    press.click()
                    page.wait_for_timeout(30)
        assert (
            page.evaluate(
                "document.querySelectorAll('.svp img, .svp script:not(#data), .svp iframe, .svp [onerror]').length"
            )
            == 0
        )
        shown = page.evaluate("document.querySelector('.svp').innerText")
        assert "\u202e" not in shown and "\u0007" not in shown

    visit(use, kind, records=records, answers=answers)


def test_the_rail_by_keyboard(visit) -> None:
    def use(page):
        page.focus("[data-key=why]")
        for key, question, view in (
            ("ArrowDown", "if", "whatif"),
            ("End", "exact", "distribution"),
            ("Home", "why", "predict"),
            ("ArrowUp", "exact", "distribution"),
            ("ArrowDown", "why", "predict"),
        ):
            page.keyboard.press(key)
            assert page.get_attribute(".svp", "data-view") == view
            assert page.evaluate("document.activeElement.dataset.key") == question
        page.keyboard.press("Tab")
        for _ in range(12):
            page.keyboard.press("Tab")
            assert page.evaluate(
                "document.activeElement === document.body || getComputedStyle(document.activeElement).outlineStyle !== 'none' || ['range', 'radio'].includes(document.activeElement.type)"
            )

    visit(use, "lab", records=GREEDY)


# ---- Lab ----


def test_what_if_moves_with_its_sliders_and_says_what_it_cannot_know(visit) -> None:
    def use(page):
        first = show(page, "whatif")
        assert begins(TEXTS, "whatif.greedy.known") in first and begins(TEXTS, "whatif.check") in first
        assert re.search(r"longer draft (would|might).*where the recorded 4 gave \d\.\d\d", first)
        before = page.evaluate("panel.view().state().result.low.rounds")
        page.get_by_role("slider", name="Draft length").focus()
        page.keyboard.press("Home")
        state = page.evaluate("panel.view().state()")
        assert state["set"]["gamma"] == 1 and state["result"]["low"]["rounds"] > before
        speed = page.text_content(".pn-figs .strong .v")
        page.get_by_role("slider", name="Price of a draft step").focus()
        page.keyboard.press("End")
        assert page.text_content(".pn-figs .strong .v") != speed
        page.click("text=As recorded")
        assert page.evaluate("panel.view().state().set") == {"gamma": 4, "width": 1, "price": 1}

    visit(use, "lab", records=[r for r in GREEDY if r["lane"] in (0, 1)])
    sampled = visit(
        lambda page: show(page, "whatif"), "lab", records=[r for r in RACE if r["lane"] in (0, 1)]
    )
    assert TEXTS["whatif.sampled"] in sampled and TEXTS["whatif.sampled.rest"] in sampled


def test_the_price_of_a_pass_follows_the_round_and_the_measurement(visit) -> None:
    def use(page):
        page.evaluate("api.goto({ lane: 1, round: 2 })")
        page.wait_for_function(
            "document.querySelector('.svp') && panel.show('cost') === undefined && document.querySelector('.pn-prose').textContent.includes('Round 3')"
        )
        page.click("text=Measure here")
        page.wait_for_function("document.querySelector('.pn-prose').textContent.includes('a machine')")
        assert "64" in page.text_content(".pn-plot") and page.query_selector(".pn-plot .mark")
        assert page.evaluate("asked")[0][0] == "cost_curve"

    visit(use, "lab", records=GREEDY)


def test_a_pass_that_was_interrupted_counts_as_a_usual_one_in_the_price_of_a_pass(visit) -> None:
    """In the Lab as in the headline; the axis reaches it."""
    late = [
        record | {"verify_ns": 40 * record["verify_ns"]}
        if record["type"] == "timing" and (record["lane"], record["round"]) == (1, 2)
        else record
        for record in GREEDY
    ]

    def use(page):
        page.evaluate("api.goto({ lane: 1, round: 2 })")
        show(page, "cost")
        page.wait_for_selector(".pn-plot .mark")
        outside = """() => { const svg = document.querySelector(".pn-plot svg"), box = svg.getBoundingClientRect();
          return [...svg.querySelectorAll(".mark, circle")].filter((e) => { const r = e.getBoundingClientRect();
            return r.top < box.top || r.bottom > box.bottom || r.left < box.left || r.right > box.right; }).length; }"""
        assert page.evaluate(outside) == 0
        ((x, y),) = page.evaluate("""[...document.querySelectorAll(".pn-plot .mark")].map((e) => {
          const r = e.getBoundingClientRect(), b = e.ownerSVGElement.getBoundingClientRect(); return [r.x - b.x, (r.y - b.y) / b.height]; })""")[
            :1
        ]
        return y

    usual = visit(use, "lab", records=GREEDY)
    assert visit(use, "lab", records=late) == pytest.approx(usual, abs=0.05), "it counts as a usual one"


def test_long_texts_are_measured_and_a_model_beyond(visit) -> None:
    def use(page):
        assert TEXTS["contexts.about"] in show(page, "contexts") and TEXTS[
            "panel.empty"
        ] in page.text_content(".pn-plot")
        page.click("text=Measure here")
        page.wait_for_function("document.querySelector('.pn-prose').textContent.includes('a machine')")
        assert page.evaluate("asked.at(-1)[0]") == "context_costs"
        assert TEXTS["contexts.even"].format(tokens="16,000 tokens") in page.text_content(
            ".pn-figs"
        ) and TEXTS["contexts.measured"] in page.text_content(".pn-plot")
        said = page.text_content(".pn-prose")
        assert (
            TEXTS["contexts.method"].format(
                title="MagicDec", each="2.50", at="2,000 tokens", speed="0.60\u00d7"
            )
            in said
        )
        assert TEXTS["contexts.method.beyond"].format(speed="2.10\u00d7", at="131,072 tokens") in said
        assert page.evaluate("document.querySelectorAll('.pn-plot circle.pt').length") == 2, (
            "what is measured is a dot, and nothing else is"
        )

    visit(use, "lab", records=GREEDY)


def test_methods_that_cannot_be_asked_are_grey_and_say_why(visit) -> None:
    def use(page):
        for view, reasons in (
            ("distribution", {"medusa": "needs trained heads", "staged": "temperature 0 only"}),
            ("sweep", {"medusa": "needs trained heads"}),
        ):
            show(page, view)
            page.wait_for_selector("option[value=medusa][disabled]", state="attached")
            off = page.evaluate(
                "[...document.querySelectorAll('.pn-body select')[0].querySelectorAll('option:disabled')].map((o) => [o.value, o.title, o.textContent])"
            )
            greedy = (
                {c["key"] for c in catalogue() if c["exactness"] == "greedy only"}
                if view == "distribution"
                else set()
            )
            assert {key for key, *_ in off} == greedy | {"medusa"} and all(
                title and text.endswith(TEXTS["choice.off"]) for _, title, text in off
            )
            said = page.text_content(".pn-more:has(.pn-why)")
            assert f"{len(off)} method" in said and all(
                words in said for key, words in reasons.items() if key in {key for key, *_ in off}
            )
            assert page.input_value(".pn-body select >> nth=0") == "speculative"

    visit(use, "lab", records=GREEDY)


def test_questions_to_the_engine_show_their_verdicts(visit) -> None:
    def use(page):
        show(page, "distribution")
        page.click("text=Draw samples")
        page.wait_for_selector(".pn-verdict[data-good=true]")
        assert (
            "p = 0.850" in page.text_content(".pn-verdict") and len(page.query_selector_all(".pn-bar")) == 4
        )
        show(page, "breakit")
        page.click("[data-key=argmax]")
        page.wait_for_selector(".pn-verdict[data-good=false]")
        good = [v.get_attribute("data-good") for v in page.query_selector_all(".pn-verdict")]
        assert good == ["true", "false"]
        assert (
            page.evaluate(
                "getComputedStyle(document.querySelector('.pn-verdict[data-good=false]')).borderStyle"
            )
            == "dashed"
        )
        show(page, "sweep")
        page.select_option(".pn-body select >> nth=0", "speculative")
        page.click(".pn-btn.primary:has-text('Sweep')")
        page.wait_for_selector(".pn-table")
        assert (
            page.text_content(".pn-figs .strong .v") == "3"
            and len(page.query_selector_all(".pn-table tbody tr")) == 4
        )
        asked = dict(page.evaluate("asked"))
        assert (
            asked["sweep"]["method"] == "speculative"
            and 4 in asked["sweep"]["values"]
            and len(asked["sweep"]["values"]) <= 8
        )
        page.evaluate("() => { ctx.ask = async () => { throw new Error('Two runs are before you.'); }; }")
        page.click(".pn-btn.primary:has-text('Sweep')")
        page.wait_for_selector(".pn-status[data-kind=error]:has-text('Two runs are before you.')")
        assert page.is_enabled(".pn-btn.primary:has-text('Sweep')")

    visit(use, "lab", records=GREEDY)


def test_hardware_is_labelled_a_model_and_batches_stop_paying(visit) -> None:
    def use(page):
        assert TEXTS["hardware.about"] in show(page, "hardware")
        speed = lambda: float(page.text_content(".pn-figs .strong .v").rstrip("\u00d7"))  # noqa: E731
        first = speed()
        page.get_by_role("slider", name="Answers at a time (batch)").focus()
        page.keyboard.press("End")
        assert speed() < first

    visit(use, "lab", records=GREEDY)


CHIP_ASKED = "asked.filter(([name]) => name === 'chip_model').map(([, payload]) => payload)"


def test_the_chip_asks_for_what_the_sliders_show_and_draws_the_model_beside_this_machine(visit) -> None:
    def use(page):
        show(page, "hardware")
        page.wait_for_selector(".pn-chip .pn-figs .strong")
        first = page.evaluate(CHIP_ASKED)[-1]
        assert (
            0 <= first["acceptance"] < 1
            and first["target_size"] > first["draft_size"] > 0
            and first["longest"] == 16
        )
        page.get_by_role("slider", name="Host\u2019s part of a round").focus()
        page.keyboard.press("End")
        page.wait_for_function(CHIP_ASKED + ".at(-1).sync === 500")
        page.click(".pn-chip >> text=Measure here")
        page.wait_for_function(CHIP_ASKED + ".at(-1).measured?.rows.length === 7")
        assert page.evaluate(CHIP_ASKED)[-1]["measured"] == {
            name: ANSWERS["cost_curve"][name] for name in ("rows", "seconds", "draft_seconds")
        }
        painted(page)
        plots = page.query_selector_all(".pn-chip .pn-plot")
        assert [len(plot.query_selector_all("path.ln")) for plot in plots] == [3, 2]
        assert TEXTS["hardware.about"] in page.text_content(".pn-chip")

    visit(use, "lab", records=GREEDY)


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"lengths": [0, 1], "designs": {"host": None, "on_chip": {}}},
        {"lengths": "x", "designs": 3},
        {"lengths": [0, 1], "designs": {"host": {"tokens_per_second": ["a", None]}}},
    ],
)
def test_an_answer_that_is_no_model_is_not_drawn(visit, answer) -> None:
    def use(page):
        show(page, "hardware")
        page.wait_for_function(CHIP_ASKED + ".length > 0")
        painted(page)
        assert page.query_selector_all(".pn-chip path.ln") == []

    visit(use, "lab", records=GREEDY, answers={"chip_model": answer})


# ---- Learn ----


def test_every_method_has_a_card_that_can_be_found_and_tried(visit) -> None:
    def use(page):
        show(page, "methods")
        keys = page.evaluate("ctx.catalogue.map((c) => c.key)")
        assert [r.get_attribute("data-key") for r in page.query_selector_all(".pn-mrow")] == keys
        every = """() => ctx.catalogue.map((c) => { panel.view().pick(c.key); const d = document.querySelector('.pn-card');
          return [c, d.textContent, [...d.querySelectorAll('a')].map((a) => a.textContent)]; })"""
        for card, text, links in json.loads(page.evaluate(f"JSON.stringify(({every})())")):
            assert (
                card["title"] in text
                and card["summary"][:60] in text
                and card["wins"][:40] in text
                and card["loses"][:40] in text
            )
            assert links == re.findall(r"\d{4}\.\d{5}", card["paper"])
        page.get_by_label("Search").fill("prompt lookup")
        assert "prompt_lookup" in [r.get_attribute("data-key") for r in page.query_selector_all(".pn-mrow")]
        page.click("[data-key=prompt_lookup]")
        page.click("text=Try it")
        assert page.evaluate("tried") == [{"methods": ["prompt_lookup"]}]
        page.get_by_label("Search").fill("zzzz")
        assert TEXTS["methods.none"] in page.text_content(".pn-methods")

    visit(use, "learn", records=GREEDY)


def test_a_card_leads_to_a_round_of_the_trace_that_shows_it(visit) -> None:
    def use(page):
        show(page, "methods")
        page.evaluate("panel.view().pick('speculative')")
        page.click("text=/Show round/ >> nth=0")
        painted(page)
        number = page.evaluate("api.where().round")
        assert page.evaluate("tabs") == ["watch"] and page.evaluate("api.where().lane") == 1
        commits = [r for r in GREEDY if r["type"] == "commit" and r["lane"] == 1]
        assert commits[number]["tail"]["why"] == "bonus" and len(commits[number]["path"]) >= 3

    visit(use, "learn", records=GREEDY)


@pytest.mark.parametrize(
    "records",
    [
        GREEDY,
        pytest.param(RACE, marks=pytest.mark.thorough),
        pytest.param([r for r in RACE if r["lane"] == 1], marks=pytest.mark.thorough),
        [],
    ],
    ids=["greedy", "sampled", "alone", "empty"],
)
def test_lessons_drive_the_board_to_what_they_say(visit, records) -> None:
    def use(page):
        for track in page.evaluate("SpecVizPanels.lessons.tracks.map((t) => t.key)"):
            show(page, "start")
            page.click(f"[data-track={track}]")
            steps = page.evaluate("SpecVizPanels.lessons.current().track.steps.length")
            assert 7 <= steps <= 9
            for _ in range(steps):
                said = page.text_content(".pn-lessonbody p")
                assert len(said) > 60 and not re.search(r"undefined|NaN|null|\[object", said), said
                title = page.text_content(".pn-lessonbody h3")
                painted(page)
                if title.startswith("Kept, and one more") and records is GREEDY:
                    at = page.evaluate("api.where()")
                    commit = next(
                        r
                        for r in GREEDY
                        if r["type"] == "commit" and r["lane"] == at["lane"] and r["round"] == at["round"]
                    )
                    assert (
                        commit["tail"]["why"] == "bonus"
                        and at["node"] == "tail"
                        and str(commit["n_new"]) in said
                    )
                if page.query_selector(".pn-game"):
                    page.click("text=Draw 1,000 times")
                    assert "1,000 draws" in page.text_content(".pn-game")
                page.click(".pn-lesson .pn-btn.primary")
            assert page.query_selector(".pn-lesson") is None
        page.click("[data-track=pays]")
        page.keyboard.press("Escape")
        assert page.query_selector(".pn-lesson") is None and page.evaluate("tabs.at(-1)") == "learn"

    visit(use, "learn", records=records)


def test_a_lesson_about_draws_opens_the_sampled_recording_by_itself(visit) -> None:
    """Opened on a greedy board, the step that speaks of draws shows a token whose verdict a draw decided."""
    shipped = (ASSETS / "traces" / "sampled.jsonl.gz").read_bytes()
    sampled = gzip.decompress(shipped).decode()

    def use(page):
        page.click("[data-track=sampling]")
        for _ in range(3):
            page.click(".pn-lesson .pn-btn.primary")
        page.wait_for_function("SpecVizPanels.traceLanes.lanes(api.trace()).some((l) => l.temperature > 0)")
        assert ["library_trace", {"name": "sampled"}] in page.evaluate("asked")
        judged = [
            r for r in map(json.loads, sampled.splitlines()) if r["type"] == "judge" and r["a"] is not None
        ]
        drawn = [[r["lane"], r["round"], r["node"]] for r in judged if 0.05 < r["a"] < 0.95]
        assert 0 < len(drawn) < len(judged)  # the page goes there once it has the recording
        page.wait_for_function(
            "(drawn) => drawn.some((at) => [api.where()].some((w) => "
            "w.tab === 'why' && at.join() === [w.lane, w.round, w.node].join()))",
            arg=drawn,
        )
        box = page.locator(".pn-lesson .pn-check input")
        assert box.is_checked() and box.evaluate("(e) => getComputedStyle(e).appearance") == "auto"
        before = page.evaluate("asked").count(["library_trace", {"name": "sampled"}])
        page.click(".pn-lesson .pn-btn.primary")
        assert page.evaluate("asked").count(["library_trace", {"name": "sampled"}]) == before, (
            "it is opened once"
        )

    library = [
        {"name": name, "title": "", "about": "", "temperature": t, "bytes": 1}
        for name, t in (("first", 0.0), ("sampled", 0.8))
    ]
    visit(use, "learn", records=GREEDY, answers={"library": library, "library_trace": sampled})


@pytest.mark.parametrize(
    "rows, best, struck",
    [
        (
            [(1, 37.6, 1.45), (2, 34.6, 1.45), (3, 34.0, 1.5)],
            "1",
            0,
        ),  # the fastest, with those within its noise
        (
            [(1, 37.6, 1.45), (10, 103.8, 1.45), (12, 34.6, 1.45)],
            "1",
            1,
        ),  # no speed-up that the accepted length cannot carry
        ([(1, 20.0, 1.2), (2, 37.6, 1.45), (3, 25.0, 1.3)], "2", 0),
        ([(1, 20.0, 1.2), (2, 37.6, 1.45, True), (3, 25.0, 1.3)], "3", 1),  # no time of a busy machine
        ([(1, 20.0, 1.2, True), (2, 37.6, 1.45, True), (3, 25.0, 1.3, True)], "2", 3),
    ],
)
def test_a_sweep_names_no_best_inside_the_noise_or_beyond_the_accepted_length(
    visit, rows, best, struck
) -> None:
    answer = {
        "knob": "gamma",
        "turns": 1,
        "rows": [
            {
                "value": v,
                "tokens_per_second": s,
                "block_efficiency": t,
                "plain_tokens_per_second": 30.0,
                "named": not busy,
            }
            for v, s, t, *busy in rows
        ],
    }

    def use(page):
        show(page, "sweep")
        page.click(".pn-btn:has-text('Sweep')")
        page.wait_for_selector(".pn-figs .strong")
        assert page.text_content(".pn-figs .strong .v") == best
        near = page.evaluate("SpecViz.messages.say('sweep.noise', { low: '1', high: '2' })")
        assert (near in page.text_content(".pn-figs .strong")) == (rows[0] == (1, 37.6, 1.45) and not struck)
        assert page.locator(".pn-table tbody tr:has(.unnamed)").count() == struck
        shown = next(row for row in rows if str(row[0]) == best)
        assert page.locator(".pn-figs .unnamed").count() == (len(shown) > 3), (
            "the large speed is of a busy machine"
        )
        assert page.locator(".pn-plot circle").count() == len(rows) - struck, (
            "speeds that do not count are not drawn"
        )

    visit(use, "lab", records=GREEDY, answers={"sweep": answer})


def test_a_speed_that_is_not_named_stands_in_no_panel(visit) -> None:
    parts = ("draft_ns", "verify_ns", "judge_ns", "cache_ns", "other_ns")
    busy = [  # plain decoding 20 times as slow: no accepted length carries such a speed-up
        r | {part: 20 * r[part] for part in parts} if r["type"] == "timing" and r["lane"] == 0 else r
        for r in GREEDY
    ]

    def use(page):
        for kind_view, timed in (("numbers", 3), ("formula", 4)):
            show(page, kind_view)
            assert (
                page.locator(".pn-doubt").count() == 1 and page.locator(".pn-view .unnamed").count() == timed
            )

    visit(use, "learn", records=busy)

    def predict(page):
        show(page, "predict")
        assert page.locator(".pn-doubt").count() == 1 and page.locator(".pn-view .unnamed").count() == 9
        assert page.locator(".pn-fall i").count() == 0 < page.locator(".pn-fall .t").count(), (
            "times that do not count have no bar"
        )

    visit(predict, "lab", records=busy)

    def lab(page):
        for kind_view, timed in (("whatif", 2), ("cost", 3), ("hardware", 0)):
            text = show(page, kind_view)
            assert (
                page.locator(".pn-doubt").count() == 1
                and page.locator(".pn-view .pn-figs .unnamed").count() == timed
            ), kind_view
            assert kind_view == "hardware" or page.locator(".pn-view .pn-plot:visible").count() == 0, (
                kind_view
            )
            speed_up = page.evaluate(
                "SpecViz.dom.times(SpecVizPanels.traceLanes.lanes(api.trace()).find((l) => l.id === 1).metrics.speed.value)"
            )
            assert speed_up not in text, kind_view

    visit(lab, "lab", records=busy)

    def lesson(page):
        said, times = (
            page.evaluate("""() => { const ls = SpecVizPanels.traceLanes.lanes(api.trace()), drafts = ls.filter((l) => l.base);
            return [SpecVizPanels.tracks.pays.map((step) => step.say(ls)).join(" "),
                [...drafts.map((l) => SpecViz.dom.times(SpecVizPanels.maths.gap(l).measured)), ...ls.map((l) => l.metrics.tokens_per_second.toFixed(0) + " ")]]; }""")
        )
        assert len(times) > 2 and not any(time in said for time in times)

    visit(lesson, "learn", records=busy)


def test_the_quiz_says_what_decides_at_the_temperature_of_the_trace(visit) -> None:
    def use(page):
        show(page, "quiz")
        got = page.evaluate("""() => { const { yes, no } = SpecVizPanels.quiz.questions(SpecVizPanels.traceLanes.lanes(api.trace()));
            return [...yes, ...no].map((q) => [q.node.how, Boolean(q.node.src), q.j.q, q.j.a, SpecVizPanels.quiz.beforeId(q), SpecVizPanels.quiz.afterId(q)]); }""")
        assert {x[4] for x in got} >= {"quiz.before.drawn", "quiz.before.certain", "quiz.before.copied"}
        for _how, copied, q, a, before, after in got:
            assert (
                before
                == (
                    "quiz.before.copied"
                    if copied
                    else "quiz.before.chosen"
                    if q is None
                    else "quiz.before.certain"
                    if a >= 0.9995
                    else "quiz.before.drawn"
                )
                and after == "quiz.after.draw"
            )
        assert page.get_attribute(".pn-quiz [data-message]", "data-message") in {x[4] for x in got}

    visit(use, "learn", records=RACE)


def test_the_quiz_hides_reveals_and_counts(visit) -> None:
    def use(page):
        show(page, "quiz")
        for k in range(1, 9):
            q = page.evaluate(
                "() => { const n = panel.view().state().now; return { lane: n.l.id, round: n.r.i, node: n.j.node, verdict: n.j.verdict }; }"
            )
            hidden = page.text_content(".pn-quiz")
            assert TEXTS["quiz.kept"] not in hidden and TEXTS["quiz.refused"] not in hidden
            judge = next(
                r
                for r in RACE
                if r["type"] == "judge"
                and (r["lane"], r["round"], r["node"]) == (q["lane"], q["round"], q["node"])
            )
            assert f"{judge['q']:.3f}" in hidden if judge["q"] is not None else True
            page.keyboard.press("Tab") if k == 1 else None
            page.click(".pn-quiz .pn-btn:has-text('It stays')")
            assert page.get_attribute(".pn-quiz .pn-verdict", "data-good") == (
                "true" if judge["verdict"] == "accepted" else "false"
            )
            assert f"of {k} right" in page.text_content(".pn-view")
            page.keyboard.press("Enter")  # Next has the focus
        page.click(".pn-quiz .pn-btn:has-text('It is rejected')")
        page.click("text=Show it on the board")
        last = page.evaluate("tabs.at(-1)")
        assert last == "watch"

    visit(use, "learn", records=RACE)


def test_numbers_match_the_boards_own(visit) -> None:
    def use(page):
        show(page, "numbers")
        m = page.evaluate("SpecVizPanels.traceLanes.lanes(api.trace()).find((l) => l.id === 1).metrics")
        shown = {
            b.query_selector("h3").text_content(): b.query_selector(".v").text_content()
            for b in page.query_selector_all(".pn-stone .pn-box")
        }
        assert shown["Tokens per target pass"] == f"{m['block_efficiency']:.2f}"
        assert shown["Speed-up"] == f"{m['walltime_speedup']:.2f}\u00d7"
        show(page, "glossary")
        page.get_by_label("Find a word").fill("residual")
        assert 1 <= len(page.query_selector_all(".pn-gloss > div")) <= 3
        terms = page.evaluate("SpecVizPanels.glossary.map((g) => g[0])")
        assert len(set(terms)) == len(terms) and terms == sorted(terms, key=str.lower)

    visit(use, "learn", records=GREEDY)


def test_a_load_on_a_busy_machine_is_not_named_and_not_drawn(visit) -> None:
    load = ANSWERS["load"]
    rows = [{**row, "busy": row["users"] == 4 and row["method"] == "speculative"} for row in load["rows"]]

    def use(page):
        show(page, "load")
        page.click(".pn-btn:has-text('Measure')")
        page.wait_for_selector(".pn-pays")
        struck = page.evaluate(
            "[...document.querySelectorAll('.pn-load tbody tr')].map((r) => [r.cells[0].textContent, Boolean(r.querySelector('.unnamed'))])"
        )
        assert sorted(struck) == [["1 user", False]] * 2 + [["4 users", True]] * 2, (
            "the methods of a load take turns"
        )
        assert page.locator(".pn-load h3").get_attribute("data-message") == "load.uncounted"
        assert page.locator(".pn-duo svg circle").count() == 4 * 2, "four charts, one load"

    visit(use, "lab", answers={"load": {**load, "rows": rows}})


def test_a_load_is_measured_stopped_and_kept(visit) -> None:
    def use(page):
        assert TEXTS["panel.empty"] in show(page, "load")
        assert page.evaluate("[...document.querySelectorAll('.pn-ticks input')].map((i) => i.checked)") == [
            True,
            True,
            True,
            False,
            False,
            False,
        ]
        page.get_by_label("Loads, at most six").fill("1, 4, x")
        page.uncheck(".pn-ticks label:has-text('TETRIS') input")
        page.click(".pn-btn:has-text('Measure')")
        page.wait_for_selector(".pn-pays")
        asked = dict(page.evaluate("asked"))["load"]
        assert (
            asked["users"] == [1, 4]
            and asked["methods"] == ["autoregressive", "speculative", "smartspec"]
            and asked["tasks"] == []
        )
        assert (
            "no longer with 4 users" in page.text_content(".pn-pays")
            and page.locator(".pn-duo svg").count() == 4
        )
        assert page.locator(
            ".pn-load .pn-table tbody tr"
        ).count() == 4 and "20.0 ms to 40.0 ms" in page.text_content(".pn-load .pn-table")
        page.evaluate("""() => { ctx.ask = (name, payload, told, signal) => new Promise((done, failed) => {
            told({ state: "working", part: { ...data.answers.load, said: undefined, at: { method: "smartspec", users: 4, done: 3, of: 9 } } });
            signal.addEventListener("abort", () => failed(new DOMException("x", "AbortError"))); }); }""")
        page.click("label:has-text('Requests/s')")
        assert page.input_value(".pn-controls input[maxlength='60']") == "2, 4, 8, 16"
        page.click(".pn-btn:has-text('Measure')")
        assert "SmartSpec (goodput), 4 users: 3 of 9" in page.text_content(".pn-status") and page.is_disabled(
            ".pn-btn:has-text('Measure')"
        )
        page.click(".pn-btn:has-text('Stop')")
        page.wait_for_selector(".pn-small:has-text('Stopped: what was measured')")
        assert page.is_disabled(".pn-btn:has-text('Stop')") and page.is_enabled(".pn-btn:has-text('Measure')")
        page.evaluate(
            "() => { panel.destroy(); panel = SpecVizPanels.mount(document.getElementById('host'), 'lab', ctx); }"
        )
        assert TEXTS["load.interrupted"] in show(
            page, "load"
        )  # the latest one is there again, and the one before it
        page.get_by_label("Kept in this browser").select_option("1")
        assert "no longer with 4 users" in page.text_content(".pn-pays")

    visit(use, "lab")


def test_presenting_hides_the_rest_and_puts_it_back(visit) -> None:
    def use(page):
        show(page, "present")
        page.evaluate(
            "() => { document.documentElement.requestFullscreen = () => Promise.reject(new Error('no')); }"
        )
        page.evaluate("() => { api.setLayout('watch'); api.goto({ lane: 1, round: 2, node: 0 }); }")
        page.click("text=Start presenting")
        page.evaluate("api.pause(); api.goto({ lane: 1, round: 2, node: 0 })")
        painted(page)
        assert page.locator("#board .sv").bounding_box()["y"] < 12 and page.is_visible(".pn-leave")
        assert (
            not page.is_visible("#board .notice")
            and not page.is_visible("#board .hints")
            and page.is_visible("#board .legend")
        )
        reason = page.locator(
            "#board .p-insp .reason"
        ).bounding_box()  # the chosen token's whole reason is above the fold
        assert (
            reason["y"] + reason["height"] < page.viewport_size["height"]
            and len(page.inner_text("#board .p-insp .reason")) > 8
        )
        assert page.evaluate("getComputedStyle(document.getElementById('host')).display") == "none"
        zoom = float(page.evaluate("document.querySelector('#board .sv').style.zoom"))
        page.keyboard.press("+")
        assert zoom >= 1 and float(page.evaluate("document.querySelector('#board .sv').style.zoom")) > zoom
        page.keyboard.press("Escape")
        assert page.evaluate("getComputedStyle(document.getElementById('host')).display") == "block"
        assert (
            page.evaluate("document.querySelector('#board .sv').style.zoom") == ""
            and page.query_selector(".pn-leave, .presenting") is None
        )

    visit(use, "learn", records=GREEDY)


@pytest.mark.parametrize("size", ((390, 844), (844, 390)))
def test_a_phone_presents_on_one_screen(visit, size) -> None:
    """No scrolling; the whole legend, at least four lines of text and the chosen token's reason are on it."""

    def use(page):
        page.evaluate(
            "() => { document.documentElement.requestFullscreen = () => Promise.reject(new Error('no')); }"
        )
        page.set_viewport_size({"width": size[0], "height": size[1]})
        page.evaluate(
            "() => { api.setLayout('watch'); api.board.options.drawer = true; api.board.root.classList.add('drawer'); }"
        )
        page.evaluate("api.goto({ tab: 'log' })")  # as an earlier visit may have left it
        page.evaluate("() => { SpecVizPanels.present.start(ctx); api.pause(); }")
        page.evaluate("api.goto({ lane: 1, round: 2, node: 0, phase: 3 })")
        painted(page)
        page.wait_for_selector("#board .short p")
        seen = page.evaluate("""() => {
          const on = (e) => { const r = e.getBoundingClientRect();
            return r.width > 0 && r.left >= 0 && r.top >= 0 && r.right <= innerWidth && r.bottom <= innerHeight; };
          const board = document.querySelector("#board .sv"), one = (s) => board.querySelector(s);
          const stage = one(".lane:not([hidden]) .stage"), line = parseFloat(getComputedStyle(stage).lineHeight);
          return { scrolls: document.documentElement.scrollHeight > innerHeight, lines: stage.clientHeight / line,
            legend: [...board.querySelectorAll(".legend > button")].filter((b) => b.offsetWidth).map(on),
            reason: on(one(".short p")) && [".short", ".p-insp .body"].map(one).every((e) => e.scrollHeight <= e.clientHeight),
            stage: on(stage), play: on(one(".keys .play")), leave: on(document.querySelector(".pn-leave")) };
        }""")
        assert seen.pop("lines") >= 4 and seen.pop("legend") == [True] * 5, seen
        assert seen == dict(scrolls=False, reason=True, stage=True, play=True, leave=True)
        page.keyboard.press("Escape")
        assert page.query_selector(".presenting, .handheld, .across") is None

    visit(use, "learn", records=GREEDY)


# ---- Traces ----


def test_a_recording_opens_and_a_bad_file_is_refused_with_a_sentence(visit) -> None:
    good = "".join(json.dumps(r) + "\n" for r in sample.race(("plain", "tree"), tokens=20)).encode()

    def use(page):
        show(page, "library")
        page.evaluate("() => { document.body.style.minHeight = '9000px'; scrollTo(0, 800); }")
        page.evaluate("document.querySelector('[data-name=story]').click()")
        page.wait_for_function(f"api.trace().length === {len(sample.race())}")
        assert page.evaluate("tabs.at(-1)") == "race" and page.evaluate("scrollY") == 0
        held = page.evaluate("api.trace().length")
        bad = [
            (b"hello", "not JSON"),
            (b"", "no records"),
            (b"{}\n", "no known type"),
            (b"\xff\xfe\x00", "not text"),
            (b"\x1f\x8b\x08broken", "damaged"),
            (
                json.dumps({"type": "header", "seq": 0, "lane": 0, "schema": "specviz-trace/9"}).encode(),
                "specviz-trace/1",
            ),
            (gzip.compress(b" " * (21 * 2**20)), "larger than 20 MB"),
            (good.replace(b'"t0": 0.0', b'"t0": 1e999'), "finite"),
        ]
        for data, said in bad:
            page.set_input_files(
                "input[type=file]", {"name": "x.jsonl", "mimeType": "text/plain", "buffer": data}
            )
            page.wait_for_selector(f".pn-drop .pn-status[data-kind=error]:has-text('{said}')")
            assert page.evaluate("api.trace().length") == held
        lines = good.count(b"\n")
        for data in (good, gzip.compress(good)):
            page.set_input_files(
                "input[type=file]", {"name": "x.jsonl", "mimeType": "text/plain", "buffer": data}
            )
            page.wait_for_function(f"api.trace().length === {lines}")
            page.evaluate("api.load([])")

    visit(use, "traces", records=GREEDY)


def test_files_and_links_hold_the_trace_and_the_place(visit, tmp_path) -> None:
    from specviz import lab

    page_text = next(iter(lab.answer("html", {})))

    def use(page):
        show(page, "take")
        page.evaluate("api.goto({ lane: 1, round: 3, node: 1 })")
        page.wait_for_function(
            "(panel.update(), document.querySelector('input[readonly]').value.includes('round=3'))"
        )
        assert "node=1" in page.input_value("input[readonly] >> nth=0") and "embed=1" in page.input_value(
            "input[readonly] >> nth=1"
        )
        with page.expect_download() as got:
            page.click("text=JSON Lines >> nth=-1")
        lines = tmp_path / "out.jsonl"
        got.value.save_as(lines)
        assert [json.loads(x) for x in lines.read_text(encoding="utf-8").splitlines()] == evil
        with page.expect_download() as got:
            page.click("text=One HTML page")
        got.value.save_as(tmp_path / "out.html")
        saved = (tmp_path / "out.html").read_text(encoding="utf-8")
        assert saved.count("</script>") == page_text.count("</script>")
        apart = page.context.browser.new_context()
        alone = apart.new_page()
        wrong = []
        alone.on("console", lambda m: wrong.append(m.text) if m.type in ("error", "warning") else None)
        alone.on("dialog", lambda d: (wrong.append(d.message), d.dismiss()))
        alone.goto((tmp_path / "out.html").as_uri())  # its own policy lets nothing but its script run
        alone.wait_for_selector(".sv[data-records]")
        assert alone.get_attribute(".sv", "data-records") == str(len(evil)) and wrong == []
        apart.close()

    evil = sample.race(("plain", "chain"), text=sample.HOSTILE, prompt=EVIL.replace("\u0007", ""), tokens=40)
    visit(use, "traces", records=evil, answers={"html": page_text})


def test_runs_are_kept_in_the_browser_bounded_and_forgotten(visit) -> None:
    def use(page):
        show(page, "history")
        assert TEXTS["history.empty"] in page.text_content(".pn-body")
        assert (
            page.evaluate("SpecVizPanels.history.keep(api.trace())") is False
        )  # a recording is not the visitor's run
        made = page.evaluate(
            """(text) => { const live = JSON.parse(text); let n = 0; for (let i = 0; i < 20; i++) n += SpecVizPanels.history.keep(live.map((r) => r.type === "header" ? { ...r, run_id: "r" + i } : r)); return n; }""",
            json.dumps(LIVE),
        )
        assert made == 20
        assert len(page.query_selector_all(".pn-run")) == 12
        assert page.evaluate("localStorage.getItem(SpecVizPanels.history.KEY).length") < 4_000_000
        assert (
            page.evaluate(
                "(t) => SpecVizPanels.history.keep(JSON.parse(t).filter((r) => r.type !== 'done'))",
                json.dumps(LIVE),
            )
            is False
        )
        page.click(".pn-run .pn-choice >> nth=0")
        page.wait_for_function("api.trace()[0].run_id === 'r19'")
        page.click("[aria-label='Forget this run'] >> nth=0")
        assert len(page.query_selector_all(".pn-run")) == 11
        page.evaluate("localStorage.setItem(SpecVizPanels.history.KEY, '[{\"id\": 1}, null, 7]')")
        assert TEXTS["history.empty"] in show(page, "history")
        page.evaluate("(t) => SpecVizPanels.history.keep(JSON.parse(t))", json.dumps(LIVE))
        page.click("text=Forget all")
        assert page.evaluate("localStorage.getItem(SpecVizPanels.history.KEY)") is None and TEXTS[
            "history.empty"
        ] in page.text_content(".pn-body")

    visit(use, "traces", records=GREEDY)


def test_the_heat_map_says_of_each_token_what_the_trace_says(visit) -> None:
    def use(page):
        show(page, "predictability")
        shown = page.evaluate("[...document.querySelectorAll('.pn-shaded .h')].map((h) => h.classList[1])")
        want = []
        for r in (r for r in GREEDY if r["type"] == "commit" and r["lane"] == 1):
            want += ["kept"] * len(r["path"]) + ["lost" if r["tail"]["why"] == "correction" else "none"]
        assert shown == want
        page.focus(".pn-shaded .h >> nth=0")
        for key, place in (("ArrowRight", 1), ("End", len(want) - 1), ("Home", 0)):
            page.keyboard.press(key)
            assert page.evaluate("document.activeElement.dataset.i") == str(place)
        assert page.evaluate("document.querySelectorAll('.pn-shaded [tabindex=\"0\"]').length") == 1
        lost = want.index("lost")
        page.click(f".pn-shaded .h >> nth={lost}")
        painted(page)
        assert page.evaluate("tabs.at(-1)") == "watch" and page.evaluate("api.where().node") == "tail"

    visit(use, "traces", records=GREEDY)


@pytest.mark.thorough
def test_two_thousand_tokens_keep_every_panel_bounded(visit) -> None:
    records = sample.race(("plain", "tree"), tokens=2000)

    def use(page):
        counts = {}
        for kind, views in VIEWS.items():
            page.evaluate(
                "(k) => { panel.destroy(); globalThis.other?.destroy(); globalThis.other = SpecVizPanels.mount(document.getElementById('host'), k, ctx); }",
                kind,
            )
            for view in views:
                page.evaluate("(v) => other.show(v)", view)
                counts[view] = page.evaluate("document.querySelectorAll('.svp *').length")
        assert max(counts.values()) < 4000, counts

    visit(use, "lab", records=records)


def test_a_card_says_what_keeps_its_method_from_running(visit) -> None:
    def use(page):
        show(page, "methods")
        page.wait_for_selector(".pn-mrow[data-key=medusa][data-off]", state="attached")
        page.click(".pn-mrow[data-key=medusa]")
        assert ANSWERS["unavailable"]["medusa"] in page.text_content(
            ".pn-nothere"
        ) and not page.query_selector(".pn-card .pn-btn:has-text('Try it')")
        page.click(".pn-mrow[data-key=speculative]")
        page.click(".pn-card .pn-btn:has-text('Try it')")
        assert page.evaluate("tried") == [{"methods": ["speculative"]}]

    visit(use, "learn", records=GREEDY)


def test_too_few_samples_are_called_so_and_whole_answers_are_drawn(visit) -> None:
    probs = {
        **ANSWERS["distribution"],
        "verdict": "few",
        "said": "200 samples were asked for and 20 were drawn. That is not enough.",
    }
    bent = {"p": 1e-9, "samples": 200, "histogram": [40, 30, 20, *[5] * 14, 10, 15, 15], "impossible": 0}
    broken = {**ANSWERS["break_it"], "distribution": {**ANSWERS["break_it"]["distribution"], "places": bent}}

    def use(page):
        show(page, "distribution")
        page.click("text=Draw samples")
        page.wait_for_selector(".pn-verdict[data-good=none]")
        assert TEXTS["samples.few"] in page.text_content(".pn-verdict") and probs[
            "said"
        ] in page.text_content(".pn-verdict")
        show(page, "breakit")
        page.click(".pn-choice >> nth=0")
        page.wait_for_selector(".pn-places")
        bars = page.evaluate(
            "[...document.querySelectorAll('.pn-places .pn-bar .v')].map((e) => Number(e.textContent))"
        )
        assert bars[0] == 70 and len(bars) == 10 and sum(bars) == sum(bent["histogram"])
        assert "under 0.001" in page.text_content(".pn-places")

    visit(use, "lab", answers={"distribution": probs, "break_it": broken})


ASKED = {
    "cost": "Measure here",
    "contexts": "Measure here",
    "distribution": "Draw samples",
    "sweep": "Sweep",
    "load": "Measure",
}


def test_every_chart_of_the_lab_is_saved_with_where_it_comes_from(visit) -> None:
    def use(page):
        for view, most in {
            "whatif": 1,
            "cost": 1,
            "contexts": 1,
            "hardware": 4,
            "distribution": 1,
            "sweep": 1,
            "load": 4,
            "scaling": 2,
        }.items():
            show(page, view)
            if view in ASKED:
                page.click(f".pn-btn:text-is('{ASKED[view]}')")
            keys = page.locator(".pn-body [aria-label$='as SVG']")
            keys.nth(most - 1).wait_for()
            assert keys.count() == most, view
            for i in range(most):
                with page.expect_download() as told:
                    keys.nth(i).click()
                lines = [
                    t.text or ""
                    for t in ET.parse(told.value.path()).getroot().iter("{http://www.w3.org/2000/svg}text")
                ]
                assert begins(TEXTS, "picture.drawn") in " ".join(lines) and len(lines) > 8, (view, lines)

    visit(use, "lab", records=GREEDY)


def saved(page, within: str) -> list[str]:
    """What stands in the pictures that can be saved there; PNG has a key beside each SVG."""
    keys, told = page.locator(f"{within} [aria-label$='as SVG']"), []
    assert keys.count() == page.locator(f"{within} [aria-label$='as PNG']").count()
    for i in range(keys.count()):
        with page.expect_download() as file:
            keys.nth(i).click()
        told.append(
            " ".join(
                t.text or ""
                for t in ET.parse(file.value.path()).getroot().iter("{http://www.w3.org/2000/svg}text")
            )
        )
    return told


def test_bars_of_lessons_and_of_the_quiz_are_saved_with_where_they_come_from(visit) -> None:
    def use(page):
        show(page, "quiz")
        (quiz,) = saved(page, ".pn-quiz")
        assert begins(TEXTS, "quiz.caption") in quiz and begins(TEXTS, "picture.drawn") in quiz
        show(page, "start")
        page.click("[data-track=sampling]")
        page.evaluate("SpecVizPanels.lessons.current().go(3)")
        page.click("text=Draw 1,000 times")
        (rng,) = saved(page, ".pn-game")
        assert begins(TEXTS, "game.source", draws="1,000") in rng and "p = 0.5, 0.3, 0.2" in rng
        page.keyboard.press("Escape")

    visit(use, "learn", records=RACE)


def test_the_heat_map_is_saved_word_by_word_and_a_mistake_with_its_bars(visit) -> None:
    def use(page):
        show(page, "predictability")
        text, kinds = saved(page, ".pn-body")
        words = page.evaluate(
            "[...document.querySelectorAll('.pn-shaded .h')].map((h) => h.textContent.trim()).filter(Boolean)"
        )
        assert (
            all(word in text for word in words)
            and TEXTS["predictability.none"] in text
            and begins(TEXTS, "picture.drawn") in text
        )
        assert TEXTS["predictability.kinds"] in kinds and begins(TEXTS, "picture.drawn") in kinds

    visit(use, "traces", records=GREEDY)
    bent = {"p": 1e-9, "samples": 200, "histogram": [10] * 20, "impossible": 0}
    broken = {**ANSWERS["break_it"], "distribution": {**ANSWERS["break_it"]["distribution"], "places": bent}}

    def mistake(page):
        show(page, "breakit")
        page.click(".pn-choice >> nth=0")
        page.wait_for_selector(".pn-places")
        (bars,) = saved(page, ".pn-places")
        assert begins(TEXTS, "breakit.source", title="The best token as a draw") in bars

    visit(mistake, "lab", answers={"break_it": broken})


def test_points_of_training_are_drawn_with_their_fits_and_predictions(visit) -> None:
    def use(page):
        text = show(page, "scaling")
        assert page.evaluate("asked[0][0]") == "scaling"
        assert text.count("prediction") >= 4
        assert [page.locator(f".pn-duo > div:nth-child({i}) circle.pt").count() for i in (1, 2)] == [15, 3], (
            "every point is shown"
        )
        assert [page.locator(f".pn-duo > div:nth-child({i}) path.ln.dot").count() for i in (1, 2)] == [
            3,
            1,
        ], "fits end in predictions"
        assert page.locator(".pn-table tbody tr").count() == 15 and "1.2 M" in page.text_content(".pn-table")
        page.check("input[value=acceptance_rate_sampled]", force=True)
        painted(page)
        assert "0.340" in page.text_content(".pn-table") and TEXTS["scaling.few"] not in page.text_content(
            ".pn-body"
        )
        page.select_option(".pn-body select", "1")
        painted(page)
        assert (
            "--size deep --target bare --data DIR" in page.text_content(".pn-body pre")
            and not page.locator("circle.pt").count()
        )

    visit(use, "lab")


def test_a_fit_that_explains_little_is_not_drawn(visit) -> None:
    points = [
        {**point, "acceptance_rate_greedy": share}
        for point, share in zip(DRAFTS[0]["points"], (0.5, 0.2, 0.6, 0.3, 0.5))
    ]
    spoiled = {
        "figures": ANSWERS["scaling"]["figures"],
        "targets": [report("t", [{**DRAFTS[0], "points": points}, *DRAFTS[1:]])],
    }

    def use(page):
        show(page, "scaling")
        assert page.locator(".pn-duo > div:nth-child(1) circle.pt").count() == 15, "every point is shown"
        assert page.locator(".pn-duo > div:nth-child(1) path.ln.dot").count() == 2, (
            "and the lines of the other two drafts"
        )

    visit(use, "lab", answers={"scaling": spoiled})


def test_without_an_answer_about_training_one_may_ask_again(visit) -> None:
    def use(page):
        page.evaluate(
            "() => { ctx.ask = ((old) => async (...a) => { ctx.ask = old; throw new Error('Not now.'); })(ctx.ask); }"
        )
        assert "Not now." in show(page, "scaling")
        page.click("text=Try again")
        page.wait_for_selector(".pn-duo circle.pt")
        assert page.locator("text=Try again").is_hidden() and "Not now." not in page.text_content(".pn-body")

    visit(use, "lab")
