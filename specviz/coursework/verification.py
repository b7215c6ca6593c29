"""Three exercises about verification: token rejection, siblings of a tree, block verification."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ..core import DraftTree, Sampling, Scores, State, Verifier
from ..core.draft_labels import IID, WITHOUT_REPLACEMENT
from ..verifiers import BlockVerification, TokenRejection
from . import verification_mistakes as mistakes
from . import wrong_decision
from .engine_checks import (
    TEXT,
    call_chain,
    call_tree,
    certificate_check,
    greedy_check,
    method_with,
    read_chain,
    read_tree,
    small_target_checks,
    tree_of,
)
from .exercise import (
    Check,
    Code,
    Exercise,
    Mistake,
    Report,
    distribution_of,
    failed,
    passed,
    source_of_numbers,
)
from .messages import TEXTS
from .outcomes import CALLS, Outcomes, OutcomeTest, outcomes_of, run_test
from .submission import TrustedCode
from .toy_models import PROMPTS, TinyLoaded

VOCAB = 6
ROUNDS = 40  # rounds on which a submission is called again and again
DEPTH = 3  # tokens of a drafted chain
SHAPE = (-1, -1, -1, 0, 0, 1)  # parents of the nodes of a drafted tree
ANSWER_TOLERANCE = 2e-3


@dataclass(frozen=True)
class Round:
    """One draft and its distributions. p [1 + nodes, vocab]: of the target; q [nodes, vocab]: from which each node
    was sampled; label: how siblings were drawn."""

    p: Tensor
    q: Tensor
    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    label: str = IID

    def tree(self) -> DraftTree:
        """Return the draft."""
        return tree_of(list(self.tokens), list(self.parents), self.q, self.label)

    def right(self, verifier: Verifier) -> Outcomes:
        """Return the outcomes of an engine's verifier."""
        tree = self.tree()
        scores = Scores(self.p.clamp(min=1e-300).log())

        def run(rng: Any) -> Any:
            state = State([0], Sampling(1.0))
            state.rng = rng
            verdict = verifier.verify(tree, scores, state)
            return verdict.path, int(verdict.token)

        return outcomes_of(run)


def random_row(rng: random.Random) -> Tensor:
    """Return a distribution [vocab]; every third one lacks two tokens, as after top-p."""
    row = torch.tensor(distribution_of(rng, VOCAB, rng.choice((0.6, 1.2, 2.0))), dtype=torch.float64)
    if rng.random() < 0.33:
        row[rng.sample(range(VOCAB), 2)] = 0
    return row / row.sum()


def near(rng: random.Random, row: Tensor) -> Tensor:
    """Return a distribution that agrees with a row in part, as a draft model's does."""
    share = rng.choice((0.2, 0.5, 0.8))
    return share * row + (1 - share) * random_row(rng)


@cache
def rounds(parents: tuple[int, ...], seed: int) -> tuple[Round, ...]:
    """Return the rounds of an exercise. Where there are siblings, those of two rounds in three were drawn without
    replacement, from distributions that change much by it."""
    rng = random.Random(seed)
    found = []
    for number in range(ROUNDS):
        label = WITHOUT_REPLACEMENT if number % 3 and len(set(parents)) < len(parents) else IID
        p = torch.stack([random_row(rng) for _ in range(1 + len(parents))])
        q, tokens = [], []
        own: dict[int, Tensor] = {}
        for parent in parents:
            row = own.setdefault(parent, near(rng, p[parent + 1])).clone()
            if label == WITHOUT_REPLACEMENT:
                row = row**2
                gone = [token for token, above in zip(tokens, parents) if above == parent]
                row[gone] = 0
                if float(row.sum()) < 1e-9:  # nothing is left to draw: begin the row again
                    row = near(rng, torch.full((VOCAB,), 1 / VOCAB, dtype=torch.float64))
            row = row / row.sum()
            q.append(row)
            tokens.append(rng.choices(range(VOCAB), row.tolist())[0])
        found.append(Round(p, torch.stack(q), tuple(tokens), parents, label))
    return tuple(found)


