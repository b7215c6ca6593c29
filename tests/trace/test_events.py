"""From a run to its records and back: verdicts can be recomputed, counts add up."""

from __future__ import annotations

import pytest
import torch

from specviz.core import IID, WITHOUT_REPLACEMENT, Drafter, Parts, Policy, Sampling, State, TreeBuilder
from specviz.loops import speculate
from specviz.targets.tiny import TinyNet, TinyTarget
from specviz.trace.events import (
    Committed,
    Decided,
    Drafted,
    Failed,
    Finished,
    Noted,
    Prefilled,
    Started,
    Verified,
    top_tokens,
)
from specviz.trace.metrics import Totals, walltime_speedup
from specviz.verifiers import TokenRejection

from .records import retell

NET = TinyNet(6, seed=3, sharp=1.5)
PROMPT = [1, 2, 0, 3]


class Guess(Drafter):
    """Drawn and chosen children of every kind under the root and below, and a probe: whatever a trace can
    hold."""

    def propose(self, state, budget):
        builder = TreeBuilder()
        for parent in (-1, 0)[: budget.gamma]:
            for how, count in ((IID, 1), (WITHOUT_REPLACEMENT, 2)):
                probs = torch.full((6,), 1 / 6, dtype=torch.float64)
                draw = builder.begin(probs, how)
                for _ in range(count):
                    token = state.rng.pick("draft", probs)
                    builder.add(token, parent, draw)
                    if how == WITHOUT_REPLACEMENT:
                        probs = probs.clone()
                        probs[token] = 0
                        probs = probs / probs.sum()
            builder.add(len(state.tokens) % 6, parent)
        if len(builder):
            builder.add(-1, 0, probe=True)
        state.note("threshold", value=len(builder))
        return builder.tree()


def run(seed: int, temperature: float = 1.0, limit: int = 25, **kw):
    state = State(list(PROMPT), Sampling(temperature, seed=seed), limit=limit, top_k_saved=3, **kw)
    events = list(speculate(Parts(Guess(), Policy(), TokenRejection()), TinyTarget(NET), state))
    totals = Totals()
    for event in events:
        totals.fold(event)
    return state, events, totals


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("stop", [frozenset(), frozenset({2})], ids=["", "end token"])
def test_verdicts_can_be_recomputed_from_the_records(seed, stop):
    state, events, _ = run(seed, stop=stop)
    assert retell(events, PROMPT) == state.tokens


def test_the_target_distribution_in_the_records_is_the_targets_distribution():
    _, events, _ = run(1)
    tokens, drafted = list(PROMPT), None
    for event in events:
        if isinstance(event, Decided):
            first = event.decisions[0]
            probs = NET.logits(tokens)[-1].softmax(-1)
            assert first["p"] == pytest.approx(float(probs[drafted.nodes[first["node"]]["tok"]]), abs=1e-12)
            assert first["top_p"] == [[x, pytest.approx(p)] for x, p in top_tokens(probs, 3)]
        elif isinstance(event, Drafted):
            if not event.nodes:
                break
            drafted = event
        elif isinstance(event, Committed):
            tokens += event.tokens
    assert len(tokens) > 10


@pytest.mark.parametrize("seed", range(6))
def test_totals_are_counts(seed):
    state, events, totals = run(seed)
    committed = [e for e in events if isinstance(e, Committed)]
    assert totals.tokens == sum(len(e.tokens) for e in committed) == len(state.tokens) - len(PROMPT)
    assert totals.rounds == len(committed) == sum(isinstance(e, Verified) for e in events) == state.round
    verdicts = [t["verdict"] for e in events if isinstance(e, Decided) for t in e.decisions]
    assert totals.drafted == len(verdicts) and totals.examined == len(verdicts) - verdicts.count("skipped")
    assert totals.accepted == verdicts.count("accepted") == sum(e.accepted for e in committed)
    assert (
        totals.accepted <= totals.tried <= totals.drafted and totals.tokens <= totals.accepted + totals.rounds
    )
    assert sum(ok for _, ok in totals.by_position) == totals.accepted
    tried = [n for n, _ in totals.by_position]
    assert tried == sorted(tried, reverse=True)
    assert all(later <= ok for (later, _), (_, ok) in zip(totals.by_position[1:], totals.by_position))
    assert totals.seconds == pytest.approx(sum(sum(e.seconds.values()) for e in committed))
    m = totals.metrics()
    assert (
        m["block_efficiency"] == totals.tokens / totals.rounds
        and m["mean_accepted_tokens"] == totals.accepted / totals.rounds
    )
    assert m["draft_yield"] <= m["acceptance_rate"] <= 1
    assert m["tokens_per_second"] * m["seconds_per_token"] == pytest.approx(1)


def test_runs_add_up():
    (_, a, one), (_, b, two), both = run(1), run(2, limit=4), Totals()
    for event in a + b:
        both.fold(event)
    total = one + two
    counts, want = ({k: v for k, v in t.record().items() if "seconds" not in k} for t in (total, both))
    assert counts == want
    assert total.seconds == pytest.approx(both.seconds) and total.prefill_seconds == pytest.approx(
        both.prefill_seconds
    )
    assert (one + Totals()).record() == one.record()


def test_nothing_counted_is_none_and_not_a_crash():
    assert set(Totals().metrics().values()) == {None}
    assert walltime_speedup(Totals(), Totals()) is None
    plain, ours = (
        Totals(tokens=10, phase_seconds={"verify": 5.0}),
        Totals(tokens=20, phase_seconds={"verify": 4.0, "draft": 1.0}),
    )
    assert walltime_speedup(plain, ours) == pytest.approx(2.0)


def test_notes_become_lens_records_once():
    _, events, _ = run(3)
    notes = [e for e in events if isinstance(e, Noted)]
    assert [e.round for e in notes] == list(range(len(notes))) and len(notes) == sum(
        isinstance(e, Committed) for e in events
    )
    assert list(notes[0].records()) == [
        {"type": "lens", "round": 0, "kind": "threshold", "data": {"value": 9}}
    ]


def test_the_prefill_counts_the_rows_fed():
    _, events, _ = run(3)
    (record,) = events[0].records()
    assert isinstance(events[0], Prefilled) and (record["type"], record["n"]) == ("prefill", len(PROMPT) - 1)


def test_the_ends_of_a_lane():
    assert list(Started({"schema": "x"}).records()) == [{"type": "header", "schema": "x"}]
    assert [r["type"] for r in Finished("stop", {}).records()] == ["done"]
    assert [(r["type"], r.get("why")) for r in Finished("deadline", {}).records()] == [
        ("stop", "deadline"),
        ("done", None),
    ]
    assert [(r["type"], r.get("finish")) for r in Failed("no weights").records()] == [
        ("error", None),
        ("done", "error"),
    ]


def test_best_is_best_first_and_never_impossible():
    probs = torch.tensor([0.0, 0.2, 0.7, 0.1, 0.0])
    assert (
        [x for x, _ in top_tokens(probs, 9)] == [2, 1, 3]
        and top_tokens(probs, 0) is None
        and top_tokens(None, 3) is None
    )
