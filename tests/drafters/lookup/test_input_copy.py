"""The input as the draft: where copying begins, goes on, stops and is found again."""

from __future__ import annotations

from specviz.core import Budget, Outcome, Sampling, Scores, State, Verdict
from specviz.drafters.lookup.input_copy import InputCopy

SOURCE = [5, 6, 7, 8, 5, 9, 7, 4, 3, 2]


def begun(drafter, output=(), source=SOURCE, stop=frozenset()):
    state = State(list(source), Sampling(0.0), limit=50, stop=stop)
    drafter.start(state, None, None)
    state.tokens += output
    return state


def drafted(drafter, state, gamma=4):
    return list(drafter.propose(state, Budget(gamma=gamma)).tokens)


def commit(drafter, state, tokens):
    state.tokens += tokens
    drafter.observe(
        state, Outcome(None, Scores(None), Verdict((), tokens[-1], "bonus"), Budget(), tuple(tokens), (), {})
    )


def test_a_token_that_is_there_once_tells_the_place():
    drafter = InputCopy()
    state = begun(drafter, [1, 8])
    assert drafted(drafter, state) == [5, 9, 7, 4]
    assert state.notes[-1] == ("match", {"start": 3, "end": 4, "n": 1, "copied": 4})


def test_a_longer_piece_decides_between_two_places():
    drafter = InputCopy()
    assert drafted(drafter, begun(drafter, [9, 7])) == [4, 3, 2]
    assert drafted(drafter, begun(drafter, [1, 7])) == [], "7 stands there twice, and 1 7 does not"
    drafter = InputCopy(longest=1)
    assert drafted(drafter, begun(drafter, [9, 7])) == []


def test_unknown_tokens_and_the_end_of_the_input_draft_nothing():
    drafter = InputCopy()
    assert drafted(drafter, begun(drafter, [1])) == []
    assert drafted(drafter, begun(drafter, [2])) == []
    assert drafted(drafter, begun(drafter, [8]), gamma=0) == []


def test_copying_goes_on_while_the_output_follows_and_is_found_again_after_a_difference():
    drafter = InputCopy()
    state = begun(drafter, [6])
    assert drafted(drafter, state, 3) == [7, 8, 5]
    commit(drafter, state, [7, 8, 5, 9])  # all right, and the bonus goes on as the input does
    assert drafted(drafter, state, 2) == [7, 4] and state.notes[-1][1]["n"] == 0
    commit(drafter, state, [7, 1])  # a correction
    assert drafted(drafter, state) == []
    commit(drafter, state, [4])
    assert drafted(drafter, state) == [3, 2]
    commit(drafter, state, [3, 2])
    assert drafted(drafter, state) == []


def test_from_the_start_and_no_further_than_an_end_token():
    drafter = InputCopy(from_start=True)
    assert drafted(drafter, begun(drafter, stop=frozenset({7}))) == [5, 6, 7]
    assert drafted(drafter, begun(drafter)) == [5, 6, 7, 8]
    state = begun(drafter)
    state.tokens += [1, 8]  # a text it was not told of: a place that is not this text's is not used
    assert drafted(drafter, state) == [5, 9, 7, 4]


def test_a_piece_at_the_inputs_end_counts_as_a_place():
    """3 2 stands in the middle and at the end: it does not tell the place; 9 at the end alone tells one
    with nothing behind it."""
    source = [3, 2, 6, 7, 3, 2]
    drafter = InputCopy()
    assert drafted(drafter, begun(drafter, [8, 3, 2], source)) == []
    assert drafted(drafter, begun(drafter, [8, 2], [3, 2, 6, 7])) == [6, 7]
    assert drafted(drafter, begun(drafter, [8, 9], [3, 2, 9])) == []


def test_all_that_is_left_of_a_long_input_can_be_copied_in_one_round():
    from specviz.methods.lookup import iad

    source = list(range(100, 800))
    drafter = InputCopy()
    assert (
        drafted(drafter, begun(drafter, [100], source), iad.METHOD.read_knobs(iad.METHOD.published)["gamma"])
        == source[1:]
    )
