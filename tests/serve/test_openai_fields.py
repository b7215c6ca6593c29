"""Fields of the OpenAI-compatible endpoint that clients, dashboards and evaluation harnesses read and send."""

from __future__ import annotations

import asyncio
import json
import math
import socket
import urllib.error
import urllib.request
from functools import partial
from urllib.parse import urlsplit

import pytest

from specviz.cli import commands
from specviz.engine.messages import Refused
from specviz.engine.speculation_fields import SpeculationFields
from specviz.run import Session, collect
from specviz.run.request import GenerationRequest
from specviz.serve.openai_api import with_pauses
from specviz.serve.openai_fields import ApiLimits, read_generation
from specviz.serve.openai_formats import ChatShape, CompletionShape
from specviz.servers.dialects import ENGINES
from specviz.servers.figures import read_metrics
from specviz.trace.events import Committed, Drafted
from specviz.zoo import load

from ..message_codes import refuses
from .conftest import ORIGIN

MESSAGES = [{"role": "user", "content": "the cat sat"}]
METHODS = ("speculative", "draft_tree", "prompt_lookup", "jacobi", "autoregressive")
SCHEMA = {
    "type": "object",
    "properties": {"a": {"enum": [1, 2]}},
    "required": ["a"],
    "additionalProperties": False,
}


@pytest.fixture
def chat(client):
    return partial(client.chat.completions.create, model="tiny", messages=MESSAGES, temperature=0)


@pytest.mark.parametrize("method", METHODS)
def test_the_readers_of_vllm_and_llama_cpp_understand_an_answer(chat, method):
    body = {"speculative": {"method": method}}
    answer = chat(max_tokens=24, extra_body=body)
    told = [
        ENGINES[name].read(answer.model_dump() | {"choices": []}) for name in ("vllm", "llamacpp", "mlxvlm")
    ]
    assert not any(message.doubt for message in told)
    by_vllm, *by_timings = (message.drafts for message in told)
    details = answer.usage.completion_tokens_details
    counts = (by_vllm.drafted, by_vllm.accepted)
    assert counts == (
        details.accepted_prediction_tokens + details.rejected_prediction_tokens,
        details.accepted_prediction_tokens,
    )
    assert answer.choices[0].metrics == answer.metrics and answer.choices[0].timings == answer.timings
    assert answer.speculative["accepted"] == by_vllm.accepted
    assert (by_vllm.drafted > 0) == (method != "autoregressive")
    for drafts in by_timings:
        assert (drafts and (drafts.drafted, drafts.accepted)) == (counts if by_vllm.drafted else None)


def test_a_stream_ends_with_the_same_figures_and_has_no_usage_before(chat):
    whole = chat(max_tokens=24)
    chunks = list(chat(max_tokens=24, stream=True, stream_options={"include_usage": True}))
    assert all(chunk.usage is None and "usage" in chunk.model_fields_set for chunk in chunks[:-1])
    assert chunks[-1].usage == whole.usage and chunks[-1].metrics == whole.metrics
    assert chunks[-2].choices[0].metrics == whole.metrics
    assert {**chunks[-2].timings, "cache_n": 0}["draft_n"] == whole.timings["draft_n"]
    assert not any("usage" in c.model_fields_set for c in chat(max_tokens=4, stream=True))
    each = chat(
        max_tokens=8,
        stream=True,
        stream_options={"include_usage": True, "continuous_usage_stats": True},
        extra_body={"timings_per_token": True},
    )
    *early, _ = list(each)
    assert all(chunk.usage is not None and chunk.timings["predicted_n"] > 0 for chunk in early)


def test_several_answers_have_figures_of_their_own(chat):
    answer = chat(max_tokens=8, n=2)
    figures = [choice.metrics["speculative_decoding"]["num_draft_tokens"] for choice in answer.choices]
    details = answer.usage.completion_tokens_details
    assert sum(figures) == details.accepted_prediction_tokens + details.rejected_prediction_tokens > 0
    assert "metrics" not in answer.model_fields_set


