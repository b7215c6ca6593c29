"""Other clients of the OpenAI-compatible endpoint, with their real packages where they are installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Literal

import pytest
from pydantic import BaseModel

PROMPT = "the cat sat"
MESSAGES = [{"role": "user", "content": PROMPT}]


class Answer(BaseModel, extra="forbid"):
    """An answer of one field."""

    a: Literal[1, 2]


FORM = {"type": "json_schema", "json_schema": {"name": "a", "schema": Answer.model_json_schema()}}
TOOL = {"type": "function", "function": {"name": "add", "parameters": Answer.model_json_schema()}}


@pytest.fixture
def plain(client):
    """The answer of the openai package."""
    return client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=24, temperature=0)


def counts(details):
    return details["accepted_prediction_tokens"], details["rejected_prediction_tokens"]


class TestLiteLLM:
    @pytest.fixture
    def ask(self, url, monkeypatch):
        monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        litellm = pytest.importorskip("litellm")

        def ask(model="tiny", most=24, **fields):
            return litellm.completion(
                model=f"openai/{model}",
                api_base=url,
                api_key="secret",
                messages=MESSAGES,
                max_tokens=most,
                temperature=fields.pop("temperature", 0),
                **fields,
            )

        return ask

    def test_chat_stream_and_counts_of_draft_tokens(self, ask, plain):
        answer = ask()
        assert answer.choices[0].message.content == plain.choices[0].message.content
        details = plain.usage.completion_tokens_details.model_dump()
        assert counts(answer.usage.completion_tokens_details.model_dump()) == counts(details)
        chunks = list(ask(stream=True, stream_options={"include_usage": True}))
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        assert text == answer.choices[0].message.content
        assert chunks[-1].usage.total_tokens == answer.usage.total_tokens

    def test_tools_schema_and_log_probabilities(self, ask):
        call = ask("tools", 120, tools=[TOOL], tool_choice="required", parallel_tool_calls=False)
        assert call.choices[0].message.tool_calls[0].function.name == "add"
        assert Answer.model_validate_json(ask(most=60, response_format=FORM).choices[0].message.content)
        logprobs = ask(logprobs=True, top_logprobs=2).choices[0].logprobs.content
        assert len(logprobs) == 24 and len(logprobs[0].top_logprobs) == 2

    def test_errors_have_their_kind(self, ask):
        import litellm

        with pytest.raises(litellm.BadRequestError):
            ask(temperature=-1)
        with pytest.raises(litellm.NotFoundError):
            ask("nope")


class TestLangChain:
    @pytest.fixture
    def chat(self, url):
        models = pytest.importorskip("langchain_openai")

        def chat(model="tiny", most=24, **fields):
            return models.ChatOpenAI(
                model=model,
                base_url=url,
                api_key="secret",
                temperature=0,
                max_tokens=most,
                max_retries=0,
                **fields,
            )

        return chat

    def test_chat_stream_and_counts_of_draft_tokens(self, chat, plain):
        answer = chat().invoke(PROMPT)
        assert answer.content == plain.choices[0].message.content
        details = plain.usage.completion_tokens_details.model_dump()
        assert counts(answer.response_metadata["token_usage"]["completion_tokens_details"]) == counts(details)
        chunks = list(chat(stream_usage=True).stream(PROMPT))
        assert "".join(chunk.content for chunk in chunks) == answer.content
        used = [chunk.usage_metadata for chunk in chunks if chunk.usage_metadata]
        assert [one["output_tokens"] for one in used] == [24]

    def test_tools_schema_and_log_probabilities(self, chat):
        for method in ("function_calling", "json_schema"):
            found = chat("tools", 120).with_structured_output(Answer, method=method).invoke(PROMPT)
            assert isinstance(found, Answer)
        calls = chat("tools", 120).bind_tools([Answer], tool_choice="any").invoke(PROMPT).tool_calls
        assert [call["name"] for call in calls] == ["Answer"]
        tokens = chat().bind(logprobs=True).invoke(PROMPT).response_metadata["logprobs"]["content"]
        assert len(tokens) == 24 and {token["source"] for token in tokens} >= {"draft"}

    def test_errors_have_their_kind(self, chat):
        openai = pytest.importorskip("openai")
        with pytest.raises(openai.NotFoundError):
            chat("nope").invoke(PROMPT)


@pytest.mark.parametrize("mode", ["TOOLS", "JSON_SCHEMA"])
def test_instructor_fills_a_model(client, mode):
    instructor = pytest.importorskip("instructor")
    asking = instructor.from_openai(client, mode=instructor.Mode[mode])
    found = asking.chat.completions.create(
        model="tools", messages=MESSAGES, response_model=Answer, max_retries=0, temperature=0, max_tokens=120
    )
    assert isinstance(found, Answer)


def test_instructor_keeps_the_counts_of_draft_tokens_and_passes_errors_on(client, plain):
    instructor = pytest.importorskip("instructor")
    asking = instructor.from_openai(client, mode=instructor.Mode.JSON_SCHEMA).chat.completions
    fields = {"messages": MESSAGES, "response_model": Answer, "max_retries": 0, "temperature": 0}
    found, answer = asking.create_with_completion(model="tiny", max_tokens=60, **fields)
    details = answer.usage.completion_tokens_details.model_dump()
    assert isinstance(found, Answer) and sum(counts(details)) > 0
    with pytest.raises(Exception, match="nope"):
        asking.create(model="nope", **fields)


def test_the_evaluation_harness_reads_log_probabilities_and_answers(url, tiny, client, plain, monkeypatch):
    models = pytest.importorskip("lm_eval.models.openai_completions")
    from lm_eval.api.instance import Instance

    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    model = models.LocalCompletionsAPI(
        model="tiny",
        base_url=f"{url}/completions",
        tokenizer_backend="huggingface",
        tokenizer=str(tiny / "target"),
        max_length=120,
        batch_size=2,
    )
    pairs = [("the cat", " sat"), ("the cat", " ran"), ("a dog", " sat on")]
    found = model.loglikelihood([Instance("loglikelihood", {}, pair, i) for i, pair in enumerate(pairs)])
    for (context, following), (log_prob, greedy) in zip(pairs, found):
        tokens = model.tok_encode(context + following, add_special_tokens=False)
        start = len(model.tok_encode(context, add_special_tokens=False))
        echo = client.completions.create(
            model="tiny", prompt=tokens, max_tokens=0, echo=True, logprobs=1, temperature=0
        )
        own = echo.choices[0].logprobs.token_logprobs[start:]
        assert log_prob == pytest.approx(sum(own), abs=1e-3) and isinstance(greedy, bool)
    until = {"until": ["\n\n\n"], "max_gen_toks": 24, "temperature": 0}
    written = model.generate_until([Instance("generate_until", {}, (PROMPT, until), 0)])
    answer = client.completions.create(
        model="tiny", prompt=PROMPT, max_tokens=24, temperature=0, stop=until["until"]
    )
    assert written == [answer.choices[0].text]


@pytest.mark.thorough
def test_llm_answers_streams_follows_a_schema_and_reports_an_unknown_model(url, plain, tmp_path):
    pytest.importorskip("llm")
    (tmp_path / "extra-openai-models.yaml").write_text(
        "".join(
            f"- model_id: my-{name}\n  model_name: {name}\n  api_base: {url}\n  api_key_name: my\n  supports_schema: true\n"
            for name in ("tiny", "tools", "nope")
        )
    )
    (tmp_path / "keys.json").write_text('{"my": "secret"}')
    environment = os.environ | {"LLM_USER_PATH": str(tmp_path), "PYTHONWARNINGS": "ignore"}

    def ask(model: str, *options: str, most: int = 24):
        words = ["-m", model, "-o", "temperature", "0", "-o", "max_tokens", str(most)]
        return subprocess.run(
            [sys.executable, "-m", "llm", "prompt", PROMPT, *words, *options],
            env=environment,
            capture_output=True,
            text=True,
        )

    expected = plain.choices[0].message.content.rstrip("\n")
    for options in ((), ("--no-stream",)):
        found = ask("my-tiny", *options)
        assert found.returncode == 0, found.stderr
        assert found.stdout.rstrip("\n") == expected
    details = plain.usage.completion_tokens_details.model_dump()
    used = ask("my-tiny", "-u").stderr
    assert f'"accepted_prediction_tokens": {details["accepted_prediction_tokens"]}' in used, used
    schema = json.dumps(Answer.model_json_schema())
    Answer.model_validate_json(ask("my-tools", "--schema", schema, most=120).stdout)
    wrong = ask("my-nope")
    assert wrong.returncode == 1 and "nope" in wrong.stderr
