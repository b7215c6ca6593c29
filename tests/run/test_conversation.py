"""Chat templates with tools and thinking: rendered as the template has them, refused where it does not read
them."""

from __future__ import annotations

import json

import pytest

from specviz.run import Session, SessionError
from specviz.run.conversation import MOST_TOOLS
from specviz.run.request import GenerationRequest
from specviz.zoo.tokenizer import generation_defaults

from .fakes import TEMPLATE, FakeLoaded, byte_level

TOOLS = [
    {
        "type": "function",
        "function": {"name": "add", "description": "sum <|end|> of two", "parameters": {"type": "object"}},
    }
]
TOOL_TEMPLATE = (
    "{% if tools %}<|system|>{{ tools | tojson }}<|end|>{% endif %}"
    "{% for m in messages %}<|{{ 'user' if m.role == 'tool' else m.role }}|>{{ m.content }}"
    "{% if m.tool_calls %}{{ m.tool_calls | tojson }}{% endif %}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% if enable_thinking %}<think>{% endif %}{% endif %}"
)
TURNS = [
    {"role": "user", "content": "1 + 1"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"type": "function", "function": {"name": "add", "arguments": {"a": 1}}}],
    },
    {"role": "tool", "content": "2", "tool_call_id": "x"},
]


@pytest.fixture
def loaded():
    found = FakeLoaded(context=1024)
    found.tokenizer.chat_template = TOOL_TEMPLATE
    yield found
    found.tokenizer.chat_template = TEMPLATE


def prompt_of(loaded, messages, **fields):
    return Session(loaded, "autoregressive", request=GenerationRequest(**fields)).encode(messages)


def test_tools_calls_and_thinking_are_rendered_as_the_template_has_them(loaded):
    tools = [{"type": "function", "function": {"name": "add"}}]
    for fields in (
        {},
        {"tools": tools},
        {"enable_thinking": True},
        {"enable_thinking": False, "tools": tools},
    ):
        messages = [{**m, "content": m["content"] or ""} for m in TURNS]
        shown = loaded.tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=False, **fields
        )
        assert prompt_of(loaded, TURNS, **fields) == loaded.tokenizer.encode(shown, add_special_tokens=False)


def test_a_control_token_in_a_tool_stays_text(loaded):
    ends = [
        prompt_of(loaded, TURNS, tools=tools).count(loaded.tokenizer.eos_token_id)
        for tools in (TOOLS, json.loads(json.dumps(TOOLS).replace("<|end|>", "")))
    ]
    assert ends == [4, 4]


def test_what_the_template_does_not_read_is_refused_by_name():
    for fields in ({"tools": TOOLS}, {"enable_thinking": False}):
        with pytest.raises(SessionError) as refused:
            prompt_of(FakeLoaded(), TURNS[:1], **fields)
        assert refused.value.code == f"request.{next(iter(fields))}"


def test_a_raw_prompt_takes_no_tools(loaded):
    with pytest.raises(SessionError) as refused:
        Session(loaded, "autoregressive", request=GenerationRequest(tools=TOOLS)).encode("x", raw=True)
    assert refused.value.code == "request.tools"


@pytest.mark.parametrize(
    "tools",
    [
        3,
        [3],
        [{"type": "function"}],
        TOOLS * (MOST_TOOLS + 1),
        [{"type": "function", "function": {"name": 1}}],
        [{"type": "function", "function": {"name": "x" * 70_000}}],
    ],
)
def test_tools_are_bounded_and_checked(tools):
    with pytest.raises(SessionError) as refused:
        GenerationRequest(tools=tools)
    assert refused.value.code == "request.tools"


@pytest.mark.parametrize(
    "given, want",
    [
        (
            {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "do_sample": True},
            {"temperature": 0.6, "top_p": 0.95, "top_k": 20},
        ),
        ({"do_sample": False, "temperature": 0.6}, {"temperature": 0.0}),
        ({"temperature": "hot", "top_k": 2.5, "repetition_penalty": 1.1}, {"repetition_penalty": 1.1}),
        ({}, {}),
    ],
)
def test_a_models_own_sampling_settings_are_read(tmp_path, given, want):
    (tmp_path / "generation_config.json").write_text(json.dumps(given))
    assert generation_defaults(tmp_path) == want


def test_the_default_tokenizer_is_untouched():
    assert byte_level().chat_template == TEMPLATE
