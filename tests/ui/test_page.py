"""The page in a real browser: what a visitor does, and that what is seen is what the trace says."""

from __future__ import annotations

import json
import re
import threading
from urllib.parse import quote

import pytest
import yaml

from specviz.engine.cards import cards
from specviz.engine.limits import RunRequest
from specviz.engine.messages import TEXTS
from specviz.engine.messages import text as text_of
from specviz.ui.chat import lane_answers
from specviz.ui.handlers import Handlers
from specviz.ui.picker_rows import measured_speedups
from specviz.ui.start_content import EXAMPLES, start_content

from ..message_codes import begins, viewer_texts
from .conftest import Server
from .fake import CARDS, FakeBackend

HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "<script>alert(2)</script>",
    "${alert(3)}",
    "{{7*7}}",
    "<b>bold</b>",
    "`${1+1}`",
]
SAYS = {"acc": "accepted", "cor": "correction", "bon": "bonus", "pla": "plain"}


def state(page, wanted):
    page.wait_for_selector(f'#board .sv[data-state="{wanted}"]')


SEQ = "Number(document.querySelector('#board .sv').dataset.seq)"


def begin(page, prompt="tell of the fox"):
    page.fill("#prompt textarea", prompt)
    page.before = page.evaluate(SEQ)
    page.click("#run")


def finish(page, wanted="done"):
    """The run that begin() began is over, and the page is ready for the next."""
    page.wait_for_function(f"before => {SEQ} > before", arg=page.before)
    state(page, wanted)
    page.wait_for_selector("#run:not([disabled])")


def pick(page, *keys):
    """The methods on the page of all of them: pressed where they were not, taken away where they were."""
    page.click(".pg-more")
    for key in keys:
        page.click(
            f".pg-row[data-key={key}]"
            if key not in page.get_attribute(".pg-pick", "data-on").split()
            else f".pg-slot:has-text('{next(c.title for c in CARDS if c.key == key)}') [aria-label^='Take']"
        )
    page.click(".pg-done")


def open_fields(page):
    """The settings of a run, behind their one line."""
    if page.get_attribute(".pg-set", "aria-expanded") != "true":
        page.click(".pg-set")


def run(page, prompt="tell of the fox"):
    begin(page, prompt)
    finish(page)


def text(page, lane=0):
    return page.evaluate(
        "n => document.querySelectorAll('#board .lane')[n].querySelector('.stage').textContent", lane
    )


def painted(page):
    """Every token on the board: [[text, verdict], ...] for each lane, from the elements themselves."""
    return page.evaluate("""() => [...document.querySelectorAll('#board .lane')].map((lane) =>
        [...lane.querySelectorAll('.t[data-i]')].map((t) => [t.textContent, t.dataset.v]))""")


def test_first_load_plays_a_recorded_run(visit, backend):
    page = visit(moving=True)
    state(page, "done")
    clock = "document.querySelector('#board .transport .where').textContent"
    before = page.evaluate(clock)
    page.wait_for_function(f"old => {clock} !== old", arg=before)
    assert int(page.get_attribute("#board .sv", "data-records")) > 100
    assert backend.runs == []


def test_three_lanes_stream_in_the_colours_of_the_trace(page, backend):
    page.click("#tab-race")  # Watch shows one lane large
    page.click(
        ".p-stage .phead"
    )  # where the texts stand folded, and a run in flight paints only what can be seen
    backend.hold(12)
    begin(page)
    state(page, "live")
    page.wait_for_function("document.querySelectorAll('#board .lane').length === 3")
    page.wait_for_function("document.querySelectorAll('#board .lane .t[data-i]').length >= 12")
    page.wait_for_selector("#stop:not([disabled])")
    assert page.is_disabled("#run")
    backend.hold(None)
    finish(page)
    assert page.is_disabled("#stop")
    told = [r for batch in FakeBackend().run(backend.runs[0], threading.Event(), 60) for r in batch]
    for said, shown in zip(lane_answers(told), painted(page)):
        verdicts = [v for words, v in said.pieces for _ in re.findall(r"\s*\S+", words)]
        assert [v for _, v in shown] == verdicts[-len(shown) :] and len(shown) > 20
        assert {"accepted", "correction", "bonus"} & set(verdicts) or said.key == "autoregressive"
    assert page.get_attribute("#board .sv", "data-lost") == "0"
    assert int(page.get_attribute("#board .sv", "data-records")) == len(told)


@pytest.mark.thorough
def test_four_lanes_beside_plain_decoding_lose_no_event(page, backend):
    pick(page, "tree")
    page.click(".pg-more")
    page.click(".pg-row[data-key=chain]")  # once more, with another knob
    assert page.get_attribute(".pg-row[data-key=heads]", "aria-disabled") == "true"
    assert "4 of 4" in page.get_attribute(".pg-row[data-key=tree]", "title")  # nor once more
    assert not re.search(r"\b(?!4 )\d+ (of \d+ )?(lanes|methods) are", page.content()), (
        "no place counts plain decoding as a choice"
    )
    page.click(".pg-done")
    backend.hold(0)
    begin(page)
    state(page, "loading")
    for rounds in range(4, 240, 4):  # about sixty updates
        backend.hold(rounds)
    backend.hold(None)
    finish(page)
    told = [r for batch in FakeBackend().run(backend.runs[0], threading.Event(), 60) for r in batch]
    assert [key for key, _ in backend.runs[0].lanes] == ["chain", "lookup", "tree", "chain", "autoregressive"]
    assert page.get_attribute("#board .sv", "data-gaps") == "0"
    assert int(page.get_attribute("#board .sv", "data-records")) == len(told)


