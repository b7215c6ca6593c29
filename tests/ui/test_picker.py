"""What the picker offers and in which order, what "as published" means beside the settings, and whose draft
a link carries."""

from __future__ import annotations

import pytest

from specviz.engine.cards import cards
from specviz.engine.limits import BASELINE
from specviz.ui.picker_rows import measured_speedups
from specviz.ui.start_content import methods_named, start_content

from ..message_codes import viewer_texts
from .test_page import begin, finish, open_fields, run, shelf  # noqa: F401
from .test_rows import rows

CHIPS = (
    "[...document.querySelectorAll('.pg-chip[aria-pressed=false]')].map((c) => c.dataset.key).filter(Boolean)"
)


@pytest.mark.thorough
def test_what_pays_stands_in_the_order_of_its_measured_speed(visit, shelf):  # noqa: F811
    page = visit(url=shelf.url)
    speeds = {row["key"]: row["speed"] for row in rows(cards(), ())}

    def shown(rng):
        own = [speeds[key][rng] for key in page.evaluate(CHIPS)]
        assert own == sorted(own, reverse=True) and all(speed >= 1 for speed in own)
        paying = [
            speeds[key][rng]
            for key in start_content(cards()).first
            if key not in page.get_attribute(".pg-pick", "data-on").split()
            and speeds[key]
            and (speeds[key][rng] or 0) >= 1
        ]
        assert own == sorted(paying, reverse=True)[:3]  # the fastest of what is offered

    said = "[...document.querySelectorAll('.pg-chip small')].map((s) => s.textContent).join()"
    assert measured_speedups()["speedups"]
    page.click(".pg-chips [data-key=speculative]")  # no longer chosen, so it may stand among what pays
    page.wait_for_function(
        "!document.querySelector('.pg-pick').dataset.on.split(' ').includes('speculative')"
    )
    assert page.evaluate(CHIPS)
    shown(0)
    greedy = page.evaluate(said)
    open_fields(page)
    page.fill("#temperature input", "1")
    page.wait_for_function(f"old => {said} !== old", arg=greedy)  # their figures change; their order need not
    shown(1)


@pytest.mark.thorough
def test_the_card_says_what_memory_a_method_takes_besides_the_large_model(visit, shelf):  # noqa: F811
    page = visit(url=shelf.url)
    page.click(".pg-more")
    known = {row["key"]: row["memory"] for row in rows(cards(), ())}

    def said(key: str) -> str:
        page.hover(f".pg-row[data-key={key}]")
        title = cards()[key].title
        page.wait_for_function("(t) => document.querySelector('.pg-card h3').textContent === t", arg=title)
        return page.evaluate(
            "[...document.querySelectorAll('.pg-card dt')].find((t) => t.textContent === 'Memory').nextSibling.textContent"
        )

    weights, cache = known["speculative"]
    assert weights > 10**6 and cache > 10**3
    words = said("speculative")
    assert words.startswith(f"{weights / 1e6:.1f} MB of weights, ") and f" {-(-cache // 1000)} kB of" in words
    assert known["prompt_lookup"] == [0, 0] and said("prompt_lookup") == "nothing besides the large model"


def test_the_oracle_is_shown_as_an_upper_bound_and_not_as_a_speed_up(visit, shelf):  # noqa: F811
    page = visit(url=shelf.url)
    page.click(".pg-more")
    speed = next(row["speed"][0] for row in rows(cards(), ()) if row["key"] == "oracle")
    mark = page.inner_text(".pg-row[data-key=oracle] .pg-mark")
    assert mark == viewer_texts()["methods.bound"].format(times=f"\u00d7{speed:.1f}")
    assert (
        page.locator(".pg-row[data-key=oracle] .pg-bar").count() == 0
        and page.locator(".pg-row[data-key=speculative] .pg-bar").count() == 1
    )


def test_what_engines_offer_is_found_by_the_methods_own_aliases():
    preset = next(row for row in start_content(cards()).presets if row["among"])
    assert preset["name"] == "In engines" and not preset["methods"]
    assert {
        "eagle3",
        "mtp",
        "dflash",
        "pard",
        "prompt_lookup",
        "suffix_decoding",
        "speculative",
        "medusa",
    } <= set(preset["among"])
    for name in preset["called"]:
        assert methods_named(cards(), [name]), f"no method is called {name}"
    assert methods_named(cards(), ["EAGLE-3", "no such name"]) == ["eagle3"] and methods_named(
        cards(), None
    ) == [] == methods_named(cards(), [""])


