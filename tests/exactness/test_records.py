"""The records of every method of the catalogue: each verdict can be recomputed from its u and a, the counts
add up."""

from __future__ import annotations

import pytest

from specviz.core import Sampling, State
from specviz.loops import speculate
from specviz.trace.events import Committed, Decided
from specviz.trace.metrics import Totals

from ..trace.records import retell
from .toys import PROMPT, any_knobs, later, methods, provided, sample, toy_of

ALL = methods("exact", "greedy only")


SAMPLE = sample()
CASES = [
    later(pytest.param(m, t, id=f"{m.key}-{t}"), m.key in SAMPLE)
    for m in ALL
    for t in (0.0, 1.0)
    if not (t and m.exactness == "greedy only")
]


@pytest.mark.parametrize("method, temperature", CASES)
def test_every_verdict_can_be_recomputed_and_the_counts_add_up(method, temperature):
    for seed in range(3):
        kit = toy_of(method, 12, seed=seed, share=0.8, sharp=2.0)
        provided(method, kit)
        parts = method.build(kit, **(any_knobs(method, seed) if seed else method.read_knobs({})))
        state = State(
            list(PROMPT), Sampling(temperature, seed=seed), limit=30, stop=frozenset({5}), top_k_saved=4
        )
        events, totals = list((parts.loop or speculate)(parts, kit.target, state)), Totals()
        for event in events:
            totals.fold(event)
        assert retell(events, PROMPT, parts.loop is not None) == state.tokens
        verdicts = [t["verdict"] for e in events if isinstance(e, Decided) for t in e.decisions]
        assert totals.tokens == len(state.tokens) - len(PROMPT) and totals.rounds == state.round
        assert (
            totals.accepted
            == verdicts.count("accepted")
            == sum(e.accepted for e in events if isinstance(e, Committed))
        )
        assert totals.examined == len(verdicts) - verdicts.count(
            "skipped"
        ) >= totals.tried and totals.drafted == len(verdicts)
        assert sum(ok for _, ok in totals.by_position) == totals.accepted
