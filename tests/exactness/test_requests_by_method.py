"""Every exact method of the default target with every kind of request: the answer of plain decoding at
temperature 0, and one that keeps to the request at temperature 1."""

from __future__ import annotations

import json
from functools import cache

import pytest

from specviz import load
from specviz.run import Session, collect
from specviz.run.request import GenerationRequest
from specviz.run.structured import Grammar
from specviz.zoo import forget

from .toys import later, methods

PROMPT = "Say hello to Bob and to Ann."
TOOL = {
    "type": "function",
    "function": {
        "name": "greet",
        "parameters": {
            "type": "object",
            "properties": {"to": {"enum": ["Ann", "Bob"]}},
            "required": ["to"],
            "additionalProperties": False,
        },
    },
}
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 3}, "<|im_end|>": {"enum": [1, 2]}},
    "required": ["name", "<|im_end|>"],
    "additionalProperties": False,
}
BANNED = [" Bob", "Hello", "Bob"]
LENGTH = 8
REQUESTS = {
    "schema": {
        "response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}},
        "max_tokens": 32,
    },
    "required_call": {"tools": [TOOL], "tool_choice": "required", "max_tokens": 40},
    "penalties": {"repetition_penalty": 1.3, "presence_penalty": 0.6, "frequency_penalty": 0.4},
    "bad_words": {"bad_words": BANNED},
    "logit_bias": {"logit_bias": {"28": -100, "30": -100, "17": 6}},
    "stop": {"stop": ["ello", "Bob", " you"]},
    "min_tokens": {"response_format": {"type": "choice", "choice": ["yes", "yes it is"]}, "min_tokens": 3},
}
FIRST = {  # tried by ``make test``: what failed before, and one of each request
    ("ppd", "schema"),
    ("pass_sampling", "schema"),
    ("hidden_transfer", "required_call"),
    ("speculative_streaming", "min_tokens"),
    ("speculative", "penalties"),
    ("eagle2", "bad_words"),
    ("prompt_lookup", "logit_bias"),
    ("pearl", "stop"),
}


@pytest.fixture(scope="module")
def loaded():
    """The default target, with a chat template that reads tools."""
    found = load(device="cpu")
    template = found.tokenizer.chat_template
    found.tokenizer.chat_template = template + "{% if tools %}{% endif %}"
    yield found
    found.tokenizer.chat_template = template  # other tests share the tokenizer
    forget()


def answer(loaded, method: str, name: str, temperature: float):
    fields = {"max_tokens": LENGTH, **REQUESTS[name]}
    request = GenerationRequest(temperature=temperature, seed=7, **fields)
    return collect(Session(loaded, method, request=request).run(PROMPT))


@pytest.fixture(scope="module")
def plain(loaded):
    """A function from the name of a request to plain decoding's tokens."""
    return cache(lambda name: answer(loaded, "autoregressive", name, 0.0).token_ids)


def keeps(loaded, name: str, found) -> bool:
    """Whether an answer keeps to its request; penalties have no such test."""
    tokens, text = found.token_ids, found.text
    if name == "required_call":
        call = json.loads(text)
        return call["name"] == "greet" and call["arguments"]["to"] in ("Ann", "Bob")
    if name == "bad_words":
        return not any(word in text for word in BANNED)
    if name == "logit_bias":
        return not {28, 30}.intersection(tokens)
    if name == "stop":
        return not any(stop in text for stop in REQUESTS[name]["stop"])
    if name in ("schema", "min_tokens"):
        form = REQUESTS[name]["response_format"]
        grammar = Grammar(form, loaded.tokenizer, loaded.vocab, loaded.end_tokens)
        enough = len(tokens) > REQUESTS[name].get("min_tokens", 0)
        return grammar.matches(tokens) and found.finish_reason == "stop" and enough
    return True


def cases():
    """Yield all cells: those of FIRST always, one request of each method in the thorough tier, the others as
    soak tests."""
    found = [method for method in methods("exact", "greedy only") if not method.bound]
    for i, method in enumerate(found):
        for j, name in enumerate(REQUESTS):
            first = (method.key, name) in FIRST
            tier = [] if first or (i + j) % len(REQUESTS) == 0 else [pytest.mark.soak]
            case = pytest.param(method, name, id=f"{method.key}-{name}", marks=tier)
            yield case if tier else later(case, first)


@pytest.mark.parametrize("method, name", cases())
def test_each_method_keeps_to_each_request(loaded, plain, method, name):
    if loaded.unsupported_reason(method) is not None:
        pytest.skip("the default target does not run it")
    found = answer(loaded, method.key, name, 0.0)
    assert keeps(loaded, name, found)
    assert found.token_ids == plain(name)
    if method.exactness == "exact":
        assert keeps(loaded, name, answer(loaded, method.key, name, 1.0))
