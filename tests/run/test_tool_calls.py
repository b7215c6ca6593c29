"""Tool calls: an answer that must be one is one, in the template's format and whatever drafts; a call in an
answer is found."""

from __future__ import annotations

import json

import pytest
from tokenizers import AddedToken

from specviz.run import Session, SessionError, collect
from specviz.run.request import GenerationRequest
from specviz.run.tool_calls import BEGIN, END, CallReader

from .fakes import TEMPLATE, FakeLoaded, with_tokens

BARE = "{% if tools %}{{ tools | tojson }}{% endif %}" + TEMPLATE
TAGGED = "{% if tools %}<tool_call>{{ tools | tojson }}{% endif %}" + TEMPLATE
WRITTEN = (  # a template that shows its own form of a call, as Llama 3.1's
    "{% for m in messages %}{% for c in m.tool_calls or [] %}"
    """{"name": "{{ c.function.name }}", "parameters": {{ c.function.arguments | tojson }}}"""
    "{% endfor %}{% endfor %}"
)
LEAF = {
    "type": "object",
    "properties": {"a": {"enum": [1, 2]}, "to": {"$ref": "#/$defs/unit"}},
    "required": ["a", "to"],
    "additionalProperties": False,
    "$defs": {"unit": {"enum": ["m", "km"]}},
}
TOOLS = [
    {"type": "function", "function": {"name": "add", "parameters": LEAF}},
    {"type": "function", "function": {"name": 'say "hi"'}},
]
ADD = {"type": "function", "function": {"name": "add"}}


@pytest.fixture(params=[BARE, TAGGED, BARE + WRITTEN, TAGGED + WRITTEN])
def loaded(request):
    found = with_tokens(context=1024)
    found.tokenizer.chat_template = request.param
    return found


