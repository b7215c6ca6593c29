"""Structured output: masks on every path of the draft tree, equal to plain constrained decoding, and
valid."""

from __future__ import annotations

import json
import re
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch
from tokenizers import AddedToken

from specviz.core import DraftTree, Processors, Scores, Verdict
from specviz.methods import catalogue
from specviz.run import Session, SessionError, collect, processors, single_run, structured
from specviz.run.request import GenerationRequest
from specviz.run.result import RunFailed
from specviz.run.structured import Grammar, GrammarMask, Vocabulary
from specviz.verifiers import TokenRejection
from specviz.zoo.text import TokenBytes

from ..message_codes import refuses
from .fakes import FakeLoaded, byte_level, metaspace, pieces, with_tokens, wordpiece

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


def schema(given: dict) -> dict:
    return {"type": "json_schema", "json_schema": {"schema": given}}


def conflicting(listed: str, by_pattern: str, pattern: str = "^ab?$") -> dict:
    """An object whose required property is listed, and matches a pattern."""
    return schema(
        {
            "type": "object",
            "properties": {"ab": {"type": listed, "maximum": 99, "minimum": 0}},
            "patternProperties": {pattern: {"type": by_pattern}},
            "additionalProperties": False,
            "required": ["ab"],
        }
    )


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


def answer(method: str, kind: str | dict, temperature: float = 0.0, seed: int = 0, **settings):
    response_format = kind if isinstance(kind, dict) else FORMATS[kind]
    request = GenerationRequest(
        temperature=temperature, seed=seed, max_tokens=100, response_format=response_format, **settings
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


UNCHECKED = sorted(key for key, method in catalogue().items() if method.unchecked)


@pytest.mark.parametrize("method", UNCHECKED)
@pytest.mark.parametrize(
    "fields",
    [{"logit_bias": {"7": -100}}, {"bad_words": ["cat"]}, {"min_tokens": 3}],
    ids=lambda given: next(iter(given)),
)
def test_a_method_that_writes_unchecked_tokens_refuses_bans(method, fields):
    Session(FakeLoaded(ends=True), method, request=GenerationRequest(presence_penalty=1.0))
    with refuses(SessionError, "request.ban_unchecked", catalogue()[method].unchecked, next(iter(fields))):
        Session(FakeLoaded(ends=True), method, request=GenerationRequest(**fields))


@pytest.mark.parametrize("method", UNCHECKED)
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
    "response_format, code",
    [
        ({"type": "regex", "regex": "a{1000000000}"}, "format.work"),
        ({"type": "lark", "lark": 'start: again\nagain: "x" again'}, "format.work"),
        (
            {"type": "lark", "lark": "start: s\ns: s s s s | /[a-z ]/ | s s | s s s s s s s s"},
            "format.work",
        ),
        ({"type": "lark", "lark": 'start: "a" B\nB: /b+x/ & /b+y/'}, "format.dead_end"),
    ],
    ids=["repeats", "endless", "ambiguous", "dead-end"],
)
def test_a_format_that_the_matcher_gives_up_on_ends_the_run_with_its_reason(response_format, code, method):
    """Otherwise the answer would end, or go on without the format."""
    request = GenerationRequest(response_format=response_format, max_tokens=60)
    run = Session(FakeLoaded(ends=True), method, request=request).open("the cat sat")
    raised = []
    explain = single_run.explain
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            single_run, "explain", lambda method, error: raised.append(error) or explain(method, error)
        )
        with pytest.raises(RunFailed):
            collect(run.events)
    assert [error.code for error in raised] == [code]


@pytest.mark.parametrize(
    "response_format, code",
    [
        (schema({"type": "integer", "multipleOf": 999999937}), "format.work"),
        ({"type": "regex", "regex": r"[^\s\S]"}, "format.dead_end"),
        ({"type": "lark", "lark": "start: A\nA: /a+x/ & /a+y/"}, "format.dead_end"),
        (conflicting("integer", "string"), "format.grammar"),
        (conflicting("integer", "integer", "^ab$"), "format.patterns"),
        (schema({"items": conflicting("integer", "integer", "b$|^ab$")["json_schema"]["schema"]}), None),
        (
            schema({"items": conflicting("integer", "integer", "^ab$")["json_schema"]["schema"]}),
            "format.patterns",
        ),
    ],
    ids=["multiples", "no-character", "no-text", "contradiction", "no-other-key", "other-keys", "nested"],
)
def test_a_format_without_any_text_is_refused_before_the_run(response_format, code):
    with refuses(SessionError, code) if code else nullcontext():
        Session(
            FakeLoaded(ends=True), "speculative", request=GenerationRequest(response_format=response_format)
        )


def test_a_pattern_over_a_listed_property_holds_for_it():
    text = answer("speculative", conflicting("integer", "integer")).text
    assert re.match(r'\{"ab":\d+[,}]', text)


