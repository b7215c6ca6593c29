"""Tool calls: parse ``tool_choice``, constrain an answer to a call, and find the calls in an answer.

Two formats of a call are known: Hermes' (a template that has ``<tool_call>``, as those of Qwen 2.5 and 3),
and for any other template that reads tools a bare JSON object. Both hold {"name", "arguments"}, or {"name",
"parameters"} if the template writes calls so (Llama 3.1 and 3.2).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..zoo.chat_template import render
from ..zoo.text import replace_lone_surrogates
from .errors import SessionError

CHOICES = ("none", "auto", "required")
BEGIN = "<tool_call>"
END = "</tool_call>"
KEYS = ("arguments", "parameters")  # of a call's arguments
CALL = re.compile(re.escape(BEGIN) + r"(.*?)" + re.escape(END), re.DOTALL)
SPACED = {
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
}  # JSON as templates write it
Call = dict[str, str]  # {"name", "arguments": JSON}


def read_tool_choice(given: Any, tools: Sequence[dict[str, Any]]) -> str | dict[str, Any] | None:
    """Parse "none", "auto", "required" or {"type": "function", "function": {"name": NAME}}; return it
    unchanged. Raises SessionError."""
    if given is None:
        return None
    name = _chosen(given)
    if not (isinstance(given, str) and given in CHOICES) and name is None:
        raise SessionError(
            f'tool_choice is one of {", ".join(CHOICES)}, or {{"type": "function", "function": {{"name": NAME}}}}.',
            "request.tool_choice",
        )
    if not tools and given != "none":
        raise SessionError("tool_choice needs tools.", "request.tool_choice_tools")
    if name is not None and name not in tool_names(tools):
        raise SessionError(
            f"tool_choice names {name[:60]!r}; the tools are {', '.join(tool_names(tools))}.",
            "request.tool_choice_name",
        )
    return given


def _chosen(given: Any) -> str | None:
    function = given.get("function") if isinstance(given, dict) and given.get("type") == "function" else None
    name = function.get("name") if isinstance(function, dict) else None
    return name if isinstance(name, str) else None


def tool_names(tools: Sequence[dict[str, Any]]) -> list[str]:
    """Return the function name of each tool."""
    return [tool["function"]["name"] for tool in tools]


def required_tools(tools: Sequence[dict[str, Any]], tool_choice: Any) -> tuple[dict[str, Any], ...]:
    """Return the tools of which the answer must call one; empty if the model decides."""
    name = _chosen(tool_choice)
    return tuple(tool for tool in tools if tool_choice == "required" or tool["function"]["name"] == name)


def is_tagged(tokenizer: Any) -> bool:
    """Return whether the chat template writes calls between tags."""
    return BEGIN in json.dumps(getattr(tokenizer, "chat_template", None) or "")


def arguments_key(tokenizer: Any) -> str:
    """Return the key of a call's arguments as the chat template writes it: one of KEYS."""
    name, argument = "specviz_call", "specviz_argument"  # the tool has other names
    call = {"type": "function", "function": {"name": name, "arguments": {argument: 1}}}
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}}
    tool = {"type": "function", "function": {"name": "x", "description": "x", "parameters": schema}}
    turns = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "", "tool_calls": [call]}]
    try:
        shown = render(tokenizer, turns, tools=[tool])
    except Exception:  # a template may refuse any conversation, in any way
        return KEYS[0]
    written = shown.rpartition(name)[2].partition(argument)[0] if name in shown else ""
    return next((key for key in KEYS[1:] if f'"{key}"' in written), KEYS[0])


def call_format(tools: Sequence[dict[str, Any]], tokenizer: Any) -> dict[str, Any] | None:
    """Return the response format of one call of one of these tools, in the format of the chat template;
    None without tools."""
    if not tools:
        return None
    before, after = (f"{BEGIN}\n", f"\n{END}") if is_tagged(tokenizer) else ("", "")
    key = arguments_key(tokenizer)
    rules = [f"start: {' | '.join(f'call_{i}' for i in range(len(tools)))}"]
    for i, tool in enumerate(tools):
        function = tool["function"]
        schema = {"type": "object", **(function.get("parameters") or {}), "x-guidance": SPACED}
        begin = f'{before}{{"name": {json.dumps(function["name"])}, "{key}": '
        rules.append(f"call_{i}: {json.dumps(begin)} arguments_{i} {json.dumps('}' + after)}")
        rules.append(f"arguments_{i}: %json {json.dumps(schema)}")
    return {"type": "lark", "lark": "\n".join(rules)}


@dataclass
class CallReader:
    """Finds calls of these tools in an answer that arrives in pieces; everything else stays text. tagged:
    calls stand between tags."""

    tools: Sequence[dict[str, Any]]
    tagged: bool
    _held: str = field(default="", init=False)
    _begun: bool = field(default=False, init=False)

    def take(self, text: str) -> str:
        """Add a piece of the answer; return the text that may be shown now because it cannot be part of a
        call."""
        if not self.tools:
            return text
        self._held += text
        shown = self._safe()
        out, self._held = self._held[:shown], self._held[shown:]
        self._begun = self._begun or bool(out.strip())
        return out

    def _safe(self) -> int:
        """Return how many held characters cannot belong to a call."""
        if not self.tagged:
            return len(self._held) if self._begun or self._held.lstrip()[:1] not in ("", "{") else 0
        at = self._held.find(BEGIN)
        if at >= 0:
            return at
        return next(
            (len(self._held) - n for n in range(len(BEGIN) - 1, 0, -1) if self._held.endswith(BEGIN[:n])),
            len(self._held),
        )

    def close(self) -> tuple[str, list[Call]]:
        """End the answer. Return (rest of the text, calls). If one call cannot be parsed, all of them stay
        text."""
        found = CALL.findall(self._held) if self.tagged else [self._held]
        calls = [call for call in map(self._call, found) if call is not None]
        if not calls or len(calls) < len(found):
            return self._held, []
        return CALL.sub("", self._held).strip() if self.tagged else "", calls

    def _call(self, text: str) -> Call | None:
        try:
            given = json.loads(text)
            arguments = [given[key] for key in KEYS if key in given] if isinstance(given, dict) else []
            if len(arguments) != 1 or not isinstance(arguments[0], dict):
                return None
            # NaN and numbers beyond the range of a float are not JSON
            written = json.dumps(arguments[0], ensure_ascii=False, allow_nan=False)
        except (ValueError, RecursionError):
            return None
        known = isinstance(given.get("name"), str) and given["name"] in tool_names(self.tools)
        return {"name": given["name"], "arguments": replace_lone_surrogates(written)} if known else None
