"""Structured output: a grammar masks the logits along each path of the draft tree (JSON schema, regex,
choice, Lark grammar).

llguidance compiles the grammar and computes the masks: its Lark grammars, JSON schemas and regular
expressions share one engine, a mask takes microseconds, and a matcher can roll back, so one matcher visits
all paths of a tree.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, lru_cache
from importlib.util import find_spec
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from ..core import Context, common_prefix_length
from ..zoo.text import TokenBytes
from .request import SessionError, sentence
from .response_format import read_format

MOST_FORCED = 64  # tokens that are drafted at once because the grammar forces them
DEAD_END = ("NoExtension", "NoExtensionBias")  # llguidance: no token may follow, and the text is incomplete
STEP_ITEMS = 5000  # of llguidance's parser for a mask: some 0.06 s; a JSON schema needs a few hundred
MATCHER_SECONDS = 2.0  # of the processor for all masks of a request; JSON needs 0.02 ms for each
TRIAL_SECONDS = 3.0  # to compile a format whose regular expressions are intersected or negated
TRIED = ("&", "~", "pattern", "format", "Length", "multipleOf")  # what such a format's source holds
TRIAL = """
import sys, llguidance
llguidance.LLMatcher(llguidance.LLTokenizer("byte"), sys.stdin.buffer.read().decode(), log_level=0)
"""


class Grammar:
    """A response format compiled for one tokenizer by llguidance. vocab: number of logits. Raises
    SessionError for an invalid format, and for one that this vocabulary cannot write."""

    def __init__(
        self, response_format: dict[str, Any], tokenizer: Any, vocab: int, end_tokens: Iterable[int]
    ):
        if find_spec("llguidance") is None:
            raise SessionError(
                "response_format needs the package llguidance: pip install llguidance.", "format.package"
            )
        import llguidance

        ends = tuple(sorted(end_tokens))
        if not ends:
            raise SessionError("response_format needs a model with an end token.", "format.no_end")
        if not hasattr(tokenizer, "backend_tokenizer"):
            raise SessionError("response_format needs a fast tokenizer.", "format.tokenizer")
        try:
            self._tokenizer = _compiled_vocabulary(tokenizer, max(vocab, len(tokenizer)), ends)
            self._grammar = _source(llguidance.LLMatcher, response_format)
            problem = llguidance.LLMatcher.validate_grammar(self._grammar, self._tokenizer)
            if not problem and not compiles_in_time(self._grammar):
                problem = f"it takes longer than {TRIAL_SECONDS:.0f} s to compile"
        except (ValueError, TypeError) as error:
            raise SessionError(f"response_format: {sentence(error)}", "format.grammar") from None
        if problem and not problem.startswith("WARNING"):
            raise SessionError(f"response_format: {sentence(problem)}", "format.grammar")
        _check_patterns(response_format, self._tokenizer)
        self.ends = frozenset(ends)
        self.size = self._tokenizer.vocab_size
        self.spent = 0.0  # seconds of the processor that matchers took
        first = self.matcher()
        first.compute_bitmask()
        check_matcher(first)

    def matcher(self) -> Any:
        """Return a matcher at the beginning of the answer."""
        import llguidance

        limits = llguidance.LLParserLimits(step_max_items=STEP_ITEMS)
        return llguidance.LLMatcher(self._tokenizer, self._grammar, log_level=0, limits=limits)

    def matches(self, tokens: Sequence[int], complete: bool = True) -> bool:
        """Return whether an answer matches, with or without its end token. complete=False: if the answer
        has no end token, a prefix of a match is enough."""
        body = [token for token in tokens if token not in self.ends]
        ended = complete or len(body) < len(tokens)
        if not all(0 <= token < self.size for token in body):
            return False
        matcher = self.matcher()
        return matcher.try_consume_tokens(body) == len(body) and (not ended or matcher.is_accepting())


def trial_source(response_format: Any) -> str | None:
    """Return the source of a response format that ``compiles_in_time`` has to try; None for one that compiles
    soon, or is none."""
    try:
        import llguidance

        form = read_format(response_format)
        source = _source(llguidance.LLMatcher, form) if form else ""
    except (ImportError, SessionError, ValueError, TypeError):
        return None
    return source if any(sign in source for sign in TRIED) else None


@lru_cache(256)
def compiles_in_time(source: str) -> bool:
    """Return whether a grammar compiles within TRIAL_SECONDS. llguidance's limits do not bound the search for
    a text that intersected or negated regular expressions share, and it cannot be interrupted: such a grammar
    is tried in a process of its own first."""
    if not any(sign in source for sign in TRIED):
        return True
    try:
        subprocess.run(
            [sys.executable, "-c", TRIAL], input=source.encode(), capture_output=True, timeout=TRIAL_SECONDS
        )
    except subprocess.TimeoutExpired:
        return False
    return True  # an error is reported where it is compiled for the tokenizer


def _source(compiler: Any, response_format: dict[str, Any]) -> str:
    """Return llguidance's source of a response format as ``read_format`` returns it. JSON is compact: a
    small model may otherwise write white space between tokens up to the length limit."""
    kind = response_format["type"]
    if kind in ("json_object", "json_schema"):
        schema = {"type": "object"} if kind == "json_object" else response_format[kind]["schema"]
        return compiler.grammar_from_json_schema(json.dumps(schema), overrides={"whitespace_flexible": False})
    value = response_format[kind]
    if kind == "choice":
        return compiler.grammar_from_lark("start: " + " | ".join(json.dumps(choice) for choice in value))
    return compiler.grammar_from_regex(value) if kind == "regex" else compiler.grammar_from_lark(value)


def _check_patterns(response_format: dict[str, Any], tokenizer: Any) -> None:
    """Raise SessionError for an object whose patternProperties match listed properties only: llguidance
    would allow a comma after the last of these, and no key after the comma."""
    import llguidance

    objects: list[Any] = [response_format, *_schemas_of(response_format.get("lark", ""))]
    while objects:
        one = objects.pop()
        if isinstance(one, list):
            objects += one
        if not isinstance(one, dict):
            continue
        objects += [
            value for key, value in one.items() if key not in ("enum", "const", "default", "examples")
        ]
        listed, patterns = one.get("properties"), one.get("patternProperties")
        if not (isinstance(listed, dict) and listed and isinstance(patterns, dict) and patterns):
            continue
        keys = {
            name: dict.fromkeys(one[name], {"type": "null"}) for name in ("properties", "patternProperties")
        }
        rest = {name: one[name] for name in ("required", "additionalProperties") if name in one}
        source = _source(
            llguidance.LLMatcher,
            {"type": "json_schema", "json_schema": {"schema": {"type": "object", **keys, **rest}}},
        )
        matcher = llguidance.LLMatcher(tokenizer, source, log_level=0)
        text = "{" + "".join(f"{json.dumps(key, ensure_ascii=False)}:null," for key in listed)
        tokens = tokenizer.tokenize_str(text)
        if matcher.try_consume_tokens(tokens) == len(tokens):
            matcher.compute_bitmask()
            if _problem(matcher) in DEAD_END:
                names = ", ".join(map(json.dumps, patterns))[:120]
                raise SessionError(
                    f"response_format: patternProperties {names} match listed properties only.",
                    "format.patterns",
                )


def _schemas_of(lark: str) -> Iterable[Any]:
    """Yield the JSON schemas inside a Lark grammar."""
    for found in re.finditer(r"%json\s*", lark):
        try:
            yield json.JSONDecoder().raw_decode(lark, found.end())[0]
        except ValueError:  # llguidance has the message
            continue


def _problem(matcher: Any) -> str:
    """Return why a matcher gave up; empty if it did not."""
    return matcher.get_error().splitlines()[0].rstrip(".")[:120] if matcher.is_error() else ""


def check_matcher(matcher: Any) -> None:
    """Raise SessionError if a matcher gave up: its masks would end the answer, or no longer constrain it."""
    problem = _problem(matcher)
    if not problem:
        return
    if problem in DEAD_END:
        raise SessionError(
            "The response format leads to a text that no token of the model may continue.", "format.dead_end"
        )
    if any(word in problem for word in ("fuel", "Too many items", "too many", "TooComplex")):
        raise SessionError(
            f"The response format takes more work than its matcher may spend ({problem}).", "format.work"
        )
    raise SessionError(f"The matcher of the response format stopped: {problem}.", "format.matcher")


class Vocabulary:
    """A tokenizer as llguidance reads it: the bytes that each token adds to the answer, and an encoder of
    forced text.

    Tokens that add no text (control tokens, end tokens, ids beyond the tokenizer) are special: literal text
    of a format never matches them, also if it spells their name. llguidance's own reader of tokenizers
    takes other tokens for special, and encodes such a name as the control token, which its matcher then
    refuses.

    size: number of token ids; ends: end tokens. Calling it encodes text to token ids whose bytes are this
    text.
    """

    bos_token_id = None

    def __init__(self, tokenizer: Any, size: int, ends: Sequence[int]):
        table = TokenBytes(tokenizer)
        hidden = table.special | frozenset(ends)
        self.eos_token_id = ends[0]
        self.tokens = [table(token) or f"<[{token}]>".encode() for token in range(size)]
        self.special_token_ids = [token for token in range(size) if token in hidden or not table(token)]
        self._special = frozenset(self.special_token_ids)
        self._encode = _encoder(tokenizer, self._special)

    def __call__(self, text: str | bytes) -> list[int]:
        data = text.encode() if isinstance(text, str) else text
        found = self._encode(data.decode("utf-8", "replace"))
        exact = not self._special.intersection(found) and b"".join(self.tokens[i] for i in found) == data
        return found if exact else self._longest_tokens(data)

    def _longest_tokens(self, data: bytes) -> list[int]:
        """Return the longest token at each place, for text that the tokenizer normalises or spells
        otherwise; none if no token holds a byte."""
        found: list[int] = []
        while data:
            sizes = range(min(len(data), self._longest), 0, -1)
            token = next((self._ids[data[:size]] for size in sizes if data[:size] in self._ids), None)
            if token is None:
                return []
            found.append(token)
            data = data[len(self.tokens[token]) :]
        return found

    @cached_property
    def _ids(self) -> dict[bytes, int]:
        return {data: token for token, data in enumerate(self.tokens) if token not in self._special}

    @cached_property
    def _longest(self) -> int:
        return max(map(len, self._ids), default=0)


_VOCABULARIES: WeakKeyDictionary[Any, dict[tuple[int, tuple[int, ...]], Any]] = WeakKeyDictionary()


def _compiled_vocabulary(tokenizer: Any, size: int, ends: tuple[int, ...]) -> Any:
    """Return llguidance's tokenizer for these token ids and end tokens; it is made once for a tokenizer."""
    import llguidance

    known = _VOCABULARIES.setdefault(tokenizer, {})
    if (size, ends) not in known:
        read = llguidance.TokenizerWrapper(Vocabulary(tokenizer, size, ends))
        known[size, ends] = llguidance.LLTokenizer(read, eos_token=list(ends))
    return known[size, ends]