@dataclass(frozen=True)
class Rule:
    """What a verification exercise asks for. verifier: of the engine, which it must behave like; parents: shape of
    its drafts; known: its mistakes."""

    verifier: Callable[[], Verifier]
    parents: tuple[int, ...]
    known: tuple[Mistake, ...]
    tree: bool = False

    def rounds(self) -> tuple[Round, ...]:
        """Return the rounds on which submissions are called."""
        return rounds(self.parents, len(self.parents))

    def outcomes(self) -> tuple[list[Outcomes], dict[str, list[Outcomes]]]:
        """Return the outcomes of the right rule, and of each mistake, on every round."""
        return _outcomes(self)

    def test(self) -> OutcomeTest:
        """Return a new test of a submission."""
        right, known = self.outcomes()
        return OutcomeTest(right, known)

    def call(self, code: Code, one: Round, seed: int) -> Any:
        """Call a submission on a round."""
        if self.tree:
            return call_tree(code, one.p, one.q, list(one.tokens), list(one.parents), seed)
        return call_chain(code, one.p, one.q, list(one.tokens), seed)


@cache
def _outcomes(rule: Rule) -> tuple[list[Outcomes], dict[str, list[Outcomes]]]:
    verifier = rule.verifier()
    right = [one.right(verifier) for one in rule.rounds()]
    known = {}
    for mistake in rule.known:
        code = TrustedCode(mistake.source, mistake.key)
        known[mistake.key] = [
            outcomes_of(lambda rng, one=one, code=code: _enumerated(rule, code, one, rng))
            for one in rule.rounds()
        ]
    return right, known


def _enumerated(rule: Rule, code: TrustedCode, one: Round, rng: Any) -> Any:
    if rule.tree:
        answer = code.call("verify", one.p, one.q, list(one.tokens), list(one.parents), rng)
        return read_tree(answer, list(one.parents), VOCAB, code.name)
    return read_chain(
        code.call("verify", one.p, one.q, list(one.tokens), rng), len(one.tokens), VOCAB, code.name
    )


def decisions_check(rule: Rule, code: Code, seed: int, report: Report, calls: int = CALLS) -> Check:
    """Compare a submission's outcomes with the right rule's, and name the mistake that it behaves like."""
    source = random.Random(seed)
    test = rule.test()
    order = (source.randrange(ROUNDS) for _ in itertools.count())
    run_test(
        test,
        lambda index, number: rule.call(code, rule.rounds()[index], source.randrange(2**31)),
        order,
        calls,
    )
    figures: dict[str, Any] = {
        "calls": test.calls,
        "tokens": test.tokens,
        "p": test.p,
        "caught_after_tokens": test.caught_at,
    }
    if not test.rejected:
        return passed("decisions", "decisions.right", figures, calls=test.calls, tokens=test.tokens)
    report.behaves_like = test.behaves_like()
    if test.impossible:
        index, (path, token) = test.impossible
        one = rule.rounds()[index]
        figures["first_impossible"] = {
            "p": one.p.tolist(),
            "q": one.q.tolist(),
            "draft": list(one.tokens),
            "parents": list(one.parents),
            "accepted": list(path),
            "token": token,
        }
    if report.behaves_like:
        said = next(mistake.sentence for mistake in rule.known if mistake.key == report.behaves_like)
        return failed("decisions", "decisions.known", figures, sentence=said, tokens=test.caught_at)
    code_ = "decisions.impossible" if test.impossible else "decisions.unknown"
    return failed("decisions", code_, figures, tokens=test.caught_at)


def first_wrong(rule: Rule, code: Code, seed: int, report: Report) -> wrong_decision.WrongDecision | None:
    """Return the first wrong decision of a submission: of the rounds on which its outcomes are tested, or of greedy
    text."""
    failures = {check.name for check in report.checks if not check.ok}
    if "decisions" in failures:
        found = wrong_decision.first_wrong_round(
            rule.outcomes()[0],
            lambda index, number: rule.call(code, rule.rounds()[index], seed * wrong_decision.CALLS + number),
        )
        if found:
            return _wrong_round(rule, code, *found)
    return _wrong_text(rule, code) if "greedy text" in failures else None