@pytest.mark.thorough
def test_the_names_of_engines_and_models_lead_to_what_they_offer(visit, shelf):  # noqa: F811
    """And they stand in one file only: the recommendations'."""
    by = {row["key"]: row for row in rows(cards(), ())}
    assert (
        by["eagle3"]["engines"] == ["vLLM", "SGLang", "TensorRT-LLM", "llama.cpp"]
        and "Qwen3" in by["eagle3"]["models"]
    )
    assert by["mtp"]["models"][0] == "DeepSeek-V3" and by["jacobi"]["engines"] == by["jacobi"]["models"] == []
    assert "vLLM" not in by["eagle3"]["aliases"]  # no method is called so
    page = visit(url=shelf.url)
    page.click(".pg-more")
    seen = "[...document.querySelectorAll('.pg-row')].filter((r) => !r.hidden).map((r) => r.dataset.key)"
    for engine in ("vLLM", "SGLang", "TensorRT-LLM", "llama.cpp", "transformers"):
        page.fill(".pg-shelf input[type=search]", engine)
        offered = {key for key, row in by.items() if engine in row["engines"] and not row["baseline"]}
        assert len(offered) >= 3 and offered <= set(page.evaluate(seen)), engine
        assert f" in {engine}" in page.text_content(".pg-row[data-key=prompt_lookup]")
    page.fill(".pg-shelf input[type=search]", "qwen3-8b")
    assert page.evaluate(seen) == ["eagle3"] and " for Qwen3" in page.text_content(".pg-row[data-key=eagle3]")
    page.click(".pg-row[data-key=eagle3]")
    page.fill(".pg-shelf input[type=search]", "vl")  # two letters are in too many words
    assert " in vLLM" not in page.text_content(".pg-row[data-key=eagle3]")


@pytest.mark.thorough
def test_the_preset_of_engines_narrows_the_list_and_chooses_nothing(visit, shelf):  # noqa: F811
    page = visit(url=shelf.url)
    chosen = page.get_attribute(".pg-pick", "data-on")
    among = next(row for row in start_content(cards()).presets if row["among"])["among"]
    seen = "[...document.querySelectorAll('.pg-row')].filter((r) => !r.hidden).map((r) => r.dataset.key)"
    page.click(".pg-more")
    everything = page.evaluate(seen)
    page.click(".pg-presets button:text-is('In engines')")
    assert (
        sorted(page.evaluate(seen)) == sorted(among) and page.get_attribute(".pg-pick", "data-on") == chosen
    )
    assert "= draft_model" in page.inner_text(".pg-row[data-key=speculative]")
    assert page.inner_text(".pg-count") == f"{len(among)} methods"
    page.fill(".pg-shelf input[type=search]", "jacobi")
    assert "jacobi" in page.evaluate(seen) and not set(page.evaluate(seen)) & {"speculative"}
    page.fill(".pg-shelf input[type=search]", "")
    assert page.evaluate(seen) == everything
    page.click(".pg-presets button:text-is('In engines')")
    page.click(".pg-presets button:text-is('In engines')")
    assert page.evaluate(seen) == everything  # pressed again it lets go


def test_a_preset_is_a_selection_that_can_be_undone_and_a_filter_is_none(visit, shelf):  # noqa: F811
    page = visit(url=shelf.url)
    before = page.get_attribute(".pg-pick", "data-on")
    page.click(".pg-more")
    assert page.evaluate(
        "[...document.querySelectorAll('.pg-presetgroup')].map((g) => [g.getAttribute('aria-label'), new Set([...g.querySelectorAll('.pg-chip')].map((c) => c.classList[1])).size])"
    ) == [["Start from", 1], ["Show only", 1]]
    chip = page.locator(".pg-chip.pg-choose").nth(1)
    chip.click()
    page.wait_for_function("old => document.querySelector('.pg-pick').dataset.on !== old", arg=before)
    assert chip.get_attribute("aria-pressed") == "true"
    page.keyboard.press("Escape")  # first the selection goes back, then the list closes
    page.wait_for_function("old => document.querySelector('.pg-pick').dataset.on === old", arg=before)
    assert chip.get_attribute("aria-pressed") == "false" and page.is_visible(".pg-shelf")
    chip.click()
    chip.click()
    page.wait_for_function("old => document.querySelector('.pg-pick').dataset.on === old", arg=before)
    page.click(".pg-chip.pg-filter >> nth=0")
    assert page.get_attribute(".pg-pick", "data-on") == before
    links = page.evaluate("[...document.querySelectorAll('.pg-go a')].map((a) => a.href)")
    assert all(href.startswith("https://arxiv.org/abs/") for href in links)
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    page.wait_for_selector(".pg-shelf", state="hidden")


