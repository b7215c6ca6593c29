"""The clock, the costs and the state of a run."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specviz.core import Clock, Costs, RandomStreams, Sampling, SingleStream, State


class Hands:
    """A clock's source that a test moves."""

    def __init__(self):
        self.t = 100.0

    def __call__(self) -> float:
        return self.t


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.sampled_from(["run", "pause", "resume"]), st.integers(0, 9)), max_size=30))
def test_paused_time_is_never_counted(steps):
    hands = Hands()
    clock = Clock(hands)
    counted = 0
    paused = False
    for what, seconds in steps:
        if what == "pause":
            clock.pause()
            paused = True
        elif what == "resume":
            clock.resume()
            paused = False
        hands.t += seconds
        counted += 0 if paused else seconds
        assert clock.now() == counted


def test_costs_interpolate_between_and_hold_beyond():
    costs = Costs(verify={2: 10.0, 6: 30.0}, draft={1: 5.0})
    assert [costs.verify(n) for n in (0, 2, 3, 4, 6, 50)] == [10, 10, 15, 20, 30, 30]
    assert [costs.draft(n) for n in (0, 1, 9)] == [5, 5, 5]
    assert Costs().verify(4) == Costs().draft(0) == 1.0


def test_costs_learn_by_a_moving_mean_and_leave_what_was_given_alone():
    table = {4: 1.0}
    costs = Costs(verify=table, weight=0.25)
    costs.learn(4, 2.0, 3, 7.0)
    costs.learn(4, 2.0, 3, 3.0)
    assert costs.verify(4) == pytest.approx(1 + 0.25 + 0.25 * 0.75)
    assert costs.draft(3) == pytest.approx(7 - 0.25 * 4) and table == {4: 1.0}


def test_left_done_and_ended():
    state = State([9, 9, 2], limit=3, stop=frozenset({2}))
    assert (state.start, state.left, state.ended, state.done) == (3, 3, False, False), (
        "an end token in the prompt ends nothing"
    )
    state.tokens += [1]
    assert (state.left, state.done) == (2, False)
    state.tokens += [2]
    assert (state.left, state.ended, state.done) == (1, True, True)
    assert State([1], limit=0).done


def test_a_fork_is_hypothetical():
    state = State([1, 2], Sampling(1.0, seed=4), limit=5, stop=frozenset({3}))
    state.tokens += [7]
    fork = state.fork([3], stream="draft")
    fork.tokens.append(0)
    fork.note("threshold", value=1)
    assert state.tokens == [1, 2, 7] and fork.tokens == [1, 2, 7, 3, 0] and not state.notes
    assert fork.start == 2 and not fork.done and fork.costs is state.costs and fork.clock is state.clock
    assert isinstance(fork.rng, SingleStream) and fork.rng.flip("verify", 0.5) == RandomStreams(4).flip(
        "draft", 0.5
    )
    assert state.fork([3], limit=9).done and state.fork([4], limit=9).left == 7
    assert state.fork().rng is state.rng


def test_a_run_is_seeded_by_its_sampling():
    assert State([1], Sampling(1.0, seed=11)).rng.flip("verify", 0.5) == RandomStreams(11).flip("verify", 0.5)