def _wrong_round(
    rule: Rule, code: Code, index: int, frequent: Any, rare: Any, counts: Counter[Any]
) -> wrong_decision.WrongDecision:
    one, right = rule.rounds()[index], rule.outcomes()[0][index]
    tree, scores = one.tree(), Scores(one.p.clamp(min=1e-300).log())
    yours = wrong_decision.submitted_verdict(tree, one.p, one.q, *frequent)
    engine = _verdict_with(rule.verifier(), tree, scores, rare)
    expected, own = wrong_decision.named(rare, one.tokens), wrong_decision.named(frequent, one.tokens)
    sentence = TEXTS["wrong.round"].format(
        draft=wrong_decision.written(one.tokens),
        rule_kept=expected["kept"],
        rule_token=expected["token"],
        rule_share=right.get(rare, 0.0),
        rule_yours=counts[rare],
        calls=counts.total(),
        kept=own["kept"],
        token=own["token"],
        yours=counts[frequent],
        share=right.get(frequent, 0.0),
    )
    records = wrong_decision.one_round(0, TEXTS["wrong.yours"], tree, scores, yours)
    records += wrong_decision.one_round(1, TEXTS["wrong.rule"], tree, scores, engine)
    return wrong_decision.WrongDecision(sentence, records, wrong_decision.place_of(0))


def _verdict_with(verifier: Verifier, tree: DraftTree, scores: Scores, outcome: Any) -> Any:
    """Return a verdict of the engine's verifier with this outcome, or with the last one that was tried."""
    verdict = None
    for seed in range(wrong_decision.SEEDS):
        verdict = verifier.verify(tree, scores, State([0], Sampling(1.0, seed=seed)))
        if (verdict.path, int(verdict.token)) == outcome:
            break
    return verdict


def _wrong_text(rule: Rule, code: Code) -> wrong_decision.WrongDecision:
    """Return the first of the greedy texts that differ, beside that of the engine's verifier."""
    records, number = [], 0
    for prompt in PROMPTS:
        records = []
        for lane, title in enumerate(("wrong.yours", "wrong.rule")):
            kit = TinyLoaded().kit()
            parts = method_with(code, rule.tree).build(kit, gamma=DEPTH)
            if lane:
                parts = replace(parts, verifier=rule.verifier())
            records += wrong_decision.run_lane(lane, TEXTS[title], parts, kit.target, prompt, TEXT)
        number = wrong_decision.differing_round(records)
        if number is not None:
            break
    number = number or 0
    sentence = TEXTS["wrong.greedy"].format(round=number + 1)
    return wrong_decision.WrongDecision(sentence, records, wrong_decision.place_of(number))


def answer_check(code: Code, expected: list[float]) -> Check:
    """Compare the numbers in ANSWER with the expected ones."""
    given = code.constant("ANSWER")
    try:
        numbers = [float(one) for one in given]
    except (TypeError, ValueError):
        return failed("numbers", "answer.none", {}, count=len(expected))
    if len(numbers) != len(expected):
        return failed("numbers", "answer.none", {"given": numbers}, count=len(expected))
    wrong = [i + 1 for i, (a, b) in enumerate(zip(numbers, expected)) if not abs(a - b) <= ANSWER_TOLERANCE]
    if wrong:
        return failed(
            "numbers", "answer.wrong", {"given": numbers, "wrong": wrong}, which=wrong[0], count=len(expected)
        )
    return passed("numbers", "answer.right", {"given": numbers}, count=len(expected))


def check_with(rule: Rule, key: str, expected: Callable[[str], list[float]]) -> Callable[..., None]:
    """Return the check of a verification exercise."""

    def check(code: Code, student: str, report: Report) -> None:
        seed = source_of_numbers(student, f"{key}/check").randrange(2**30)
        report.checks.append(answer_check(code, expected(student)))
        report.checks.append(greedy_check(code, rule.tree))
        report.checks.append(decisions_check(rule, code, seed, report))
        if report.checks[-1].ok:
            report.checks.append(certificate_check(code, rule.tree, seed % 1000))
        else:  # a minute of a student's time, for what is known already
            report.checks.append(failed("sampled text", "certificate.not_run"))
        report.checks += small_target_checks(method_with(code, rule.tree))

    return check


