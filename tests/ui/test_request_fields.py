"""The group "Request" of Settings, the field ``generation`` of /run, and their way through links and
reloads."""

from __future__ import annotations

import json
import re
import threading
from base64 import b64decode
from dataclasses import fields

import pytest

from specviz.engine.engine import run_lanes
from specviz.engine.limits import GENERATION, RunRequest, read_request
from specviz.engine.messages import TEXTS, Refused
from specviz.run.prefix_cache import PrefixPool
from specviz.run.request import GenerationRequest
from specviz.ui.chat import lane_answers
from specviz.ui.request_fields import EXAMPLES, NUMBERS

from ..message_codes import codes
from ..run.fakes import FakeLoaded
from .conftest import reload
from .fake import CARDS

CARD = {card.key: card for card in CARDS}
OWN = {"temperature", "top_p", "seed", "max_tokens"}  # what the page asks for itself


def test_the_pages_fields_are_those_of_a_request():
    known = {field.name for field in fields(GenerationRequest)}
    assert set(GENERATION) == known - OWN - {"from_model"} | {"generation_config"} and {
        name for name, *_ in NUMBERS
    } <= set(GENERATION)


@pytest.mark.parametrize(
    "given, code",
    [
        ({"topk": 3}, "field.generation"),
        ({"temperature": 1}, "field.generation"),
        ([1], "field.generation_form"),
        ("x", "field.generation_form"),
        ({"stop": ["x"] * 100_000}, "size.values"),
        ({"response_format": {"a": "x" * 100_000}}, "size.text"),
        ({"response_format": json.loads("[" * 80 + "]" * 80)}, "size.depth"),
        ({"x" * 100_000: 1}, "size.text"),
    ],
)
def test_unknown_and_oversized_fields_are_refused_by_name(given, code):
    with pytest.raises(Refused) as refused:
        read_request(CARD, prompt="x", generation=given)
    assert refused.value.code == code


def test_fields_reach_the_run_and_empty_ones_do_not():
    asked = read_request(
        CARD, prompt="x", generation={"top_k": 3, "stop": [], "response_format": None, "min_p": 0.1}
    )
    assert asked.generation == {"top_k": 3, "min_p": 0.1}


@pytest.mark.parametrize("title, value", EXAMPLES)
def test_the_examples_are_formats(title, value):
    form = (
        value
        if value.get("type") in ("choice", "regex")
        else {"type": "json_schema", "json_schema": {"schema": value}}
    )
    assert GenerationRequest(response_format=form).response_format == form


def test_a_format_and_a_penalty_go_from_settings_to_the_run(page, backend):
    page.click("#open-settings")
    page.fill("#request-presence-penalty input", "0.5")
    page.fill("#request-stop textarea", "one\ntwo")
    page.check("#request-generation-config input")
    page.fill("#request-format textarea", '{"type": "object"}')
    page.keyboard.press("Escape")
    page.fill("#prompt textarea", "go")
    page.click("#run")
    page.wait_for_function("document.querySelector('#board .sv').dataset.seq !== '0'")
    page.wait_for_selector("#board .sv[data-state=done]")
    want = {
        "presence_penalty": 0.5,
        "stop": ["one", "two"],
        "generation_config": True,
        "response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "object"}}},
    }
    assert backend.runs[-1].generation == want
    reload(page)
    page.wait_for_function("document.querySelector('#request-format textarea')?.value.includes('object')")
    assert (
        page.input_value("#request-presence-penalty input") == "0.5"
        and page.input_value("#request-stop textarea") == "one\ntwo"
    )
    assert page.is_checked("#request-generation-config input")
    link = page.evaluate("SpecVizPage.makeLink({ generation: SpecVizPage.generated }, '')")
    assert page.evaluate("(url) => SpecVizPage.readLink(new URL(url).hash).set.generation", link) == want


@pytest.mark.thorough
def test_fields_without_a_widget_are_typed_as_json_and_come_back_from_a_link(page, backend):
    typed = {"logit_bias": {"7": 5}, "bad_words": ["cat"]}
    page.click("#open-settings")
    page.fill("#request-others textarea", json.dumps(typed))
    page.fill("#request-n input", "2")
    page.wait_for_function("SpecVizPage.generated?.n === 2")
    page.keyboard.press("Escape")
    page.fill("#prompt textarea", "go")
    page.click("#run")
    page.wait_for_selector("#board [data-answer='1']")
    page.wait_for_selector("#board .sv[data-state=done]")
    assert backend.runs[-1].generation == {"n": 2, **typed}
    reload(page)
    page.wait_for_function("document.querySelector('#request-others textarea')?.value.includes('logit_bias')")
    assert (
        json.loads(page.input_value("#request-others textarea")) == typed
        and page.input_value("#request-n input") == "2"
    )
    page.fill("#prompt textarea", "go")
    page.click("#open-settings")
    for text, name in (('{"top": 1}', "top"), ("{", "{")):
        page.fill("#request-others textarea", text)
        page.wait_for_function("(name) => name in SpecVizPage.generated", arg=name)
        page.evaluate("document.querySelector('#run').click()")
        page.wait_for_function(
            "(name) => document.querySelector('#notice .pg-line').textContent.includes(`'${name}'`)", arg=name
        )
        assert "field.generation" in codes(page.inner_text("#notice .pg-line"), TEXTS)
    assert len(backend.runs) == 1