def test_stop_ends_the_run_within_a_round(page, backend):
    backend.hold(5)
    begin(page)
    state(page, "live")  # what is on the board is this run, and no longer the recorded one
    assert backend.held()
    page.click("#stop")
    finish(page, "stopped")
    assert backend.rounds == 5 and backend.active == 0
    assert "You said" in text(page)
    backend.hold(None)
    run(page, "and now this")
    assert "and now this" in text(page)


@pytest.mark.thorough
def test_stop_before_the_first_token_keeps_what_was_there(page, backend):
    records = page.get_attribute("#board .sv", "data-records")
    backend.hold(0)
    begin(page)
    state(page, "loading")
    page.click("#stop")
    finish(page, "stopped")
    assert page.get_attribute("#board .sv", "data-records") == records
    assert page.input_value("#prompt textarea") == "tell of the fox"


def test_hostile_text_is_only_text(page, backend):
    run(page, " ".join(HOSTILE))
    for piece in HOSTILE:
        assert piece in text(page)
    begin(page, "and again")
    page.wait_for_selector('.pg-chat[data-turns="1"]')
    for piece in HOSTILE:
        assert piece in page.inner_text(".pg-question") and piece in page.inner_text(".pg-answer")
    assert (
        page.evaluate(
            "document.querySelectorAll('.pg-chat img, .pg-chat script, #board img, #board script').length"
        )
        == 0
    )
    finish(page)


def test_a_follow_up_keeps_the_conversation(page, backend):
    run(page, "a first question")
    run(page, "a second question")
    first, second = backend.runs
    assert first.turns == () and [t["role"] for t in second.turns] == ["user", "assistant"]
    assert second.turns[0]["content"] == "a first question"
    assert second.turns[1]["content"].startswith("You said: a first question")
    assert page.inner_text(".pg-question") == "a first question"
    assert set(
        page.evaluate("[...document.querySelectorAll('.pg-answer span')].map((s) => s.dataset.verdict)")
    ) >= {"accepted"}


@pytest.mark.thorough
def test_an_empty_prompt_runs_the_last_message_again(page, backend):
    run(page, "once")
    run(page, "")
    assert [(r.prompt, r.turns) for r in backend.runs] == [("once", ()), ("once", ())]


@pytest.mark.thorough
def test_new_chat_starts_over(page, backend):
    run(page, "a first question")
    page.click("#new-chat")
    state(page, "idle")
    page.wait_for_selector("#new-chat", state="hidden")
    run(page, "a stranger's question")
    assert backend.runs[-1].turns == ()
    assert page.is_hidden(".pg-chat")


def test_the_first_press_of_run_runs_the_prompt_that_is_shown(page, backend):
    shown = page.evaluate("SpecVizPage.asked()")
    assert shown and page.input_value("#prompt textarea") == ""
    page.before = page.evaluate(SEQ)
    page.click("#run")
    finish(page)
    assert [r.prompt for r in backend.runs] == [shown]


@pytest.mark.thorough
def test_an_answer_cut_by_the_limit_can_be_written_on(page, backend):
    open_fields(page)
    page.fill("#length input", "8")
    run(page, "tell of the fox and of the lantern and of the long way home")
    ends = [
        r["finish"]
        for r in page.evaluate("document.querySelector('#board .sv').svBoard.trace()")
        if r["type"] == "done"
    ]
    assert ends[0] == "length"
    page.before = page.evaluate(SEQ)
    page.click(".pays.more")
    finish(page)
    first, second = backend.runs
    assert (first.max_new_tokens, second.max_new_tokens, second.prompt, second.turns) == (
        8,
        16,
        first.prompt,
        (),
    )


@pytest.mark.thorough
def test_the_closed_settings_are_out_of_the_way_of_the_keyboard(page):
    page.wait_for_selector(".pg-skip", state="attached")
    stops = []
    for _ in range(20):
        page.keyboard.press("Tab")
        stops.append(
            page.evaluate(
                "[document.activeElement.className, Boolean(document.activeElement.closest('#settings'))]"
            )
        )
    assert not any(inside for _, inside in stops) and stops[0][0] == "pg-skip"
    page.click("#open-settings")
    page.wait_for_function("document.querySelector('#settings').classList.contains('open')")
    assert page.evaluate("document.querySelector('#settings .sidebar-content').inert") is False
    assert page.inner_text("#settings .pg-shut") == "Close"
    page.keyboard.press("Escape")
    page.wait_for_function("document.querySelector('#settings .sidebar-content').inert")
    assert page.evaluate("document.activeElement.id") == "open-settings"


@pytest.mark.thorough
def test_the_tab_has_a_name_an_icon_and_a_card_and_the_page_a_foot(page):
    titles = {page.evaluate("document.title")}
    for tab in ("race", "lab"):
        page.click(f"#tab-{tab}")
        titles.add(page.evaluate("document.title"))
    assert len(titles) == 3 and all("specviz" in one for one in titles)
    meta = page.evaluate(
        "[...document.querySelectorAll('meta[property^=og]')].map((m) => [m.getAttribute('property'), m.content.length > 3])"
    )
    assert {"og:title", "og:description"} <= {name for name, long in meta if long}
    assert page.get_attribute("link[rel=icon]", "href").startswith("data:image/svg+xml")
    links = page.evaluate("[...document.querySelectorAll('.pg-foot a')].map((a) => [a.href, a.rel])")
    page.click("#tab-watch")
    one_margin = """(width) => { const [a, b] = [".pg-foot", "#board .sv"].map((s) => document.querySelector(s).getBoundingClientRect());
        return innerWidth === width && Math.abs(a.left - b.left) <= 2 && Math.abs(a.right - b.right) <= 2; }"""
    for width in (1440, 1920, 390):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_function(one_margin, arg=width)
    papers = [href for href, _ in links if href.startswith("https://arxiv.org/abs/")]
    files = [href for href, _ in links if "/own/" in href]
    assert len(papers) >= 3 and len(files) == 4 and len(links) == len(papers) + len(files)
    assert {rel for _, rel in links} == {"noopener noreferrer"}
    for href in files:
        answer = page.request.get(href)
        assert (
            answer.ok and answer.headers["content-type"].startswith("text/plain") and len(answer.text()) > 100
        ), href


