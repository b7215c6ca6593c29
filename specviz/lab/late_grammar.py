"""A grammar that begins inside a draft: the model thinks freely, and its answer is constrained from the token after the
end of the thought on.

With speculative decoding the end of the thought may be a drafted token, so that the rows after it in the same pass need
the mask already. Engines have begun the mask with the next round instead, which leaves those rows free, or at the first
token, which leaves no thought. The models here do not think in a format of their own: the first full stop, question
mark, exclamation mark or line break ends the thought."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from torch import Tensor

from ..core import Context, Processors
from ..run.request import GenerationRequest, SessionError, read_integer
from ..run.result import Result
from ..run.session import Session
from ..run.structured import Grammar, GrammarMask
from ..trace.events import Committed
from .mask_sides import FORMAT
from .payload import prompt_of

if TYPE_CHECKING:
    from ..zoo.pair import Loaded

RUNS = 8  # sampled answers
TOKENS = 72  # tokens of each at most
GAMMA = 5  # draft length
PROMPT = "Invent a person. First say in one short sentence who it is, then give name and age as JSON."
ENDS = (b".", b"!", b"?", b"\n")
SIDES = ("row", "round", "start")  # where the mask begins


class LateMask:
    """Logits processor: a grammar's mask for the rows after the end of the thought. side: "row": in every row of a
    draft tree whose path has ended the thought; "round": only once the committed text has."""

    def __init__(self, grammar: Grammar, token_bytes: Callable[[int], bytes], side: str):
        self.mask = GrammarMask(grammar)
        self.token_bytes = token_bytes
        self.side = side

    def after(self, tokens: Sequence[int]) -> list[int] | None:
        """Return the tokens after the one that ends the thought; None while it goes on."""
        for at, token in enumerate(tokens):
            if any(end in self.token_bytes(int(token)) for end in ENDS):
                return list(tokens[at + 1 :])
        return None

    def __call__(self, logits: Tensor, context: Context) -> Tensor:
        """Mask the logits [rows, vocab]. A text that has left the grammar is not masked any more."""
        body = self.after(context.output)
        if body is not None:
            return self.mask(logits, replace(context, output=body, decides=False))
        if self.side == "row":
            for row, path in enumerate(context.paths):
                inside = self.after(path)
                if inside is not None:
                    part = self.mask(logits[row : row + 1], Context(context.prompt, (), [tuple(inside)]))
                    logits[row] = part[0]
        return logits


def late_grammar(loaded: Loaded, payload: dict[str, Any], stop: Callable[[], bool]) -> Iterator[Any]:
    """Let a grammar begin after the thought in three ways. payload {prompt?, runs?, temperature?} -> {runs, rows:
    [{side, runs, thought, inside, valid, answered, tokens, passes, accepted, tried, sample}]}, yielded repeatedly.
    thought: tokens before the answer; inside: runs in which the thought ended at a drafted token that was accepted, with
    more of the draft after it; answered: runs that ended the thought; valid: of these, answers that follow the grammar as
    far as they go; sample: the first answer that does not follow it, else the first."""
    prompt, runs = prompt_of(payload, PROMPT), read_integer("runs", payload.get("runs", RUNS), 1, 50)
    request = GenerationRequest.from_dict(
        {
            "temperature": payload.get("temperature", 1.0),
            "max_tokens": TOKENS,
            "response_format": FORMAT,
        }
    )
    if loaded.draft is None:
        raise SessionError("This needs a draft model.", "method.missing")
    grammar = Grammar(FORMAT, loaded.tokenizer, loaded.vocab, sorted(loaded.end_tokens))
    rows: list[dict[str, Any]] = [
        {"side": side}
        | dict.fromkeys(
            ("runs", "thought", "inside", "valid", "answered", "tokens", "passes", "accepted", "tried"), 0
        )
        | {"sample": "", "broken": False}
        for side in SIDES
    ]
    for seed in range(runs):
        for row in rows:
            _one(loaded, grammar, replace(request, seed=seed), prompt, row)
            yield {"runs": runs, "rows": [dict(one) for one in rows]}
            if stop():
                return


def _one(
    loaded: Loaded, grammar: Grammar, request: GenerationRequest, prompt: str, row: dict[str, Any]
) -> None:
    """Add one answer to a row."""
    late = LateMask(grammar, loaded.token_bytes, row["side"])
    form = request.response_format if row["side"] == "start" else None
    session = Session(loaded, "speculative", {"gamma": GAMMA}, request=replace(request, response_format=form))
    if form is None:
        session.processors = SimpleNamespace(make=lambda: Processors([late]), grammar=None)  # type: ignore[assignment]
    result, inside, written = Result(), False, 0
    tokens: list[int] = []
    for event in session.run(prompt):
        result.take(event)
        if isinstance(event, Committed):
            tokens += event.tokens
            body = late.after(tokens)
            ended_now = late.after(tokens[:written]) is None and body is not None
            inside |= ended_now and bool(body)
            written = len(tokens)
    body = tokens if form else late.after(tokens)
    row["runs"] += 1
    row["inside"] += inside and form is None
    totals = result.totals
    for name, count in (
        ("tokens", totals.tokens),
        ("passes", totals.rounds),
        ("accepted", totals.accepted),
        ("tried", totals.tried),
    ):
        row[name] += count
    if body is None:
        return
    valid = grammar.matches(body, complete=False)
    row["answered"] += 1
    row["thought"] += len(tokens) - len(body)
    row["valid"] += valid
    if not row["sample"] or (not valid and not row["broken"]):
        row["sample"], row["broken"] = result.text[:400], not valid