@pytest.mark.thorough
def test_an_example_fills_the_schema(page, backend):
    page.click("#open-settings")
    page.click("#request-example input")
    page.get_by_role("option", name=EXAMPLES[1][0]).click()
    page.wait_for_function("document.querySelector('#request-format textarea').value.includes('maybe')")
    page.wait_for_function("SpecVizPage.generated?.response_format?.type === 'choice'")


LANES = (("speculative", {}), ("autoregressive", {}))


def play_on(loaded, ask, caches=None):
    records = [record for batch in run_lanes(loaded, ask, 60.0, caches=caches) for record in batch]
    assert not [r for r in records if r["type"] == "error"]
    return records


def test_the_engine_runs_every_lane_with_the_further_fields():
    fields = {
        "presence_penalty": 0.5,
        "logprobs": 2,
        "response_format": {"type": "regex", "regex": "[a-c]{3}-[0-9]{2,4}!"},
    }
    records = play_on(
        FakeLoaded(ends=True), RunRequest("the cat", LANES, max_new_tokens=40, generation=fields)
    )
    assert all(fields.items() <= r["request"].items() for r in records if r["type"] == "header")
    assert all(
        len(r["logprobs"]) == len(r["top_logprobs"]) == r["n_new"] for r in records if r["type"] == "commit"
    )
    texts = {
        lane: b"".join(
            b64decode(piece["b"])
            for r in records
            if r["type"] == "text" and r["lane"] == lane
            for piece in r["pieces"]
        )
        for lane in (0, 1)
    }
    assert texts[0] == texts[1] and re.fullmatch(rb"[a-c]{3}-[0-9]{2,4}!", texts[0])
    assert {r["lane"] for r in records if r["type"] == "lens" and r["kind"] == "grammar"} == {0, 1}


def test_the_models_own_settings_take_the_place_of_defaults():
    loaded = FakeLoaded()
    loaded.generation_defaults = {"temperature": 0.5, "top_p": 0.8, "top_k": 4}
    for given, temperature, want in (
        ({"generation_config": True, "top_k": 2}, 0.0, (0.5, 0.8, 2)),
        ({}, 0.0, (0, 1, 0)),
        ({"generation_config": True}, 1.5, (1.5, 0.8, 4)),
    ):
        header = play_on(
            loaded, RunRequest("the cat", LANES, max_new_tokens=2, temperature=temperature, generation=given)
        )[0]
        assert (*(header["sampling"][name] for name in ("temperature", "top_p", "top_k")),) == want
        assert len(header["from_model"]) == sum(
            value == loaded.generation_defaults.get(name) for name, value in header["request"].items()
        )


def test_the_next_turn_of_a_page_reuses_the_cache_of_each_lane_and_no_other_visitors():
    loaded = FakeLoaded(context=256)
    caches = PrefixPool(8)
    shelf = {}

    def reused(prompt, turns=(), shelf=shelf):
        records = play_on(
            loaded, RunRequest(prompt, LANES, max_new_tokens=8, turns=turns, shelf=shelf), caches
        )
        return [r["totals"]["reused"] for r in records if r["type"] == "done"]

    assert reused("the cat sat on the mat") == [0, 0]
    turns = (
        {"role": "user", "content": "the cat sat on the mat"},
        {"role": "assistant", "content": "the sea is deep"},
    )
    assert min(reused("and then", turns)) > 8 and reused("and then", turns, {}) == [0, 0]


