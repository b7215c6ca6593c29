"""The OpenAI-compatible endpoint, with the real ``openai`` package as its client."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from functools import partial
from importlib.util import find_spec

import pytest

from specviz.core import Sampling
from specviz.engine.generation import token_name
from specviz.run import Session, collect
from specviz.serve.openai_formats import _by_name
from specviz.trace.files import Trace
from specviz.zoo import load

openai = pytest.importorskip("openai")
MESSAGES = [{"role": "user", "content": "the cat sat"}]
ADD = [
    {
        "type": "function",
        "function": {
            "name": "add",
            "parameters": {
                "type": "object",
                "properties": {"a": {"enum": [1, 2]}},
                "required": ["a"],
                "additionalProperties": False,
            },
        },
    }
]


def expected(at_home, **fields):
    from specviz.run.request import GenerationRequest

    return collect(Session(load(), "speculative", request=GenerationRequest(**fields)).run(MESSAGES))


def test_models_are_listed(client):
    names = [model.id for model in client.models.list()]
    assert names[0] == "tiny" and client.models.retrieve("tiny").object == "model"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("nope")
    # What is not on this machine is not listed; it may be requested, and then the hub must answer.
    assert sorted(names) == ["tiny", "tools"] and client.models.retrieve("far").id == "far"
    with pytest.raises(openai.InternalServerError) as error:
        client.chat.completions.create(model="far", messages=MESSAGES)
    assert (error.value.status_code, error.value.code) == (503, "hub.unreachable")


def test_a_chat_answer_is_the_engines_own_and_its_trace_can_be_opened(client, at_home):
    answer = client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=12, temperature=0)
    result = expected(at_home, max_tokens=12)
    choice = answer.choices[0]
    assert (choice.message.role, choice.message.content, choice.finish_reason) == (
        "assistant",
        result.text,
        "length",
    )
    usage = answer.usage
    assert (usage.prompt_tokens, usage.completion_tokens) == (
        len(result.prompt_ids),
        12,
    ) and usage.total_tokens == usage.prompt_tokens + 12
    figures = answer.speculative
    assert figures["method"] == "speculative" and figures["passes"] == result.totals.rounds
    assert figures["mean_accepted_length"] == pytest.approx(result.metrics()["block_efficiency"])
    trace = Trace.load(urllib.request.urlopen(figures["trace"]).read())
    assert trace.text() == result.text and trace.header()["method"]["key"] == "speculative"


def test_a_stream_is_the_same_text_in_pieces(client, at_home):
    whole = client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=12, temperature=0)
    chunks = list(
        client.chat.completions.create(
            model="tiny",
            messages=MESSAGES,
            max_tokens=12,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    assert (
        "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        == whole.choices[0].message.content
    )
    assert chunks[0].choices[0].delta.role == "assistant" and chunks[-2].choices[0].finish_reason == "length"
    assert (
        chunks[-1].usage == whole.usage
        and not chunks[-1].choices
        and chunks[-2].speculative["trace"].endswith(".jsonl")
    )


@pytest.mark.parametrize(
    "method, knobs", [("autoregressive", {}), ("prompt_lookup", {}), ("speculative", {"gamma": 2})]
)
def test_the_method_and_its_knobs_are_chosen_in_the_body(client, method, knobs):
    answer = client.chat.completions.create(
        model="tiny",
        messages=MESSAGES,
        max_tokens=8,
        temperature=0,
        extra_body={"speculative": {"method": method, "knobs": knobs}},
    )
    plain = client.chat.completions.create(
        model="tiny",
        messages=MESSAGES,
        max_tokens=8,
        temperature=0,
        extra_body={"speculative": {"method": "autoregressive"}},
    )
    assert answer.speculative["method"] == method and knobs.items() <= answer.speculative["knobs"].items()
    assert answer.choices[0].message.content == plain.choices[0].message.content


def test_completions_stops_logprobs_and_several_answers(client, at_home):
    raw = client.completions.create(model="tiny", prompt="the cat", max_tokens=10, temperature=0, logprobs=2)
    result = collect(Session(load(), "speculative", None, Sampling()).run("the cat", 10, raw=True))
    choice = raw.choices[0]
    assert (
        choice.text == result.text
        and len(choice.logprobs.token_logprobs) == 10
        and max(choice.logprobs.token_logprobs) <= 0
    )
    offsets, tokens = choice.logprobs.text_offset, choice.logprobs.tokens
    assert (
        all(
            choice.text[at:].startswith(token)
            for at, token in zip(offsets, tokens)
            if token.isascii() and "|" not in token and not token.startswith("bytes:")
        )
        and offsets[-1] > 0
    )
    pieces = client.completions.create(
        model="tiny", prompt="the cat", max_tokens=10, temperature=0, logprobs=2, stream=True
    )
    assert [
        at for piece in pieces if piece.choices[0].logprobs for at in piece.choices[0].logprobs.text_offset
    ] == offsets
    full = client.completions.create(model="tiny", prompt="\u732b", max_tokens=20, temperature=0, logprobs=20)
    tops = full.choices[0].logprobs.top_logprobs
    assert [len(top) for top in tops] == [20] * 20 and any("bytes:\\x" in key for top in tops for key in top)
    assert not any("\ufffd" in key for top in tops for key in top)
    stop = "mat"
    cut = client.completions.create(model="tiny", prompt="the cat", max_tokens=10, temperature=0, stop=[stop])
    assert (
        cut.choices[0].text == result.text[: result.text.index(stop)]
        and cut.choices[0].finish_reason == "stop"
    )
    two = client.chat.completions.create(
        model="tiny",
        messages=MESSAGES,
        max_tokens=6,
        temperature=1,
        seed=5,
        n=2,
        logprobs=True,
        top_logprobs=3,
    )
    assert [c.index for c in two.choices] == [0, 1] and two.usage.completion_tokens == 12
    assert all(
        len(c.logprobs.content) == 6 and len(c.logprobs.content[0].top_logprobs) == 3 for c in two.choices
    )
    again = client.chat.completions.create(
        model="tiny", messages=MESSAGES, max_tokens=6, temperature=1, seed=5, n=2
    )
    assert [c.message.content for c in again.choices] == [c.message.content for c in two.choices]


def test_alternatives_of_one_text_are_all_named():
    tops = [{"id": i, "token": token, "logprob": -i} for i, token in enumerate(["a", "b", "a", "a"])]
    assert _by_name(tops) == {"a": 0, "b": -1, "token_id:2": -2, "token_id:3": -3}
    assert [token_name(data) for data in (b"", "\u732b".encode(), b"\xe7\x8c")] == [
        "",
        "\u732b",
        r"bytes:\xe7\x8c",
    ]


@pytest.mark.parametrize(
    "given, kind, code",
    [
        ({"model": "nope"}, openai.NotFoundError, "openai.model"),
        ({"messages": []}, openai.BadRequestError, "openai.messages"),
        ({"messages": [{"role": "system", "content": "x"}]}, openai.BadRequestError, "openai.messages"),
        ({"max_tokens": 2**21}, openai.BadRequestError, "openai.value"),
        ({"temperature": -1}, openai.BadRequestError, None),
        (
            {"tools": [{"type": "function", "function": {"name": "f"}}]},
            openai.BadRequestError,
            "request.tools",
        ),
        (
            {"extra_body": {"chat_template_kwargs": {"enable_thinking": True}}},
            openai.BadRequestError,
            "request.enable_thinking",
        ),
        ({"extra_body": {"chat_template_kwargs": {"other": True}}}, openai.BadRequestError, "openai.value"),
        ({"tool_choice": "auto"}, openai.BadRequestError, "request.tool_choice_tools"),
        ({"tools": ADD, "tool_choice": "required"}, openai.BadRequestError, "request.tools"),
        (
            {"tools": ADD, "tool_choice": {"type": "function", "function": {"name": "sub"}}},
            openai.BadRequestError,
            "request.tool_choice_name",
        ),
        ({"extra_body": {"parallel_tool_calls": "x"}}, openai.BadRequestError, "openai.value"),
        ({"extra_body": {"web_search_options": {"x": 1}}}, openai.BadRequestError, "openai.field"),
        ({"max_tokens": 0}, openai.BadRequestError, "openai.value"),
        ({"extra_body": {"max_completion_tokens": 0}}, openai.BadRequestError, "openai.value"),
        ({"extra_body": {"logprobs": 5}}, openai.BadRequestError, "openai.value"),
        ({"top_logprobs": 2}, openai.BadRequestError, "openai.value"),
        ({"extra_body": {"prompt": "x"}}, openai.BadRequestError, "openai.field"),
        ({"extra_body": {"stream_options": ["include_usage"]}}, openai.BadRequestError, "openai.value"),
        ({"extra_body": {"stream": "yes"}}, openai.BadRequestError, "openai.value"),
        (
            {"messages": [{"role": "user", "content": "x", "weight": 1}]},
            openai.BadRequestError,
            "openai.field",
        ),
        (
            {"response_format": {"type": "json_object", "schema": {"type": "object"}}},
            openai.BadRequestError,
            "format.unknown",
        ),
        ({"extra_body": {"speculative": {"method": "nope"}}}, openai.BadRequestError, "field.method"),
        (
            {"extra_body": {"speculative": {"method": "speculative", "knobs": {"gamma": 10**6}}}},
            openai.BadRequestError,
            "field.knob",
        ),
        ({"extra_body": {"speculative": 3}}, openai.BadRequestError, "openai.value"),
        ({"extra_body": {"model": []}}, openai.NotFoundError, "openai.model"),
        ({"extra_body": {"model": 0}}, openai.NotFoundError, "openai.model"),
        (
            {"messages": [{"role": "user", "content": "x", "name": 5}]},
            openai.BadRequestError,
            "openai.messages",
        ),
        ({"extra_body": {"stop": [["x"]]}}, openai.BadRequestError, None),
        ({"messages": [{"role": "user", "content": "x" * 100_000}]}, openai.APIStatusError, "size.text"),
        (
            {"messages": [{"role": "user", "content": "x" * 10_000}] * 400},
            openai.APIError,
            None,
        ),  # more than a request may hold
        ({"messages": [{"role": "user", "content": "x"}] * 2_000}, openai.BadRequestError, "openai.messages"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_errors_have_openais_form(client, given, kind, code, stream):
    with pytest.raises(kind) as refused:
        client.chat.completions.create(
            **({"model": "tiny", "messages": MESSAGES, "max_tokens": 4, "stream": stream} | given)
        )
    assert code is None or refused.value.code == code


@pytest.mark.parametrize(
    "given, param",
    [
        ({"extra_body": {"top_k": "x"}}, "top_k"),
        ({"extra_body": {"tool_choice": "auto"}}, "tool_choice"),
        ({"extra_body": {"speculative": {"method": "specultive"}}}, "speculative"),
        ({"extra_body": {"model": "nope"}}, "model"),
        ({"messages": []}, "messages"),
        ({"stop": ""}, "stop"),
    ],
)
def test_an_error_names_its_field(client, given, param):
    with pytest.raises(openai.APIStatusError) as refused:
        client.chat.completions.create(**({"model": "tiny", "messages": MESSAGES, "max_tokens": 4} | given))
    assert refused.value.param == param
    if param == "speculative":
        assert " speculative," in str(refused.value) and len(str(refused.value)) < 400


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "add"}}])
def test_a_required_tool_call_comes_back_as_one_whole_and_streamed(client, choice):
    ask = partial(
        client.chat.completions.create,
        model="tools",
        messages=MESSAGES,
        max_tokens=120,
        temperature=0,
        tools=ADD,
    )
    answer = ask(tool_choice=choice).choices[0]
    call = answer.message.tool_calls[0]
    assert (
        answer.finish_reason == "tool_calls"
        and answer.message.content is None
        and call.type == "function"
        and call.id
    )
    assert call.function.name == "add" and json.loads(call.function.arguments)["a"] in (1, 2)
    chunks = list(ask(tool_choice=choice, stream=True))
    deltas = [part for chunk in chunks for part in chunk.choices[0].delta.tool_calls or ()]
    assert [(part.index, part.function.arguments) for part in deltas] == [(0, call.function.arguments)]
    assert chunks[-1].choices[0].finish_reason == "tool_calls" and not any(
        chunk.choices[0].delta.content for chunk in chunks
    )
    turns = [
        *MESSAGES,
        {"role": "assistant", "tool_calls": [call.model_dump()]},
        {"role": "tool", "content": "2", "tool_call_id": call.id},
    ]
    assert ask(messages=turns, tool_choice="none").choices[0].message.tool_calls is None
    assert ask(tool_choice="auto").choices[0].message.content


def test_the_figures_of_several_answers_are_added(client):
    ask = partial(
        client.chat.completions.create, model="tiny", messages=MESSAGES, max_tokens=6, temperature=1
    )
    two, alone = ask(n=2, seed=5), [ask(seed=seed).speculative for seed in (5, 6)]
    assert (
        two.speculative["passes"] == sum(one["passes"] for one in alone)
        and two.speculative["request"]["seed"] == 5
    )
    assert two.speculative["mean_accepted_length"] == pytest.approx(12 / two.speculative["passes"])
    streamed = list(ask(n=2, seed=5, stream=True, stream_options={"include_usage": True}))
    assert streamed[-1].usage.completion_tokens == 12


@pytest.mark.parametrize("seed", [None, 5])
def test_a_chosen_seed_fixes_an_answer_of_a_method_that_decides_by_time(client, seed):
    """It then reads no measured time, so neither load nor other requests change the answer."""
    answer = client.chat.completions.create(
        model="tiny",
        messages=MESSAGES,
        max_tokens=8,
        temperature=1,
        seed=seed,
        extra_body={"speculative": {"method": "cost_ratio"}},
    )
    trace = Trace.load(urllib.request.urlopen(answer.speculative["trace"]).read())
    assert trace.header()["deterministic"] is (seed is not None)


def test_a_malformed_body_is_refused_in_openais_form(url):
    for body in (b"{", b"[]", b"\xff"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(
                urllib.request.Request(
                    url + "/chat/completions", data=body, headers={"Authorization": "Bearer secret"}
                )
            )
        assert json.loads(refused.value.read())["error"]["code"] == "http.malformed"


def test_a_key_is_needed_and_nothing_else_is_served(url):
    for key in ("", "other", "secre"):
        with pytest.raises(openai.AuthenticationError) as refused:
            openai.OpenAI(base_url=url, api_key=key or "x", max_retries=0).models.list()
        assert refused.value.code == "openai.key"
    for path in ("/v1/traces/nope.jsonl", "/v1/nothing", "/"):
        with pytest.raises(urllib.error.HTTPError) as missing:
            urllib.request.urlopen(url.removesuffix("/v1") + path)
        assert missing.value.code == 404


def test_requests_that_come_together_are_batched_and_answered_as_alone(client):
    from concurrent.futures import ThreadPoolExecutor

    prompts = ["the cat sat", "the mat", "a hat and a cat", "sat"]

    def ask(prompt, method="speculative"):
        return client.chat.completions.create(
            model="tiny",
            messages=[{"role": "user", "content": prompt}],
            max_tokens=40,
            temperature=0,
            extra_body={"speculative": {"method": method}},
        )

    alone = [ask(prompt).choices[0].message.content for prompt in prompts]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(ask, prompts))
        unbatched = list(pool.map(lambda prompt: ask(prompt, "pearl"), prompts))
    for answers in (together, unbatched):
        assert [answer.choices[0].message.content for answer in answers] == alone
    assert (
        max(answer.speculative["batch"] for answer in together)
        > 1
        == max(answer.speculative["batch"] for answer in unbatched)
    )


def test_a_conversation_reuses_its_cache_and_tells_the_time_to_the_first_token(client):
    first = client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=8, temperature=0)
    messages = [
        *MESSAGES,
        {"role": "assistant", "content": first.choices[0].message.content},
        {"role": "user", "content": "and the mat"},
    ]
    again = client.chat.completions.create(model="tiny", messages=messages, max_tokens=8, temperature=0)
    other = openai.OpenAI(
        base_url=client.base_url,
        api_key="secret",
        max_retries=0,
        default_headers={"Authorization": "Bearer other"},
    )
    assert (
        again.usage.prompt_tokens_details.cached_tokens >= first.usage.prompt_tokens - 1
        and again.speculative["time_to_first_token"] > 0
    )
    salted = [
        client.chat.completions.create(
            model="tiny", messages=messages, max_tokens=8, temperature=0, extra_body={"cache_salt": salt}
        )
        for salt in ("a", "a", "b")
    ]
    found = [
        one.usage.prompt_tokens_details is not None for one in salted
    ]  # each salt has a cache of its own
    assert found == [False, True, False]
    assert {one.choices[0].message.content for one in salted} == {again.choices[0].message.content}
    with pytest.raises(openai.AuthenticationError):
        other.chat.completions.create(model="tiny", messages=messages, max_tokens=8)


@pytest.mark.skipif(not find_spec("llm"), reason="the package llm is not installed")
@pytest.mark.parametrize("stream", [False, True])
def test_the_llm_command_line_is_a_client(url, client, tmp_path, stream):
    (tmp_path / "extra-openai-models.yaml").write_text(
        json.dumps([{"model_id": "local", "model_name": "tiny", "api_base": url, "api_key_name": "specviz"}])
    )
    (tmp_path / "keys.json").write_text(json.dumps({"specviz": "secret"}))
    command = [
        sys.executable,
        "-m",
        "llm",
        "-m",
        "local",
        MESSAGES[0]["content"],
        "-o",
        "temperature",
        "0",
        "-o",
        "max_tokens",
        "12",
        "--no-log",
    ]
    said = subprocess.run(
        [*command, *([] if stream else ["--no-stream"])],
        env={**os.environ, "LLM_USER_PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    own = client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=12, temperature=0)
    assert said.returncode == 0, said.stderr
    assert said.stdout.removesuffix("\n") == own.choices[0].message.content


def test_a_chat_clients_answer_is_opened_and_watched_on_the_page(visit, at_home, monkeypatch):
    from specviz.engine import Engine

    from ..ui.conftest import Server

    monkeypatch.setenv("SPECVIZ_OPENAI_API", "1")
    monkeypatch.setenv("SPECVIZ_API_KEYS", "k")
    server = Server(Engine())
    try:
        client = openai.OpenAI(base_url=server.url + "v1", api_key="k", max_retries=0)
        answer = client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=6, temperature=0)
        page = visit(url=answer.speculative["page"])
        page.wait_for_function("SpecVizPage.board().trace()[0]?.prompt?.text === 'the cat sat'")
        written = page.evaluate(
            "SpecVizPage.board().trace().filter((r) => r.type === 'text').flatMap((r) => r.pieces).length"
        )
        assert written == answer.usage.completion_tokens
        page.close()
    finally:
        server.close()


def test_the_page_serves_it_where_its_owner_switches_it_on(at_home, monkeypatch):
    from specviz.engine import Engine

    from ..ui.conftest import Server

    for on in ("", "1"):
        monkeypatch.setenv("SPECVIZ_OPENAI_API", on)
        monkeypatch.setenv("SPECVIZ_API_KEYS", "k")
        server = Server(Engine())
        try:
            client = openai.OpenAI(base_url=server.url + "v1", api_key="k", max_retries=0)
            if on:
                answer = client.chat.completions.create(
                    model="tiny", messages=MESSAGES, max_tokens=4, temperature=0
                )
                assert answer.usage.completion_tokens == 4
            else:
                with pytest.raises(openai.NotFoundError):
                    client.models.list()
        finally:
            server.close()


def test_a_client_that_leaves_the_queue_costs_nothing(at_home):
    """Its request ends while it waits: no model is loaded for it and nothing is run."""
    from specviz.engine.engine_job import EngineJob
    from specviz.engine.limits import RunQueue
    from specviz.serve.openai_api import Departure, watched

    left, queue, ran = Departure(), RunQueue(), []
    queue.ahead(queue.enter("before"))
    gone = [False]

    class Request:
        async def is_disconnected(self):
            return gone[0]

    async def ask():
        job = EngineJob(queue, lambda stop: ran.append(1) or iter(()))
        left.ends(job.stop)
        parts = job.stream()
        with watched(Request(), left):
            assert isinstance(await anext(parts), str)  # it waits
            gone[0] = True
            return [part async for part in parts]

    assert asyncio.run(ask()) == [] and left.gone and not ran and len(queue._tickets) == 1