def test_new_chat_in_mid_run_forgets_that_run(page, backend):
    run(page, "a first question")
    backend.hold(5)
    begin(page, "a second question")
    state(page, "live")
    page.click("#new-chat")
    state(page, "idle")
    backend.hold(None)
    page.wait_for_selector("#run:not([disabled])")
    page.wait_for_timeout(1500)  # what came back, came seconds later
    assert (
        page.get_attribute("#board .sv", "data-state") == "idle"
        and page.get_attribute("#board .sv", "data-records") == "0"
    )
    assert page.is_hidden(".pg-chat") and page.is_hidden("#new-chat") and backend.active == 0
    run(page, "a third question")
    assert backend.runs[-1].turns == () and "a third question" in text(page) and page.is_hidden(".pg-chat")


@pytest.mark.thorough
def test_the_end_of_a_run_is_announced_and_neither_a_recording_s_nor_the_last_one_s(page, backend):
    said = "document.querySelector('#board .sv > span[aria-live=polite]').textContent"
    state(page, "done")
    assert page.evaluate(said) == ""  # a recording plays: nobody waited for it
    run(page, "a first question")
    assert page.evaluate(said).count(" tokens") >= 2
    backend.hold(5)
    begin(page, "a second question")
    state(page, "live")
    assert page.evaluate(said) == ""
    backend.hold(None)
    finish(page)
    assert page.evaluate(said).count(" tokens") >= 2


def test_a_model_that_cannot_be_loaded_leaves_a_way_back(page, backend):
    page.evaluate("() => { SpecVizPage.pending = { target: 'nobody/nothing' }; SpecVizPage.send('input'); }")
    page.wait_for_function("document.querySelector('#models .pg-line').textContent.includes('next run')")
    begin(page)
    state(page, "error")
    page.wait_for_selector("#run:not([disabled])")
    page.wait_for_selector("#models .pg-line[data-state=error]")
    page.click("#models .pg-embedded")
    page.wait_for_selector("#models .pg-line:not([data-state=error])")
    run(page)
    assert backend.runs[-1].models in (None, "")


@pytest.mark.thorough
def test_edit_takes_the_last_message_back(page, backend):
    run(page, "with a mistaek")
    page.click("#edit")
    page.wait_for_function("document.querySelector('#prompt textarea')?.value === 'with a mistaek'")
    run(page, "without a mistake")
    assert backend.runs[-1].turns == ()


@pytest.mark.thorough
def test_where_lanes_differ_the_person_picks_one(page, backend):
    open_fields(page)
    page.fill("#temperature input", "1")
    run(page, "first")
    choices = page.locator("#lane label:has(input)")
    choices.nth(1).click()
    second_text = [r for batch in FakeBackend().run(backend.runs[0], threading.Event(), 60) for r in batch]
    run(page, "second")
    assert backend.runs[1].turns[1]["content"] == lane_answers(second_text)[1].text


@pytest.mark.thorough
def test_an_earlier_turn_can_be_opened(page, backend):
    run(page, "a first question")
    run(page, "a second question")
    page.click(".pg-turn button")
    page.wait_for_selector(".pg-turn button[disabled]")
    page.wait_for_function(
        "document.querySelector('#board .lane .stage').textContent.includes('You said: a first question')"
    )
    page.click(".pg-turn:last-child button")
    page.wait_for_function(
        "document.querySelector('#board .lane .stage').textContent.includes('You said: a second question')"
    )
    assert page.get_attribute(".pg-chat", "data-turns") == "1"


@pytest.mark.thorough
def test_two_visitors_take_turns(visit, backend):
    first, second = visit(), visit()
    backend.hold(3)
    begin(first, "first visitor")
    state(first, "live")
    begin(second, "second visitor")
    state(second, "queued")
    assert text_of("queue.ahead", count=1, runs="run") in second.inner_text("#board .notice")
    backend.hold(None)
    finish(first)
    finish(second)
    assert backend.most_active == 1
    assert "first visitor" in text(first) and "second visitor" in text(second)


@pytest.mark.thorough
def test_stop_while_waiting_in_line(visit, backend):
    first, second = visit(), visit()
    backend.hold(3)
    begin(first)
    state(first, "live")
    begin(second)
    state(second, "queued")
    second.click("#stop")
    finish(second, "stopped")
    backend.hold(None)
    finish(first)
    assert len(backend.runs) == 1


@pytest.mark.thorough
def test_a_closed_tab_ends_its_run(visit, backend):
    page = visit()
    backend.hold(3)
    begin(page)
    state(page, "live")
    page.close()
    assert backend.idle() and backend.rounds == 3
    backend.hold(None)
    other = visit()
    run(other, "after the other left")
    assert backend.runs[-1].prompt == "after the other left"


@pytest.mark.thorough
def test_a_failing_lane_leaves_the_others(page, backend):
    backend.fault = "lane"
    page.click("#tab-race")
    run(page)
    assert begins(
        TEXTS, "run.lane_failed", title="Draft chain", why="This lane failed on purpose."
    ) in page.inner_text("#board .notice")
    assert len(painted(page)[2]) > 20