def wrong_with(rule: Rule, key: str) -> Callable[[Code, str, Report], wrong_decision.WrongDecision | None]:
    """Return what finds the first wrong decision of a verification exercise."""

    def find(code: Code, student: str, report: Report) -> wrong_decision.WrongDecision | None:
        return first_wrong(rule, code, source_of_numbers(student, f"{key}/wrong").randrange(2**20), report)

    return find


def _own_pair(student: str, key: str) -> tuple[list[float], list[float]]:
    rng = source_of_numbers(student, key)
    return distribution_of(rng, 4, 1.2, 2), distribution_of(rng, 4, 1.2, 2)


def _numbers(key: str) -> Callable[[str], dict[str, Any]]:
    return lambda student: dict(zip(("P", "Q"), _own_pair(student, key)))


def residual(p: list[float], q: list[float]) -> list[float]:
    """Return the residual distribution norm((p - q)+); p where nothing is left."""
    rest = [max(0.0, a - b) for a, b in zip(p, q)]
    return [one / sum(rest) for one in rest] if sum(rest) > 0 else p


def _token_answers(student: str) -> list[float]:
    p, q = _own_pair(student, "token_rejection")
    return [sum(min(a, b) for a, b in zip(p, q)), *residual(p, q)]


def _sibling_answers(student: str) -> list[float]:
    p, q = _own_pair(student, "sibling_residual")
    first = sum(min(a, b) for a, b in zip(p, q))
    second = sum(min(a, b) for a, b in zip(residual(p, q), q))
    return [first, first + (1 - first) * second]


def _block_answers(student: str) -> list[float]:
    """Acceptance of a draft of two equal positions: expected number of accepted tokens, by token rejection and by
    block verification."""
    p, q = _own_pair(student, "block_verification")
    rows = torch.tensor([p, p, p], dtype=torch.float64), torch.tensor([q, q], dtype=torch.float64)
    expected = []
    for verifier in (TokenRejection(), BlockVerification()):
        total = 0.0
        for first, second in itertools.product(range(4), repeat=2):
            one = Round(rows[0], rows[1], (first, second), (-1, 0))
            mean = sum(prob * len(path) for (path, _), prob in one.right(verifier).items())
            total += q[first] * q[second] * mean
        expected.append(total)
    return expected


TOKEN = Rule(TokenRejection, tuple(range(-1, DEPTH - 1)), mistakes.TOKEN)
SIBLINGS = Rule(TokenRejection, SHAPE, mistakes.SIBLINGS, tree=True)
BLOCK = Rule(BlockVerification, tuple(range(-1, DEPTH - 1)), mistakes.BLOCK)

TOKEN_REJECTION = Exercise(
    "token_rejection",
    "Accept or reject: token rejection on a chain",
    ("verify",),
    _numbers("token_rejection"),
    check_with(TOKEN, "token_rejection", _token_answers),
    mistakes.TOKEN,
    wrong=wrong_with(TOKEN, "token_rejection"),
)
SIBLING_RESIDUAL = Exercise(
    "sibling_residual",
    "The residual for siblings of a tree",
    ("verify",),
    _numbers("sibling_residual"),
    check_with(SIBLINGS, "sibling_residual", _sibling_answers),
    mistakes.SIBLINGS,
    wrong=wrong_with(SIBLINGS, "sibling_residual"),
)
BLOCK_VERIFICATION = Exercise(
    "block_verification",
    "Block verification: judge the draft as a whole",
    ("verify",),
    _numbers("block_verification"),
    check_with(BLOCK, "block_verification", _block_answers),
    mistakes.BLOCK,
    wrong=wrong_with(BLOCK, "block_verification"),
)
