"""The request type, and what each of its fields does to a run."""

from __future__ import annotations

import json
import random
from dataclasses import fields

import pytest
import torch
from PIL import Image

from specviz.core import Sampling
from specviz.indexes.earlier_answers import Memory
from specviz.methods import catalogue
from specviz.run import Session, SessionError, collect
from specviz.run.processors import word_sequences
from specviz.run.request import GenerationRequest
from specviz.trace.events import Committed, Drafted, Started
from specviz.trace.files import Trace
from specviz.trace.recorder import Recorder
from specviz.zoo.picture_input import data_url
from specviz.zoo.text import TokenBytes, Transcript

from ..message_codes import refuses
from .fakes import FakeLoaded, byte_level

PROMPT = "the cat sat"
EXAMPLE = {
    "temperature": 0.5,
    "top_k": 3,
    "top_p": 0.9,
    "min_p": 0.1,
    "repetition_penalty": 1.2,
    "presence_penalty": -0.5,
    "frequency_penalty": 0.3,
    "logit_bias": {"7": 2},
    "bad_words": ["cat"],
    "min_tokens": 3,
    "ignore_eos": False,
    "stop": ["x"],
    "stop_token_ids": [9],
    "seed": 5,
    "max_tokens": 20,
    "n": 2,
    "logprobs": 4,
    "response_format": {"type": "choice", "choice": ["a", "b"]},
    "tools": [{"type": "function", "function": {"name": "add"}}],
    "tool_choice": "auto",
    "enable_thinking": False,
    "guidance_scale": 2.0,
    "image": data_url(Image.new("RGB", (2, 2))),
    "hide_image": True,
}


def ask(method: str = "speculative", loaded=None, prompt=PROMPT, **settings):
    """The result of a run of a request."""
    request = GenerationRequest.from_dict({"max_tokens": 24, **settings})
    return collect(Session(loaded or FakeLoaded(), method, request=request).run(prompt))


def test_every_field_is_read_and_its_record_reads_back():
    request = GenerationRequest.from_dict(EXAMPLE)
    assert set(EXAMPLE) == {field.name for field in fields(GenerationRequest)} - {"from_model"}
    assert GenerationRequest.from_dict(json.loads(json.dumps(request.record()))) == request
    assert request.sampling == Sampling(0.5, 3, 0.9, 5, 0.1) and [one.seed for one in request.each()] == [
        5,
        6,
    ]
    assert (
        GenerationRequest.from_dict(dict.fromkeys(EXAMPLE)) == GenerationRequest()
        and not GenerationRequest().record()
    )


def test_the_models_own_settings_fill_what_is_left_out(monkeypatch):
    loaded = FakeLoaded()
    loaded.generation_defaults = {"temperature": 0.7, "top_k": 20}
    read = GenerationRequest.for_model
    on = read({"generation_config": True, "top_k": 5}, loaded)
    assert (on.temperature, on.top_k, on.from_model) == (0.7, 5, ("temperature",)) and on.record() == {
        "temperature": 0.7,
        "top_k": 5,
    }
    assert (
        read({"top_k": 5}, loaded) == GenerationRequest(top_k=5)
        and read({}, loaded, {"temperature": 1.0}).temperature == 1
    )
    monkeypatch.setenv("SPECVIZ_GENERATION_CONFIG", "1")
    assert (
        read({"temperature": 0}, loaded).sampling == Sampling(0, 20)
        and not read({"generation_config": False}, loaded).record()
    )
    for given, code in (({"generation_config": 1}, "request.flag"), ({"from_model": []}, "request.field")):
        with pytest.raises(SessionError) as refused:
            read(given, loaded)
        assert refused.value.code == code
    with pytest.raises(SessionError) as refused:
        GenerationRequest.from_dict({"generation_config": True})
    assert refused.value.code == "request.generation_config"


def test_a_run_gives_one_answer_and_each_gives_all_of_them():
    session = Session(
        FakeLoaded(), "speculative", request=GenerationRequest(n=2, seed=5, temperature=1, max_tokens=6)
    )
    with pytest.raises(SessionError) as refused:
        session.run(PROMPT)
    assert refused.value.code == "request.n"
    assert [collect(one.run(PROMPT)).token_ids for one in session.each()] == [
        ask(seed=seed, temperature=1, max_tokens=6).token_ids for seed in (5, 6)
    ]


def test_the_seeds_of_all_answers_are_checked_before_the_first():
    assert [one.seed for one in GenerationRequest(n=2, seed=2**53 - 1).each()] == [2**53 - 1, 2**53]
    with refuses(SessionError, "request.seed"):
        GenerationRequest(n=2, seed=2**53)


