"""Measure the grader of the verification exercises: ``python -m tests.coursework.power [RUNS]``.

Wrong variants: how many of RUNS / 10 checks catch each, after how many tokens (median), and how many give it its name.
Right ones: how many of RUNS checks fail. A check's calls are sampled from the outcomes that a submission has on each
round, which are enumerated, so that no process is started."""

from __future__ import annotations

import statistics
import sys

from specviz.coursework import verification as v
from specviz.coursework.outcomes import outcomes_of
from specviz.coursework.submission import TrustedCode

from .test_verification import RULES, sampled


def main(runs: int) -> None:
    """Print the table, then the false alarms."""
    print(
        "| exercise | wrong variant | caught | tokens until caught (median) | named |\n|---|---|---|---|---|"
    )
    for key, (rule, _) in RULES.items():
        for name, outcomes in rule.outcomes()[1].items():
            tests = [sampled(outcomes, seed, rule=rule) for seed in range(max(1, runs // 10))]
            caught = [test.caught_at for test in tests if test.caught_at is not None]
            named = sum(test.behaves_like() == name for test in tests if test.rejected)
            middle = statistics.median(caught) if caught else "-"
            print(f"| {key} | {name} | {len(caught)} of {len(tests)} | {middle} | {named} |", flush=True)
    for key, (rule, some) in RULES.items():
        code = TrustedCode(some["solution"])
        right = [
            outcomes_of(lambda rng, one=one, code=code, rule=rule: v._enumerated(rule, code, one, rng))
            for one in rule.rounds()
        ]
        alarms = sum(sampled(right, seed, rule=rule).rejected for seed in range(runs))
        print(f"{key}: {alarms} false alarms in {runs} checks of the solution", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