@pytest.mark.parametrize("method", METHODS)
def test_each_token_has_its_source_beside_its_log_probability(client, chat, method):
    body = {"speculative": {"method": method}}
    modelled = method in ("speculative", "draft_tree")
    answer = chat(max_tokens=40, logprobs=True, extra_body=body)
    tokens = answer.choices[0].logprobs.content
    accepted = answer.usage.completion_tokens_details.accepted_prediction_tokens
    assert {token.source for token in tokens} <= {"draft", "correction", "bonus", "plain"}
    drafted = [token for token in tokens if token.source == "draft"]
    assert len(drafted) == accepted and (accepted > 0 or not modelled)
    assert all((token.draft_logprob is not None) == modelled for token in drafted)
    assert all(token.draft_logprob <= 0 for token in drafted if modelled)
    raw = client.completions.create(
        model="tiny", prompt="the cat", max_tokens=40, temperature=0, logprobs=1, extra_body=body
    )
    found = raw.choices[0].logprobs
    assert len(found.token_sources) == len(found.tokens) == len(found.draft_logprobs)
    assert (
        found.token_sources.count("draft") == raw.usage.completion_tokens_details.accepted_prediction_tokens
    )


@pytest.mark.parametrize("kind", ["accepted", "correction"])
def test_a_draft_token_that_a_stop_text_ends_with_is_a_draft_token(kind):
    nodes = tuple(
        {"id": i, "parent": parent, "tok": token, "q": q}
        for i, (parent, token, q) in enumerate([(-1, 7, 0.5), (-1, 8, None), (0, 9, 0.25)])
    )
    fields = SpeculationFields("x")
    assert fields.take(Drafted(0, 0.0, 0.0, nodes)) == []
    event = Committed(0, 0.0, (0,), (7, 9), kind, None, None, {}, {})
    first, last = fields.take(event)
    assert first == {"source": "draft", "draft_logprob": pytest.approx(math.log(0.5))}
    assert last == (
        {"source": "draft", "draft_logprob": pytest.approx(math.log(0.25))}
        if kind == "accepted"
        else {"source": "correction"}
    )
    assert fields.steps == [(3, 1 + (kind == "accepted"))]


HARMLESS = {
    "parallel_tool_calls": True,
    "service_tier": "auto",
    "reasoning_effort": "low",
    "verbosity": "low",
    "modalities": ["text"],
    "safety_identifier": "x",
    "prompt_cache_key": "x",
    "cache_prompt": True,
    "best_of": 1,
    "echo": False,
    "skip_special_tokens": True,
    "store": False,
    "metadata": {"a": "b"},
    "user": "x",
    "use_beam_search": False,
    "length_penalty": 1.0,
    "timings_per_token": False,
    "return_token_ids": False,
}


def test_fields_that_change_nothing_are_taken(chat):
    body = chat(max_tokens=8, extra_body=HARMLESS)
    assert body.choices[0].message.content == chat(max_tokens=8).choices[0].message.content


HARMFUL = {
    "modalities": ["text", "audio"],
    "best_of": 3,
    "echo": True,
    "skip_special_tokens": False,
    "use_beam_search": True,
    "length_penalty": 2,
    "suffix": "x",
    "store": 1,
    "structured_outputs": {"json": SCHEMA, "regex": "a"},
    "guided_json": "{",
    "prediction": {"type": "text", "content": "x"},
    "return_token_ids": "yes",
    "continue_final_message": True,
    "add_generation_prompt": False,
    "mirostat": False,
    "parallel_tool_calls": 0,
    "timings_per_token": 1,
}


@pytest.mark.parametrize("name", HARMFUL)
def test_a_value_that_would_change_the_answer_is_refused(name):
    with pytest.raises(Refused) as refused:
        read_generation({"messages": MESSAGES, name: HARMFUL[name]}, ChatShape, ApiLimits())
    assert refused.value.code == "openai.value" and refused.value.values["field"] == name


@pytest.mark.parametrize(
    "name, other, value",
    [
        ("max_completion_tokens", "max_tokens", 5),
        ("repeat_penalty", "repetition_penalty", 1.5),
        ("chat_template_kwargs", "enable_thinking", True),
    ],
)
def test_two_names_of_a_field_have_one_value(name, other, value):
    """None of the two is ignored without a word."""
    given = {"enable_thinking": value} if name == "chat_template_kwargs" else value
    unlike = False if value is True else value + 1
    for rest in ({}, {other: value}):
        asked, _ = read_generation({"messages": MESSAGES, name: given} | rest, ChatShape, ApiLimits())
        assert asked["fields"][other] == value
    with pytest.raises(Refused) as refused:
        read_generation({"messages": MESSAGES, name: given, other: unlike}, ChatShape, ApiLimits())
    assert refused.value.code == "openai.value" and refused.value.values["field"] == name


