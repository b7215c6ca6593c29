"""All exercises, and the check of a submission."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from pathlib import Path

from .acceptance_killers import ACCEPTANCE_KILLER
from .draft_lengths import DRAFT_LENGTH
from .exercise import Check, Exercise, Report
from .lookup import PROMPT_LOOKUP
from .own_head import OWN_HEAD
from .starter_files import CourseworkError, read_submission
from .submission import Submission, SubmissionError
from .verification import BLOCK_VERIFICATION, SIBLING_RESIDUAL, TOKEN_REJECTION

EXERCISES = {
    one.key: one
    for one in (
        PROMPT_LOOKUP,
        TOKEN_REJECTION,
        SIBLING_RESIDUAL,
        BLOCK_VERIFICATION,
        DRAFT_LENGTH,
        OWN_HEAD,
        ACCEPTANCE_KILLER,
    )
}
LARGEST = 2**20  # characters of a submission


def find(key: str) -> Exercise:
    """Return an exercise. Raises CourseworkError."""
    if key not in EXERCISES:
        raise CourseworkError("labs.unknown", name=key[:60], names=", ".join(EXERCISES))
    return EXERCISES[key]


def exercise_of(source: str, path: Path) -> Exercise:
    """Return the exercise of a submission: the first line of a starter names it, or the name of the file, or its
    functions do. Raises CourseworkError."""
    named = re.match(r"# Exercise: (\w+)", source)
    if named and named[1] in EXERCISES:
        return EXERCISES[named[1]]
    if path.stem in EXERCISES:
        return EXERCISES[path.stem]
    raise CourseworkError("check.which", path=path, names=", ".join(EXERCISES))


def student_of(source: str) -> str:
    """Return the constant STUDENT of a submission without running it; empty if there is none."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    for node in tree.body:
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
            and any(isinstance(name, ast.Name) and name.id == "STUDENT" for name in node.targets)
        ):
            return node.value.value[:60]
    return ""


def check(path: Path, key: str | None = None, student: str | None = None, find_wrong: bool = False) -> Report:
    """Check a submission in a process of its own. key, student: instead of those that the file names; find_wrong:
    look for its first wrong decision, too. Raises CourseworkError if the file is no submission."""
    source = read_submission(path)
    if len(source) > LARGEST:
        raise CourseworkError("check.read", path=path, why="it is too long")
    exercise = find(key) if key else exercise_of(source, path)
    report = Report(exercise.key, student if student is not None else student_of(source))
    try:
        with Submission(path, source, exercise.seconds, exercise.threads, trains=exercise.trains) as code:
            report.closed = code.closed
            missing(code.functions, exercise.functions, path)
            exercise.check(code, report.student, report)
            if find_wrong and exercise.wrong and not report.passed:
                report.wrong = exercise.wrong(code, report.student, report)
    except SubmissionError as error:
        report.checks.append(Check("submission", False, error.code, str(error)))
    return report


def missing(defined: Sequence[str], needed: Sequence[str], path: Path) -> None:
    """Raise SubmissionError if a function is missing."""
    for function in needed:
        if function not in defined:
            raise SubmissionError("sandbox.missing", name=path.name, function=function)
