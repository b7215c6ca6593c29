"""What the page says is so: nothing written is lost, a link opens the run it was made of, a stopped run is
not accused."""

from __future__ import annotations

import gzip
import json
import threading

import pytest

from specviz.engine.limits import (
    BASELINE,
    Refused,
    RunRequest,
    has_fixed_layout,
    model_key,
    read_request,
    split_model_key,
)
from specviz.ui.chat import Chat, lane_answers

from ..message_codes import viewer_texts
from .fake import FakeBackend
from .test_page import SEQ, begin, finish, open_fields, pick, run, state

TEXTS = viewer_texts()

NOTICE = "document.querySelector('#notice').textContent"
BOX = "#prompt textarea"


def records(ask: RunRequest) -> list[dict]:
    return [r for batch in FakeBackend().run(ask, threading.Event(), 60) for r in batch]


@pytest.mark.thorough
def test_text_written_during_a_run_stays(page, backend):
    backend.hold(5)
    begin(page)
    state(page, "live")
    page.fill(BOX, "written meanwhile")
    backend.hold(None)
    finish(page)
    assert page.input_value(BOX) == "written meanwhile"
    backend.hold(0)
    begin(page, "never answered")
    state(page, "loading")
    page.fill(BOX, "and this too")
    page.click("#stop")
    finish(page, "stopped")
    assert page.input_value(BOX) == "and this too"


@pytest.mark.thorough
def test_stopped_before_the_first_token_the_recording_is_called_one(page, backend):
    was = page.inner_text("#board .headline")
    backend.hold(0)
    begin(page)
    state(page, "loading")
    page.click("#stop")
    finish(page, "stopped")
    page.wait_for_function(
        "document.querySelector('#board .notice').textContent.includes('What stands here is still a recording')"
    )
    assert page.inner_text("#board .mode") == "Recorded" and page.inner_text("#board .headline") == was


@pytest.mark.thorough
def test_a_prompt_that_is_too_long_is_refused_whole(page, backend):
    page.evaluate("document.querySelector('#prompt textarea').value.length")
    page.fill(BOX, "x" * 100_000)
    page.click("#run")
    page.wait_for_function(f"{NOTICE}.includes('100,000 characters; the limit is 4,000')")
    assert backend.runs == [] and len(page.input_value(BOX)) == 100_000


@pytest.mark.thorough
def test_an_opened_recording_fills_the_controls_and_ends_the_conversation(page, backend):
    run(page, "mine")
    begin(page, "mine again")
    finish(page)
    page.wait_for_selector('.pg-chat[data-turns="1"]')
    told = records(
        RunRequest(
            "somebody else's",
            (("tree", {"gamma": 2}), (BASELINE, {})),
            max_new_tokens=21,
            temperature=0.7,
            seed=5,
        )
    )
    told = [r | {"mode": "recorded"} if r["type"] == "header" else r for r in told]
    page.click("#tab-traces")
    page.set_input_files(
        "#host-traces .pn-file",
        {
            "name": "a.jsonl",
            "mimeType": "text/plain",
            "buffer": "".join(json.dumps(r) + "\n" for r in told).encode(),
        },
    )
    page.wait_for_function("document.querySelector('#prompt textarea').value === \"somebody else's\"")
    page.wait_for_selector(".pg-chat", state="hidden")
    link = page.evaluate(LINK)
    assert (link["run"], link["trace"], link["set"]["prompt"]) == (
        True,
        "",
        "somebody else's",
    )  # and not a shipped recording
    values = {name: page.input_value(f"#{name} input") for name in ("temperature", "length", "seed")}
    assert values == {"temperature": "0.7", "length": "21", "seed": "5"}
    page.before = page.evaluate("Number(document.querySelector('#board .sv').dataset.seq)")
    page.click("#run")
    finish(page)
    ask = backend.runs[-1]
    assert (ask.prompt, ask.turns, [key for key, _ in ask.lanes]) == (
        "somebody else's",
        (),
        ["tree", BASELINE],
    )
    assert dict(ask.lanes)["tree"]["gamma"] == 2


@pytest.mark.thorough
def test_who_asks_for_a_method_alone_gets_the_prompt_in_sight(page, backend):
    run(page, "in sight")
    page.before = page.evaluate("Number(document.querySelector('#board .sv').dataset.seq)")
    page.evaluate("SpecVizPage.run({ methods: ['tree'] })")
    finish(page)
    assert backend.runs[-1].prompt == "in sight" and backend.runs[-1].turns == ()