@pytest.mark.parametrize(
    "field, value",
    [
        ("temprature", 1),
        ("temperature", 3),
        ("temperature", "hot"),
        ("top_k", -2),
        ("top_p", 0),
        ("min_p", 2),
        ("min_p", float("nan")),
        ("repetition_penalty", 0),
        ("presence_penalty", 2.1),
        ("frequency_penalty", -3),
        ("logit_bias", [1]),
        ("logit_bias", {"a": 1}),
        ("logit_bias", {str(i): 1 for i in range(2000)}),
        ("logit_bias", [[5, 1], [6, 1], [5, -1]]),
        ("logit_bias", {"5": 1, "05": 1}),
        ("bad_words", [""]),
        ("bad_words", ["x" * 300]),
        ("min_tokens", 999),
        ("min_tokens", -1),
        ("ignore_eos", 1),
        ("stop", [3]),
        ("stop", ["x"] * 99),
        ("stop_token_ids", [-1]),
        ("stop_token_ids", 4),
        ("seed", 1.5),
        ("max_tokens", 0),
        ("n", 0),
        ("n", 99),
        ("logprobs", 21),
        ("logprobs", True),
        ("response_format", {"type": "xml"}),
        ("response_format", {"type": "regex"}),
        ("response_format", {"type": "choice", "choice": []}),
        ("response_format", {"type": "json_schema", "json_schema": {"schema": {"enum": ["x" * 70_000]}}}),
    ],
)
def test_a_wrong_value_is_refused_by_the_fields_name(field, value):
    with pytest.raises(SessionError, match=f"(?i){field}"):
        GenerationRequest.from_dict({field: value})


def test_a_deeply_nested_format_is_refused_before_it_is_read():
    nested: list = []
    for _ in range(5000):
        nested = [nested]
    with refuses(SessionError, "format.depth"):
        GenerationRequest.from_dict(
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {"enum": nested}}}}
        )


def test_sampling_and_a_request_are_not_given_both():
    with pytest.raises(SessionError):
        Session(FakeLoaded(), "speculative", sampling=Sampling(0.5), request=GenerationRequest())


@pytest.mark.parametrize(
    "settings",
    [
        {"repetition_penalty": 1.5},
        {"presence_penalty": 1.0, "frequency_penalty": 0.5},
        {"logit_bias": {"40": 100}},
        {"bad_words": ["i", "bl"]},
        {"min_tokens": 12, "stop_token_ids": list(range(6, 120))},
    ],
)
@pytest.mark.parametrize("method", ["speculative", "draft_tree", "pearl", "prompt_lookup"])
def test_a_setting_changes_plain_decoding_and_methods_alike(method, settings):
    plain = ask("autoregressive", **settings).token_ids
    assert ask(method, **settings).token_ids == plain != ask("autoregressive").token_ids


@pytest.mark.parametrize(
    "settings",
    [
        {"presence_penalty": 1.0, "repetition_penalty": 1.3},
        {"response_format": {"type": "regex", "regex": "[a-z ]{5,9}[.!]"}},
    ],
)
@pytest.mark.parametrize(
    "method, temperature", [("speculative", 0.0), ("speculative", 0.9), ("tetris", 0.0), ("bass", 0.9)]
)
def test_each_request_of_a_batch_has_processors_of_its_own(method, temperature, settings):
    """In a batch every prompt is written as alone: penalties and grammar states of one request do not reach
    another."""
    request = GenerationRequest.from_dict(
        {"temperature": temperature, "max_tokens": 16, "logprobs": 1, **settings}
    )
    alone = collect(Session(FakeLoaded(ends=True), method, request=request).run(PROMPT))
    others = ("a hat on a mat", "write a story about the sea")
    together = collect(
        Session(FakeLoaded(ends=True), method, request=request, batch_prompts=others).run(PROMPT)
    )
    plain = collect(Session(FakeLoaded(ends=True), "autoregressive", request=request).run(PROMPT))
    assert together.token_ids == alone.token_ids and together.logprobs == pytest.approx(
        alone.logprobs, abs=1e-9
    )
    assert temperature or together.token_ids == plain.token_ids


def test_the_header_carries_the_request_and_says_greedy():
    started = next(
        Session(FakeLoaded(), "speculative", request=GenerationRequest(presence_penalty=1)).run(PROMPT)
    )
    assert (
        isinstance(started, Started)
        and started.header["request"] == {"presence_penalty": 1}
        and started.header["greedy"] is True
    )


def test_end_tokens_are_ignored_and_stop_token_ids_end():
    free = ask(loaded=FakeLoaded(), max_tokens=40)
    token = free.token_ids[5]
    first = free.token_ids.index(token)
    stopped = ask(loaded=FakeLoaded(), max_tokens=40, stop_token_ids=[token])
    assert stopped.token_ids == free.token_ids[: first + 1] and stopped.finish_reason == "stop"
    loaded = FakeLoaded()
    loaded.end_tokens = frozenset({token})
    assert ask(loaded=loaded, max_tokens=40).token_ids == stopped.token_ids
    assert ask(loaded=loaded, max_tokens=40, ignore_eos=True).token_ids == free.token_ids
    longer = ask(loaded=loaded, max_tokens=40, min_tokens=9)
    assert len(longer.token_ids) >= 9 and token not in longer.token_ids[:8]