@pytest.mark.parametrize("method", ["autoregressive", "speculative", "grammar_forced", "draft_tree"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_required_call_comes_in_the_templates_format(loaded, method, temperature):
    tagged = TAGGED in loaded.tokenizer.chat_template
    key = "parameters" if WRITTEN in loaded.tokenizer.chat_template else "arguments"
    request = GenerationRequest(tools=TOOLS, tool_choice=ADD, temperature=temperature, max_tokens=200)
    result = collect(Session(loaded, method, request=request).run("the cat"))
    reader = CallReader(TOOLS, tagged)
    assert (
        reader.take(result.text) == ""
        and result.text.startswith("<tool_call>\n{" if tagged else "{")
        and result.finish_reason == "stop"
        and f'"add", "{key}": {{' in result.text
    )
    rest, calls = reader.close()
    arguments = json.loads(calls[0]["arguments"])
    assert (
        not rest
        and [call["name"] for call in calls] == ["add"]
        and arguments["a"] in (1, 2)
        and arguments["to"] in ("m", "km")
    )
    if temperature == 0:
        assert result.text == collect(Session(loaded, "autoregressive", request=request).run("the cat")).text


@pytest.mark.parametrize("special", [True, False])
@pytest.mark.parametrize("method", ["autoregressive", "speculative", "grammar_forced", "draft_tree"])
def test_tags_of_the_vocabulary_are_written_and_read(special, method):
    """The model was trained on the token, so it is written as one; the reader of calls sees its text."""
    loaded = with_tokens(AddedToken(BEGIN, special=special), AddedToken(END, special=special), context=1024)
    loaded.tokenizer.chat_template = TAGGED
    begin, end = loaded.tokenizer.convert_tokens_to_ids([BEGIN, END])
    for temperature in (0.0, 1.0):
        request = GenerationRequest(
            tools=TOOLS, tool_choice="required", temperature=temperature, max_tokens=200
        )
        result = collect(Session(loaded, method, request=request).run("the cat"))
        assert (result.token_ids[0], result.token_ids[-2]) == (begin, end)
        reader = CallReader(TOOLS, True)
        assert reader.take(result.text) == "" and len(reader.close()[1]) == 1


def test_none_leaves_the_tools_out_of_the_prompt_and_auto_changes_nothing(loaded):
    def prompt(**fields):
        return Session(loaded, "autoregressive", request=GenerationRequest(**fields)).encode("the cat")

    assert (
        prompt(tools=TOOLS, tool_choice="none")
        == prompt()
        != prompt(tools=TOOLS)
        == prompt(tools=TOOLS, tool_choice="auto")
    )


@pytest.mark.parametrize(
    "fields, code",
    [
        ({"tool_choice": "required"}, "request.tool_choice_tools"),
        ({"tool_choice": "any", "tools": TOOLS}, "request.tool_choice"),
        ({"tool_choice": {"type": "function"}, "tools": TOOLS}, "request.tool_choice"),
        ({"tool_choice": 3, "tools": TOOLS}, "request.tool_choice"),
        (
            {"tool_choice": {"type": "function", "function": {"name": "no"}}, "tools": TOOLS},
            "request.tool_choice_name",
        ),
        (
            {"tool_choice": "required", "tools": TOOLS, "response_format": {"type": "json_object"}},
            "request.tool_choice_format",
        ),
        ({"tool_choice": "required", "tools": TOOLS, "ignore_eos": True}, "request.ignore_eos"),
        ({"tools": [{"type": "function", "function": {"name": "x", "parameters": [1]}}]}, "request.tools"),
    ],
)
def test_a_choice_that_cannot_be_kept_is_refused_by_name(fields, code):
    with pytest.raises(SessionError) as refused:
        GenerationRequest(**fields)
    assert refused.value.code == code


def test_a_method_that_writes_unverified_tokens_refuses_a_required_call(loaded):
    with pytest.raises(SessionError) as refused:
        Session(loaded, "fastcot", request=GenerationRequest(tools=TOOLS, tool_choice="required"))
    assert refused.value.code == "request.response_format_unchecked"


CALL = '{"name": "add", "arguments": {"a": 1}}'


@pytest.mark.parametrize(
    "text, tagged, shown, count",
    [
        (f"Well: <tool_call>\n{CALL}\n</tool_call>", True, "Well: ", 1),
        (f"<tool_call>{CALL}</tool_call>\n<tool_call>{CALL}</tool_call>", True, "", 2),
        (CALL, False, "", 1),
        (f" {CALL}", False, "", 1),
        ("1 < 2 and <tool", True, None, 0),
        (f"<tool_call>{CALL}", True, None, 0),
        ("<tool_call>{}</tool_call>", True, None, 0),
        (CALL.replace("add", "sub"), False, None, 0),
        (f"x {CALL}", False, None, 0),
        (CALL, True, None, 0),
        ("{}", False, None, 0),
        ("", True, None, 0),
        (f"<tool_call>{CALL}</tool_call> done", True, "done", 1),
        (CALL.replace("arguments", "parameters"), False, "", 1),
        (f"<tool_call>{CALL.replace('arguments', 'parameters')}</tool_call>", True, "", 1),
        (CALL[:-1] + ', "parameters": {}}', False, None, 0),
        (CALL.replace("1", "NaN"), False, None, 0),
        (CALL.replace("1", "-Infinity"), False, None, 0),
        (CALL.replace("1", "1e999"), False, None, 0),
        (CALL.replace("1", "9" * 5000), False, None, 0),
        (CALL.replace("1", "[" * 99999), False, None, 0),
        (CALL.replace('"add"', '["add"]'), False, None, 0),
        ('{"arguments": {}}', False, None, 0),
    ],
)
def test_calls_are_found_in_a_text_in_pieces_and_the_rest_stays_text(text, tagged, shown, count):
    for size in (1, 3, 1000):
        reader = CallReader(TOOLS, tagged)
        out = "".join(reader.take(text[i : i + size]) for i in range(0, len(text), size))
        rest, calls = reader.close()
        assert out + rest == (text if shown is None else shown) and len(calls) == count
    assert CallReader((), tagged).take("{") == "{"


def test_half_a_surrogate_in_arguments_becomes_text_that_can_be_sent():
    reader = CallReader(TOOLS, False)
    reader.take(CALL.replace("1", '"\\ud800"'))
    (call,) = reader.close()[1]
    assert set(json.loads(call["arguments"].encode())["a"]) == {"\ufffd"}


def test_arguments_sent_as_text_reach_the_template_as_objects():
    template = "{% for m in messages %}{% if m.tool_calls %}{{ m.tool_calls[0].function.arguments | tojson }}{% endif %}{{ m.content }}{% endfor %}"
    found = FakeLoaded(context=1024)
    try:
        found.tokenizer.chat_template = template

        def prompt(arguments):
            turns = [
                {"role": "user", "content": "x"},
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {
                            "id": "call_1",
                            "type": "function",
                            "function": {"name": "add", "arguments": arguments},
                        }
                    ],
                },
                {"role": "tool", "content": "2"},
            ]
            return Session(found, "autoregressive").encode(turns)

        assert prompt('{"a": 1}') == prompt({"a": 1}) != prompt("not json")
    finally:
        found.tokenizer.chat_template = TEMPLATE
