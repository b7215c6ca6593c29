"""The page in a real browser: what a visitor does, and that what is seen is what the trace says."""
from __future__ import annotations

import json
import re
import threading

from specviz.ui.chat import lanes
from specviz.ui.limits import Ask

from .fake import FakeBackend

HOSTILE = ["<img src=x onerror=alert(1)>", "<script>alert(2)</script>", "${alert(3)}", "{{7*7}}", "<b>bold</b>", "`${1+1}`"]
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


def run(page, prompt="tell of the fox"):
    begin(page, prompt)
    finish(page)


def text(page, lane=0):
    return page.evaluate("n => document.querySelectorAll('#board .lane')[n].querySelector('.stage').textContent", lane)


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
    for said, shown in zip(lanes(told), painted(page)):
        verdicts = [v for words, v in said.pieces for _ in re.findall(r"\s*\S+", words)]
        assert [v for _, v in shown] == verdicts[-len(shown):] and len(shown) > 20
        assert {"accepted", "correction", "bonus"} & set(verdicts) or said.key == "autoregressive"
    assert page.get_attribute("#board .sv", "data-lost") == "0"
    assert int(page.get_attribute("#board .sv", "data-records")) == len(told)


def test_four_lanes_lose_no_event(page, backend):
    page.check("#methods [data-key=tree] input")
    assert page.is_disabled("#methods [data-key=heads] input")  # four lanes at most
    backend.hold(0)
    begin(page)
    state(page, "loading")
    for rounds in range(4, 240, 4):  # about sixty updates
        backend.hold(rounds)
    backend.hold(None)
    finish(page)
    told = [r for batch in FakeBackend().run(backend.runs[0], threading.Event(), 60) for r in batch]
    assert len(backend.runs[0].lanes) == 4
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
    assert page.evaluate("document.querySelectorAll('.pg-chat img, .pg-chat script, #board img, #board script').length") == 0
    finish(page)


def test_a_follow_up_keeps_the_conversation(page, backend):
    run(page, "a first question")
    run(page, "a second question")
    first, second = backend.runs
    assert first.turns == () and [t["role"] for t in second.turns] == ["user", "assistant"]
    assert second.turns[0]["content"] == "a first question"
    assert second.turns[1]["content"].startswith("You said: a first question")
    assert page.inner_text(".pg-question") == "a first question"
    assert set(page.evaluate("[...document.querySelectorAll('.pg-answer span')].map((s) => s.dataset.verdict)")) >= {"accepted"}


def test_an_empty_prompt_runs_the_last_message_again(page, backend):
    run(page, "once")
    run(page, "")
    assert [(r.prompt, r.turns) for r in backend.runs] == [("once", ()), ("once", ())]


def test_new_chat_starts_over(page, backend):
    run(page, "a first question")
    page.click("#new-chat")
    state(page, "idle")
    page.wait_for_selector("#new-chat", state="hidden")
    run(page, "a stranger's question")
    assert backend.runs[-1].turns == ()
    assert page.is_hidden(".pg-chat")


def test_edit_takes_the_last_message_back(page, backend):
    run(page, "with a mistaek")
    page.click("#edit")
    page.wait_for_function("document.querySelector('#prompt textarea').value === 'with a mistaek'")
    run(page, "without a mistake")
    assert backend.runs[-1].turns == ()


def test_where_lanes_differ_the_person_picks_one(page, backend):
    page.fill("#temperature input", "1")
    run(page, "first")
    choices = page.locator("#lane label:has(input)")
    choices.nth(1).click()
    second_text = [r for batch in FakeBackend().run(backend.runs[0], threading.Event(), 60) for r in batch]
    run(page, "second")
    assert backend.runs[1].turns[1]["content"] == lanes(second_text)[1].text


def test_an_earlier_turn_can_be_opened(page, backend):
    run(page, "a first question")
    run(page, "a second question")
    page.click(".pg-turn button")
    page.wait_for_selector(".pg-turn button[disabled]")
    page.wait_for_function("document.querySelector('#board .lane .stage').textContent.includes('You said: a first question')")
    page.click(".pg-turn:last-child button")
    page.wait_for_function("document.querySelector('#board .lane .stage').textContent.includes('You said: a second question')")
    assert page.get_attribute(".pg-chat", "data-turns") == "1"


def test_two_visitors_take_turns(visit, backend):
    first, second = visit(), visit()
    backend.hold(3)
    begin(first, "first visitor")
    state(first, "live")
    begin(second, "second visitor")
    state(second, "queued")
    assert "1 run before" in second.inner_text("#board .notice")
    backend.hold(None)
    finish(first)
    finish(second)
    assert backend.most_active == 1
    assert "first visitor" in text(first) and "second visitor" in text(second)


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


def test_a_failing_lane_leaves_the_others(page, backend):
    backend.fault = "lane"
    page.click("#tab-race")
    run(page)
    assert "Draft chain failed: This lane failed on purpose." in page.inner_text("#board .notice")
    assert len(painted(page)[2]) > 20