def test_several_answers_are_lanes_of_their_own_with_the_seeds_of_the_endpoint():
    loaded, caches = FakeLoaded(context=256), PrefixPool(8)
    records = play_on(
        loaded,
        RunRequest(
            "the cat sat on the mat", LANES, max_new_tokens=12, temperature=1.0, seed=5, generation={"n": 3}
        ),
        caches,
    )
    heads = {r["lane"]: r for r in records if r["type"] == "header"}
    assert sorted(heads) == list(range(6)) and {r["lane"] for r in records if r["type"] == "done"} == set(
        heads
    )
    assert [
        (heads[lane]["answer"], heads[lane]["sampling"]["seed"], heads[lane]["method"]["key"])
        for lane in heads
    ] == [({"index": i, "of": 3}, 5 + i, key) for i in range(3) for key, _ in LANES]
    assert len({answer.title for answer in lane_answers(records)}) == 6 and not any(
        "n" in head["request"] for head in heads.values()
    )
    reused = [r["totals"]["reused"] for r in records if r["type"] == "done"]
    assert reused[:2] == [0, 0] and min(reused[2:]) > 8  # the prompt is read once for each method

    def texts(records):
        return [
            [
                piece["tok"]
                for r in records
                if r["type"] == "text" and r["lane"] == lane
                for piece in r["pieces"]
            ]
            for lane in range(2)
        ]

    third = texts([r | {"lane": r["lane"] - 4} for r in records])
    assert third == texts(
        play_on(
            loaded, RunRequest("the cat sat on the mat", LANES, max_new_tokens=12, temperature=1.0, seed=7)
        )
    )


def test_stop_ends_the_answer_under_way_and_begins_no_other():
    cancel, lanes = threading.Event(), set()
    for batch in run_lanes(
        FakeLoaded(), RunRequest("the cat", LANES, max_new_tokens=12, generation={"n": 4}), 60.0, cancel
    ):
        lanes |= {record["lane"] for record in batch}
        if 2 in lanes:
            cancel.set()
    assert lanes == {0, 1, 2, 3}


@pytest.mark.parametrize(
    "more, code",
    [
        ({"generation": {"n": 5}}, "field.range"),
        ({"generation": {"n": 0}}, "field.range"),
        ({"generation": {"n": "many"}}, "field.number"),
        ({"generation": {"n": 4}, "methods": ["chain", "tree"]}, "field.answers"),
        ({"generation": {"n": 2}, "methods": ["chain"], "prompts": 2}, "field.answers_prompts"),
    ],
)
def test_answers_beyond_a_visitors_share_are_refused(more, code):
    with pytest.raises(Refused) as refused:
        read_request(CARD, **{"prompt": "x", "methods": ["chain"], **more})
    assert refused.value.code == code


ANSWERS_SHOWN = """() => { const b = document.querySelector("#board .sv").svBoard.board;
  return [[...b.answers.buttons.keys()], b.ui.answer, b.list().map((l) => l.id)]; }"""


@pytest.mark.thorough
def test_several_answers_stand_behind_a_chooser_in_the_run_its_link_and_its_file(page, backend):
    page.click("#open-settings")
    page.fill("#request-n input", "3")
    page.keyboard.press("Escape")
    page.fill("#prompt textarea", "go")
    page.click("#run")
    page.wait_for_function("document.querySelectorAll('#board [data-answer]').length === 3")
    page.wait_for_selector("#board .sv[data-state=done]")
    lanes = len(backend.runs[-1].lanes)
    assert backend.runs[-1].generation == {"n": 3} and lanes > 1
    methods, plain = list(range(2 * lanes, 3 * lanes - 1)), 3 * lanes - 1
    assert page.evaluate(ANSWERS_SHOWN) == [
        [0, 1, 2],
        2,
        [*methods, plain],
    ]  # the run goes on with the answer being written
    assert page.evaluate("SpecVizPage.settings(SpecVizPage.board().trace()).generation") == {"n": 3}
    page.click("#board [data-answer='1']")
    assert page.evaluate(ANSWERS_SHOWN)[1:] == [1, list(range(lanes, 2 * lanes))]
    page.wait_for_function(f"SpecVizPage.board().where().lane === {lanes}")
    assert page.evaluate(
        "[SpecVizPage.board().board.base().id, SpecVizPage.readLink(SpecVizPage.link()).set.generation]"
    ) == [2 * lanes - 1, {"n": 3}]
    place = page.evaluate("SpecVizPage.board().link()")
    opened = page.evaluate(
        """(place) => { const board = SpecVizPage.board(), file = board.trace().map((r) => JSON.stringify(r)).join("\\n");
        return [board.load(file), board.board.ui.answer, board.follow(place), board.board.ui.answer]; }""",
        place,
    )
    assert opened == ["", 0, True, 1]


@pytest.mark.thorough
def test_stop_keeps_the_answers_so_far(page, backend):
    backend.hold(30)  # 16 rounds of plain decoding and 4 to 15 of the chain are an answer
    page.evaluate("SpecVizPage.run({ prompt: 'go', methods: ['chain'], generation: { n: 4 }, length: 16 })")
    page.wait_for_selector("#board [data-answer='1']")
    assert backend.held()
    page.click("#stop")
    page.wait_for_selector("#board .sv[data-state=stopped]")
    assert page.evaluate(ANSWERS_SHOWN) == [[0, 1], 1, [2, 3]]