@pytest.mark.thorough
def test_a_crash_is_one_sentence(page, backend):
    backend.fault = "crash"
    begin(page)
    finish(page, "error")
    assert text_of("run.crashed", error="RuntimeError") in page.inner_text("#board .notice")
    assert "secret" not in page.content()
    backend.fault = ""
    run(page)


@pytest.mark.thorough
def test_what_cannot_be_run_is_said_beside_the_prompt(page, backend):
    open_fields(page)
    for field, value, good, says in [
        ("#temperature input", "3", "0", "temperature must lie between 0 and 2"),
        ("#length input", "100000", "8", "length must lie between 1 and 512"),
        ("#length input", "", "8", "length must be a whole number"),
        ("#top-p input", "0", "1", "Top-p must lie between"),
    ]:
        page.fill(field, value)
        page.click("#run")
        page.wait_for_function(
            "says => document.querySelector('#notice').textContent.includes(says)", arg=says
        )
        page.fill(field, good)
    assert backend.runs == []
    run(page, "fine")
    assert len(backend.runs) == 1 and not page.inner_text("#notice").strip()


def test_knobs_come_from_the_catalogue(page, backend):
    page.click("#open-settings")
    number = page.locator("#knob-chain-gamma input[type=number]")
    number.fill("7")
    number.press("Tab")
    page.locator("#knob-chain-warm input").uncheck()
    page.fill("#system textarea", "Be brief.")
    run(page)
    ask: RunRequest = backend.runs[0]
    assert dict(ask.lanes)["chain"] == {"gamma": 7, "shape": "even", "warm": False}
    assert ask.system == "Be brief." and ask.messages()[0] == {"role": "system", "content": "Be brief."}
    page.keyboard.press("Escape")
    page.click("#open-settings")
    page.click(".pg-chips [data-key=chain]")
    page.wait_for_selector("#knob-chain-gamma", state="detached")
    pick(page, "chain")
    page.wait_for_function("document.querySelector('#knob-chain-gamma input[type=number]')?.value === '7'")


@pytest.mark.thorough
def test_knobs_hold_what_was_set_whatever_the_server_still_owes(page, backend, monkeypatch):
    """Two knobs and Run, one after the other, while the server has not answered on the first."""
    answers, rule = threading.Event(), Handlers.incompatible_knobs
    page.click("#open-settings")
    page.wait_for_selector("#knob-chain-warm input")
    monkeypatch.setattr(Handlers, "incompatible_knobs", lambda *given: answers.wait(30) and rule(*given))
    try:
        page.fill("#knob-chain-gamma input[type=number]", "7")
        page.press("#knob-chain-gamma input[type=number]", "Tab")
        page.locator("#knob-chain-warm input").uncheck()
        run(page)
    finally:
        answers.set()
    assert dict(backend.runs[0].lanes)["chain"] == {"gamma": 7, "shape": "even", "warm": False}


@pytest.mark.thorough
def test_choices_that_do_not_go_together_are_grey_and_say_why(page, backend):
    """An unlawful pair cannot be set; what stands in its way is told to a mouse, a finger, the keyboard and
    a screen reader."""
    pick(page, "tree")
    page.click("#open-settings")

    def grey():
        return page.evaluate(
            "[...document.querySelectorAll('#knobs .pg-choicerow [aria-disabled=true]')].map((b) => b.dataset.choice).join()"
        )

    def choose(knob, choice, then):
        page.click(f"#knob-tree-{knob} [data-choice={choice}]")
        page.wait_for_function(
            f"(() => [...document.querySelectorAll('#knobs .pg-choicerow [aria-disabled=true]')].map((b) => b.dataset.choice).join() === '{then}')()"
        )

    page.wait_for_selector("#knob-tree-drawn .pg-choicerow")
    assert grey() == "pairs"
    why = "Judge token goes with drawn best or apart, not with pairs: change judge first."
    page.locator("#knob-tree-drawn [data-choice=pairs]").click(
        force=True
    )  # as a finger would, on what cannot be pressed
    assert (
        page.inner_text("#knob-tree-drawn .pg-choicenote")
        == why
        == page.get_attribute("#knob-tree-drawn [data-choice=pairs]", "title")
    )
    assert (
        page.get_attribute("#knob-tree-drawn [data-choice=best]", "aria-checked") == "true"
        and grey() == "pairs"
    )
    choose("judge", "hub", "apart")
    choose("drawn", "pairs", "apart,token")
    page.focus("#knob-tree-judge [data-choice=hub]")
    page.keyboard.press("ArrowUp")
    assert page.evaluate("document.activeElement.dataset.choice") == "token"
    page.wait_for_function(
        "document.querySelector('#knob-tree-judge .pg-choicenote').textContent.includes('not with pairs: change drawn first')"
    )
    run(page)
    assert {name: dict(backend.runs[0].lanes)["tree"][name] for name in ("drawn", "judge")} == {
        "drawn": "pairs",
        "judge": "hub",
    }


@pytest.mark.thorough
def test_an_incompatible_pair_from_a_link_is_said_and_can_be_mended(visit, server):
    page = visit(url=server.url + "#m=tree&k=" + quote(json.dumps({"tree": {"drawn": "pairs"}})))
    page.wait_for_selector(
        "#knob-tree-judge [data-choice=token][aria-checked=true][aria-disabled=true]", state="attached"
    )
    page.wait_for_function(
        "document.querySelector('#knobs-tree').textContent.includes('Judge token goes with drawn best or apart')"
    )
    page.click("#open-settings")
    page.click("#knob-tree-judge [data-choice=hub]")
    page.wait_for_function("document.querySelector('#knobs-tree').textContent.trim() === ''")


