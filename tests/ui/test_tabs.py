"""Tabs, panels, links and what they ask of the server, in a real browser; no model anywhere."""

from __future__ import annotations

import json
import re
import threading
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import axe_playwright_python
import pytest

from .fake import FakeBackend
from .test_page import HOSTILE, SEQ, begin, finish, open_fields, painted, run, state, text

TABS = ["watch", "race", "lab", "learn", "traces"]
ASK = "([name, details]) => SpecVizPage.ask(name, details).then((answer) => ({ answer }), (error) => ({ error: error.message }))"
AXE = Path(axe_playwright_python.__file__).parent / "axe.min.js"
SCAN = """axe.run(document).then((r) => r.violations.filter((v) => ["serious", "critical"].includes(v.impact) || v.id === "heading-order")
    .map((v) => [v.id, v.nodes.map((n) => n.html.slice(0, 160)).slice(0, 3)]))"""
FITS = "document.documentElement.scrollWidth <= innerWidth"


def tab(page):
    return page.evaluate(
        "[...document.querySelectorAll('[role=tab][id^=tab-][aria-selected=true]')].map((t) => t.id.slice(4)).join()"
    )


def open_tab(page, name):
    page.click(f"#tab-{name}")
    if name not in ("watch", "race"):
        page.wait_for_selector(f"#host-{name} .svp")


@pytest.mark.thorough
@pytest.mark.parametrize(
    "width, scheme", [(1400, "light"), pytest.param(390, "dark", marks=pytest.mark.thorough)]
)
def test_every_tab_opens_at_every_width(visit, server, width, scheme):
    """And nothing serious stands in the way of anybody, as axe sees it."""
    page = visit(url=f"{server.url}?__theme={scheme}", width=width)
    page.add_script_tag(content=AXE.read_text(encoding="utf-8"))
    for name in [*TABS[1:], "watch"]:
        open_tab(page, name)
        assert tab(page) == name and f"page={name}" in page.url
        assert page.is_visible("#board") == (name in ("watch", "race"))
        assert page.is_visible("#prompt") == (name in ("watch", "race"))
        for other in TABS[2:]:
            assert page.is_visible(f"#host-{other}") == (other == name)
        page.wait_for_function(FITS)
        assert (name, page.evaluate(SCAN)) == (name, [])


def test_panels_come_when_their_tab_is_first_opened(page):
    assert page.evaluate("typeof SpecVizPanels") == "undefined"
    open_tab(page, "learn")
    assert page.evaluate("typeof SpecVizPanels.mount") == "function"
    page.click("#host-learn .pn-rail [data-key=methods]")
    page.click("#host-learn .pn-mrow[data-key=tree]")
    assert "each pass checks a chain" in page.inner_text("#host-learn .pn-drawing") and page.is_visible(
        "#host-learn .pn-drawing svg"
    )


def test_the_list_and_the_lesson_count_the_same_methods(page, backend):
    page.click(".pg-more")
    listed = page.inner_text(".pg-shelfline [role=status]")
    page.keyboard.press("Escape")
    open_tab(page, "learn")
    page.click("#host-learn .pn-rail [data-key=methods]")
    assert page.inner_text("#host-learn .pn-methods h2") == listed and re.findall(r"\d+", listed) == [
        str(len(backend.cards) - 1)
    ]


@pytest.mark.thorough
def test_tabs_by_keyboard(page):
    page.focus("#tab-watch")
    for name in [*TABS[1:], "watch"]:
        page.keyboard.press("ArrowRight")
        assert tab(page) == name and page.evaluate("document.activeElement.id") == f"tab-{name}"
    page.keyboard.press("End")
    assert tab(page) == "traces"
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("2")
    assert tab(page) == "race"
    page.focus("#prompt textarea")
    page.keyboard.type("3 little pigs")
    assert tab(page) == "race" and page.input_value("#prompt textarea") == "3 little pigs"
    selected = page.evaluate("document.querySelectorAll('#tabs [role=tab][tabindex=\"0\"]').length")
    assert selected == 1 and page.get_attribute("#tab-race", "aria-controls") == "play"