def test_a_crash_is_one_sentence(page, backend):
    backend.fault = "crash"
    begin(page)
    finish(page, "error")
    assert "The engine failed (RuntimeError)" in page.inner_text("#board .notice")
    assert "secret" not in page.content()
    backend.fault = ""
    run(page)


def test_what_cannot_be_run_is_said_beside_the_prompt(page, backend):
    for field, value, good, says in [
        ("#prompt textarea", "   ", "fine", "The prompt is empty"),
        ("#temperature input", "3", "0", "temperature must lie between 0 and 2"),
        ("#length input", "100000", "8", "length must lie between 1 and 512"),
        ("#length input", "", "8", "length must be a whole number"),
        ("#top-p input", "0", "1", "Top-p must lie between"),
    ]:
        page.fill(field, value)
        page.click("#run")
        page.wait_for_function("says => document.querySelector('#notice').textContent.includes(says)", arg=says)
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
    ask: Ask = backend.runs[0]
    assert dict(ask.lanes)["chain"] == {"gamma": 7, "shape": "even", "warm": False}
    assert ask.system == "Be brief." and ask.messages()[0] == {"role": "system", "content": "Be brief."}
    page.uncheck("#methods [data-key=chain] input")
    page.wait_for_selector("#knob-chain-gamma", state="detached")
    page.check("#methods [data-key=chain] input")
    page.wait_for_function("document.querySelector('#knob-chain-gamma input[type=number]')?.value === '7'")


def test_an_unavailable_method_says_why(page, backend):
    run(page)
    page.wait_for_selector("#methods [data-key=heads][data-off=unavailable]")
    assert page.is_disabled("#methods [data-key=heads] input")
    page.hover("#methods [data-key=heads]")
    page.wait_for_function("document.querySelector('.pg-hint').textContent.includes('need heads trained')")


def test_examples_fill_the_prompt_and_say_what_to_watch(page):
    page.click("#example-1")
    page.wait_for_function("document.querySelector('#prompt textarea').value.includes('Luna')")
    assert page.inner_text("#notice").strip()


def test_by_keyboard_alone(page, backend):
    page.before = page.evaluate(SEQ)
    page.focus("#prompt textarea")
    page.keyboard.type("typed by hand")
    page.keyboard.press("Enter")
    finish(page)
    assert backend.runs[0].prompt == "typed by hand"
    page.focus("#methods [data-key=tree] input")
    page.keyboard.press("Space")
    page.wait_for_function("document.querySelector('.pg-pick').dataset.on.includes('tree')")
    page.focus("#board .transport .scrub")
    page.keyboard.press("Home")
    page.wait_for_function("document.querySelector('#board .sv').dataset.mode === 'hold'")


def test_no_sideways_scroll(visit):
    page = visit(width=390, height=800)
    fits = "document.documentElement.scrollWidth <= innerWidth"
    assert page.evaluate(fits)
    run(page, "x" * 300)
    run(page, "a follow-up")
    for width in (390, 320, 768, 1024, 1400):
        page.set_viewport_size({"width": width, "height": 800})
        page.wait_for_function(fits)


def test_dark_mode(visit, server):
    page = visit(url=server.url + "?__theme=dark")
    run(page)
    assert page.evaluate("getComputedStyle(document.querySelector('gradio-app')).backgroundColor") == "rgb(13, 15, 18)"
    ink = "getComputedStyle(document.querySelector('#run')).getPropertyValue('--button-primary-background-fill')"
    assert page.evaluate(ink) == "#e9eaec"


def test_plotly_is_our_own_and_comes_after_the_first_touch(page):
    assert page.evaluate("typeof window.Plotly") == "undefined"
    run(page)
    page.wait_for_function("typeof window.Plotly === 'object'")
    page.wait_for_selector("#board .p-rate .js-plotly-plot, #board .p-rate svg")


def test_templates_are_constant(server):
    for block in server.demo.blocks.values():
        if block.get_block_name() == "html" and block.html_template != "${value}":
            assert not re.search(r"\$\{|\{\{", block.html_template)
            assert not re.search(r"innerHTML|insertAdjacentHTML|document\.write|eval\(", json.dumps(block.js_on_load))


def test_an_example_offers_what_to_ask_next(page, backend):
    page.click("#example-1")
    page.wait_for_function("document.querySelector('#prompt textarea').value.includes('Luna')")
    run(page, page.input_value("#prompt textarea"))
    page.click("#follow")
    page.wait_for_function("document.querySelector('#prompt textarea').value.includes('Mia')")


def test_a_run_can_be_saved_as_a_trace(page, backend, tmp_path):
    from specviz import Trace

    run(page)
    with page.expect_download() as saved:
        page.click("#save")
    saved.value.save_as(tmp_path / "x.jsonl")
    assert Trace.load(tmp_path / "x.jsonl").records == [
        r for batch in FakeBackend().run(backend.runs[0], threading.Event(), 60) for r in batch]