STRUCTURES = [
    ({"structured_outputs": {"json": SCHEMA}}, "json_schema", {"schema": SCHEMA}),
    ({"structured_outputs": {"json": json.dumps(SCHEMA)}}, "json_schema", {"schema": SCHEMA}),
    ({"structured_outputs": {"regex": "a+", "disable_any_whitespace": True}}, "regex", "a+"),
    ({"structured_outputs": {"grammar": "start: A"}}, "lark", "start: A"),
    ({"guided_json": SCHEMA}, "json_schema", {"schema": SCHEMA}),
    ({"guided_regex": "a+"}, "regex", "a+"),
    ({"guided_choice": ["a", "b"]}, "choice", ["a", "b"]),
    ({"guided_grammar": "start: A"}, "lark", "start: A"),
]


@pytest.mark.parametrize("body, kind, value", STRUCTURES)
def test_vllms_structures_become_a_response_format(body, kind, value):
    asked, _ = read_generation({"messages": MESSAGES} | body, ChatShape, ApiLimits())
    assert asked["fields"]["response_format"] == {"type": kind, kind: value}
    both = {"messages": MESSAGES, "response_format": {"type": "json_object"}} | body
    with pytest.raises(Refused) as refused:
        read_generation(both, ChatShape, ApiLimits())
    assert refused.value.code == "openai.value"


def test_a_structured_answer_is_the_same_under_both_names(chat):
    by_vllm = chat(max_tokens=40, extra_body={"structured_outputs": {"json": SCHEMA}})
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}
    assert (
        by_vllm.choices[0].message.content
        == chat(max_tokens=40, response_format=form).choices[0].message.content
    )
    assert json.loads(by_vllm.choices[0].message.content)["a"] in (
        1,
        2,
    )  # the end token has text in this model


def test_a_prediction_is_the_draft(chat):
    ask = partial(chat, max_tokens=40, extra_body={"guided_regex": "[a-z ]{30}"})
    text = ask().choices[0].message.content
    accepted = []
    for prediction in (text, [{"type": "text", "text": text}], "0123"):
        answer = ask(prediction={"type": "content", "content": prediction})
        assert answer.choices[0].message.content == text
        assert answer.speculative["method"] == "predicted_output"
        accepted.append(answer.usage.completion_tokens_details.accepted_prediction_tokens)
    assert accepted[0] == accepted[1] > 10 > accepted[2]


def test_the_length_is_limited_on_a_shared_page_only(chat):
    asked = {"messages": MESSAGES, "max_tokens": 4096}
    with pytest.raises(Refused) as refused:
        read_generation(asked, ChatShape, ApiLimits())
    assert refused.value.values["field"] == "max_tokens"
    own = ApiLimits.own(None, 60)
    assert read_generation(asked, ChatShape, own)[0]["fields"]["max_tokens"] == 4096
    assert read_generation({"messages": MESSAGES, "n": 8}, ChatShape, own)[1].choices == 8
    answer = chat(max_tokens=4096)
    assert answer.choices[0].finish_reason == "length" and answer.usage.total_tokens == 256  # the context


def test_an_answer_in_one_message_has_a_size():
    """Answers, tokens and alternatives together; a stream has many messages, and one's own server no limit."""
    whole = {"messages": MESSAGES, "max_tokens": 512, "logprobs": True}
    for fields, fits in (
        ({"top_logprobs": 20}, True),
        ({"top_logprobs": 20, "n": 2}, False),
        ({"top_logprobs": 4, "n": 4}, True),
        ({"top_logprobs": 20, "n": 4, "max_tokens": 100}, True),
        ({"top_logprobs": 20, "n": 4, "stream": True}, True),
        ({"n": 4}, True),
    ):
        if fits:
            read_generation(whole | fields, ChatShape, ApiLimits())
        else:
            with refuses(Refused, "openai.value", "12000"):
                read_generation(whole | fields, ChatShape, ApiLimits())
        read_generation(whole | fields, ChatShape, ApiLimits.own(None, 60))


def test_the_assistants_last_message_is_continued(chat, at_home):
    begun = [*MESSAGES, {"role": "assistant", "content": "on the"}]
    answer = chat(messages=begun, max_tokens=12, extra_body={"continue_final_message": True})
    request = GenerationRequest(max_tokens=12)
    result = collect(Session(load(), "speculative", request=request).run(begun))
    assert answer.choices[0].message.content == result.text
    assert answer.usage.prompt_tokens == len(result.prompt_ids)
    turn = chat(messages=[*begun, MESSAGES[0]], max_tokens=1).usage.prompt_tokens
    assert turn > answer.usage.prompt_tokens > chat(max_tokens=1).usage.prompt_tokens