@pytest.mark.thorough
def test_an_unavailable_method_says_why(visit, backend):
    page = visit(has_touch=True)
    run(page)
    page.click(".pg-more")
    page.wait_for_selector(".pg-row.lock[data-key=heads]")
    row = page.locator(".pg-row[data-key=heads]")
    for reach in (row.hover, row.focus):
        page.hover(".pg-row[data-key=chain]")
        page.wait_for_function(
            "!document.querySelector('.pg-card').textContent.includes('need heads trained')"
        )
        reach()
        page.wait_for_function(
            "document.querySelector('.pg-card').textContent.includes('need heads trained')"
        )
        assert page.is_disabled(".pg-add")
    row.dispatch_event("click")  # what a tap does; a locked row is not waited for
    assert "need heads trained" in page.text_content(".pg-card")
    page.keyboard.press("Space")
    assert row.get_attribute("aria-pressed") == "false" and row.get_attribute("aria-disabled") == "true"
    assert "need heads" in row.get_attribute("aria-label")
    assert "heads" not in page.get_attribute(".pg-pick", "data-on")


@pytest.mark.thorough
def test_a_method_that_the_loaded_model_cannot_run_is_taken_away(page, backend):
    backend.loaded.clear()
    page.evaluate("SpecVizPage.pending = { methods: ['heads', 'tree'] }; SpecVizPage.send('input')")
    page.wait_for_function(
        "document.querySelector('.pg-pick').dataset.on === 'tree'"
    )  # choosing loads, and loading tells
    page.wait_for_function("document.querySelector('.pg-why').textContent.includes('need heads trained')")
    run(page)
    assert [key for key, _ in backend.runs[-1].lanes] == ["tree", "autoregressive"]


def test_examples_fill_the_prompt_and_say_what_to_watch(page):
    page.click("#example-1")
    prompt = yaml.safe_load(EXAMPLES.read_text(encoding="utf-8"))["examples"][1]["prompt"]
    page.wait_for_function(
        "(prompt) => document.querySelector('#prompt textarea')?.value === prompt", arg=prompt
    )
    assert page.inner_text("#notice").strip()


def test_by_keyboard_alone(page, backend):
    page.before = page.evaluate(SEQ)
    page.focus("#prompt textarea")
    page.keyboard.type("typed by hand")
    page.keyboard.press("Enter")
    finish(page)
    assert backend.runs[0].prompt == "typed by hand"
    page.focus(".pg-more")
    page.keyboard.press("Enter")
    page.wait_for_function("document.activeElement.type === 'search'")
    page.keyboard.type("speculative-eagle-topk")  # what an engine calls it
    assert page.inner_text(".pg-count") == "1 method" and "= speculative eagle topk" in page.inner_text(
        ".pg-row[data-key=tree]"
    )
    page.keyboard.press("Control+A")
    page.keyboard.type("several guesses")
    assert page.inner_text(".pg-count") == "1 method"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_function("document.querySelector('.pg-pick').dataset.on.includes('tree')")
    page.keyboard.press("Escape")
    page.wait_for_function("document.activeElement.classList.contains('pg-more')")  # back where it was opened
    page.focus("#board .scrub")
    page.keyboard.press("Home")
    page.wait_for_function("document.querySelector('#board .sv').dataset.mode === 'hold'")


@pytest.mark.thorough
def test_no_sideways_scroll(visit):
    page = visit(width=390, height=800)
    fits = "document.documentElement.scrollWidth <= innerWidth"
    assert page.evaluate(fits)
    run(page, "x" * 300)
    run(page, "a follow-up")
    for width in (390, 320, 768, 1024, 1400):
        page.set_viewport_size({"width": width, "height": 800})
        page.wait_for_function(fits)


@pytest.fixture(scope="module")
def shelf():
    """A page that offers every method there is."""
    backend = FakeBackend()
    backend.cards = cards()
    backend.targets = lambda: [
        row | ({} if row["name"] else {"model": measured_speedups()["model"]})
        for row in FakeBackend.targets(backend)
    ]
    server = Server(backend)
    yield server
    server.close()


@pytest.mark.thorough
def test_on_a_phone_nothing_is_cut_or_out_of_reach(visit, shelf):
    """No control stands beyond an edge or in a row that has to be pushed sideways, and the first motion is
    on the first screen."""
    page = visit(url=shelf.url, width=390, height=844)
    for width, more in ((390, False), (320, False), (320, True), (390, True)):
        page.set_viewport_size({"width": width, "height": 844})
        if more and page.is_hidden(".pg-shelf"):
            page.click("#prompt textarea")
            page.click(".pg-more")
        # the lanes, presets and the tray are rows that may be pushed sideways, as the names of the lanes are
        cut = page.evaluate("""() => [...document.querySelectorAll('#top *, #ask *, #summary *, .pg-shelfline *, .pg-list *')].filter((x) => {
            const r = x.getBoundingClientRect(), seen = x.checkVisibility() && r.width > 0;
            const text = !x.children.length && x.matches('p, span, button, h1, small') && !x.matches('.pg-title') && x.scrollWidth > x.clientWidth + 1 && x.clientWidth;
            return seen && (r.left < -1 || r.right > innerWidth + 1 || text);
        }).map((x) => x.outerHTML.slice(0, 90))""")
        assert (width, more, cut) == (width, more, [])
        assert more or page.evaluate(
            "document.querySelector('#board .transport').getBoundingClientRect().top < innerHeight * 0.75"
        )
    low = page.evaluate(
        "[...document.querySelectorAll('#play button, #sampling input')].filter((x) => x.checkVisibility() && x.getBoundingClientRect().height < 24).length"
    )
    assert low == 0, page.evaluate(
        "[...document.querySelectorAll('#play button, #sampling input')].filter((x) => x.checkVisibility() && x.getBoundingClientRect().height < 24).map((x) => x.outerHTML.slice(0, 160) + x.getBoundingClientRect().height)"
    )
    assert page.is_visible("#run") and page.is_hidden("#stop")
    assert page.locator(".pg-row:visible").count() == len(shelf.backend.cards) - 1