@pytest.mark.thorough
def test_an_example_says_that_it_replaces_the_methods(page):
    page.click("#example-0")
    page.wait_for_function(f"{NOTICE} !== ''")
    assert "replaces" not in page.evaluate(NOTICE)
    pick(page, "tree")
    page.click("#example-1")
    page.wait_for_function(f"{NOTICE}.includes('replaces what was chosen')")


def test_a_stopped_run_is_not_accused(page, backend):
    page.click("#tab-race")
    backend.hold(17)
    begin(page)
    state(page, "live")
    assert backend.held()
    page.click("#stop")
    finish(page, "stopped")
    page.wait_for_function(
        "document.querySelector('#board .parts').textContent.includes('agrees with plain decoding')"
    )
    assert "differs" not in page.inner_text("#board .parts") and not page.is_visible("#lane")
    assert TEXTS["figures.same_so_far"] in page.inner_text("#board .rtable")


def test_a_cut_lane_agrees_with_what_it_began():
    told = records(RunRequest("tell of the fox", (("chain", {}), (BASELINE, {})), max_new_tokens=40))
    at = max(i for i, r in enumerate(told) if r["lane"] == 0 and r["type"] == "text")
    cut = [r for i, r in enumerate(told) if r["lane"] or i < at] + [
        {"type": "done", "lane": 0, "seq": 9**9, "finish": "deadline", "totals": {}}
    ]
    chat = Chat()
    turn = chat.add(
        "tell of the fox",
        [r for r in cut if not (r["lane"] == 0 and r["type"] == "done" and r["finish"] == "length")],
    )
    assert (
        lane_answers(cut)[0].text != lane_answers(cut)[1].text and turn.agree and turn.answer.key == BASELINE
    )  # the whole one goes on
    other = [json.loads(json.dumps(r).replace("length", "stop")) if r["type"] == "done" else r for r in cut]
    for r in other:
        if r["type"] == "done" and r["lane"] == 0:
            r["finish"] = "stop"
    assert not Chat().add("x", other).agree  # one that ended by itself has said all it had to say


LINK = "SpecVizPage.readLink(new URL(SpecVizPage.link()).hash)"
SHARED = "document.querySelector('#notice').textContent.includes('same seed, same tokens')"


@pytest.mark.thorough
def test_a_link_of_ones_own_run_makes_it_again_and_opens_its_round(keeps_no_runs, visit):
    """Every lane of it: one method twice, with other knobs. The run is too large for a link, and this
    server keeps none."""
    backend = keeps_no_runs.backend
    page = visit(url=keeps_no_runs.url, permissions=["clipboard-read", "clipboard-write"])
    lanes_ = ["tree", "chain", {"method": "chain", "knobs": {"gamma": 8}}]
    page.evaluate("(methods) => { SpecVizPage.pending = { methods }; SpecVizPage.send('input'); }", lanes_)
    page.wait_for_function("document.querySelector('.pg-pick').dataset.on === 'tree chain chain'")
    run(page, "my own words")
    assert (
        page.evaluate(LINK)["set"]["methods"] == lanes_ and page.evaluate(LINK)["run"]
    )  # as the Traces panel offers it
    page.fill(BOX, "half of the next")
    page.evaluate("document.querySelector('#board .sv').svBoard.goto({ round: 4 })")
    page.click("#share")
    page.wait_for_function(SHARED)
    link = page.evaluate("navigator.clipboard.readText()")
    assert "z=" not in link and "stored=" not in link and len(link) < 8000
    assert "this server keeps no runs" in page.evaluate(NOTICE)
    other = visit(url=link)
    other.wait_for_function("document.querySelector('#prompt textarea')?.value === 'my own words'")
    other.wait_for_function(
        "document.querySelector('#board .notice').textContent.includes('Same seed, same tokens. Then round 5 opens.')"
    )
    assert other.get_attribute("#board .sv", "data-records") == "0"  # nobody else's run
    other.before = -1
    other.click("#run")
    finish(other)
    assert backend.runs[0] == backend.runs[1]
    other.wait_for_function("document.querySelector('#board .sv').svBoard.where().round === 4")
    page.fill(BOX, "")
    run(page, "and then?")
    third = visit(url=page.evaluate("SpecVizPage.link()"))
    third.wait_for_function(
        "document.querySelector('#board .notice').textContent.includes('Without the turns before it, so other tokens may come.')"
    )


