"""Methods that copy from the text so far: greedy equality, the exact distribution, what they draft and from
where."""

from __future__ import annotations

import pytest

from specviz.core import Budget, State
from specviz.drafters.lookup.copying import GramCopy, NgramDraft, SuffixCopy
from specviz.methods.lookup import anpd, copy_or_draft, copyspec, sam_decoding

from .toys import check_distribution, check_greedy, kit, play_all

METHODS = [
    (anpd.METHOD, {}),
    (anpd.METHOD, {"least": 3, "gamma": 3}),
    (copyspec.METHOD, {}),
    (copyspec.METHOD, {"gram": 1, "occurrence": "latest"}),
    (copy_or_draft.METHOD, {}),
    (copy_or_draft.METHOD, {"gram": 1, "block": 2, "gamma": 3}),
    (sam_decoding.METHOD, {}),
    (sam_decoding.METHOD, {"least": 1, "gamma": 5}),
    (sam_decoding.METHOD, {"otherwise": "token recycling"}),
]
NAMES = [f"{m.key} {k}" for m, k in METHODS]


@pytest.fixture(scope="module")
def kits():
    return [kit(vocab, seed) for vocab, seed in ((4, 0), (12, 1), (2, 3))]


@pytest.mark.parametrize("method, knobs", METHODS, ids=NAMES)
def test_greedy(method, knobs, kits):
    """Tiny targets soon write in circles, so every drafter finds something to copy."""
    prompts = ([1], [1, 1, 1, 1, 1, 1], [1, 0, 0, 1, 1, 0, 0])
    assert check_greedy(method, kits, prompts, 48, **knobs) > 1.2


@pytest.mark.parametrize(
    "method, knobs",
    [
        (copy_or_draft.METHOD, {"gram": 1, "block": 2, "gamma": 2}),
        (anpd.METHOD, {"gamma": 2}),
        (copyspec.METHOD, {"gram": 1, "block": 2}),
        (sam_decoding.METHOD, {"least": 1, "gamma": 2}),
        (sam_decoding.METHOD, {"gamma": 2, "otherwise": "token recycling", "nodes": 3}),
    ],
)
def test_distribution(method, knobs):
    check_distribution(method, kit(3), **knobs)


def drafted(drafter, tokens, gamma=4, stop=frozenset()):
    state = State(list(tokens), stop=stop)
    drafter.start(state, None, None)
    tree = drafter.propose(state, Budget(gamma))
    return tree, dict(state.notes)


def test_copies_say_where_from():
    text = [5, 6, 7, 8, 9, 1, 5, 6, 7]
    for drafter in (GramCopy(3), SuffixCopy(3), NgramDraft(4)):
        tree, notes = drafted(drafter, text)
        assert tree.tokens == (8, 9, 1, 5)
        assert [text[o.start] for o in tree.origin] == [8, 9, 1, 5] and {o.source for o in tree.origin} == {
            "context"
        }
    tree, notes = drafted(GramCopy(3), text)
    assert notes["match"] == {"start": 0, "end": 3, "n": 3, "copied": 4}
    assert drafted(NgramDraft(4), text)[1]["backoff"] == {"orders": [4, 4, 4, 4], "longest": 4}


def test_first_and_latest():
    text = [1, 2, 7, 1, 2, 8, 1, 2]
    assert drafted(GramCopy(2), text, 1)[0].tokens == (7,)
    assert drafted(GramCopy(2, latest=True), text, 1)[0].tokens == (8,)


def test_nothing_after_an_end_token():
    text = [1, 2, 3, 9, 4, 1, 2]
    for drafter in (GramCopy(2), SuffixCopy(1), NgramDraft(3)):
        assert drafted(drafter, text, 4, frozenset({9}))[0].tokens == (3, 9)


def test_longer_matches_go_further():
    text = [*range(20), *range(3)]
    assert len(drafted(SuffixCopy(3, 1.0), text, 40)[0]) == 4
    assert len(drafted(SuffixCopy(3, 4.0), text, 40)[0]) == 13
    assert len(drafted(SuffixCopy(4), text, 40)[0]) == 0


def test_follows_any_text():
    """A drafter asked about a continuation that never came drafts as a fresh one does, and so it does
    afterwards."""
    run = [1, 2, 3, 4, 1, 2, 5, 1, 2, 3]
    for make in (lambda: GramCopy(2), lambda: SuffixCopy(1), lambda: NgramDraft(3)):
        drafter = make()
        drafted(drafter, run)
        for other in (run + [4, 1], run + [9], run[:4], [7, 7, 7, 7], run):
            assert drafter.propose(State(list(other)), Budget(4)) == drafted(make(), other)[0]


def test_rounds_without_a_match_are_plain():
    one = kit(12, 1)
    _, outcomes, _ = play_all(copyspec.METHOD, one, [3], 3)
    assert all(len(o.tree) == 0 and o.verdict.kind == "plain" for o in outcomes)


def test_copy_or_draft_takes_turns():
    """Copies while the text repeats, the small model otherwise; each within its own length."""
    _, outcomes, state = play_all(copy_or_draft.METHOD, kit(12, 1), [3, 7, 1], 40, block=6, gamma=2)
    arms = [data["arm"] for kind, data in state.notes if kind == "arm"]
    assert set(arms) == {0, 1} and len(arms) == len(outcomes)
    for arm, outcome in zip(arms, outcomes):
        assert len(outcome.tree) <= (6, 2)[arm]
        assert {outcome.tree.label(i) for i in range(len(outcome.tree))} <= {("chosen", "iid")[arm]}