def test_completions_take_lists_of_prompts_and_token_ids(client):
    ask = partial(client.completions.create, model="tiny", max_tokens=8, temperature=0)
    prompts = ["the cat", "a hat and", "the mat"]
    alone = [ask(prompt=prompt, extra_body={"return_token_ids": True}) for prompt in prompts]
    together = ask(prompt=prompts, n=2)
    assert [choice.index for choice in together.choices] == list(range(6))
    assert [choice.text for choice in together.choices] == [
        one.choices[0].text for one in alone for _ in range(2)
    ]
    assert together.usage.prompt_tokens == sum(one.usage.prompt_tokens for one in alone)
    assert together.usage.completion_tokens == 2 * sum(one.usage.completion_tokens for one in alone)
    ids = [one.choices[0].prompt_token_ids for one in alone]
    assert [len(one.choices[0].token_ids) for one in alone] == [8] * 3
    assert [choice.text for choice in ask(prompt=ids).choices] == [one.choices[0].text for one in alone]
    assert ask(prompt=ids[0]).choices[0].text == alone[0].choices[0].text
    chunks = list(ask(prompt=prompts, stream=True))
    for i, one in enumerate(alone):
        streamed = "".join(c.choices[0].text for c in chunks if c.choices[0].index == i)
        assert streamed == one.choices[0].text


def test_an_echo_has_the_log_probabilities_of_the_prompt(client):
    ask = partial(client.completions.create, model="tiny", temperature=0, logprobs=2)
    written = ask(prompt="the cat", max_tokens=70, extra_body={"return_token_ids": True}).choices[0]
    ids = [*written.prompt_token_ids, *written.token_ids]
    for most in (0, 1):
        echo = ask(prompt=ids, max_tokens=most, echo=True)
        found = echo.choices[0].logprobs
        before = len(written.prompt_token_ids)
        assert echo.usage.completion_tokens == most and len(found.tokens) == len(ids) + most
        assert found.token_logprobs[0] is None and found.top_logprobs[0] is None
        assert found.token_logprobs[before : len(ids)] == pytest.approx(
            written.logprobs.token_logprobs, abs=1e-4
        )
        assert found.token_sources[: len(ids)] == ["prompt"] * len(ids)
        for token, own, top in zip(found.tokens[1:], found.token_logprobs[1:], found.top_logprobs[1:]):
            assert top[token] == own
        assert all(
            found.top_logprobs[i][found.tokens[i]] == max(found.top_logprobs[i].values())
            for i in range(before, len(ids))
        )  # greedy, as the harness checks
    text = ask(prompt="the cat", max_tokens=2, echo=True, logprobs=None).choices[0].text
    assert text.startswith("the cat") and len(text) > len("the cat")


@pytest.mark.parametrize("prompt", [[], [""], [[]], [["a"]], [1, "a"], "", [True], {"a": 1}])
def test_other_prompts_are_refused(prompt):
    with pytest.raises(Refused) as refused:
        read_generation({"prompt": prompt}, CompletionShape, ApiLimits())
    assert refused.value.values["field"] == "prompt"


def test_more_answers_than_a_request_may_have_are_refused():
    body = {"prompt": ["a"] * 5, "n": 2}
    with pytest.raises(Refused) as refused:
        read_generation(body, CompletionShape, ApiLimits())
    assert refused.value.values["field"] == "prompt"


def get(url, path, **headers):
    request = urllib.request.Request(url.removesuffix("/v1") + path, headers=headers)
    with urllib.request.urlopen(request) as answer:
        return answer.headers, answer.read().decode()


def test_health_version_and_metrics(url, client, chat):
    from specviz import VERSION

    assert json.loads(get(url, "/health")[1]) == {"status": "ok"}
    assert json.loads(get(url, "/version")[1]) == {"version": VERSION}
    with pytest.raises(urllib.error.HTTPError) as refused:
        get(url, "/metrics")
    assert refused.value.code == 401
    key = {"Authorization": "Bearer secret"}
    before = read_metrics(ENGINES["vllm"], get(url, "/metrics", **key)[1])
    found = chat(max_tokens=24).metrics["speculative_decoding"]
    headers, page = get(url, "/metrics", **key)
    after = read_metrics(ENGINES["vllm"], page)
    gained = {name: after[name] - before.get(name, 0) for name in after}
    assert (gained["steps"], gained["drafted"], gained["accepted"]) == (
        found["num_spec_steps"],
        found["num_draft_tokens"],
        found["num_accepted_draft_tokens"],
    )
    places = [value for name, value in gained.items() if name.startswith("accepted_at:")]
    assert sum(places) == gained["accepted"] and headers["content-type"].startswith("text/plain")
    assert 'vllm:num_requests_running{engine="0",model_name="tiny"} 0\n' in page


