"""Build a run's logits processors and end tokens from a GenerationRequest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core import BadWords, LogitBias, MinTokens, Penalties, Processors
from .request import GenerationRequest, SessionError
from .structured import Grammar, GrammarMask
from .tool_calls import call_format

if TYPE_CHECKING:
    from ..zoo.pair import Loaded


def stop_tokens(request: GenerationRequest, end_tokens: frozenset[int]) -> frozenset[int]:
    """Return the token ids that end a run: the model's end tokens, unless ignore_eos, and the request's
    stop_token_ids."""
    return (frozenset() if request.ignore_eos else end_tokens) | frozenset(request.stop_token_ids)


class ProcessorFactory:
    """Checks a request against a loaded model once, and makes the logits processors of each run. Raises
    SessionError."""

    def __init__(self, request: GenerationRequest, loaded: Loaded):
        self.request, self.end_tokens = request, frozenset(loaded.end_tokens)
        for name, tokens in (
            ("logit_bias", [token for token, _ in request.logit_bias]),
            ("stop_token_ids", request.stop_token_ids),
        ):
            beyond = [token for token in tokens if token >= loaded.vocab]
            if beyond:
                raise SessionError(
                    f"{name}: {loaded.name} has no token {beyond[0]}; its ids end at {loaded.vocab - 1}.",
                    "request.token",
                )
        self.bad_words = word_sequences(loaded.tokenizer, request.bad_words) if request.bad_words else []
        form = request.response_format or call_format(request.must_call, loaded.tokenizer)
        self.grammar = Grammar(form, loaded.tokenizer, loaded.vocab, self.end_tokens) if form else None

    def make(self) -> Processors:
        """Return the logits processors of one run, in vLLM's order: mask, bad words, minimum length, bias,
        penalties."""
        request = self.request
        found: list[Any] = [GrammarMask(self.grammar)] if self.grammar else []
        if self.bad_words:
            found.append(BadWords(self.bad_words))
        if request.min_tokens:
            found.append(MinTokens(request.min_tokens, self.end_tokens | frozenset(request.stop_token_ids)))
        if request.logit_bias:
            found.append(LogitBias(request.logit_bias))
        if (request.repetition_penalty, request.frequency_penalty, request.presence_penalty) != (
            1.0,
            0.0,
            0.0,
        ):
            found.append(
                Penalties(request.repetition_penalty, request.frequency_penalty, request.presence_penalty)
            )
        return Processors(found)


def word_sequences(tokenizer: Any, words: tuple[str, ...]) -> list[tuple[int, ...]]:
    """Return the token ids of each word at the beginning of a text and, where these differ in the first
    token only, after a space."""
    out: list[tuple[int, ...]] = []
    for word in words:
        first = tuple(tokenizer.encode(word.lstrip(), add_special_tokens=False))
        spaced = tuple(tokenizer.encode(" " + word.lstrip(), add_special_tokens=False))
        out += [
            ids
            for ids in (
                first,
                spaced if spaced and first and spaced[0] != first[0] and len(spaced) == len(first) else (),
            )
            if ids
        ]
    return out