@pytest.mark.thorough
def test_back_goes_back_to_the_tab_before(page):
    open_tab(page, "lab")
    open_tab(page, "learn")
    page.go_back()
    page.wait_for_function("document.querySelector('#page').dataset.tab === 'lab'")


@pytest.mark.thorough
def test_the_engine_is_asked_one_thing_at_a_time(visit, backend):
    first, second = visit(), visit()
    backend.hold(3)
    begin(first)
    state(first, "live")
    assert backend.held()
    second.evaluate(
        "void SpecVizPage.ask('echo', { a: 1 }, (said) => { window.said = said; }).then((a) => { window.answer = a; })"
    )
    second.wait_for_function("window.said && window.said.state === 'queued'")
    backend.hold(None)
    second.wait_for_function("window.answer && window.answer.a === 1")
    finish(first)
    assert backend.most_active == 1


@pytest.mark.thorough
def test_a_question_ends_when_its_asker_leaves(page, backend):
    backend.hold(0)
    page.evaluate("""() => { window.switch = new AbortController();
        SpecVizPage.ask('echo', {}, (said) => { window.said = said; }, window.switch.signal).catch(() => {}); }""")
    page.wait_for_function("window.said && window.said.text === 'Thinking.'")
    page.evaluate("window.switch.abort()")
    assert backend.idle()


def test_a_strange_question_is_a_sentence(page, backend):
    for name, details, says in (
        ("nope", {}, "no such question"),
        (None, {}, "no such question"),
        (["echo"], {}, "more than 1 values"),
        ("echo", [1], "must be an object"),
        ("echo", "x", "must be an object"),
        ("echo", {"x": "y" * 30_000}, "limit is 20,000"),
    ):
        assert says in page.evaluate(ASK, [name, details])["error"] and backend.active == 0, name


def test_a_question_that_breaks_is_a_sentence(page, backend):
    backend.fault = "crash"
    said = page.evaluate(ASK, ["echo", {}])["error"]
    assert "RuntimeError" in said and "secret" not in said
    backend.fault = ""
    assert page.evaluate(ASK, ["echo", {"x": HOSTILE}]) == {"answer": {"x": HOSTILE}}


def test_a_panel_can_run_something(page, backend):
    page.before = page.evaluate(SEQ)
    page.evaluate(
        """(hostile) => SpecVizPage.run({ prompt: hostile, methods: ["tree", "lookup"], knobs: { tree: { gamma: 2 } }, length: 9,
        temperature: 0.5, seed: 4 })""",
        HOSTILE[2],
    )
    finish(page)
    ask = backend.runs[0]
    assert (ask.prompt, ask.max_new_tokens, ask.temperature, ask.seed) == (HOSTILE[2], 9, 0.5, 4)
    assert [key for key, _ in ask.lanes][:2] == ["tree", "lookup"] and dict(ask.lanes)["tree"]["gamma"] == 2
    assert tab(page) == "race" and ask.turns == ()
    page.before = page.evaluate(SEQ)
    page.evaluate("SpecVizPage.run({ prompt: 'afresh', methods: ['chain'] })")
    finish(page)
    assert backend.runs[1].turns == () and tab(page) == "watch"
    page.before = page.evaluate(SEQ)
    page.evaluate("SpecVizPage.run({ prompt: 'and then', follow: true })")
    finish(page)
    assert [t["content"] for t in backend.runs[2].turns][0] == "afresh"


