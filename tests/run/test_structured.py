"""Structured output: masks on every path of the draft tree, equal to plain constrained decoding, and
valid."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from specviz.core import DraftTree, Verdict
from specviz.methods import catalogue
from specviz.run import Session, SessionError, collect
from specviz.run.request import GenerationRequest
from specviz.run.result import RunFailed
from specviz.run.structured import Grammar, GrammarMask
from specviz.verifiers import TokenRejection

from ..message_codes import refuses
from .fakes import FakeLoaded, byte_level

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["red", "blue"]}, "maxItems": 2},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
FORMATS = {
    "json_schema": {"type": "json_schema", "json_schema": {"schema": SCHEMA}},
    "regex": {"type": "regex", "regex": "[a-c]{3}-[0-9]{2,4}!"},
    "choice": {"type": "choice", "choice": ["the cat", "the hat", 'a "quoted" mat']},
    "lark": {
        "type": "lark",
        "lark": 'start: greeting " " name\ngreeting: "hello" | "good day"\nname: /[A-Z][a-z]{2,4}/',
    },
}
METHODS = (
    "speculative",
    "draft_tree",
    "block_verification",
    "traversal",
    "spechub",
    "spectr",
    "pearl",
    "prompt_lookup",
    "token_recycling",
    "lookahead",
    "jacobi",
    "staged",
    "bass",
    "grammar_forced",
)


def valid(kind: str, text: str) -> bool:
    if kind == "json_schema":
        value = json.loads(text)
        return (
            set(value) == {"name", "age", "tags"}
            and isinstance(value["name"], str)
            and len(value["name"]) <= 6
            and 0 <= value["age"] <= 120
            and set(value["tags"]) <= {"red", "blue"}
            and len(value["tags"]) <= 2
        )
    if kind == "choice":
        return text in FORMATS["choice"]["choice"]
    return bool(
        re.fullmatch(
            {"regex": "[a-c]{3}-[0-9]{2,4}!", "lark": "(hello|good day) [A-Z][a-z]{2,4}"}[kind], text
        )
    )


def answer(method: str, kind: str, temperature: float = 0.0, seed: int = 0, **settings):
    request = GenerationRequest(
        temperature=temperature, seed=seed, max_tokens=100, response_format=FORMATS[kind], **settings
    )
    return collect(Session(FakeLoaded(ends=True), method, request=request).run("the cat sat"))


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("method", METHODS)
def test_an_answer_is_valid_and_equals_plain_constrained_decoding(method, kind):
    plain = answer("autoregressive", kind)
    assert valid(kind, plain.text) and plain.finish_reason == "stop"
    assert answer(method, kind).token_ids == plain.token_ids
    assert valid(kind, answer(method, kind, 1.0, seed=3).text)


class CommitsUnchecked(TokenRejection):
    """Wrong: a forced draft is written without asking the target (jump-forward)."""

    def verify(self, tree, scores, state):
        if not any(kind == "forced" for kind, _ in state.notes):
            return super().verify(tree, scores, state)
        probs = state.sampling.probs(scores.logits[len(tree)])
        return Verdict(tuple(range(len(tree))), state.rng.pick("verify", probs), "bonus", (), probs)


@pytest.mark.parametrize("kind", ["json_schema", "regex", "lark"])
@pytest.mark.parametrize("verifier, right", [(TokenRejection, True), (CommitsUnchecked, False)])
def test_a_choice_that_counts_as_forced_is_checked(monkeypatch, verifier, right, kind):
    """Spoiled: ``forced`` goes on past a choice with the first token that the grammar allows. Verified, it
    costs time only."""
    forced, method = GrammarMask.forced, catalogue()["grammar_forced"]

    def past_a_choice(mask, output):
        found = forced(mask, output)
        allowed = np.flatnonzero(mask._bits()).tolist() if mask._follow([*output, *found]) else []
        return found + [token for token in allowed if token not in mask.grammar.ends][:1]

    monkeypatch.setattr(GrammarMask, "forced", past_a_choice)
    spoiled = replace(
        method, build=lambda kit, **knobs: replace(method.build(kit, **knobs), verifier=verifier())
    )
    request = GenerationRequest(max_tokens=100, response_format=FORMATS[kind])
    found = collect(Session(FakeLoaded(ends=True), spoiled, request=request).run("the cat sat"))
    assert (found.token_ids == answer("autoregressive", kind).token_ids) == right


def test_another_drafter_stands_on_forced_tokens():
    runs = [
        collect(
            Session(
                FakeLoaded(ends=True),
                method,
                knobs,
                request=GenerationRequest(max_tokens=100, response_format=FORMATS["json_schema"]),
            ).run("the cat sat")
        )
        for method, knobs in (
            ("speculative", {"gamma": 4}),
            ("grammar_forced", {"rest": "draft model", "gamma": 4}),
        )
    ]
    assert runs[0].token_ids == runs[1].token_ids and runs[1].totals.rounds < runs[0].totals.rounds


def test_a_grammar_goes_with_penalties():
    plain = answer("autoregressive", "json_schema", presence_penalty=1.0, logit_bias={"30": 4.0})
    assert (
        answer("draft_tree", "json_schema", presence_penalty=1.0, logit_bias={"30": 4.0}).token_ids
        == plain.token_ids
    )
    assert valid("json_schema", plain.text)


@pytest.mark.parametrize(
    "response_format",
    [
        {"type": "regex", "regex": "(a"},
        {"type": "lark", "lark": "start: missing"},
        {"type": "json_schema", "json_schema": {"schema": {"type": "foo"}}},
    ],
)
def test_a_format_that_is_no_grammar_is_refused_before_the_run(response_format):
    with refuses(SessionError, "format.grammar", "response_format"):
        Session(
            FakeLoaded(ends=True), "speculative", request=GenerationRequest(response_format=response_format)
        )


def test_a_model_without_end_tokens_is_refused():
    with refuses(SessionError, "format.no_end"):
        answer_format = FORMATS["regex"]
        Session(FakeLoaded(), "speculative", request=GenerationRequest(response_format=answer_format))


def test_each_row_of_a_tree_has_the_mask_of_its_own_path():
    import torch

    from specviz.core import Processors, Scores

    tokenizer = byte_level()
    a, b, c, dash = (tokenizer.encode(x, add_special_tokens=False)[0] for x in "abc-")
    mask = GrammarMask(
        Grammar({"type": "regex", "regex": "ab-|ac|b"}, tokenizer, len(tokenizer), [tokenizer.eos_token_id])
    )
    tree = DraftTree((a, b, b, c, dash), (-1, -1, 0, 0, 2), (-1,) * 5)
    logits = Processors([mask]).scores(tree, Scores(torch.zeros(6, len(tokenizer))), [1, 2], 2).logits
    allowed = [set(torch.nonzero(row > -torch.inf)[:, 0].tolist()) for row in logits]
    end = {tokenizer.eos_token_id}
    assert {a, b} <= allowed[0] and {b, c} <= allowed[1] and a not in allowed[1]
    assert (
        allowed[2] == end
        and dash in allowed[3]
        and b not in allowed[3]
        and allowed[4] == end
        and allowed[5] == end
    )


def test_forced_tokens_end_where_there_is_a_choice():
    tokenizer = byte_level()
    mask = GrammarMask(
        Grammar(
            {"type": "regex", "regex": "the cat (sat|hat)"},
            tokenizer,
            len(tokenizer),
            [tokenizer.eos_token_id],
        )
    )
    forced = mask.forced([])
    assert tokenizer.decode(forced).startswith("the cat") and "sat" not in tokenizer.decode(forced)
    text = tokenizer.encode("the cat sat", add_special_tokens=False)
    assert mask.forced(text) == [] and mask.forced([]) == forced, (
        "an end token is not drafted, and the matcher rolls back"
    )


@pytest.mark.parametrize("method", ["superposed", "fastcot", "contrastive_decoding"])
def test_a_method_that_writes_unchecked_tokens_is_refused_with_its_reason(method):
    with pytest.raises(SessionError) as refused:
        Session(FakeLoaded(ends=True), method, request=GenerationRequest(response_format=FORMATS["regex"]))
    assert refused.value.code == "request.response_format_unchecked" and catalogue()[method].unchecked in str(
        refused.value
    )


@pytest.mark.parametrize(
    "response_format",
    [
        {"type": "regex", "regex": "((a{1,100}){1,100}){1,100}"},
        {"type": "regex", "regex": "(a|b|ab|ba)*" * 200 + "x"},
        {"type": "regex", "regex": "(.*a){40}"},
        {"type": "lark", "lark": 'start: start start | "a" | ""'},
        {"type": "choice", "choice": ["x" * 60 + str(i) for i in range(900)]},
        {
            "type": "json_schema",
            "json_schema": {
                "schema": {"type": "array", "minItems": 10_000, "items": {"type": "array", "minItems": 1000}}
            },
        },
        {
            "type": "json_schema",
            "json_schema": {"schema": {"type": "string", "minLength": 10**6, "maxLength": 10**8}},
        },
    ],
    ids=["powers", "ambiguous", "dots", "recursion", "choices", "items", "length"],
)
def test_a_format_made_to_be_slow_is_compiled_and_followed(response_format):
    request = GenerationRequest(response_format=response_format, max_tokens=8)
    assert (
        1
        <= len(
            collect(
                Session(FakeLoaded(ends=True), "grammar_forced", request=request).run("the cat sat")
            ).token_ids
        )
        <= 8
    )


@pytest.mark.parametrize("method", ["autoregressive", "speculative", "grammar_forced"])
@pytest.mark.parametrize(
    "response_format",
    [
        {"type": "regex", "regex": "a{1000000000}"},
        {"type": "json_schema", "json_schema": {"schema": {"type": "integer", "multipleOf": 999999937}}},
    ],
    ids=["repeats", "multiples"],
)
def test_a_format_that_the_matcher_gives_up_on_ends_the_run_with_a_sentence(response_format, method):
    """Otherwise the answer would end, or go on without the format."""
    request = GenerationRequest(response_format=response_format, max_tokens=8)
    with pytest.raises(RunFailed) as told:
        collect(Session(FakeLoaded(ends=True), method, request=request).run("the cat sat"))
    assert "response format" in str(told.value) and "\n" not in str(told.value)
