"""A text that the caller expects: copied from the beginning, found again after a difference, and exact
whatever it says."""

from __future__ import annotations

from specviz.core import Budget, Outcome, Scores, State, Verdict
from specviz.drafters.lookup.prediction import ASSUMED, Prediction
from specviz.methods.lookup import predicted_output

from .toys import check_distribution, greedy, kit, play_all

TEXT = [10, 11, 12, 13, 14, 15, 11, 12, 16, 17]


def begun(text=TEXT, prompt=(1, 2, 3), **settings):
    drafter, state = Prediction(text, **settings), State(list(prompt), limit=90)
    drafter.start(state, None, None)
    return drafter, state


def drafted(drafter, state, gamma=4):
    return list(drafter.propose(state, Budget(gamma)).tokens)


def commit(drafter, state, *tokens):
    state.tokens += tokens
    drafter.observe(
        state, Outcome(None, Scores(None), Verdict((), tokens[-1], "bonus"), Budget(), tokens, (), {})
    )


def test_it_is_copied_from_its_beginning_before_anything_is_written():
    drafter, state = begun()
    tree = drafter.propose(state, Budget(64))
    assert list(tree.tokens) == TEXT and tree.origin[0] == ("predicted", 0, 1) and drafter.matched == ASSUMED


def test_it_goes_on_where_the_answer_follows_it():
    drafter, state = begun()
    commit(drafter, state, 10, 11, 12)
    assert drafted(drafter, state) == [13, 14, 15, 11]


def test_after_a_difference_the_place_is_found_again_ahead():
    drafter, state = begun(min_match=2)
    commit(drafter, state, 10, 11, 12, 13, 99)
    assert drafted(drafter, state) == [] and drafter.lost
    commit(drafter, state, 11, 12)  # stands twice: the nearest one ahead of the place that was reached
    assert drafted(drafter, state) == [16, 17]
    assert drafter.matched == 2
    drafter, state = begun(min_match=1)
    commit(drafter, state, 10, 99, 13)
    assert drafted(drafter, state) == [14, 15, 11, 12]


def test_a_hypothetical_text_leaves_the_place_alone():
    drafter, state = begun()
    commit(drafter, state, 10)
    assert drafted(drafter, state.fork([11, 12]), 2) == [13, 14]
    assert drafted(drafter, state, 2) == [11, 12]


def test_without_a_text_the_prompt_is_the_prediction():
    drafter, state = begun(None, (5, 6, 7))
    assert drafted(drafter, state) == [5, 6, 7]


def test_a_true_prediction_is_written_in_a_few_rounds_and_a_false_one_changes_nothing():
    one, prompt = kit(12, 3), [1, 2, 0, 3]
    plain = greedy(one.net, prompt, 40)
    for predicted, rounds in ((plain, range(1, 4)), ([5] * 40, range(5, 41))):
        one.predicted = tuple(predicted)
        written, outcomes, _ = play_all(predicted_output.METHOD, one, prompt, 40, caution=0)
        assert written == plain and len(outcomes) in rounds


def test_distribution():
    for predicted in ((0, 1, 2), (2, 2, 2, 2)):
        check_distribution(predicted_output.METHOD, kit(3, predicted=predicted), gamma=2)