@pytest.mark.thorough
def test_a_preset_of_which_nothing_can_run_says_why_and_takes_nothing_away(visit, shelf, monkeypatch):  # noqa: F811
    heads = next(row for row in start_content(cards()).presets if row["name"] == "Heads")["methods"]
    monkeypatch.setattr(
        shelf.backend,
        "unsupported_reason",
        lambda target=None: dict.fromkeys(heads, "There are no heads for this model."),
    )
    page = visit(url=shelf.url)
    before = page.get_attribute(".pg-pick", "data-on")
    page.click(".pg-more")
    chip = page.locator(".pg-chip.pg-choose:text-is('Heads')")
    page.wait_for_selector(
        ".pg-chip.pg-choose[aria-disabled=true]:text-is('Heads')"
    )  # what can run is said a moment after the page opens
    assert chip.get_attribute("title") == "There are no heads for this model."
    chip.click(force=True)
    assert page.get_attribute(".pg-pick", "data-on") == before != ""


@pytest.mark.thorough
def test_as_published_is_that_whatever_the_settings_hold_and_leaves_the_models_alone(page, backend):
    """The chain was published with gamma 8 and a warm cache; the settings say gamma 7, cold, depth in
    front, and another draft."""
    page.evaluate("""() => { SpecVizPage.pending = { draft: 'wide', methods: ['chain'], knobs: { chain: { gamma: 7, warm: false, shape: 'front' } } };
        SpecVizPage.send('input'); }""")
    page.wait_for_function("document.querySelector('#models').textContent.includes('with draft wide')")
    page.wait_for_function("document.querySelector('.pg-pick').dataset.on === 'chain'")
    page.click(".pg-more")
    page.hover(".pg-row[data-key=chain]")
    page.click(".pg-as")
    page.click(".pg-done")
    run(page)
    ask = backend.runs[0]
    knobs = [own for key, own in ask.lanes if key == "chain"]
    assert knobs == [
        {"gamma": 7, "warm": False, "shape": "front"},
        {"gamma": 8, "warm": True, "shape": "even"},
    ]
    assert ask.draft == "wide" and page.input_value("#draft input") == "Wide, 2 M"
    backend.loaded.discard("|wide")


def test_lanes_of_one_method_are_distinguished_by_the_knob_in_which_they_differ(page):
    """The second knob of the chain: one lane has its default, the other says it."""
    page.evaluate(
        """() => { SpecVizPage.pending = { methods: ['chain', { method: 'chain', knobs: { warm: false } }] }; SpecVizPage.send('input'); }"""
    )
    page.wait_for_function(
        "[...document.querySelectorAll('.pg-pick .pg-chip[aria-pressed=true]')].every((chip) => chip.dataset.key === 'chain')"
    )
    words = page.evaluate(
        "[...document.querySelectorAll('.pg-pick .pg-chip[aria-pressed=true]')].map((chip) => chip.textContent)"
    )
    assert all("warm" in word for word in words) and len(set(words)) == 2, words


HEADERS = """([lanes]) => SpecVizPage.settings(lanes.map(([key, draft], lane) => ({ type: 'header', lane, method: { key, title: key }, knobs: {},
    target: { name: 'fake' }, draft: draft && { name: draft } })), { predicted: '' }).draft"""


def test_a_link_takes_its_draft_from_plain_decodings_lane(page):
    """A lane may name the model in the middle that it drafted with; plain decoding names the pair that was
    chosen."""
    draft = lambda *lanes: page.evaluate(HEADERS, [lanes])  # noqa: E731
    assert (
        draft(["chain", "middle"], [BASELINE, "wide"])
        == "wide"
        == draft([BASELINE, "wide"], ["chain", "middle"])
    )
    assert draft(["chain", "middle"], [BASELINE, "fake-draft"]) == ""  # the target's own
    assert draft(["chain", "middle"], [BASELINE, None]) == "none"
    assert draft(["chain", "wide"]) == "wide"  # nobody else says it


LATE = """window.SpecVizPage = new Proxy({}, { set(own, name, value) {
    own[name] = name === 'start' ? (...given) => setTimeout(() => value(...given), 1500) : value; return true; } });"""


@pytest.mark.thorough
def test_a_test_gets_a_page_only_when_its_tabs_know_the_models(visit):
    """Gradio may mount the tabs long after the board."""
    page = visit(script=LATE)
    assert page.evaluate(HEADERS, [[["chain", "middle"], [BASELINE, "fake-draft"]]]) == ""