def _encoder(tokenizer: Any, special: frozenset[int]) -> Callable[[str], list[int]]:
    """Return a function from text in the middle of an answer to token ids: without control tokens, and
    without the space that some tokenizers put before a text."""
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    for added in state["added_tokens"]:
        added["special"] = added["id"] in special
    for step, parts in (("normalizer", "normalizers"), ("pre_tokenizer", "pretokenizers")):
        state[step] = _without_first_space(state[step], parts)
    state |= {"truncation": None, "padding": None, "post_processor": None}
    own = Tokenizer.from_str(json.dumps(state))
    own.encode_special_tokens = True
    return lambda text: own.encode(text, add_special_tokens=False).ids


def _without_first_space(step: dict[str, Any] | None, parts: str) -> dict[str, Any] | None:
    """Return a step of a tokenizer (its JSON) that puts no space before the text."""
    kind = step["type"] if step else ""
    if step is None or kind == "Prepend":
        return None
    if kind == "Sequence":
        return step | {parts: [kept for one in step[parts] if (kept := _without_first_space(one, parts))]}
    if kind == "Metaspace":
        return step | {"prepend_scheme": "never"}
    return step | {"add_prefix_space": False} if kind == "ByteLevel" else step


class GrammarMask:
    """Logits processor that bans every token after which the answer could no longer match the grammar.

    The matcher follows output and path of each row. A row whose draft tokens violate the grammar is left
    unchanged: the verifier cannot reach it, because a token on its path has probability 0.
    """

    def __init__(self, grammar: Grammar):
        self.grammar = grammar
        self._matcher = grammar.matcher()
        self._consumed = []

    def __call__(self, logits: Tensor, context: Context) -> Tensor:
        """Mask the logits. Raises SessionError if the answer so far violates the grammar and the rows decide
        about its next token: they would be unconstrained."""
        if not self._follow(context.output):
            if context.decides:
                raise broken_answer()
            return logits
        for row, path in enumerate(context.paths):
            if self._follow([*context.output, *path]):
                logits[row].masked_fill_(~self._allowed(logits.shape[-1]).to(logits.device), -torch.inf)
        return logits

    def forced(self, output: Sequence[int]) -> list[int]:
        """Return the tokens that must follow the output, up to the first position with a choice; without
        end tokens."""
        found: list[int] = []
        while len(found) < MOST_FORCED and self._follow([*output, *found]):
            tokens = self._timed(self._matcher.compute_ff_tokens)
            more = [token for token in tokens if token not in self.grammar.ends]
            if not more:
                only = np.flatnonzero(self._bits())
                more = only.tolist() if len(only) == 1 and int(only[0]) not in self.grammar.ends else []
            if not more:
                break
            found += more
        return found[:MOST_FORCED]

    def _follow(self, tokens: Sequence[int]) -> bool:
        """Bring the matcher to these tokens; return whether the grammar accepts them all."""
        tokens = list(tokens)
        same = common_prefix_length(self._consumed, tokens)
        if same < len(self._consumed):
            self._timed(self._matcher.rollback, len(self._consumed) - same)
            del self._consumed[same:]
        # an id outside the vocabulary would put the matcher into an error that it does not leave
        known = next((i for i, x in enumerate(tokens) if i >= same and not 0 <= x < self.grammar.size), None)
        new = tokens[same:known]
        self._consumed += new[: self._timed(self._matcher.try_consume_tokens, new) if new else 0]
        check_matcher(self._matcher)
        return len(self._consumed) == len(tokens)

    def _bits(self) -> np.ndarray:
        mask = self._timed(self._matcher.compute_bitmask)
        check_matcher(self._matcher)
        return np.unpackbits(np.frombuffer(mask, dtype=np.uint8), bitorder="little")

    def _timed(self, work: Callable[..., Any], *given: Any) -> Any:
        """Return what the matcher does, and count its time. Raises SessionError beyond MATCHER_SECONDS."""
        began = time.thread_time()
        found = work(*given)
        self.grammar.spent += time.thread_time() - began
        if self.grammar.spent > MATCHER_SECONDS:
            raise SessionError(
                f"The response format takes more than {MATCHER_SECONDS:.0f} s of its matcher.",
                "format.work",
            )
        return found

    def _allowed(self, width: int) -> Tensor:
        bits = self._bits()[:width]
        return torch.from_numpy(np.pad(bits, (0, width - len(bits)))).bool()


def broken_answer() -> SessionError:
    """Return the error for an answer that violates its response format."""
    return SessionError("The answer has left its response format.", "format.broken")