@pytest.mark.thorough
def test_a_link_carries_all_that_the_run_was_made_with(visit, server, backend):
    """Also where the controls have been turned since, and as the Traces panel makes it: by the records, not
    by the controls."""
    page = visit()
    asked = {
        "prompt": "with all",
        "methods": ["chain"],
        "draft": "wide",
        "repeats": 3,
        "temperature": 0.7,
        "top_p": 0.9,
        "length": 21,
        "seed": 5,
        "predicted": "a fox",
    }
    page.before = page.evaluate(SEQ)
    page.evaluate("(set) => SpecVizPage.run(set)", asked)
    finish(page)
    page.evaluate(
        "SpecVizPage.pending = { draft: '', repeats: 1, temperature: 0 }; SpecVizPage.send('input');"
    )
    page.wait_for_function("document.querySelector('#temperature input').value === '0'")
    link = page.evaluate("SpecVizPage.link()")
    other = visit(url=link)
    other.wait_for_function("document.querySelector('#temperature input').value === '0.7'")
    assert {name: other.input_value(f"#{name} input") for name in ("top-p", "length", "seed", "repeats")} == {
        "top-p": "0.9",
        "length": "21",
        "seed": "5",
        "repeats": "3",
    }
    other.wait_for_function("document.querySelector('#draft input').value === 'Wide, 2 M'")
    other.before = -1
    other.click("#run")
    finish(other)
    assert backend.runs[0] == backend.runs[1] and backend.runs[1].draft == "wide"
    backend.loaded.discard("|wide")


@pytest.mark.thorough
def test_what_a_link_names_and_the_page_lacks_is_said_and_left_out(visit, server, backend):
    page = visit(url=f"{server.url}#page=watch&run=1&p=hello&m=chain,nope&model=Ghost-9B&draft=ghost")
    page.wait_for_function(
        f"{NOTICE}.includes('This page has no model Ghost-9B and no method nope: left out, so another model answers.')"
    )
    page.wait_for_function(
        "document.querySelector('#board .notice').textContent.includes('it may be another one')"
    )
    assert "same tokens" not in page.text_content("#board .notice")
    page.before = -1
    page.click("#run")
    finish(page)
    assert (backend.runs[0].target, backend.runs[0].draft, [key for key, _ in backend.runs[0].lanes]) == (
        None,
        None,
        ["chain", BASELINE],
    )
    page = visit(url=f"{server.url}#page=watch&run=1&p=hello&m=chain&model=fake&draft=ghost")
    page.wait_for_function(f"{NOTICE}.includes('ghost cannot draft for this model')")
    page.wait_for_function("document.querySelector('#draft input').value === \"The target's own\"")


@pytest.mark.thorough
def test_a_small_run_travels_inside_its_link(visit, server, backend):
    backend.mode = "live"
    page = visit(permissions=["clipboard-read", "clipboard-write"])
    open_fields(page)
    page.fill("#length input", "12")
    run(page, "short")
    page.evaluate(
        "document.querySelector('#board .sv').svBoard.goto({ lane: 1, round: 2, phase: 4, node: 'tail' })"
    )
    page.click("#share")
    page.wait_for_function(SHARED)
    link = page.evaluate("navigator.clipboard.readText()")
    assert "&z=" in link and len(link) <= 32_000
    text = page.evaluate("document.querySelector('#board .lane .stage .text').textContent")
    other = visit(url=link)
    other.wait_for_function(
        "document.querySelector('#board .notice').textContent.includes('The run of this link')"
    )
    other.wait_for_function(
        "t => document.querySelector('#board .lane .stage .text').textContent === t", arg=text
    )
    other.wait_for_function(
        "() => { const w = document.querySelector('#board .sv').svBoard.where(); return w.lane === 1 && w.round === 2 && w.node === 'tail'; }"
    )
    assert len(backend.runs) == 1 and other.inner_text("#board .mode") == "Recorded"
    run_again(other)
    assert backend.runs[0] == backend.runs[1]
    broken = visit(url=link[: link.index("&z=") + 3] + "AAAA")
    broken.wait_for_function(
        "document.querySelector('#board .notice').textContent.includes('This link makes a run again')"
    )