def test_prometheus_reads_the_page(url, chat):
    parser = pytest.importorskip("prometheus_client.parser")
    chat(max_tokens=4)
    page = get(url, "/metrics", Authorization="Bearer secret")[1]
    families = {family.name: family for family in parser.text_string_to_metric_families(page)}
    counts = families["vllm:e2e_request_latency_seconds"].samples
    buckets = [sample.value for sample in counts if sample.name.endswith("_bucket")]
    total = next(sample.value for sample in counts if sample.name.endswith("_count"))
    assert families["vllm:e2e_request_latency_seconds"].type == "histogram"
    assert buckets == sorted(buckets) and buckets[-1] == total > 0
    assert families["vllm:generation_tokens"].type == "counter"


def test_only_the_pages_that_the_owner_names_may_read_answers(url):
    for origin in (ORIGIN, "http://localhost:3001"):
        request = urllib.request.Request(
            url + "/chat/completions",
            method="OPTIONS",
            headers={
                "Origin": origin,
                "Access-Control-Request-Method": "POST",
                "Access-Control-Request-Headers": "authorization,content-type,x-stainless-os",
            },
        )
        try:
            headers = urllib.request.urlopen(request).headers
        except urllib.error.HTTPError as refused:
            headers = refused.headers
        assert headers.get("access-control-allow-origin") == (origin if origin == ORIGIN else None)
        headers, _ = get(url, "/health", Origin=origin)
        assert headers.get("access-control-allow-origin") == (origin if origin == ORIGIN else None)


def test_proxies_are_told_not_to_hold_a_stream_back(url):
    body = json.dumps({"messages": MESSAGES, "max_tokens": 2, "stream": True}).encode()
    request = urllib.request.Request(
        url + "/chat/completions",
        body,
        {"Authorization": "Bearer secret", "Content-Type": "application/json"},
    )
    headers = urllib.request.urlopen(request).headers
    assert headers["x-accel-buffering"] == "no" and "no-cache" in headers["cache-control"]


def test_a_pause_is_filled_with_comments_and_nothing_is_lost():
    async def run():
        ready = asyncio.Event()
        closed = []

        async def chunks():
            try:
                yield 1
                await ready.wait()
                yield 2
                raise Refused("run.silent")
            finally:
                closed.append(True)

        seen = []
        try:
            async for one in with_pauses(chunks(), 0.01):
                seen.append(one)
                if one is None:
                    ready.set()
        except Refused as why:
            seen.append(why.code)
        stopped = with_pauses(chunks(), 0.01)
        ready.clear()
        first = [await anext(stopped), await anext(stopped)]
        await stopped.aclose()
        return seen, first, closed

    seen, first, closed = asyncio.run(run())
    assert [one for one in seen if one is not None] == [1, 2, "run.silent"] and None in seen
    assert first == [1, None] and len(closed) == 2
    shape = ChatShape("tiny", "")

    async def none():
        yield None

    async def events():
        return [event async for event in shape.events(None, none())]

    assert asyncio.run(events()) == [": keep-alive\n\n"] * 2 + ["data: [DONE]\n\n"]


def test_serve_has_knobs_for_length_time_and_requests_at_once(at_home, monkeypatch):
    from specviz.serve import api_server

    got = []
    monkeypatch.setattr(api_server, "serve_api", lambda *given: got.append(given))
    options = [
        "--parallel",
        "3",
        "--max-tokens",
        "9",
        "--max-seconds",
        "7",
        "--allow-origin",
        "*",
        "--port",
        "0",
    ]
    assert commands.main(["serve", *options]) == 0
    *_, limits, parallel, origins = got[0]
    assert (limits.max_tokens, limits.seconds, parallel, origins) == (9, 7, 3, ("*",))


def test_many_connections_of_ones_own_machine_are_served(url):
    """A harness opens its connections before it sends; a page closes the oldest of so many."""
    place = urlsplit(url)
    opened = [socket.create_connection((place.hostname, place.port), timeout=60) for _ in range(60)]
    try:
        for one in opened:
            one.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert [one.recv(12) for one in opened] == [b"HTTP/1.1 200"] * 60
    finally:
        for one in opened:
            one.close()


def test_a_prompt_counts_as_a_conversation():
    """On a shared page, too: its limit is the one of all turns."""
    most = ApiLimits().characters
    assert most == 40_000
    for kind, body in (
        (ChatShape, lambda text: {"messages": [{"role": "user", "content": text}]}),
        (CompletionShape, lambda text: {"prompt": text}),
    ):
        read_generation(body("x" * most), kind, ApiLimits())
        with pytest.raises(Refused):
            read_generation(body("x" * (most + 1)), kind, ApiLimits())