def test_a_shared_link_opens_the_same_choice_and_round(visit, server, backend):
    page = visit(permissions=["clipboard-read", "clipboard-write"])
    page.click("#tab-race")
    open_fields(page)
    page.fill("#seed input", "7")
    run(page, "tell of the \u05d3\u05d1 & the fox")
    page.evaluate("document.querySelector('#board .sv').svBoard.goto({ lane: 1, round: 3, node: 1 })")
    page.click("#share")
    page.wait_for_function("document.querySelector('#notice').textContent.includes('Link copied')")
    link = page.evaluate("navigator.clipboard.readText()")
    assert link == page.url and link.startswith(server.url)
    other = visit(url=link)
    other.wait_for_function("!!document.querySelector('#prompt textarea')?.value")
    assert (
        other.input_value("#prompt textarea") == "tell of the \u05d3\u05d1 & the fox" and tab(other) == "race"
    )
    other.wait_for_function("document.querySelector('#seed input')?.value === '7'")
    run(other, other.input_value("#prompt textarea"))
    assert backend.runs[0] == backend.runs[1]


@pytest.mark.thorough
def test_a_link_opens_a_place_in_the_recording(visit, server):
    page = visit(url=server.url + "#page=race&layout=race&lane=1&round=4&phase=4&node=0")
    page.wait_for_function(
        "(() => { const w = document.querySelector('#board .sv').svBoard.where(); return w.lane === 1 && w.round === 4; })()"
    )
    assert tab(page) == "race"


@pytest.mark.thorough
def test_a_link_leaves_alone_what_it_does_not_name(visit, server):
    """What somebody types while the page loads is not overwritten with what stood there before."""
    page = visit(url=server.url + "#page=race&s=7")
    page.wait_for_function("document.querySelector('#seed input')?.value === '7'")
    page.fill("#prompt textarea", "typed")
    told = page.evaluate("""() => { SpecVizPage.pending = { seed: 3, methods: ["tree", "nope", "chain", "lookup", "heads", "tree"] };
        return SpecVizPage.take("old", "[]", {}, 0, 1, 96, 7, 1, "", "", ""); }""")
    assert [told[1], told[6]] == ['["tree","chain","lookup","heads"]', 3] and "no method nope" in told[-1]
    rest = [x for i, x in enumerate(told[:-1]) if i not in (1, 6)]
    assert len(rest) > 10 and all(x == {"__type__": "update"} for x in rest)
    page.evaluate("SpecVizPage.pending = { seed: 9 }; SpecVizPage.send('input')")
    page.wait_for_function("document.querySelector('#seed input')?.value === '9'")
    assert page.input_value("#prompt textarea") == "typed" and page.input_value("#length input") == "96"


@pytest.mark.thorough
@pytest.mark.parametrize(
    "hash",
    [
        "page=nope&round=99999999999&lane=x&phase=-3",
        "p=" + quote("".join(HOSTILE)) + "&m=nope,../../x,chain&t=NaN&n=1e9&k=[1",
        "k=%7B%22chain%22:3,%22tree%22:%7B%22gamma%22:%22x%22%7D%7D&m=tree&trace=../../etc/passwd&model=http://x",
        "%E0%A4%A",
        "&&==&#&page=lab&page=race",
    ],
)
def test_a_bogus_link_changes_nothing_it_should_not(visit, server, backend, hash):
    page = visit(url=server.url + "#" + hash)
    page.wait_for_function("document.querySelector('#page').dataset.tab")
    assert page.input_value("#length input") == "96" and page.input_value("#temperature input") == "0"
    assert (
        page.evaluate(
            "[...document.querySelectorAll('#page img:not(.pg-picwhole), #page script')].map((x) => x.outerHTML.slice(0, 300))"
        )
        == []
    )
    page.click("#tab-watch")
    page.evaluate("SpecVizPage.run({ prompt: 'still here', knobs: {} })")
    page.wait_for_selector("#board .sv[data-state=done] >> nth=0")
    page.wait_for_function("document.querySelector('#board .lane .stage').textContent.includes('You said')")
    assert backend.runs[-1].prompt == "still here"


def test_in_a_frame_only_the_board_is_seen(visit, server):
    page = visit(url=server.url + "?embed=1")
    page.wait_for_selector("body.pg-embed")
    assert (
        page.is_visible("#board .transport")
        and not page.is_visible("#prompt")
        and not page.is_visible("#tabs")
    )