@pytest.mark.thorough
def test_on_a_phone_stop_takes_the_place_of_run(visit, backend):
    page = visit(width=390, height=800)
    backend.hold(3)
    begin(page)
    page.wait_for_selector("#stop:not([disabled])")
    assert page.is_hidden("#run")
    page.click("#stop")
    backend.hold(None)
    finish(page, "stopped")
    assert page.is_hidden("#stop")


@pytest.mark.thorough
def test_dark_mode(visit, server):
    page = visit(url=server.url + "?__theme=dark")
    run(page)
    assert (
        page.evaluate("getComputedStyle(document.querySelector('gradio-app')).backgroundColor")
        == "rgb(13, 15, 18)"
    )
    ink = "getComputedStyle(document.querySelector('#run')).getPropertyValue('--button-primary-background-fill')"
    assert page.evaluate(ink) == "#e9eaec"


@pytest.mark.thorough
def test_plotly_is_our_own_and_comes_after_the_first_touch(page):
    assert page.evaluate("typeof window.Plotly") == "undefined"
    run(page)
    page.wait_for_function("typeof window.Plotly === 'object'")
    page.click("#board .drawerkey")
    page.wait_for_selector("#board .p-rate .js-plotly-plot, #board .p-rate svg")


def test_templates_are_constant(server):
    for block in server.demo.blocks.values():
        if block.get_block_name() == "html" and block.html_template != "${value}":
            assert not re.search(r"\$\{|\{\{", block.html_template)
            assert not re.search(
                r"innerHTML|insertAdjacentHTML|document\.write|eval\(", json.dumps(block.js_on_load)
            )


@pytest.mark.thorough
def test_an_example_offers_what_to_ask_next(page, backend):
    page.click("#example-1")
    prompt = yaml.safe_load(EXAMPLES.read_text(encoding="utf-8"))["examples"][1]["prompt"]
    page.wait_for_function(
        "(prompt) => document.querySelector('#prompt textarea')?.value === prompt", arg=prompt
    )
    run(page, page.input_value("#prompt textarea"))
    page.click("#follow")
    wanted = yaml.safe_load(EXAMPLES.read_text(encoding="utf-8"))["examples"][1]["follow"]
    page.wait_for_function(
        "wanted => document.querySelector('#prompt textarea')?.value === wanted", arg=wanted
    )


@pytest.mark.thorough
def test_a_run_can_be_saved_as_a_trace(page, backend, tmp_path):
    from specviz import Trace

    run(page)
    with page.expect_download() as saved:
        page.click("#save")
    saved.value.save_as(tmp_path / "x.jsonl")
    assert Trace.load(tmp_path / "x.jsonl").records == [
        r for batch in FakeBackend().run(backend.runs[0], threading.Event(), 60) for r in batch
    ]


@pytest.mark.thorough
@pytest.mark.parametrize("width", [390, 1400])
def test_what_is_said_of_a_method_stays_in_sight_far_down_the_list(visit, shelf, width):
    page = visit(url=shelf.url, width=width, height=700)
    page.click(".pg-more")
    last = page.locator(".pg-row").last
    last.scroll_into_view_if_needed()
    last.click()
    title = last.locator(".pg-title").inner_text()
    page.wait_for_function("title => document.querySelector('.pg-card h3').textContent === title", arg=title)
    box = page.locator(".pg-card").bounding_box()
    assert 0 <= box["y"] < 700 and page.locator(".pg-card h3").is_visible()


@pytest.mark.thorough
def test_a_measured_mark_is_of_the_chosen_model_and_sampling(visit, shelf):
    page = visit(url=shelf.url)
    titles = {card.title: measured_speedups()["speedups"].get(card.key) for card in cards().values()}
    marks = lambda: dict(  # noqa: E731
        page.evaluate(
            "[...document.querySelectorAll('.pg-chip small')].map((s) => [s.previousSibling.textContent, s.textContent])"
        )
    )

    def right(rng):
        shown = marks()
        assert all(
            titles[name][rng] >= 1 and abs(float(text[1:]) - titles[name][rng]) <= 0.051
            for name, text in shown.items()
        )
        clear = (
            bool(shown)
            and all(titles[name][rng] > 1 + measured_speedups()["noise"] for name in shown)
            and len(shown) == page.locator(".pg-word.gap ~ .pg-chip").count()
        )
        words = page.locator(
            ".pg-word.gap"
        ).all_inner_texts()  # none where nothing that was measured pays at this temperature
        assert words == (["What pays" if clear else "Try also"] if shown else [])

    right(0)
    assert marks()
    greedy = ",".join(marks().values())
    open_fields(page)
    page.fill("#temperature input", "1")
    page.wait_for_function(
        "old => [...document.querySelectorAll('.pg-chip small')].map((s) => s.textContent).join() !== old",
        arg=greedy,
    )
    right(1)
    page.click("#open-settings")
    page.click("#target input")
    page.click("[role=option]:has-text('Other, 9 M')")
    page.evaluate("document.querySelector('.pg-more').click()")
    page.wait_for_function("document.querySelector('.pg-where').textContent.includes('another model')")
    assert page.locator(".pg-chip small").count() == 0 and page.inner_text(".pg-word.gap") == "Try also"
    assert set(page.locator(".pg-mark").all_inner_texts()) <= {"not measured", ""}
    assert "another model" in page.inner_text(".pg-where")
    for preset in page.evaluate(
        "[...document.querySelectorAll('.pg-presets button')].map((b) => b.textContent)"
    ):
        own = next(row for row in start_content(cards()).presets if row["name"] == preset)
        if own["among"]:
            continue  # it narrows the list and chooses nothing: tests/ui/test_picker.py
        page.click(f".pg-presets button:text-is('{preset}')")
        page.wait_for_function(
            "on => document.querySelector('.pg-pick').dataset.on === on", arg=" ".join(own["methods"])
        )
        if "temperature" in own:
            page.wait_for_function(
                "heat => document.querySelector('#temperature input').value === heat",
                arg=f"{own['temperature']:g}",
            )


