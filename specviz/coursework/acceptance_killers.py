"""The exercise "find the silent acceptance killer": the wiring of an EAGLE head, with one mistake that leaves the text
right and lowers acceptance.

The engine drafts on the small target with its shipped EAGLE head (Li et al. 2401.15077). What the head reads goes
through four functions of the submission; one of them is wrong, which one depends on the student's name."""

from __future__ import annotations

from contextlib import closing
from functools import cache
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from ..core import Parts, Sampling, Scores, State
from ..core.errors import CodedError
from ..drafters.heads.features import FeatureDrafter, FeatureModel
from ..drafters.model.chain import DraftChain
from ..evidence.certificate import plain_decoding
from ..loops import speculate
from ..policies import Fixed
from ..trace.events import Committed
from ..verifiers import TokenRejection
from .engine_checks import QUESTIONS, short, small_target, whole
from .exercise import Check, Code, Exercise, Mistake, Report, failed, passed, source_of_numbers
from .messages import TEXTS
from .submission import SubmissionError, TrustedCode
from .wrong_decision import Models, WrongDecision, differing_round, place_of, run_lane

TOKENS = 40
MOST = 64  # positions that a drafted token may stand after the text
DRAFT = 4
LAYER = "layer:4"
LAST = "layer:7"  # the input of the last layer
ENOUGH = 0.97  # of the right wiring's tokens per pass
CHAT = """def chat(question):
    return "<|user|>\\n" + question + "<|end|>\\n<|assistant|>\\n"
"""
OTHER_CHAT = """def chat(question):
    return "### Human: " + question + "\\n### Assistant: "
"""
FEATURE = """def feature(states):
    return states["final"]
"""
TOKEN = """def token_of(position, tokens):
    return tokens[position + 1]
"""
POSITION = """def draft_position(last, depth):
    return last + depth
"""
RIGHT = {"chat": CHAT, "feature": FEATURE, "token_of": TOKEN, "draft_position": POSITION}


def wired(**changed: str) -> str:
    """Return the wiring with some functions replaced."""
    return "\n\n".join((RIGHT | changed).values())


# mistake -> (function that is wrong, its source)
CHANGES = {
    "shift_by_one": ("token_of", TOKEN.replace("position + 1", "position")),
    "before_the_norm": ("feature", FEATURE.replace('"final"', f'"{LAST}"')),
    "wrong_layer": ("feature", FEATURE.replace('"final"', f'"{LAYER}"')),
    "positions_off": ("draft_position", POSITION.replace("last + depth", "last + depth + 1")),
    "positions_restart": ("draft_position", POSITION.replace("last + depth", "depth")),
    "unit_length": (
        "feature",
        FEATURE.replace('states["final"]', 'states["final"] / states["final"].norm(dim=-1, keepdim=True)'),
    ),
    "wrong_template": ("chat", OTHER_CHAT),
}
SENTENCES = {
    "shift_by_one": "a shift by one: the head reads the state of a position with the token of the same position; it was trained with "
    "the token after it",
    "before_the_norm": "the state before the last layer and the final norm: the head was trained on the state after the norm",
    "wrong_layer": "the state of another layer: the head was trained on the last one",
    "positions_off": "positions off by one: drafted tokens stand one position further on than in training",
    "positions_restart": "positions that begin again: drafted tokens are counted from the beginning of the draft, not of the text",
    "unit_length": "a state scaled to length 1: the head was trained on the state as it is",
    "wrong_template": "the wrong chat template: target and head were trained with another one, so the head guesses badly what the "
    "target says",
}
MISTAKES = tuple(Mistake(key, SENTENCES[key], wired(**dict([change]))) for key, change in CHANGES.items())


class WiredModel(FeatureModel):
    """The EAGLE head, wired by a submission."""

    code: Code

    def wire(self, code: Code) -> None:
        """Use this submission."""
        self.code = code
        branch = self.rows.branch

        def moved(embeds: Tensor, features: Tensor, parents: Any, depths: Any) -> Tensor:
            last = self.rows.first + self.rows.count - 1
            positions = [_number(code, "draft_position", last, int(depth)) for depth in depths]
            return branch(
                embeds, features, parents, [min(MOST, max(1 - last, one - last)) for one in positions]
            )

        self.rows.branch = moved  # type: ignore[method-assign]

    def read_features(self, scores: Scores) -> Tensor:
        final = scores.hidden_states["final"]
        states = {
            "final": final,
            LAST: scores.hidden_states[LAST],
            LAYER: scores.hidden_states[LAYER],
        }
        found = self.code.call("feature", {name: one.float() for name, one in states.items()})
        if not isinstance(found, Tensor) or found.shape != final.shape:
            raise SubmissionError(
                "answer.feature", name=self.code.name, answer=short(getattr(found, "shape", found))
            )
        return found.to(final.dtype)

    def sync(self, tokens: list[int]) -> bool:
        if self._waiting and tokens == self.tokens:
            features, self._waiting = torch.cat(self._waiting), []
            first = len(tokens) - len(features) - 1
            ids = [_number(self.code, "token_of", first + i, tokens) for i in range(len(features))]
            if not all(0 <= one < self.vocab for one in ids):
                raise SubmissionError("answer.token_of", name=self.code.name, answer=short(ids))
            with torch.inference_mode():
                self._kind = features.dtype
                self._tip = self.root_output(self.rows.read(self.target.embed(ids), features))
        return super().sync(tokens)