def run_again(page):
    """Turn a control, press the second button of a link's run, and see its round once the run was made
    again."""
    open_fields(page)
    page.fill("#length input", "99")
    page.before = page.evaluate(SEQ)
    place = page.evaluate("document.querySelector('#board .sv').svBoard.where()")
    page.click("#board .notice .again")
    finish(page)
    page.wait_for_function(
        "(was) => { const { lane, round, node } = document.querySelector('#board .sv').svBoard.where();"
        "return lane === was.lane && round === was.round && node === was.node; }",
        arg=place,
    )
    assert page.inner_text("#board .mode") == "Finished" and not page.is_visible("#board .notice .again")


@pytest.mark.thorough
def test_a_larger_run_is_kept_by_the_server_and_its_link_opens_it(visit, server, backend):
    backend.mode = "live"
    page = visit(permissions=["clipboard-read", "clipboard-write"])
    pick(page, "tree", "chain", "lookup")
    open_fields(page)
    page.fill("#length input", "300")
    run(page, "a longer one")
    told = page.get_attribute("#board .sv", "data-records")
    page.evaluate(
        "document.querySelector('#board .sv').svBoard.goto({ lane: 1, round: 40, phase: 4, node: 'tail' })"
    )
    page.click("#share")
    page.wait_for_function(SHARED)
    link = page.evaluate("navigator.clipboard.readText()")
    name = page.evaluate("SpecVizPage.readLink(location.hash).stored")
    file = server.demo.runs.folder / f"{name}.jsonl.gz"
    assert (
        "&z=" not in link
        and link == page.url
        and f"stored={name}" in link
        and len(link) < 1000
        and file.exists()
    )
    for address in (link, link.replace("/#", "/?embed=1#")):
        other = visit(url=address)
        other.wait_for_function(
            "document.querySelector('#board .notice').textContent.includes('The run of this link')"
        )
        other.wait_for_function(
            "() => { const w = document.querySelector('#board .sv').svBoard.where(); return w.lane === 1 && w.round === 40 && w.node === 'tail'; }"
        )
        assert (
            other.get_attribute("#board .sv", "data-records") == told
            and other.inner_text("#board .mode") == "Recorded"
        )
        assert other.evaluate("document.querySelector('#board .sv').svBoard.trace()") == page.evaluate(
            "document.querySelector('#board .sv').svBoard.trace()"
        )
    assert len(backend.runs) == 1
    third = visit(url=link)
    third.wait_for_function(
        "document.querySelector('#board .notice').textContent.includes('The run of this link')"
    )
    run_again(third)
    assert backend.runs[0] == backend.runs[1]
    for data in (gzip.compress(b"no trace"), b"", gzip.compress(b"\n" * 21 * 2**20)):
        file.write_bytes(data)
        broken = visit(url=link)
        broken.wait_for_function(
            "document.querySelector('#board .notice').textContent.includes('The server does not have the run of this link')"
        )
        assert (
            broken.input_value(BOX) == "a longer one"
            and broken.get_attribute("#board .sv", "data-records") == "0"
        )


@pytest.mark.thorough
def test_nothing_is_sent_to_the_server_before_a_link_is_copied(visit, server, backend):
    """A frame of a larger run: copied in the Traces panel, opened in another browser."""
    page = visit(permissions=["clipboard-read", "clipboard-write"])
    pick(page, "tree", "chain", "lookup")
    open_fields(page)
    page.fill("#length input", "301")
    sent = []
    page.on("request", lambda request: sent.append(request.method) if "/runs" in request.url else None)
    run(page, "for a slide")
    page.click("#tab-traces")
    page.wait_for_selector("#host-traces .svp, #host-traces [role=tab]")
    page.evaluate(
        "document.dispatchEvent(new CustomEvent('specviz:show', { detail: { kind: 'traces', view: 'take' } }))"
    )
    page.wait_for_function(
        "[...document.querySelectorAll('#host-traces input, #host-traces textarea')].some((f) => f.value.includes('<iframe'))"
    )
    page.wait_for_timeout(1000)  # the link of a small run would have been packed by now
    assert sent == []
    page.click("#host-traces button:has-text('Copy iframe')")
    page.wait_for_function(
        "[...document.querySelectorAll('#host-traces input, #host-traces textarea')].some((f) => f.value.includes('&stored='))"
    )
    frame = page.evaluate("navigator.clipboard.readText()")
    assert frame.startswith("<iframe") and sent == ["POST"]
    other = visit(url=frame.split('src="')[1].split('"')[0])
    other.wait_for_function(
        "document.querySelector('#board .sv').svBoard.trace().some((r) => r.prompt && r.prompt.text === 'for a slide')"
    )
    assert len(backend.runs) == 1 and other.evaluate("document.body.classList.contains('pg-embed')")
    assert other.get_attribute("#board .sv", "data-records") == page.get_attribute(
        "#board .sv", "data-records"
    )


