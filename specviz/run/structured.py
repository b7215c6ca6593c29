"""Structured output: a grammar masks the logits along each path of the draft tree (JSON schema, regex,
choice, Lark grammar).

llguidance compiles the grammar and computes the masks: its Lark grammars, JSON schemas and regular
expressions share one engine, a mask takes microseconds, and a matcher can roll back, so one matcher visits
all paths of a tree.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..core import Context, common_prefix_length
from .request import SessionError, sentence

MOST_FORCED = 64  # tokens that are drafted at once because the grammar forces them


class Grammar:
    """A response format compiled for one tokenizer by llguidance. vocab: number of logits. Raises
    SessionError for an invalid format."""

    def __init__(
        self, response_format: dict[str, Any], tokenizer: Any, vocab: int, end_tokens: Iterable[int]
    ):
        if find_spec("llguidance") is None:
            raise SessionError(
                "response_format needs the package llguidance: pip install llguidance.", "format.package"
            )
        import llguidance.hf

        ends = sorted(end_tokens)
        if not ends:
            raise SessionError("response_format needs a model with an end token.", "format.no_end")
        try:
            self._tokenizer = llguidance.hf.from_tokenizer(
                tokenizer, n_vocab=max(vocab, len(tokenizer)), eos_token=ends
            )
            self._grammar = _source(llguidance.LLMatcher, response_format)
            problem = llguidance.LLMatcher.validate_grammar(self._grammar, self._tokenizer)
        except (ValueError, TypeError) as error:
            raise SessionError(f"response_format: {sentence(error)}", "format.grammar") from None
        if problem and not problem.startswith("WARNING"):
            raise SessionError(f"response_format: {sentence(problem)}", "format.grammar")
        self.ends = frozenset(ends)

    def matcher(self) -> Any:
        """Return a matcher at the beginning of the answer."""
        import llguidance

        return llguidance.LLMatcher(self._tokenizer, self._grammar, log_level=0)

    def matches(self, tokens: Sequence[int], complete: bool = True) -> bool:
        """Return whether an answer matches, with or without its end token. complete=False: if the answer
        has no end token, a prefix of a match is enough."""
        matcher, body = self.matcher(), [token for token in tokens if token not in self.ends]
        ended = complete or len(body) < len(tokens)
        return matcher.try_consume_tokens(body) == len(body) and (not ended or matcher.is_accepting())


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


class GrammarMask:
    """Logits processor that bans every token after which the answer could no longer match the grammar.

    The matcher follows output and path of each row. A row whose path violates the grammar is left
    unchanged: the verifier cannot reach it, because a token on its path has probability 0.
    """

    def __init__(self, grammar: Grammar):
        self.grammar = grammar
        self._matcher = grammar.matcher()
        self._consumed = []

    def __call__(self, logits: Tensor, context: Context) -> Tensor:
        if not self._follow(context.output):
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
            more = [token for token in self._matcher.compute_ff_tokens() if token not in self.grammar.ends]
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
            self._matcher.rollback(len(self._consumed) - same)
            del self._consumed[same:]
        done = self._matcher.try_consume_tokens(tokens[same:]) if same < len(tokens) else 0
        self._check()
        self._consumed += tokens[same : same + done]
        return len(self._consumed) == len(tokens)

    def _bits(self) -> np.ndarray:
        mask = self._matcher.compute_bitmask()
        self._check()
        return np.unpackbits(np.frombuffer(mask, dtype=np.uint8), bitorder="little")

    def _check(self) -> None:
        """Raise SessionError where the matcher gave up, because a format needs more work or memory than
        llguidance spends on it: its mask would end the answer, or no longer constrain it."""
        if self._matcher.is_error():
            problem = self._matcher.get_error().splitlines()[0].rstrip(".")[:120]
            raise SessionError(
                f"The response format takes more work than its matcher may spend ({problem}).",
                "format.grammar",
            )

    def _allowed(self, width: int) -> Tensor:
        bits = self._bits()[:width]
        return torch.from_numpy(np.pad(bits, (0, width - len(bits)))).bool()