def test_ids_beyond_the_vocabulary_are_refused():
    for settings in ({"logit_bias": {"5000": 1}}, {"stop_token_ids": [5000]}):
        with pytest.raises(SessionError, match=next(iter(settings))):
            ask(**settings)


def test_bad_words_are_banned_with_and_without_a_space():
    tokenizer = byte_level()
    for ids in word_sequences(tokenizer, ("cat",)):
        assert tokenizer.decode(ids).strip() == "cat"
    assert "cat" in ask(max_tokens=40).text and "cat" not in ask(max_tokens=40, bad_words=["cat"]).text


@pytest.mark.parametrize(
    "method", ["speculative", "draft_tree", "block_verification", "pearl", "prompt_lookup", "autoregressive"]
)
@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_log_probabilities_are_those_of_a_plain_forward_over_the_final_text(method, temperature):
    loaded = FakeLoaded()
    result = ask(
        method, loaded, temperature=temperature, logprobs=3, presence_penalty=0.8, top_k=20, max_tokens=30
    )
    text = [*result.prompt_ids, *result.token_ids]
    rows = loaded.net.logits(text).log_softmax(-1)[len(result.prompt_ids) - 1 : -1]
    assert result.logprobs == pytest.approx(rows[range(len(rows)), result.token_ids].tolist(), abs=1e-9)
    assert len(result.top_logprobs) == len(result.token_ids) == 30
    for top, row in zip(result.top_logprobs, rows):
        values, tokens = row.topk(3)
        assert [pair[0] for pair in top] == tokens.tolist() and [pair[1] for pair in top] == pytest.approx(
            values.tolist(), abs=1e-9
        )


def test_log_probabilities_end_with_the_tokens_at_a_stop_string():
    result = ask(max_tokens=40, stop=["cat"], logprobs=0)
    assert result.finish_reason == "stop_string" and len(result.logprobs) == len(result.token_ids) < 40


def test_at_temperature_zero_the_trace_has_the_models_probabilities():
    session, loaded = None, FakeLoaded()
    session = Session(loaded, "speculative")
    recorder = Recorder(0, loaded.token_bytes)
    records = []
    prompt = None
    for event in session.run(PROMPT, 20, top_k_saved=4):
        records += recorder.take(event)
    trace = Trace.load("\n".join(map(json.dumps, records)) + "\n")
    prompt = trace.header()["prompt"]["ids"]
    written = [piece["tok"] for record in trace.of("text") for piece in record["pieces"]]
    rows, at = loaded.net.logits([*prompt, *written]).softmax(-1), len(prompt) - 1
    for commit in trace.of("commit"):
        at += commit["n_new"]
        tail = commit["tail"]
        assert (
            tail["softmax_p"] == pytest.approx(float(rows[at - 1, tail["tok"]]), abs=1e-9)
            and tail["softmax_p"] < 1
        )
        assert (
            tail["top_softmax"][0][1] == pytest.approx(float(rows[at - 1].max()))
            and len(tail["top_softmax"]) == 4
        )
    assert any(0 < judge["softmax_p"] < 1 for judge in trace.of("judge") if judge["verdict"] != "skipped")


@pytest.mark.parametrize("method", ["speculative", "draft_tree", "staged", "opt_tree"])
def test_at_temperature_zero_the_trace_has_the_drafts_probabilities(method):
    loaded = FakeLoaded()
    events = [*Session(loaded, method).run(PROMPT, 20, top_k_saved=4)]
    text, seen = list(events[0].header["prompt"]["ids"]), 0
    for event in events:
        if isinstance(event, Drafted):
            nodes = {node["id"]: node for node in event.nodes}
            for node in event.nodes:
                path, above = [], node["parent"]
                while above >= 0:
                    path.insert(0, nodes[above]["tok"])
                    above = nodes[above]["parent"]
                probs = loaded.draft.logits([*text, *path])[-1].softmax(-1)
                assert (
                    node["softmax_q"] == pytest.approx(float(probs[node["tok"]]), abs=1e-6)
                    and node["softmax_q"] < 1
                )
                assert len(node["top_softmax"]) == 4 and node["top_softmax"][0][1] == pytest.approx(
                    float(probs.max()), abs=1e-6
                )
                seen += 1
        elif isinstance(event, Committed):
            text += event.tokens
    assert seen > 4
    plain = [
        event.tokens for event in Session(loaded, method).run(PROMPT, 20) if isinstance(event, Committed)
    ]
    assert plain == [event.tokens for event in events if isinstance(event, Committed)]