@pytest.mark.thorough
@pytest.mark.parametrize("letters", ["", "AAAA", "!!", "x" * 100])
def test_what_is_no_packed_trace_is_nothing(page, letters):
    assert page.evaluate("(z) => SpecVizPage.unpack(z)", letters) == ""


@pytest.mark.thorough
def test_letters_that_unfold_without_end_are_refused(page):
    found = page.evaluate("""async () => { const zeros = new Blob([new Uint8Array(9e6)]).stream().pipeThrough(new CompressionStream('deflate-raw'));
        const bytes = new Uint8Array(await new Response(zeros).arrayBuffer()); let s = ''; for (const b of bytes) s += String.fromCharCode(b);
        return SpecVizPage.unpack(btoa(s).replaceAll('+', '-').replaceAll('/', '_').replace(/=+$/, '')); }""")
    assert found == ""


@pytest.mark.thorough
def test_the_draft_is_chosen_in_the_settings(page, backend):
    page.click("#open-settings")
    page.click("#draft input")
    page.click("[role=option]:has-text('Wide, 2 M')")
    page.wait_for_function("document.querySelector('#models').textContent.includes('with draft wide')")
    run(page)
    assert backend.runs[0].draft == "wide" and backend.runs[0].models == "|wide"
    page.click("#board .notice .facts")
    assert "wide" in page.inner_text("#board .notice").rsplit("draft", 1)[-1].split()
    backend.loaded.discard("|wide")


@pytest.mark.thorough
def test_a_predicted_text_is_typed_in_the_settings_goes_with_the_run_and_its_link(page, backend):
    page.click("#open-settings")
    page.fill("#predicted textarea", "the fox ran & hid")
    open_fields(page)
    page.fill("#temperature input", "0.5")
    run(page)
    assert backend.runs[-1].predicted == "the fox ran & hid"
    page.click("#share")
    page.wait_for_function(
        "document.querySelector('#notice').textContent.includes('same seed; a method that goes by the clock may draw other tokens')"
    )
    assert page.evaluate("SpecVizPage.readLink(location.hash).set.predicted") == "the fox ran & hid"


def test_target_and_draft_are_one_name():
    for pair in [(None, None), ("a", None), (None, "b"), ("a", "b"), ("a", "none")]:
        assert (
            split_model_key(model_key(*pair)) == pair == split_model_key(model_key(*pair, True))
            and not has_fixed_layout(model_key(*pair))
            and has_fixed_layout(model_key(*pair, True))
        )
    cards = FakeBackend().cards
    assert (
        read_request(cards, prompt="x", draft="wide").models == "|wide"
        and read_request(cards, prompt="x", draft="").models is None
    )
    assert has_fixed_layout(
        read_request(cards, prompt="x", deterministic=True).models
    ) and not has_fixed_layout(None)
    with pytest.raises(Refused):
        read_request(cards, prompt="x", draft=7)


def test_the_engine_offers_the_drafts_of_the_same_tokenizer_and_no_other():
    from specviz.engine.engine import Engine
    from specviz.zoo.registry import register

    engine, book = Engine(), register()
    names = [d["name"] for d in engine.drafts()]
    assert (
        book.entries[book.default].draft in names
        and len([d["name"] for d in engine.drafts("Llama-specviz-16M")]) >= 4
    )
    assert all(
        book.entries[name].role == "draft" for name in names
    )  # a draft with words of its own is another thing
    assert engine._load_arguments("|" + names[-1]) == ((None, names[-1]), {}) and engine._load_arguments(
        "|none"
    ) == ((None, "none"), {})
    for wrong in ("|../../etc", "|nope", f"|{book.default}"):
        with pytest.raises(Refused):
            engine._load_arguments(wrong)
    assert engine.drafts("nope") == []
