"""The exercise about prompt lookup: copy what followed an earlier occurrence of the last tokens."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

from ..core import Budget, Drafter, DraftTree, Method, Parts, State
from ..drafters.lookup.prompt_lookup import PromptLookup
from ..evidence.certificate import greedy
from ..policies import Fixed
from ..targets.tiny import TinyNet, TinyTarget
from ..verifiers import TokenRejection
from .engine_checks import TEXT, short, small_target_checks, whole
from .exercise import Check, Code, Exercise, Mistake, Report, failed, passed, source_of_numbers
from .messages import TEXTS
from .submission import SubmissionError, TrustedCode
from .toy_models import PROMPTS, TinyLoaded
from .verification import answer_check
from .wrong_decision import WrongDecision, place_of, run_lane, written

LONGEST = 3  # tokens that are looked up
TEXTS_READ = 300
GAMMAS = (1, 2, 4, 8)


def source(
    order: str = "range(min(3, len(tokens) - 1), 0, -1)",
    places: str = "range(n, len(tokens))",
    draft: str = "tokens[end:end + gamma]",
) -> str:
    """Return the source of prompt lookup with one line changed. order: lengths that are tried; places: ends of
    occurrences, in the order in which they are tried; draft: what is copied."""
    return f"""
def propose(tokens, gamma):
    for n in {order}:
        for end in {places}:
            if tokens[end - n:end] == tokens[len(tokens) - n:]:
                return {draft}
    return []
"""


MISTAKES = (
    Mistake(
        "latest",
        "a lookup of the latest occurrence: the first one is asked for",
        source(places="range(len(tokens) - 1, n - 1, -1)"),
    ),
    Mistake(
        "shortest_first",
        "a lookup that tries single tokens first: the longest match says most about what follows",
        source(order="range(1, min(3, len(tokens) - 1) + 1)"),
    ),
    Mistake(
        "only_longest",
        "a lookup without its fallback: where three tokens do not match, two or one may",
        source(order="(3,)"),
    ),
    Mistake(
        "no_single",
        "a lookup that stops at two tokens: a single token is looked up, too",
        source(order="range(min(3, len(tokens) - 1), 1, -1)"),
    ),
    Mistake(
        "copies_match",
        "a copy that begins one token too early, with the last matched one",
        source(draft="tokens[end - 1:end - 1 + gamma]"),
    ),
    Mistake(
        "skips_one", "a copy that begins one token too late", source(draft="tokens[end + 1:end + 1 + gamma]")
    ),
    Mistake(
        "finds_itself",
        "a lookup that never drafts: it returns nothing, or finds the end of the text itself, after which nothing stands",
        source(places="range(len(tokens), n - 1, -1)"),
    ),
    Mistake(
        "too_long", "a copy without a limit: at most gamma tokens are asked for", source(draft="tokens[end:]")
    ),
    Mistake("one_less", "a copy of gamma - 1 tokens", source(draft="tokens[end:end + gamma - 1]")),
)


@cache
def cases() -> tuple[tuple[tuple[int, ...], int, tuple[int, ...]], ...]:
    """Return (text, gamma, right draft) of many texts with repetitions."""
    rng = random.Random(62)
    found = []
    for number in range(TEXTS_READ):
        vocab = rng.choice((4, 8, 30))
        text = [rng.randrange(vocab) for _ in range(rng.randrange(2, 40))]
        for _ in range(number % 3):
            at = rng.randrange(len(text))
            text += text[at : at + rng.randrange(1, 6)]
        gamma = rng.choice(GAMMAS)
        found.append((tuple(text), gamma, right(text, gamma)))
    return tuple(found)


def right(text: list[int], gamma: int) -> tuple[int, ...]:
    """Return the draft of the engine's prompt lookup."""
    drafter, state = PromptLookup(LONGEST), State(list(text))
    drafter.start(state, None, None)  # type: ignore[arg-type]
    return tuple(drafter.propose(state, Budget(gamma)).tokens)


def call(code: Code, text: Any, gamma: int) -> tuple[int, ...]:
    """Call propose(tokens, gamma) of a submission. Raises SubmissionError."""
    answer = code.call("propose", list(text), gamma)
    try:
        return tuple(whole(token) for token in answer)
    except (TypeError, ValueError):
        raise SubmissionError("answer.draft", name=code.name, answer=short(answer)) from None