@pytest.mark.thorough
def test_another_model_is_named_before_it_is_loaded(page, backend):
    page.click("#open-settings")
    page.click("#target input")
    page.click("[role=option]:has-text('Other, 9 M')")
    page.wait_for_function(
        "document.querySelector('#models').textContent.includes('loads with the next run')"
    )
    assert backend.loaded <= {None}
    run(page)
    assert backend.runs[0].target == "other" and "other" in page.inner_text("#models")
    backend.loaded.discard("other")


def test_twenty_visitors_of_the_recording_start_no_model(server, backend):
    """Each reads the page and asks what it asks when a panel opens; none of it may load or run anything."""
    backend.loaded.clear()

    def read(path, body=None):
        request = urllib.request.Request(server.url + path, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=100) as answer:
            return answer.read().decode()

    def visit(_):
        page = read("")
        asked = json.loads(read("gradio_api/call/ask", json.dumps({"data": ["catalogue", {}]}).encode()))
        return "specviz-trace/1" in page, '\\"state\\":\\"done\\"' in read(
            f"gradio_api/call/ask/{asked['event_id']}"
        )

    with ThreadPoolExecutor(max_workers=20) as pool:
        assert list(pool.map(visit, range(20))) == [(True, True)] * 20
    assert backend.loaded == set() and backend.runs == [] and backend.most_active == 0


@pytest.mark.thorough
def test_the_live_page_is_as_the_trace_at_phone_width(visit, backend):
    page = visit(width=390, height=800)
    page.click("#tab-race")
    run(page, " ".join(HOSTILE) + " \U0001f98a \u05d3\u05d1 \u7b11 \t" + " " * 40 + "\u202e end")
    told = [r for batch in FakeBackend().run(backend.runs[0], threading.Event(), 60) for r in batch]
    assert int(page.get_attribute("#board .sv", "data-records")) == len(told) and all(
        len(lane) > 8 for lane in painted(page)
    )
    for piece in HOSTILE:
        assert piece in text(page)
    page.wait_for_function(FITS)
    follow = page.evaluate(
        "[...document.querySelectorAll('#chatbar button')].map((b) => b.getBoundingClientRect()).filter((r) => r.width && (r.left < 0 || r.right > innerWidth)).length"
    )
    assert follow == 0


@pytest.mark.thorough
def test_a_frame_of_ones_own_run_shows_that_run_without_pressing_run(visit, server, backend):
    page = visit(url=server.url)
    open_fields(page)
    page.fill("#length input", "24")
    run(page, "tell of the fox")
    told = int(page.get_attribute("#board .sv", "data-records"))
    page.click("#tab-traces")
    page.wait_for_selector("#host-traces .pn-rail, #host-traces [role=tab], #host-traces .svp")
    page.evaluate(
        "document.dispatchEvent(new CustomEvent('specviz:show', { detail: { kind: 'traces', view: 'take' } }))"
    )
    page.wait_for_function(
        "[...document.querySelectorAll('#host-traces input, #host-traces textarea')].some((f) => f.value.includes('<iframe') && f.value.includes('&z='))"
    )
    frame = page.evaluate(
        "[...document.querySelectorAll('#host-traces input, #host-traces textarea')].map((f) => f.value).find((v) => v.includes('<iframe'))"
    )
    address = frame.split('src="')[1].split('"')[0]
    other = visit(url=address)
    other.wait_for_function(
        "document.querySelector('#board .sv').svBoard.trace().some((r) => r.prompt && r.prompt.text === 'tell of the fox')"
    )
    assert len(backend.runs) == 1 and other.evaluate("document.body.classList.contains('pg-embed')")
    assert 20 < int(other.get_attribute("#board .sv", "data-records")) <= told
    assert other.evaluate("document.querySelector('#board .sv').dataset.state") in ("done", "stopped")