NAME = "<|end|>"  # the end token; other control tokens have names, too
LITERALS = {
    "enum": (schema({"enum": [NAME]}), json.dumps(NAME)),
    "const": (schema({"const": ["<|user|>", NAME]}), json.dumps(["<|user|>", NAME], separators=(",", ":"))),
    "key": (
        schema(
            {
                "type": "object",
                "properties": {NAME: {"const": 1}},
                "required": [NAME],
                "additionalProperties": False,
            }
        ),
        json.dumps({NAME: 1}, separators=(",", ":")),
    ),
    "choice": ({"type": "choice", "choice": [NAME]}, NAME),
    "regex": ({"type": "regex", "regex": r"a<\|end\|>b"}, f"a{NAME}b"),
    "lark": ({"type": "lark", "lark": f'start: "{NAME}" "<|pad|>"'}, f"{NAME}<|pad|>"),
    "tag": ({"type": "choice", "choice": ["<tag>x</tag>"]}, "<tag>x</tag>"),
}


@pytest.fixture(scope="module")
def tagged():
    """The vocabulary holds <tag> as an added token that is text, and </tag> as a control token."""
    return with_tokens(AddedToken("<tag>", special=False), AddedToken("</tag>", special=True))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(
    "method", ["autoregressive", "speculative", "draft_tree", "lookahead", "grammar_forced"]
)
@pytest.mark.parametrize("kind", LITERALS)
def test_a_literal_that_is_the_name_of_a_token_is_written_as_text(tagged, kind, method, temperature):
    response_format, text = LITERALS[kind]
    request = GenerationRequest(response_format=response_format, max_tokens=60, temperature=temperature)
    found = collect(Session(tagged, method, request=request).run("the cat sat"))
    assert (found.text, found.finish_reason) == (text, "stop")
    assert not tagged.token_bytes.special.intersection(found.token_ids[:-1])


@pytest.mark.parametrize(
    "tokenizer", [byte_level, pieces, metaspace, wordpiece], ids=lambda made: made.__name__
)
def test_the_grammar_reads_a_token_as_the_answer_shows_it(tokenizer):
    """Of each kind of tokenizer: forced text is encoded to tokens that spell it, wherever it stands."""
    made = tokenizer()
    ends = [made.convert_tokens_to_ids("[SEP]") if made.eos_token_id is None else made.eos_token_id]
    words = Vocabulary(made, len(made) + 2, ends)
    table = TokenBytes(made)
    for token in range(len(made) + 2):
        special = token in words.special_token_ids
        assert special == (token in ends or not table.output_bytes(token))
        assert special or words.tokens[token] == table(token)
    for text in (" the", "the cat", "at", f"s{made.eos_token or '[SEP]'}at"):
        found = words(text)
        assert not set(found).intersection(words.special_token_ids)
        assert b"".join(words.tokens[token] for token in found) in (text.encode(), b"")
    assert words(" the") != []


class Unmasked(GrammarMask):
    """Wrong: leaves the first token free."""

    def __call__(self, logits, context):
        return super().__call__(logits, context) if context.output else logits


@pytest.mark.parametrize("method", ["autoregressive", "speculative", "draft_tree", "pearl", "bass"])
def test_an_answer_that_leaves_its_format_is_an_error(monkeypatch, method):
    monkeypatch.setattr(processors, "GrammarMask", Unmasked)
    request = GenerationRequest(response_format={"type": "choice", "choice": ["zebra"]}, max_tokens=9)
    for most in (1, 9):  # noticed by the next round's mask, or when the answer is finished
        with pytest.raises(RunFailed):
            collect(Session(FakeLoaded(ends=True), method, request=request).run("the cat sat", most))


def test_a_mask_reads_no_token_that_the_vocabulary_does_not_have():
    mask = GrammarMask(
        Grammar(FORMATS["regex"], byte_level(), len(byte_level()), [byte_level().eos_token_id])
    )
    a = byte_level().encode("a", add_special_tokens=False)[0]
    rows = torch.zeros(4, len(byte_level()))
    masked = Processors([mask]).rows(rows, [(), (a,), (a, 10**6), (a, -1, a)], [1], 1)
    assert [bool(row.isinf().any()) for row in masked] == [True, True, False, False]
    with pytest.raises(SessionError) as refused:
        Processors([mask]).scores(DraftTree(), Scores(rows[:1]), [1, 10**6], 1)
    assert refused.value.code == "format.broken"


def test_a_format_that_does_not_compile_in_time_is_refused_before_the_run():
    """llguidance's own limits do not end it: the search for a text that both expressions match is unbounded."""
    lark = "start: X\nX: /.*a.{20}/ & /.*b.{19}/ & ~/.*c.{18}/"
    request = GenerationRequest(response_format={"type": "lark", "lark": lark})
    with pytest.raises(SessionError) as told:
        Session(FakeLoaded(ends=True), "autoregressive", request=request)
    assert told.value.code == "format.grammar"


def test_a_format_that_takes_too_long_in_all_ends_the_run(monkeypatch):
    monkeypatch.setattr(structured, "MATCHER_SECONDS", 0.0)
    request = GenerationRequest(response_format=FORMATS["json_schema"], max_tokens=40)
    with pytest.raises(RunFailed) as told:
        collect(Session(FakeLoaded(ends=True), "speculative", request=request).run("the cat sat"))
    assert "response format" in str(told.value)