@pytest.mark.parametrize(
    "method, temperature, saved",
    [("prompt_lookup", 0.0, 4), ("speculative", 1.0, 4), ("speculative", 0.0, 0)],
)
def test_no_draft_softmax_of_a_lookup_above_temperature_zero_or_unasked(method, temperature, saved):
    session = Session(FakeLoaded(), method, request=GenerationRequest(temperature=temperature))
    run = session.open("the cat sat the cat sat the cat", 20, top_k_saved=saved)
    nodes = [node for event in run.events if isinstance(event, Drafted) for node in event.nodes]
    assert nodes and not any("softmax_q" in node for node in nodes)
    assert not run.state.draft_logits


def test_a_special_tokens_name_is_a_stop_string():
    tokenizer = byte_level()
    table, end = TokenBytes(tokenizer), tokenizer.convert_tokens_to_ids("<|end|>")
    letters = tokenizer.encode("abc", add_special_tokens=False)
    for stop, text in (("<|end|>", "abc"), ("c<|end|>", "ab"), ("bc", "a"), ("<|user|>", "abcabc")):
        transcript = Transcript(table, [stop])
        for token in [*letters, end, *letters]:
            transcript.add(token)
            if transcript.stopped:
                break
        assert transcript.text == text and transcript.stopped == (stop != "<|user|>")


def test_no_stop_string_within_the_least_tokens():
    tokenizer = byte_level()
    letters = tokenizer.encode("abab", add_special_tokens=False)
    assert len(letters) == 4
    for least, text in ((0, ""), (2, "ab"), (4, "abab")):
        transcript = Transcript(TokenBytes(tokenizer), ["ab"], least)
        for token in letters:
            transcript.add(token)
            if transcript.stopped:
                break
        assert transcript.text == text


def test_memory_holds_what_was_shown():
    memory = Memory()
    session = Session(
        FakeLoaded(), "speculative", {"gamma": 8}, memory=memory, request=GenerationRequest(stop=("cat",))
    )
    kept: list[list[int]] = []
    memory.add = kept.append
    result = collect(session.run(PROMPT))
    assert kept == [result.token_ids] and result.finish_reason == "stop_string"


def test_events_of_a_plain_run_carry_no_log_probabilities():
    events = [
        event for event in Session(FakeLoaded(), "speculative").run(PROMPT, 8) if isinstance(event, Committed)
    ]
    assert all(event.logprobs is None and event.softmax_p is None for event in events)
    assert torch.is_inference_mode_enabled() is False


WORDS = ["the", "cat", " s", "at", "th", "e c", "sea", "\n", "is d", "ee", "!", "bl"]
REGEX, CHOICE = (
    {"type": "regex", "regex": "[a-c]{3}-[0-9]{2,4}!"},
    {"type": "choice", "choice": ["the cat", "the sea", "blue"]},
)


def any_request(rng: random.Random, vocab: int) -> dict:
    """Fields of a request at random, each of them in about half of the requests."""
    most = rng.choice([1, 2, 5, 24, 40])
    fields = {
        "stop": rng.sample(WORDS, rng.randint(1, 3)),
        "min_tokens": rng.randint(0, most),
        "bad_words": rng.sample(WORDS[:7], 2),
        "stop_token_ids": [rng.randrange(vocab) for _ in range(5)],
        "logprobs": rng.randint(0, 3),
        "logit_bias": {str(rng.randrange(vocab)): rng.choice([-100, 100, 5]) for _ in range(4)},
        "repetition_penalty": rng.choice([1.3, 0.8]),
        "presence_penalty": rng.choice([1.3, -0.8]),
        "frequency_penalty": rng.choice([1, -1]),
        **rng.choice([{"ignore_eos": True}, {"response_format": REGEX}, {"response_format": CHOICE}]),
    }
    return {"max_tokens": most} | {name: value for name, value in fields.items() if rng.random() < 0.5}


@pytest.mark.parametrize(
    "seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(3, 80))]
)
def test_any_request_has_the_same_answer_by_every_exact_method(seed):
    rng, loaded = random.Random(seed), FakeLoaded(seed=seed % 3, ends=True)
    fields = any_request(rng, loaded.vocab)
    methods = [
        key
        for key, method in catalogue().items()
        if method.exactness == "exact" and not method.bound and not loaded.unsupported_reason(method)
    ]
    plain, *others = (ask(method, loaded, **fields) for method in ("autoregressive", *rng.sample(methods, 4)))
    for result in others:
        assert (result.text, result.token_ids, result.finish_reason) == (
            plain.text,
            plain.token_ids,
            plain.finish_reason,
        ), fields
        assert result.logprobs == (plain.logprobs and pytest.approx(plain.logprobs, abs=1e-9)), fields
