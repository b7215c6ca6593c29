"""The group "Request" of Settings, the field ``generation`` of /run, and their way through links and reloads."""
from __future__ import annotations

import json
from dataclasses import fields

import pytest

from specviz.run.request import GenerationRequest
from specviz.ui.limits import GENERATION, read_request
from specviz.ui.messages import Refused
from specviz.ui.request_fields import EXAMPLES, NUMBERS

from .fake import CARDS

CARD = {card.key: card for card in CARDS}
OWN = {"temperature", "top_p", "seed", "max_tokens", "n", "logprobs"}  # what the page asks for itself, or does not show


def test_the_pages_fields_are_those_of_a_request():
    known = {field.name for field in fields(GenerationRequest)}
    assert set(GENERATION) == known - OWN and {name for name, *_ in NUMBERS} <= set(GENERATION)


@pytest.mark.parametrize("given, code", [
    ({"topk": 3}, "field.generation"), ({"temperature": 1}, "field.generation"), ([1], "field.generation_form"), ("x", "field.generation_form"),
    ({"stop": ["x"] * 100_000}, "size.values"), ({"response_format": {"a": "x" * 100_000}}, "size.text"),
    ({"response_format": json.loads("[" * 80 + "]" * 80)}, "size.depth"), ({"x" * 100_000: 1}, "size.text"),
])
def test_unknown_and_oversized_fields_are_refused_by_name(given, code):
    with pytest.raises(Refused) as refused:
        read_request(CARD, prompt="x", generation=given)
    assert refused.value.code == code


def test_fields_reach_the_run_and_empty_ones_do_not():
    asked = read_request(CARD, prompt="x", generation={"top_k": 3, "stop": [], "response_format": None, "min_p": 0.1})
    assert asked.generation == {"top_k": 3, "min_p": 0.1}


@pytest.mark.parametrize("title, value", EXAMPLES)
def test_the_examples_are_formats(title, value):
    form = value if value.get("type") in ("choice", "regex") else {"type": "json_schema", "json_schema": {"schema": value}}
    assert GenerationRequest(response_format=form).response_format == form


def test_a_format_and_a_penalty_go_from_settings_to_the_run(page, backend):
    page.click("#open-settings")
    page.fill("#request-presence-penalty input", "0.5")
    page.fill("#request-stop textarea", "one\ntwo")
    page.fill("#request-format textarea", '{"type": "object"}')
    page.keyboard.press("Escape")
    page.fill("#prompt textarea", "go")
    page.click("#run")
    page.wait_for_function("document.querySelector('#board .sv').dataset.seq !== '0'")
    page.wait_for_selector("#board .sv[data-state=done]")
    want = {"presence_penalty": 0.5, "stop": ["one", "two"],
            "response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "object"}}}}
    assert backend.runs[-1].generation == want
    page.reload()
    page.wait_for_function("document.querySelector('#request-format textarea')?.value.includes('object')")
    assert page.input_value("#request-presence-penalty input") == "0.5" and page.input_value("#request-stop textarea") == "one\ntwo"
    link = page.evaluate("SpecVizPage.makeLink({ generation: SpecVizPage.generated }, '')")
    assert page.evaluate("(url) => SpecVizPage.readLink(new URL(url).hash).set.generation", link) == want


def test_an_example_fills_the_schema(page, backend):
    page.click("#open-settings")
    page.click("#request-example input")
    page.get_by_role("option", name=EXAMPLES[1][0]).click()
    page.wait_for_function("document.querySelector('#request-format textarea').value.includes('maybe')")
    page.wait_for_function("SpecVizPage.generated?.response_format?.type === 'choice'")
