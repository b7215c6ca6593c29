"""DReSD: the nearest states against brute force, partial prefill, greedy equality and the exact law."""
from __future__ import annotations

import pytest
import torch

from specviz.core import Budget, Scores, State, open_run, play
from specviz.drafters.dense import DenseCopy
from specviz.methods import dresd
from specviz.targets.scripted import ScriptedTarget

from .toys import check_greedy, check_law, kit


@pytest.mark.parametrize("prompt", [[1], [3, 7, 1, 1, 3, 7, 2, 3, 7]])
def test_nearest_of_all_states(prompt):
    """Keys grow with every round and stay those of a fresh pass over the text; the neighbours are the most similar ones."""
    one = kit(12, 1)
    parts = dresd.METHOD.build(one, **dresd.METHOD.read_knobs({"least": -1.0, "neighbours": 3, "caution": 0.0}))
    state = State(list(prompt), limit=90)
    target, drafter = one.target, parts.drafter
    open_run(parts, target, state)
    while not state.done:
        play(parts, target, state)
        fresh = ScriptedTarget(one.net, 128)
        fresh.tap(frozenset({"final"}))
        states = fresh.sync(state.tokens).taps["final"]
        assert drafter.first == 0 and drafter.count == len(states) == len(state.tokens) - 1
        keys = drafter._key(states)
        assert torch.allclose(keys, drafter.keys[:drafter.count], atol=1e-5)
        end = len(state.tokens)
        brute = [(i + 1, float(keys[i - 1] @ keys[-1])) for i in range(1, end - 1) if state.tokens[i] == state.tokens[-1]]
        brute.sort(key=lambda x: -x[1])
        found = drafter.nearest(state.tokens)
        assert [x for _, x in found] == pytest.approx([x for _, x in brute[:3]], abs=1e-4)
        assert all(state.tokens[place - 1] == state.tokens[-1] for place, _ in found)


def test_a_part_of_the_prompt_is_enough():
    """A cache kept between turns gives the states of the new rows only."""
    drafter, tokens = DenseCopy(2, -1.0), [5, 6, 7, 5, 6, 8, 5]
    states = torch.eye(6)[3:]  # of positions 3, 4, 5
    drafter.start(State(tokens), None, Scores(torch.zeros(0, 9), {"final": states}, 3))
    assert drafter.nearest(tokens) == []  # the token 5 at 3 was predicted by a state that is not here
    drafter.start(State(tokens), None, Scores(torch.zeros(0, 9), {"final": torch.eye(6)[2:]}, 2))
    assert [place for place, _ in drafter.nearest(tokens)] == [4]
    state = State(list(tokens))
    assert drafter.propose(state, Budget(2, 2, 8)).tokens == (6, 8)
    assert state.notes[0][1]["places"] == [4]
    assert len(drafter.propose(State([*tokens, 1]), Budget(2, 2, 8))) == 0  # no state for a token the target has not read


def test_chains_are_merged_and_end():
    drafter, tokens = DenseCopy(3, -1.0), [1, 5, 6, 7, 5, 6, 8, 5, 9, 9, 5]
    states = torch.randn(10, 4, generator=torch.Generator().manual_seed(0))
    drafter.start(State(tokens), None, Scores(torch.zeros(0, 9), {"final": states}, 0))

    def paths(tree):
        return {tuple(tree.tokens[j] for j in tree.path(i)) for i in range(len(tree))}

    tree = drafter.propose(State(list(tokens)), Budget(2, 3, 9))
    assert paths(tree) == {(6,), (6, 7), (6, 8), (9,), (9, 9)} and len(tree) == 5
    assert all(tokens[o.start] == t for o, t in zip(tree.origin, tree.tokens))
    assert paths(drafter.propose(State(list(tokens), stop=frozenset({6, 9})), Budget(2, 3, 9))) == {(6,), (9,)}
    assert len(drafter.propose(State(list(tokens)), Budget(2, 3, 3))) <= 3


def test_greedy():
    kits = [kit(vocab, seed) for vocab, seed in ((4, 0), (12, 1), (2, 3))]
    assert check_greedy(dresd.METHOD, kits, ([1], [1, 1, 1, 1, 1, 1], [1, 0, 0, 1, 1, 0, 0]), 32) > 1.2


def test_law():
    check_law(dresd.METHOD, kit(3), least=-1.0, length=2)
