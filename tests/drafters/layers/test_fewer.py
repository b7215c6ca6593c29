"""Self-speculation: which layers, the search for them, greedy equality and the exact distribution on a
target that lends its layers."""

from __future__ import annotations

import random

import pytest

from specviz.core import Budget, Sampling, State, open_run
from specviz.drafters.layers.layer_search import LayerSearch
from specviz.drafters.layers.layer_skipping import SkippedLayers, evenly_spaced_layers
from specviz.indexes.earlier_answers import Memory
from specviz.methods.self_speculation import layer_skipping_decoder, layerskip, swift, unified_layer_skipping

from ..lookup.toys import FREE, check_distribution, check_greedy, greedy, layered, play_all, play_loop

SKIP = layerskip.METHOD
SWIFT = swift.METHOD
ULS = unified_layer_skipping.METHOD
LSD = layer_skipping_decoder.METHOD
PROMPTS = ([1], [1, 0, 0, 1, 1, 0, 0])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tiny")


@pytest.mark.parametrize(
    "layers, speedup, kept",
    [
        (30, 2, (0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 29)),
        (30, 3, (0, 3, 6, 9, 12, 15, 18, 21, 24, 29)),
        (30, 5, (0, 6, 12, 18, 24, 29)),
        (30, 10, (0, 15, 29)),
        (32, 4, (0, 4, 8, 12, 16, 20, 24, 31)),
        (24, 3, (0, 3, 6, 9, 12, 15, 18, 23)),
        (8, 10, (0, 7)),
        (2, 2, (0, 1)),
        (1, 5, (0,)),
    ],
)
def test_kept_layers_are_the_published_ones(layers, speedup, kept):
    assert evenly_spaced_layers(layers, speedup) == kept


def search(wanted, choices=tuple(range(2, 22)), trials=200, **settings):
    found = LayerSearch(choices, 0.45, random.Random(1), **settings)
    scores = []
    while not found.finished and found.trials < trials:
        trial = found.propose()
        assert len(trial) == found.size == int(len(choices) * 0.45) and trial <= set(choices)
        scores.append(len(trial & wanted) / found.size)
        assert found.learn(trial, scores[-1]) == (scores[-1] > max([0.0, *scores[:-1]]))
    assert found.matched == max(scores) and found.trials == len(scores)
    return found, scores


def test_search_keeps_the_best():
    found, scores = search(set(range(3, 12)))
    assert found.matched > scores[0]  # better than the first guess, every other layer


def test_bayesian_steps_pay():
    """Over many searches, a proposal of the model is better than a random one."""
    from specviz.drafters.layers import layer_search as module

    gain = 0.0
    for seed in range(20):
        rolls = random.Random(seed)
        wanted = set(rolls.sample(range(2, 22), 9))
        found = LayerSearch(tuple(range(2, 22)), 0.45, rolls, enough=2)
        drawn, modelled = [], []
        while found.trials < 4 * module.EVERY + 1:
            clever = found.trials and found.trials % module.EVERY == 0
            trial = found.propose()
            (modelled if clever else drawn).append(len(trial & wanted) / found.size)
            found.learn(trial, len(trial & wanted) / found.size)
        gain += sum(modelled) / len(modelled) - sum(drawn) / len(drawn)
    assert gain / 20 > 0.1


def test_search_ends():
    assert search(set(range(20)), enough=0.1)[0].trials == 1
    assert search(set(), patience=7)[0].trials == 7
    assert search({2, 3}, max_trials=9, enough=2, patience=99)[0].trials == 9
    nothing = LayerSearch((), 0.45, random.Random(1))
    assert nothing.best == frozenset() and not nothing.finished
    nothing.learn(nothing.propose(), 0.3)
    assert nothing.finished


METHODS = [
    (SKIP, {}),
    (SKIP, {"share": 0.9, "gamma": 5}),
    (SWIFT, {"context": 8}),
    (SWIFT, {"sure": 0.0, "gamma": 3, "wide": 1, "ratio": 0.1}),
    (ULS, {}),
    (ULS, {"speedup": 10, "gamma": 4}),
]


@pytest.mark.parametrize("method, knobs", METHODS, ids=[f"{m.key} {k}" for m, k in METHODS])
def test_greedy(method, knobs, folder):
    kits = [layered(folder, 12, 6), layered(folder, 5, 3, 1), layered(folder, 7, 2, 2)]
    assert check_greedy(method, kits, PROMPTS, 24, **knobs) > 1.05


@pytest.mark.parametrize(
    "method, knobs",
    [
        (SKIP, {"gamma": 2}),
        (SWIFT, {"gamma": 2, "wide": 2, "sure": 0.3}),
        (ULS, {"gamma": 2}),
    ],
)
def test_distribution(method, knobs, folder):
    check_distribution(
        method, layered(folder, 3, 4, 3), prompt=(1, 2, 0), count=2 if method is SWIFT else 3, **knobs
    )


def test_drafting_leaves_the_target_alone(folder):
    """The target's committed keys and values, and what it says next, are the same before and after a
    draft."""
    for method in (SKIP, SWIFT, ULS):
        one = layered(folder, 12, 6)
        parts = method.build(one, **method.read_knobs({}))
        state = State([3, 7, 1, 4])
        open_run(parts, one.target, state)
        before = [[x.clone() for x in one.target.kv(i)] for i in range(6)]
        tree = parts.drafter.propose(state, Budget(4, 2, 8))
        assert len(tree) > 0 and one.target.cached_tokens == [3, 7, 1]
        for i in range(6):
            assert all(bool((a == b).all()) for a, b in zip(before[i], one.target.kv(i)))