@pytest.mark.thorough
def test_the_draft_of_a_link_is_the_one_that_the_settings_get(visit, server, backend):
    page = visit()
    page.evaluate("SpecVizPage.pending = { draft: 'wide' }; SpecVizPage.send('input');")
    page.wait_for_function("document.querySelector('#models').textContent.includes('with draft wide')")
    run(page, "with wide")
    link = page.evaluate("SpecVizPage.link()")
    other = visit(url=link)
    other.wait_for_function("document.querySelector('#draft input').value === 'Wide, 2 M'")
    other.before = -1
    other.click("#run")
    other.wait_for_function(
        "document.querySelector('#board .sv').dataset.state === 'done' && Number(document.querySelector('#board .sv').dataset.seq) > 0"
    )
    assert backend.idle() and backend.runs[-1].draft == "wide" == backend.runs[0].draft
    backend.loaded.discard("|wide")


# A choice as soon as the page can take one, which is before it has asked for its own first settings.
EARLY = """
{ const again = setInterval(() => { const page = globalThis.SpecVizPage; if (!page?.send) return; clearInterval(again);
  page.pending = { draft: 'wide' }; page.send('input'); }, 0); }"""
# The second answer about models, which is about those chosen when the page was opened, comes when it is let
# go.
LATE = """
{ const real = globalThis.fetch; let asked = 0;
  globalThis.fetch = async (...given) => {
    const answer = await real(...given);
    if (String(given[0]?.url ?? given[0]).includes('/run/predict') && (asked += 1) === 2) await new Promise((go) => globalThis.go = go);
    return answer; }; }"""


@pytest.mark.thorough
def test_a_choice_made_while_the_page_loads_is_kept(visit, server):
    page = visit(script=EARLY)
    page.wait_for_function("document.querySelector('#models').textContent.includes('with draft wide')")


@pytest.mark.thorough
def test_a_late_answer_about_other_models_is_not_shown(visit, server, backend, monkeypatch):
    monkeypatch.setattr(backend, "loaded", {None})
    page = visit(script=LATE)
    page.wait_for_function("!!globalThis.go")
    page.evaluate("SpecVizPage.pending = { draft: 'wide' }; SpecVizPage.send('input');")
    page.wait_for_function("document.querySelector('#models').textContent.includes('with draft wide')")
    page.evaluate("go()")
    page.wait_for_timeout(1000)
    assert "with draft wide" in page.inner_text("#models")
    page.evaluate("SpecVizPage.pending = { draft: '' }; SpecVizPage.send('input');")
    page.wait_for_function("!document.querySelector('#models').textContent.includes('wide')")
    page.evaluate(
        "SpecVizPage.pending = { target: 3, draft: ['wide'] }; SpecVizPage.send('input');"
    )  # no names: nothing is chosen
    page.wait_for_timeout(500)
    assert page.evaluate("SpecVizPage.chosenModels()") == ""


@pytest.mark.thorough
def test_what_the_last_target_could_not_run_says_nothing_of_the_next(visit, server, backend, monkeypatch):
    """The answer about the default target comes while another one is asked for, with a method that only
    that one can run."""
    monkeypatch.setattr(
        backend,
        "unsupported_reason",
        lambda target=None: {} if target == "other" else {"lookup": "There is none."},
    )
    page = visit(url=server.url)
    begin(page)
    finish(page)
    page.wait_for_function("document.querySelector('#methods .pg-pick')")
    page.evaluate("""() => {
        SpecVizPage.run({ prompt: 'a zebra', methods: ['lookup'], target: 'other' });
        document.querySelector('#temperature input').dispatchEvent(new Event('input', { bubbles: true }));
    }""")
    page.wait_for_function("document.querySelector('#board').textContent.includes('a zebra')")
    finish(page)
    asked = backend.runs[-1]
    assert (asked.target, "lookup" in dict(asked.lanes)) == ("other", True)


def test_the_row_of_lanes_begins_at_its_start_again_when_the_keyboard_leaves_it(page):
    page.set_viewport_size({"width": 800, "height": 700})
    page.evaluate("() => { document.querySelector('.pg-chips').style.width = '90px'; }")
    page.focus(".pg-chips .pg-more")
    page.evaluate("document.querySelector('.pg-chips').scrollLeft = 40")
    assert page.evaluate("document.querySelector('.pg-chips').scrollLeft") > 0
    page.focus("#prompt textarea")
    page.wait_for_function("document.querySelector('.pg-chips').scrollLeft === 0")
