"""A grammar mask applied to draft and target, to the target only, and to the draft only: acceptance rate,
validity, and distance from the correct distribution.

The correct distribution at a position is the target's with the mask. With the mask on the target only, the
draft model proposes tokens that are always rejected: slower, still exact. With the mask on the draft model
only, verification compares with the unmasked target, so corrections and bonus tokens violate the grammar:
wrong."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..core import DraftTree, Method, Parts, Scores, State, Verdict
from ..drafters.model.chain import DraftChain
from ..policies import Fixed
from ..run.request import GenerationRequest, SessionError, read_integer
from ..run.result import Result, RunFailed
from ..run.session import Session
from ..run.structured import Grammar
from ..verifiers import TokenRejection
from .payload import prompt_of

if TYPE_CHECKING:
    from ..zoo.pair import Loaded

RUNS = 12  # sampled answers
TOKENS = 64  # tokens of each at most
GAMMA = 4  # draft length
PROMPT = "Invent a person and describe them as JSON."
FORMAT = {
    "type": "json_schema",
    "json_schema": {
        "schema": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "maxLength": 12},
                "age": {"type": "integer", "minimum": 0, "maximum": 120},
            },
            "required": ["name", "age"],
            "additionalProperties": False,
        }
    },
}
SIDES = ("both", "target", "draft")


class MeasuredRejection(TokenRejection):
    """A verifier: rejection sampling that also measures, at each accepted or final token, the total
    variation distance between the distribution that it verifies against and the target's with the mask.
    masked: whether it verifies against the masked distribution."""

    def __init__(self, masked: bool):
        self.masked = masked
        self.distance = 0.0
        self.places = 0

    def verify(self, tree: DraftTree, scores: Scores, state: State) -> Verdict:
        """Verify, and record the distances."""
        used = scores if self.masked else replace(scores, logits=scores.model_logits)
        verdict = super().verify(tree, used, state)
        for row in (0, *(node + 1 for node in verdict.path)):
            if not (
                scores.logits[row] == -math.inf
            ).any():  # a text that broke the grammar has no mask any more
                continue
            right, mine = (state.sampling.probs(some.logits[row].float()) for some in (scores, used))
            self.distance += 0.5 * float((right - mine).abs().sum())
            self.places += 1
        return verdict


class UnmaskedDraft(DraftChain):
    """A drafter: a draft model that proposes without the request's mask."""

    def propose(self, state, budget):
        """Draft a chain without the mask."""
        bare = state.fork()
        bare.processors = None
        return super().propose(bare, budget)


def variant(side: str, verifier: MeasuredRejection) -> Method:
    """Return speculative decoding with the mask on one side ("both", "target", "draft")."""

    def build(kit: Any) -> Parts:
        draft = kit.open("draft")
        return Parts((UnmaskedDraft if side == "target" else DraftChain)(draft), Fixed(GAMMA), verifier)

    return Method(
        key=f"mask_{side}",
        title=f"Mask: {side}",
        paper="",
        family="Mask",
        summary="",
        build=build,
        needs=frozenset({"draft"}),
    )


def mask_sides(loaded: Loaded, payload: dict[str, Any], stop: Callable[[], bool]) -> Iterator[Any]:
    """Measure acceptance with the grammar mask on both models and on one of them.

    payload {prompt?, response_format?, temperature?, runs?} -> {runs, rows: [{side, runs, accepted, tried,
    tokens, passes, valid, distance}]}, yielded repeatedly. valid: answers that follow the grammar as far as
    they go; distance: mean total variation per position between the distribution that was verified against
    and the target's with the mask."""
    prompt, runs = prompt_of(payload, PROMPT), read_integer("runs", payload.get("runs", RUNS), 1, 100)
    request = GenerationRequest.from_dict(
        {
            "temperature": payload.get("temperature", 1.0),
            "max_tokens": TOKENS,
            "response_format": payload.get("response_format") or FORMAT,
        }
    )
    if request.response_format is None:
        raise SessionError("A mask needs a response_format.", "lab.response_format")
    grammar = Grammar(request.response_format, loaded.tokenizer, loaded.vocab, sorted(loaded.end_tokens))
    rows: list[dict[str, Any]] = [
        {
            "side": side,
            "runs": 0,
            "accepted": 0,
            "tried": 0,
            "tokens": 0,
            "passes": 0,
            "valid": 0,
            "distance": None,
        }
        for side in SIDES
    ]
    watched = [MeasuredRejection(side != "draft") for side in SIDES]
    for seed in range(runs):
        for row, verifier in zip(rows, watched):
            session = Session(
                loaded, variant(str(row["side"]), verifier), request=replace(request, seed=seed)
            )
            result = Result()
            for event in session.run(prompt):
                result.take(event)
            if result.why and verifier.masked:  # verified without the mask, an answer may leave its format
                raise RunFailed(result.why)
            totals = result.totals
            row["runs"] += 1
            counts = {
                "accepted": totals.accepted,
                "tried": totals.tried,
                "tokens": totals.tokens,
                "passes": totals.rounds,
            }
            row.update({name: row[name] + count for name, count in counts.items()})
            row["valid"] += not result.why and grammar.matches(result.token_ids, complete=False)
            row["distance"] = verifier.distance / max(1, verifier.places)
        yield {"runs": runs, "rows": [dict(row) for row in rows]}
        if stop():
            return