def test_swift_searches_while_it_writes(folder):
    one, knobs = layered(folder, 12, 6, 1), {"context": 16, "ratio": 0.45, "every": 1}
    _, outcomes, state = play_all(SWIFT, one, [3, 7, 1], 60, **knobs)
    reported = [data for kind, data in state.notes if kind == "layers"]
    assert reported[0]["trials"] == 0 and reported[-1]["trials"] > 3
    assert [t["matched"] for t in reported] == sorted(t["matched"] for t in reported)
    assert all(
        2 <= s < 10 and len(t["skipped"]) == 3 for t in reported for s in t["skipped"]
    )  # of 6 layers, first and last stay
    rare = [
        data
        for kind, data in play_all(SWIFT, one, [3, 7, 1], 60, **knobs | {"every": 5})[2].notes
        if kind == "layers"
    ]
    assert 0 < rare[-1]["trials"] < reported[-1]["trials"] / 3
    again = play_all(SWIFT, one, [3, 7, 1], 60, **knobs)[2]
    assert [data for kind, data in again.notes if kind == "layers"] == reported


def test_swifts_search_goes_on_with_the_visitors_next_answer_and_reaches_its_bayesian_step(
    folder, monkeypatch
):
    """One visitor, three short answers, fewer trials in each than it takes to get there."""
    from specviz.drafters.layers import layer_search as module

    asked = []
    monkeypatch.setattr(module, "EVERY", 12)
    inner = LayerSearch._promising
    monkeypatch.setattr(
        LayerSearch, "_promising", lambda self, sets: asked.append(self.trials) or inner(self, sets)
    )
    one, ends = layered(folder, 12, 6, 1), []
    one.memory = Memory()
    for prompt in ([3, 7, 1], [4, 4, 2], [5, 1, 9]):
        reported = [
            data
            for kind, data in play_all(SWIFT, one, prompt, 24, context=8, every=1)[2].notes
            if kind == "layers"
        ]
        assert reported[0]["trials"] >= (ends[-1] if ends else 0)
        ends.append(reported[-1]["trials"])
    assert 0 < ends[0] < 12 < ends[-1] and asked[0] == 12


def test_swift_is_as_wide_as_its_certainty_says(folder):
    one = layered(folder, 12, 6, 1)
    for sampling, column in ((Sampling(), 0), (FREE, 1)):
        wide, met = {"sure": 0.0, "wide": 10, "gamma": 2, "widths": "published"}, set()
        _, outcomes, _ = play_all(SWIFT, one, [3, 7, 1], 24, sampling, **wide)
        for outcome in outcomes:
            met |= {
                len(outcome.tree.children(node))
                for node in range(-1, len(outcome.tree))
                if outcome.tree.children(node)
            }
        assert met <= set(((3, 5, 8, 10), (1, 3, 5, 10))[column])
        assert max(met) > 4, "wider than the narrow ones ever are"


def test_the_first_token_of_the_layer_skipping_decoder_is_the_whole_models(folder):
    """The prompt goes through all layers, its last token as well; what is written goes through some."""
    one = layered(folder, 12, 6, 1)
    first = 0
    later = 0
    for seed in range(12):
        prompt = random.Random(seed).choices(range(12), k=5)
        plain, (tokens, _) = greedy(one.net, prompt, 8), play_loop(LSD, one, prompt, 8, speedup=3)
        first, later = first + (tokens[0] == plain[0]), later + (tokens[1:] == plain[1:])
    assert first == 12 and later < 12


def test_swift_drafts_with_the_best_set_it_knows(folder):
    one = layered(folder, 12, 6, 1)
    parts = SWIFT.build(one, **SWIFT.read_knobs({"context": 16, "every": 1}))
    drafter = parts.drafter
    play_all(SWIFT, one, [3, 7, 1], 60, parts=parts)
    begun = SkippedLayers(drafter.ratio, drafter.min_top1_prob, drafter.max_children)
    begun.start(State([3, 7, 1]), one.target, None)
    assert drafter.view.skip == drafter.search.best != begun.search.best


def test_layers_drafted_early_are_not_run_again(folder):
    """The check continues from the exit: together one pass of all layers a round, and one row of the lower
    ones a token."""
    one = layered(folder, 12, 6)
    rows = []
    parts = SKIP.build(one, **SKIP.read_knobs({"gamma": 3}))
    state, target = State([3, 7, 1, 4], limit=20), one.target
    open_run(parts, target, state)
    parts.drafter.propose(state, Budget(3))
    inner = target._layers

    def counted(given, x, first, end):
        rows.extend([first] * len(x))
        return inner(given, x, first, end)

    target._layers = counted
    target.score(parts.drafter.propose(state, Budget(3)))
    assert rows.count(3) == 4  # the upper layers read the root and three nodes once
    assert rows.count(0) <= 1 + 3 + 1  # the lower ones each of them once, and the last node in the check


def test_sampling_and_end_tokens(folder):
    one = layered(folder, 12, 6)
    for method in (SKIP, SWIFT, ULS):
        tokens, outcomes, state = play_all(method, one, [3, 7, 1], 24, FREE, stop=frozenset({5, 6}))
        assert all(t not in (5, 6) for t in tokens[:-1])
        plain = greedy(one.net, [3, 7, 1], 24)
        assert play_all(method, one, [3, 7, 1], 24)[0] == plain
