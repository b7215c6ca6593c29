"""What a visitor chose and where things are: a reload keeps the choices, the top row presents, Settings
shows the commands of one's own model, and the keyboard walks only what is in sight."""

from __future__ import annotations

from pathlib import Path

import axe_playwright_python
import pytest

from .conftest import reload
from .test_page import open_fields
from .test_tabs import SCAN

AXE = Path(axe_playwright_python.__file__).parent / "axe.min.js"
FOCUSED = """() => { const e = document.activeElement, r = e.getBoundingClientRect();
  return [e.id || e.className || e.tagName, e.checkVisibility({ visibilityProperty: true }), r.width > 0 || e.tagName === "INPUT", !!e.closest("[inert]")]; }"""


def test_a_reload_keeps_the_choices_and_no_prompt(visit):
    page = visit()
    open_fields(page)
    page.fill("#seed input", "7")
    page.fill("#temperature input", "0.5")
    page.fill("#length input", "48")
    page.fill("#repeats input", "3")
    page.fill("#prompt textarea", "mine")
    page.evaluate("SpecVizPage.pending = { methods: ['lookup'] }; SpecVizPage.send('input')")
    page.wait_for_function("document.querySelector('.pg-pick').dataset.on === 'lookup'")
    reload(page)
    page.wait_for_function(
        "document.querySelector('#seed input')?.value === '7' && document.querySelector('.pg-pick')?.dataset.on === 'lookup'"
    )
    assert page.input_value("#temperature input") == "0.5" and page.input_value("#prompt textarea") == ""
    assert [page.input_value(f"#{name} input") for name in ("length", "repeats")] == ["48", "3"]
    other = visit()
    other.wait_for_function("document.querySelector('.pg-pick')?.dataset.on")
    assert (
        other.input_value("#seed input") == "0"
        and other.evaluate("document.querySelector('.pg-pick').dataset.on") != "lookup"
    )


@pytest.mark.parametrize("leave", ["example", pytest.param("new chat", marks=pytest.mark.thorough)])
def test_what_an_example_sets_ends_with_the_next_one_and_with_a_new_chat(visit, leave):
    page = visit()
    open_fields(page)
    page.fill("#temperature input", "0.4")
    page.fill("#length input", "40")
    page.evaluate("SpecVizPage.pending = { methods: ['tree'] }; SpecVizPage.send('input')")
    page.wait_for_function("document.querySelector('.pg-pick').dataset.on === 'tree'")
    example = "(set) => SpecVizPage.example({ prompt: 'x', look: '', methods: ['lookup'], titles: ['L'], set }, '[]')"
    page.evaluate(example, {"temperature": 0.9, "length": 24})
    page.wait_for_function("document.querySelector('#temperature input').value === '0.9'")
    page.wait_for_function("document.querySelector('#length input').value === '24'")
    if leave == "example":
        page.evaluate(example, None)
    else:
        page.evaluate(
            "document.querySelector('#board').insertAdjacentHTML('beforeend', '<i id=new-chat></i>')"
        )
        page.evaluate("document.querySelector('#new-chat').click()")
        page.wait_for_function("document.querySelector('.pg-pick').dataset.on === 'tree'")
    page.wait_for_function("document.querySelector('#temperature input').value === '0.4'")
    page.wait_for_function("document.querySelector('#length input').value === '40'")


def test_the_top_row_presents_and_escape_ends_it(page):
    page.evaluate(
        "() => { document.documentElement.requestFullscreen = () => Promise.reject(new Error('no')); }"
    )
    page.click("#present")
    page.wait_for_selector("#board .sv.presenting")
    page.set_viewport_size({"width": 1440, "height": 900})
    page.wait_for_function("document.documentElement.scrollHeight <= innerHeight")
    assert page.is_visible("#board .legend") and page.is_hidden("#board .drawerkey")
    assert float(page.evaluate("document.querySelector('#board .sv').style.zoom")) > 1.05
    assert (
        not page.is_visible("#prompt")
        and not page.is_visible("#tabs")
        and not page.is_visible("#board .notice")
    )
    page.keyboard.press("Escape")
    page.wait_for_selector("#prompt", state="visible")
    assert page.query_selector(".presenting, .pn-leave") is None