def test_a_press_that_a_repaint_falls_into_is_not_lost(page):
    """What was pressed must still stand there, and be the same, when it is let go: else the browser knows
    of no click."""
    button = page.locator(".pg-more").bounding_box()
    page.mouse.move(button["x"] + 5, button["y"] + 5)
    page.mouse.down()
    page.evaluate("""document.querySelector('#temperature input').value = 1;
        document.querySelector('#temperature input').dispatchEvent(new Event('input', { bubbles: true }))""")
    page.evaluate(
        """document.querySelectorAll('.pg-chip[aria-pressed=false]').forEach((chip) => { chip.firstChild.data += ', longer'; })"""
    )
    page.mouse.up()
    page.wait_for_selector(".pg-shelf:not([hidden])")


@pytest.mark.thorough
def test_the_same_method_runs_twice_with_other_knobs(page, backend):
    page.click(".pg-more")
    page.click("[aria-label='Draft chain once more, with another knob']")
    page.hover(".pg-row[data-key=chain]")
    assert "the cache is kept between rounds" in page.inner_text(".pg-card")
    page.click(".pg-slot:has-text('Draft chain') .pg-knobword >> nth=-1")
    page.click(".pg-fieldkeys button:has-text('As published')")
    assert '"gamma":8' in page.get_attribute(
        ".pg-pick", "data-lanes"
    )  # and not what is published as it is here
    page.click(".pg-done")
    assert page.get_attribute(".pg-pick", "data-on").split().count("chain") == 2
    run(page)
    gammas = [
        knobs.get("gamma", 4) for key, knobs in backend.runs[-1].lanes if key == "chain"
    ]  # 4 is the default
    assert gammas == [4, 8]
    link = page.evaluate(
        "(SpecVizPage.readLink(new URL(SpecVizPage.makeLink({methods: JSON.parse(document.querySelector('.pg-pick').dataset.lanes)})).hash)).set.methods"
    )
    assert link[0] == "chain" and {"method": "chain", "knobs": {"gamma": gammas[1]}} in link


@pytest.mark.thorough
def test_beside_the_settings_the_lanes_are_shown_as_they_will_run(page, backend):
    """Over open settings the page of all methods is whole, its foot holds their knobs, and a second press
    closes them."""
    page.click("#open-settings")
    page.wait_for_selector("#settings.open")
    number = page.locator("#knob-chain-gamma input[type=number]")
    number.fill("7")
    number.press("Tab")
    page.click(".pg-more")
    chain = page.locator(".pg-slot:has-text('Draft chain') .pg-knobword")
    assert chain.inner_text() == "gamma 7"
    covers = "s => { const r = document.querySelector(s).getBoundingClientRect(), at = document.elementFromPoint(r.right - 4, r.top + r.height / 2); return at.closest(s) !== null; }"
    assert all(page.evaluate(covers, part) for part in (".pg-done", ".pg-close", ".pg-card"))
    chain.click()
    page.click(".pg-fieldkeys button:has-text('Defaults')")
    assert chain.inner_text() == "gamma 4"
    page.click(".pg-done")
    run(page)
    assert dict(backend.runs[0].lanes)["chain"]["gamma"] == 4
    page.click("#open-settings")
    page.wait_for_selector("#settings:not(.open)", state="attached")


@pytest.mark.thorough
def test_on_a_phone_examples_stand_by_the_empty_prompt_and_lanes_go_on(visit):
    page = visit(width=390, height=844, has_touch=True)
    page.tap("#prompt textarea")
    box = page.locator("#examples button").first.bounding_box()
    assert box["y"] + box["height"] <= 844 and page.evaluate(
        "document.documentElement.scrollWidth <= innerWidth"
    )
    page.tap("#examples button >> nth=0")
    page.wait_for_function("document.querySelector('#prompt textarea').value")
    assert "gradient" in page.evaluate("getComputedStyle(document.querySelector('.pg-chips')).maskImage")


@pytest.mark.thorough
def test_on_a_phone_run_stands_still_when_the_prompt_is_left(visit):
    """A press takes the focus from the prompt before it ends: where Run moved then, the press was lost."""
    page = visit(width=390, height=844, has_touch=True)
    place = "() => Math.round(document.querySelector('#run').getBoundingClientRect().top)"
    page.tap("#prompt textarea")
    page.fill("#prompt textarea", "A prompt of several lines. " * 12)
    page.wait_for_function(  # Gradio fits the height to the text
        "[document.querySelector('#prompt textarea')].every((t) => t.clientHeight > 100 && (t.scrollHeight <= t.clientHeight || t.style.overflowY === 'scroll'))"
    )
    before = page.evaluate(place)
    page.evaluate("document.activeElement.blur()")
    assert page.evaluate("document.activeElement === document.body") and page.evaluate(place) == before