class WiredDrafter(FeatureDrafter):
    """Drafter of a chain with an EAGLE head that a submission wires."""

    model_class = WiredModel
    model: WiredModel

    def __init__(self, head: Any, code: Code):
        super().__init__(head, DraftChain)
        self.hidden_states = frozenset({"final", LAST, LAYER})
        self.model.wire(code)


def _number(code: Code, function: str, *args: Any) -> int:
    try:
        return whole(code.call(function, *args))
    except (TypeError, ValueError):
        raise SubmissionError("answer.whole", name=code.name, function=function) from None


def measure(code: Code, questions: tuple[str, ...] = QUESTIONS) -> SimpleNamespace:
    """Run the wiring on the small target at temperature 0. Return tokens per pass, the drafted tokens accepted in each
    round, the texts, and whether they equal plain decoding."""
    rounds: list[int] = []
    texts: list[str] = []
    tokens, equal = 0, True
    target = small_target()
    kit = target.kit()
    parts = Parts(WiredDrafter(kit.head("eagle"), code), Fixed(DRAFT), TokenRejection())
    with torch.inference_mode():
        for question in questions:
            text = code.call("chat", question)
            if not isinstance(text, str) or not text or len(text) > 2000:
                raise SubmissionError("answer.chat", name=code.name, answer=short(text))
            ids = list(target.tokenizer.encode(text, add_special_tokens=False))
            state = State(list(ids), Sampling(0.0), limit=TOKENS)
            with closing(speculate(parts, kit.target, state)) as events:
                rounds += [event.accepted for event in events if isinstance(event, Committed)]
            written = state.tokens[len(ids) :]
            tokens += len(written)
            texts.append(target.tokenizer.decode(written))
            equal = equal and plain_decoding(target.open_target(), ids, TOKENS)[0] == written
    rate = tokens / max(1, len(rounds))
    return SimpleNamespace(rate=rate, equal=equal, tokens=tokens, accepted=rounds, texts=texts)


@cache
def rate_of(source: str) -> float:
    """Return the tokens per pass of a known wiring."""
    return measure(TrustedCode(source)).rate


def probe(code: Code) -> tuple[Any, ...]:
    """Return what the four functions answer to a few arguments."""
    states = {name: torch.full((2, 3), float(i + 1)) for i, name in enumerate(("final", LAST, LAYER))}
    feature = code.call("feature", states)
    return (
        code.call("chat", "Why?"),
        feature.tolist() if isinstance(feature, Tensor) else None,
        tuple(_number(code, "token_of", at, [9, 8, 7, 6, 5, 4]) for at in range(4)),
        tuple(_number(code, "draft_position", last, depth) for last in (3, 10) for depth in (1, 2, 3)),
    )


def check(code: Code, student: str, report: Report) -> None:
    """Check a submission."""
    try:
        found, aim = measure(code), rate_of(wired())
    except CodedError as error:
        report.checks.append(failed("small target", "target.missing", {}, why=str(error)))
        return
    figures = {"tokens_per_pass": round(found.rate, 3), "right": round(aim, 3)}
    report.checks.append(
        passed("greedy text", "greedy.equal", {}, tokens=found.tokens)
        if found.equal
        else failed("greedy text", "text.differs", {})
    )
    report.checks.append(_acceptance(code, found.rate, aim, figures, report))


def _acceptance(code: Code, rate: float, aim: float, figures: dict[str, Any], report: Report) -> Check:
    answers = probe(code)
    for mistake in MISTAKES:
        if answers == probe(TrustedCode(mistake.source)):
            report.behaves_like = mistake.key
            values = {"sentence": mistake.sentence, "rate": rate, "aim": aim}
            return failed("acceptance", "acceptance.known", figures, **values)
    if rate >= ENOUGH * aim:
        return passed("acceptance", "acceptance.right", figures, rate=rate, aim=aim)
    return failed("acceptance", "acceptance.low", figures, rate=rate, aim=aim)


def first_wrong(code: Code, student: str, report: Report) -> WrongDecision | None:
    """Return the first round in which a wiring drafts otherwise than the right one on the small target."""
    records: list[dict[str, Any]] = []
    target = small_target()
    models = Models(target.name, "EAGLE", target.token_bytes)
    for lane, (title, one) in enumerate((("wrong.yours", code), ("wrong.rule", TrustedCode(wired())))):
        ids = list(target.tokenizer.encode(one.call("chat", QUESTIONS[0]), add_special_tokens=False))
        kit = target.kit()
        parts = Parts(WiredDrafter(kit.head("eagle"), one), Fixed(DRAFT), TokenRejection())
        records += run_lane(lane, TEXTS[title], parts, kit.target, ids, TOKENS, models)
    number = differing_round(records)
    if number is None:
        return None
    return WrongDecision(TEXTS["wrong.wiring"].format(round=number + 1), records, place_of(number))


def planted(student: str) -> Mistake:
    """Return the mistake that a student is to find: one that costs acceptance. Wrong positions cost this head, of one
    layer, next to nothing."""
    costly = [one for one in MISTAKES if not one.key.startswith("positions")]
    return source_of_numbers(student, "silent_killer").choice(costly)


ACCEPTANCE_KILLER = Exercise(
    "silent_killer",
    "Find the silent acceptance killer",
    tuple(RIGHT),
    lambda student: {"WIRING": planted(student).source},
    check,
    MISTAKES,
    wrong=first_wrong,
)