@pytest.mark.thorough
def test_settings_show_the_commands_for_ones_own_model_and_server(visit):
    page = visit(permissions=["clipboard-read", "clipboard-write"])
    page.click("#open-settings")
    page.wait_for_selector("#settings.open .pg-own code")
    commands = page.locator(".pg-own code").all_inner_texts()
    assert any("SPECVIZ_TARGET=" in one for one in commands) and any(
        "SPECVIZ_SERVERS=" in one for one in commands
    )
    page.click(".pg-own .pg-copy >> nth=0")
    page.wait_for_function("document.querySelector('.pg-own .pg-copy').textContent === 'Copied'")
    assert page.evaluate("navigator.clipboard.readText()") == commands[0]


def test_on_a_low_screen_the_dock_is_one_line_until_it_has_the_focus(visit):
    page = visit(width=720, height=450)
    height = "document.querySelector('#dock').getBoundingClientRect().height"
    folded = page.evaluate(height)
    assert folded < 0.2 * 450 and page.is_visible("#run") and not page.is_visible("#examples")
    page.focus("#prompt textarea")
    page.wait_for_selector("#under", state="visible")
    assert page.evaluate(height) > folded


@pytest.mark.thorough
def test_at_twice_the_size_the_story_is_walked_by_keyboard_and_axe_finds_nothing(visit, server):
    """200 % of 1440 by 900: nothing sideways, every stop of the keyboard in sight and named."""
    page = visit(url=server.url + "#page=learn", width=720, height=450)
    page.wait_for_selector("#host-learn .pn-story")
    page.add_script_tag(content=AXE.read_text(encoding="utf-8"))
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
    stops = []
    for _ in range(16):
        page.keyboard.press("Tab")
        stops.append(page.evaluate(FOCUSED))
    assert all(seen and sized and not inert for _, seen, sized, inert in stops), stops
    assert len({name for name, *_ in stops}) > 6
    assert page.evaluate(SCAN) == []


@pytest.mark.thorough
def test_a_run_whose_server_is_gone_is_cut_off_and_stays_over_a_reload(visit, backend):
    """The badge says so, no tick stands beside it, and Run makes the run again."""
    page = visit()
    written = "[...document.querySelectorAll('#board .lane .t[data-i]')].map((x) => x.textContent).join('')"
    backend.hold(12)
    page.fill("#prompt textarea", "tell of the fox")
    page.click("#run")
    page.wait_for_function("document.querySelectorAll('#board .lane .t[data-i]').length >= 12")
    page.route("**/gradio_api/app_id", lambda route: route.fulfill(json={"app_id": "another"}))
    page.wait_for_selector("#board .sv[data-state=cut]")
    assert page.is_hidden("#board .same") and page.get_attribute(".mode", "data-mode") == "cut"
    kept = page.evaluate(written)
    page.unroute("**/gradio_api/app_id")
    run = page.evaluate("sessionStorage.getItem('specviz.cut.1')")
    backend.hold(None)  # it was the network: the run goes on, and nothing is left to restore
    page.wait_for_selector("#board .sv[data-state=done]")
    page.wait_for_function("sessionStorage.getItem('specviz.cut.1') === null")
    page.evaluate("(run) => sessionStorage.setItem('specviz.cut.1', run)", run)
    reload(page)
    page.wait_for_selector("#board .sv[data-state=cut]")
    page.wait_for_function(f"(kept) => {written} === kept", arg=kept)
    page.click("#run")
    page.wait_for_selector("#board .sv[data-state=done]")
    assert [run.prompt for run in backend.runs] == ["tell of the fox"] * 2
    reload(page)  # it is over: nothing is restored
    page.wait_for_function("document.querySelector('.headline')?.textContent.includes('instead of')")
    assert page.evaluate("document.querySelector('#board .sv').svBoard.trace()[0].mode") == "recorded"
