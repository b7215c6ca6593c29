"""Read a conversation, its tools, and the options of a chat template."""

from __future__ import annotations

import json
from typing import Any

from .errors import SessionError
from .response_format import nesting

ROLES = ("system", "user", "assistant", "tool")
LAST_ROLES = ("user", "tool", "assistant")  # an assistant's message is continued
MOST_IDS = 2**20  # token ids of a prompt
MOST_TOOLS = 64  # tools of a request
LONGEST_TOOLS = 65_536  # characters of tools, and of a message's tool calls
DEEPEST_TOOLS = 32  # levels of them


def read_messages(prompt: Any) -> list[dict[str, Any]]:
    """Parse a prompt, a text or a list of messages {"role", "content"}, into messages. An assistant's may
    have "tool_calls" and a tool's "tool_call_id" and "name", which go to the chat template. If the last one
    is an assistant's, the answer continues it. Raises SessionError."""
    if isinstance(prompt, str):
        prompt = [{"role": "user", "content": prompt}]
    if not isinstance(prompt, (list, tuple)) or not prompt:
        raise SessionError("The prompt is empty: write something first.", "prompt.empty")
    messages = [_message(m) for m in prompt]
    if messages[-1]["role"] not in LAST_ROLES:
        raise SessionError(
            "The last message of a conversation must be the user's, a tool's or the assistant's.",
            "prompt.last_role",
        )
    if not messages[-1]["content"].strip():
        raise SessionError("The prompt is empty: write something first.", "prompt.empty")
    return messages


def is_token_ids(prompt: Any) -> bool:
    """Return whether a prompt is a list of token ids."""
    return isinstance(prompt, (list, tuple)) and bool(prompt) and type(prompt[0]) is int


def read_token_ids(prompt: Any, vocab: int) -> list[int]:
    """Check a prompt that is a list of token ids below ``vocab``. Raises SessionError."""
    if len(prompt) > MOST_IDS or not all(type(i) is int and 0 <= i < vocab for i in prompt):
        raise SessionError(
            f"A prompt of token ids is a list of whole numbers from 0 to {vocab - 1}.", "prompt.ids"
        )
    return list(prompt)


def continues_assistant(messages: list[dict[str, Any]], raw: bool) -> bool:
    """Return whether the answer continues the last message. Raises SessionError if that message holds tool
    calls, after which nothing can follow."""
    last = messages[-1]
    if last.get("tool_calls"):
        raise SessionError(
            "An assistant's last message with tool calls cannot be continued: add the tools' answers.",
            "prompt.continued_call",
        )
    return last["role"] == "assistant" and not raw


def _message(given: Any) -> dict[str, Any]:
    calls = given.get("tool_calls") if isinstance(given, dict) else None
    content = (
        ""
        if calls and given.get("content") is None
        else given.get("content")
        if isinstance(given, dict)
        else None
    )
    if not isinstance(given, dict) or given.get("role") not in ROLES or not isinstance(content, str):
        raise SessionError(
            f"A prompt is text, or a list of messages with a role ({', '.join(ROLES)}) and a content.",
            "prompt.form",
        )
    message: dict[str, Any] = {"role": given["role"], "content": content}
    if given["role"] == "assistant" and calls:
        message["tool_calls"] = [_parsed(call) for call in _objects("tool_calls", calls)]
    if given["role"] == "tool":
        message |= {
            name: given[name] for name in ("tool_call_id", "name") if isinstance(given.get(name), str)
        }
    return message


def _parsed(call: dict[str, Any]) -> dict[str, Any]:
    """Return a call whose arguments are an object: OpenAI's protocol sends them as JSON text, which
    templates would quote again."""
    function = call.get("function")
    try:
        arguments = json.loads(function["arguments"]) if isinstance(function, dict) else None
    except (KeyError, TypeError, ValueError, RecursionError):
        arguments = None
    if not isinstance(function, dict) or not isinstance(arguments, dict):
        return call
    return {**call, "function": {**function, "arguments": arguments}}


def read_tools(given: Any) -> tuple[dict[str, Any], ...]:
    """Parse tools in the format of OpenAI's API: [{"type": "function", "function": {"name", "description",
    "parameters"}}]. Raises SessionError."""
    tools = _objects("tools", list(given) if isinstance(given, (list, tuple)) else given)
    for tool in tools:
        function = tool.get("function")
        if (
            tool.get("type") != "function"
            or not isinstance(function, dict)
            or not isinstance(function.get("name"), str)
            or not isinstance(function.get("parameters") or {}, dict)
        ):
            raise SessionError(
                'tools is a list of {"type": "function", "function": {"name": ..., "parameters": ...}}.',
                "request.tools",
            )
    return tuple(tools)


def _objects(name: str, given: Any) -> list[dict[str, Any]]:
    """Return a bounded list of JSON objects."""
    if (
        not isinstance(given, (list, tuple))
        or len(given) > MOST_TOOLS
        or not all(isinstance(one, dict) for one in given)
    ):
        raise SessionError(f"{name} is a list of at most {MOST_TOOLS} objects.", f"request.{name}")
    if nesting(given, DEEPEST_TOOLS) > DEEPEST_TOOLS:
        raise SessionError(f"{name} is nested deeper than {DEEPEST_TOOLS} levels.", f"request.{name}")
    try:
        length = len(json.dumps(given, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        raise SessionError(f"{name} is not plain JSON data.", f"request.{name}") from None
    if length > LONGEST_TOOLS:
        raise SessionError(
            f"{name} has {length} characters; at most {LONGEST_TOOLS} are read.", f"request.{name}"
        )
    return [dict(one) for one in given]


def template_options(
    tools: tuple[dict[str, Any], ...], enable_thinking: bool | None, tokenizer: Any, name: str, raw: bool
) -> dict[str, Any]:
    """Return the options for the chat template. Raises SessionError if the template ignores one of them, so
    that nothing is silently dropped."""
    source = json.dumps(getattr(tokenizer, "chat_template", None) or "")  # one template, or several by name
    for field, given in (("tools", bool(tools)), ("enable_thinking", enable_thinking is not None)):
        if given and (raw or field not in source):
            why = (
                "a raw prompt has no chat template"
                if raw
                else f"the chat template of {name} does not read it"
            )
            raise SessionError(f"{field} cannot be used here: {why}.", f"request.{field}")
    return ({"tools": list(tools)} if tools else {}) | (
        {} if enable_thinking is None else {"enable_thinking": enable_thinking}
    )