@pytest.mark.thorough
def test_when_it_does_not_pay_is_one_press_away(page):
    page.click(".pays")
    page.wait_for_selector(".pn-lesson")
    assert page.inner_text(".pn-lesson h3") == "A hard place" and page.evaluate("SpecVizPage.tab") == "watch"
    page.keyboard.press("Escape")
    page.wait_for_selector(".pn-lesson", state="detached")
    assert page.evaluate("SpecVizPage.tab") == "watch"  # back to where it was asked for
    page.focus(".sv .term >> visible=true >> nth=0")
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.className") != "term"  # Escape closes an explanation, too


@pytest.mark.thorough
def test_the_settings_are_one_line_that_opens(page):
    page.wait_for_function(
        "document.querySelector('.pg-set').textContent.startsWith('96 tokens \u00b7 greedy')"
    )
    assert page.is_hidden("#temperature")
    open_fields(page)
    page.fill("#temperature input", "0.7")
    page.wait_for_function("document.querySelector('.pg-set').textContent.includes('temperature 0.7')")


@pytest.mark.parametrize("size", [(1440, 900), pytest.param((1920, 1080), marks=pytest.mark.thorough)])
def test_the_first_screen_says_what_the_run_comes_to(visit, size):
    """Speed-up, passes and the proof that the text is the same stand above the fold, with speeds beside the
    strips."""
    page = visit(width=size[0], height=size[1])
    page.wait_for_function("document.querySelector('.headline').textContent.includes('instead of')")
    said = viewer_texts()
    assert re.match(
        said["headline.same"].format(tokens=r"\d+ tokens", passes=r"\d+ passes", n=r"\d+", end=".+"),
        page.inner_text(".headline"),
    )
    assert page.inner_text(".same").startswith(said["headline.same.checked"])
    assert page.locator(".prow .speed").count() == 2 and all(
        t.endswith("tok/s") for t in page.locator(".prow .speed").all_inner_texts()
    )
    low = max(
        page.locator(s).bounding_box()["y"] + page.locator(s).bounding_box()["height"]
        for s in (".headline", ".passes", ".p-stage .rail")
    )
    assert (
        low <= page.locator("#dock").bounding_box()["y"]
        and page.locator("#dock").bounding_box()["y"] < size[1] - 60
    )


@pytest.mark.parametrize(
    "size",
    [(1440, 900), *(pytest.param(s, marks=pytest.mark.thorough) for s in ((390, 844), (1920, 1080)))],
)
def test_the_dock_is_one_row_until_a_prompt_is_written(visit, size):
    """At rest nothing stands under the dock that a reader needs: a phone shows four lines of text, a wide
    screen the key for the numbers."""
    page = visit(width=size[0], height=size[1])
    page.wait_for_function("document.querySelector('.headline').textContent.includes('instead of')")
    page.wait_for_function(
        "innerHeight - document.querySelector('#dock').getBoundingClientRect().top < 76", timeout=30_000
    )
    top = page.locator("#dock").bounding_box()["y"]
    if size[0] == 390:
        lines = page.locator(".stage").bounding_box()["y"] + 4 * 34
        assert lines <= top and page.is_hidden(".pg-more")
    else:
        key = page.locator(".drawerkey").bounding_box()
        assert key["y"] + key["height"] <= top and page.is_visible(".pg-more")
    page.click("#prompt textarea")
    page.wait_for_function("document.querySelector('#dock').classList.contains('used')")
    assert page.locator("#dock").bounding_box()["y"] < top and page.is_visible(".pg-more")
    page.click(".headline")
    page.wait_for_function("!document.querySelector('#dock').classList.contains('used')")
    assert page.locator("#dock").bounding_box()["y"] == top
    open_fields(page)
    assert page.locator("#dock").bounding_box()["y"] < top
    run(page)  # its answer needs the room
    assert page.get_attribute(".pg-set", "aria-expanded") == "false"
    assert page.locator("#dock").bounding_box()["y"] == top


@pytest.mark.thorough
def test_what_the_embedded_model_does_not_know_is_said_before_the_run(page, backend):
    page.fill("#prompt textarea", "a plain question, na\u00efve caf\u00e9")
    assert page.is_hidden(".pg-unknown")
    for asked, says in (
        ("\U0001f600 hello", "emoji"),
        ("\u0645\u0631\u062d\u0628\u0627", "Arabic"),
        ("\u4f60\u597d", "Chinese"),
        ("\u3053\u3093\u306b\u3061\u306f", "Japanese"),
    ):
        page.fill("#prompt textarea", asked)
        page.wait_for_function(
            "says => document.querySelector('.pg-unknown').textContent.includes(says)", arg=says
        )
        assert page.get_attribute(".pg-unknown", "data-message") == "model.script"
    for asked, language in (
        ("Schreibe eine kurze Geschichte und bitte nicht so lang", "German"),
        ("Erkl\u00e4r mir das", "German"),
        ("Wer bist du?", "German"),
        ("Warum?", "German"),
        ("Pourquoi le ciel est bleu", "French"),
    ):
        page.fill("#prompt textarea", asked)
        page.wait_for_function(
            "says => document.querySelector('.pg-unknown').textContent.includes(says)", arg=language
        )
        assert page.get_attribute(".pg-unknown", "data-message") == "model.language"
    page.fill("#prompt textarea", "Tell me what the last die in the set was, and how it is made")
    page.wait_for_selector(".pg-unknown", state="hidden")
    page.click("#open-settings")
    assert (
        page.inner_text(".pg-about") == "A scripted one. English only."
    )  # it stands in Settings, whatever is asked
    page.click("#target input")
    page.click("[role=option]:has-text('Other, 9 M')")  # of which nothing of the kind is known
    page.wait_for_selector(".pg-unknown", state="hidden")
    page.wait_for_selector(".pg-about", state="hidden")
    assert backend.runs == []