class SubmittedDrafter(Drafter):
    """The drafter of a submission; all nodes are chosen."""

    def __init__(self, code: Code):
        self.code = code

    def propose(self, state: State, budget: Budget) -> DraftTree:
        draft = call(self.code, state.tokens, budget.gamma)[: budget.gamma] if budget.gamma > 0 else ()
        return DraftTree.chain(draft)


def drafts_check(code: Code, report: Report) -> Check:
    """Compare drafts with the engine's on many texts."""
    given = [call(code, text, gamma) for text, gamma, _ in cases()]
    wrong = [i for i, (draft, case) in enumerate(zip(given, cases())) if draft != case[2]]
    if not wrong:
        return passed("drafts", "drafts.right", {"texts": len(given)}, texts=len(given))
    text, gamma, expected = cases()[min(wrong, key=lambda i: len(cases()[i][0]))]
    draft = call(code, text, gamma)
    figures = {
        "wrong": len(wrong),
        "texts": len(given),
        "text": text,
        "gamma": gamma,
        "draft": draft,
        "right": expected,
    }
    for mistake in MISTAKES:
        known = TrustedCode(mistake.source, mistake.key)
        if all(call(known, case[0], case[1]) == one for case, one in zip(cases(), given)):
            report.behaves_like = mistake.key
            return failed(
                "drafts",
                "drafts.known",
                figures,
                sentence=mistake.sentence,
                wrong=len(wrong),
                texts=len(given),
            )
    return failed("drafts", "drafts.unknown", figures, wrong=len(wrong), texts=len(given))


def method_with(code: Code) -> Method:
    """Return a method in which the submission drafts."""

    def build(kit: Any) -> Parts:
        return Parts(SubmittedDrafter(code), Fixed(4), TokenRejection())

    return Method(
        key="submission", title="A submission", paper="", family="Coursework", summary="", build=build
    )


def engine_check(code: Code) -> Check:
    """Compare greedy text with plain decoding, where the submission drafts."""
    found = greedy(TinyLoaded(), method_with(code), list(PROMPTS), TEXT)  # type: ignore[arg-type]
    if found["status"] in ("identical", "near_tie"):
        return passed("greedy text", "greedy.equal", {"tokens": found["tokens"]}, tokens=found["tokens"])
    return failed("greedy text", "greedy.differs", {"position": found["position"]}, at=found["position"])


def _own_text(student: str) -> list[int]:
    rng = source_of_numbers(student, "prompt_lookup")
    text = [rng.randrange(5) for _ in range(18)]
    return text if len(right(text, 4)) == 4 else text + text[:6]


def _answers(student: str) -> list[float]:
    draft = right(_own_text(student), 4)
    return [float(len(draft)), *map(float, draft)]


def check(code: Code, student: str, report: Report) -> None:
    """Check a submission."""
    report.checks.append(answer_check(code, _answers(student)))
    report.checks.append(drafts_check(code, report))
    report.checks.append(engine_check(code))
    report.checks += small_target_checks(method_with(code))


def first_wrong(code: Code, student: str, report: Report) -> WrongDecision | None:
    """Return the shortest text after which a submission drafts wrongly, as a round of a tiny target."""
    figures = next((check.figures for check in report.checks if check.name == "drafts" and not check.ok), {})
    if "text" not in figures:
        return None
    text, gamma = list(figures["text"]), int(figures["gamma"])
    records = []
    for lane, (title, drafter) in enumerate(
        (("wrong.yours", SubmittedDrafter(code)), ("wrong.rule", PromptLookup(LONGEST)))
    ):
        parts = Parts(drafter, Fixed(gamma), TokenRejection())
        target = TinyTarget(TinyNet(max(text) + 1, 0))
        records += run_lane(lane, TEXTS[title], parts, target, text, gamma + 1)
    sentence = TEXTS["wrong.draft"].format(
        text=written(text),
        gamma=gamma,
        draft=written(figures["draft"]),
        right=written(figures["right"]),
    )
    return WrongDecision(sentence, records, place_of(0))


PROMPT_LOOKUP = Exercise(
    "prompt_lookup",
    "Prompt lookup: a draft without a model",
    ("propose",),
    lambda student: {"TEXT": _own_text(student)},
    check,
    MISTAKES,
    wrong=first_wrong,
)
