"""What an exercise is, and what a check of a submission returns."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from .messages import TEXTS
from .wrong_decision import WrongDecision


class Code(Protocol):
    """A submission whose functions can be called: Submission, or TrustedCode."""

    name: str
    closed: list[str]

    def call(self, function: str, *args: Any, seconds: float = 10.0) -> Any:
        """Call a function of the submission."""
        ...

    def constant(self, name: str) -> Any:
        """Return a constant of the submission, None if there is none."""
        ...


@dataclass(frozen=True)
class Check:
    """One step of a check. name: of the step; ok: whether it passed; code: of the sentence; figures: JSON-ready."""

    name: str
    ok: bool
    code: str
    sentence: str
    figures: dict[str, Any] = field(default_factory=dict)


def passed(name: str, code: str, figures: dict[str, Any] | None = None, **values: Any) -> Check:
    """Return a step that passed."""
    return Check(name, True, code, TEXTS[code].format(**values), figures or {})


def failed(name: str, code: str, figures: dict[str, Any] | None = None, **values: Any) -> Check:
    """Return a step that did not pass."""
    return Check(name, False, code, TEXTS[code].format(**values), figures or {})


@dataclass
class Report:
    """The result of a check. behaves_like: key of the known mistake that the submission behaves like; closed: what
    the submission's process gave up; wrong: its first wrong decision, if it was asked for."""

    exercise: str
    student: str
    checks: list[Check] = field(default_factory=list)
    behaves_like: str | None = None
    closed: list[str] = field(default_factory=list)
    wrong: WrongDecision | None = None

    @property
    def passed(self) -> bool:
        """Whether every step passed."""
        return bool(self.checks) and all(check.ok for check in self.checks)

    @property
    def score(self) -> float:
        """The share of steps that passed."""
        return sum(check.ok for check in self.checks) / max(1, len(self.checks))

    def record(self) -> dict[str, Any]:
        """Return the report as JSON-ready data."""
        return {
            "exercise": self.exercise,
            "student": self.student,
            "passed": self.passed,
            "score": round(self.score, 4),
            "behaves_like": self.behaves_like,
            "isolation": self.closed,
            "first_wrong": self.wrong.sentence if self.wrong else None,
            "checks": [vars(check) for check in self.checks],
        }


@dataclass(frozen=True)
class Mistake:
    """A known wrong variant. sentence: "yours ..." for the student; source: its code in the exercise's own
    interface, from which its behaviour is computed."""

    key: str
    sentence: str
    source: str


@dataclass(frozen=True)
class Exercise:
    """One exercise. key: its name, and that of its text in starters/; functions: that a submission must define;
    numbers(student): the values that the starter's text gets; check(code, student, report): adds the steps to a
    report; mistakes: that it knows; seconds, threads: limits of a submission; trains: whether it uses an optimiser; wrong(code, student,
    report): finds the first wrong decision of a submission that failed, None if it has none."""

    key: str
    title: str
    functions: tuple[str, ...]
    numbers: Callable[[str], dict[str, Any]]
    check: Callable[[Code, str, Report], None]
    mistakes: tuple[Mistake, ...] = ()
    seconds: float = 300.0
    threads: int = 1
    trains: bool = False
    wrong: Callable[[Code, str, Report], WrongDecision | None] | None = None


def source_of_numbers(student: str, exercise: str) -> random.Random:
    """Return the random numbers of a student's exercise: the same name gets the same ones everywhere."""
    return random.Random(f"specviz labs/{exercise}/{student.strip().lower()}")


def distribution_of(rng: random.Random, size: int, sharp: float = 1.0, digits: int = 0) -> list[float]:
    """Return a random distribution. sharp: 0 is uniform; digits: of rounded numbers, which still sum to 1."""
    weights = [rng.expovariate(1.0) ** sharp + 1e-6 for _ in range(size)]
    total = sum(weights)
    if not digits:
        return [weight / total for weight in weights]
    rounded = [round(weight / total, digits) for weight in weights]
    rounded[-1] = round(1 - sum(rounded[:-1]), digits)
    return rounded if min(rounded) > 0 else distribution_of(rng, size, sharp, digits)
