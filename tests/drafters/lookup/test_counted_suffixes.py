"""SuffixDecoding: its guess against the published search written out plainly, its memory, greedy equality
and the exact distribution."""

from __future__ import annotations

import heapq

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specviz.core import Budget, State
from specviz.drafters.lookup.counted_suffixes import (
    PART,
    CountedSuffixes,
    PastAnswers,
    speculate,
    suffix_states,
)
from specviz.indexes.earlier_answers import Memory
from specviz.indexes.suffix_automaton import SuffixAutomaton
from specviz.methods.lookup import suffix_decoding

from .toys import check_distribution, check_greedy, kit, play_all


def count(texts, part):
    return sum(text[i : i + len(part)] == part for text in texts for i in range(len(text) - len(part) + 1))


def plain_search(texts, context, depth, most, factor, least, wide, own):
    """The search of the paper over counted strings; own: the context is among the texts, so a match must
    occur elsewhere too."""
    best = (0.0, 0, [])
    for n in range(1, min(len(context), depth) + 1):
        start = context[-n:]
        if count(texts, start) < (2 if own else 1):
            break
        nodes = plain_tree(texts, start, depth, min(most, int(n * factor)), least, wide)
        score = sum(share for *_, share in nodes)
        if score >= best[0]:
            best = (score, n, nodes)
    return best


def plain_tree(texts, start, depth, room, least, wide):
    nodes = []
    heap = []
    paths = []

    def offer(parent, path, prob):
        if len(path) >= depth:
            return
        after = sorted((-count(texts, path + [t]), t) for t in range(6) if count(texts, path + [t]))
        for c, t in after[:wide]:
            share = -prob * c / count(texts, path)
            if share >= least:
                heapq.heappush(heap, (-share, len(path), parent, t))

    offer(-1, start, 1.0)
    while heap and len(nodes) < room:
        share, _, parent, t = heapq.heappop(heap)
        nodes.append((t, parent, -share))
        paths.append((paths[parent] if parent >= 0 else start) + [t])
        offer(len(nodes) - 1, paths[-1], -share)
    return nodes


texts = st.integers(1, 4).flatmap(lambda v: st.lists(st.integers(0, v), min_size=1, max_size=16))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    texts,
    st.integers(2, 9),
    st.sampled_from([1.0, 2.0, 4.0]),
    st.sampled_from([0.0, 0.1, 0.4]),
    st.sampled_from([1, 3, 8]),
)
def test_guess_in_the_text_itself(text, depth, factor, least, wide):
    index = SuffixAutomaton(depth)
    index.follow(text)
    guess = speculate(
        index,
        index.suffixes(depth),
        max_nodes=7,
        factor=factor,
        offset=0.0,
        min_prob=least,
        max_children=wide,
    )
    score, n, nodes = plain_search([text], text, depth, 7, factor, least, wide, True)
    assert guess.score == pytest.approx(score)
    if nodes:
        assert guess.matched == n and [node[:2] for node in guess.nodes] == [node[:2] for node in nodes]
        assert [text[end - 1] for *_, end in guess.nodes] == [t for t, *_ in nodes]


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(texts, min_size=1, max_size=3), texts, st.integers(2, 9))
def test_guess_in_past_answers(answers, context, depth):
    past = PastAnswers(depth, 1000)
    for answer in answers:
        past.add(answer)
    index = past.halves[0]
    guess = speculate(
        index,
        suffix_states(index, context, depth),
        max_nodes=7,
        factor=2.0,
        offset=0.0,
        min_prob=0.1,
        max_children=8,
    )
    joined = [
        x for answer in answers for x in [*answer, PART]
    ]  # the mark ends an answer: it counts as going on, but is never drafted
    score, n, nodes = plain_search([joined], context, depth, 7, 2.0, 0.1, 8, False)
    assert guess.score == pytest.approx(score)
    if nodes:
        assert guess.matched == n and [node[:2] for node in guess.nodes] == [node[:2] for node in nodes]


def test_past_answers_are_bounded():
    past = PastAnswers(16, 100)
    for i in range(300):
        past.add([(i * j) % 7 for j in range(i % 40)])
        assert all(len(half.text) <= 100 and len(half) <= 200 for half in past.halves)
    past.add(range(10**4))
    assert len(past.halves[0].text) <= 101


@pytest.fixture(scope="module")
def kits():
    return [kit(vocab, seed) for vocab, seed in ((4, 0), (12, 1), (2, 3))]


@pytest.mark.parametrize(
    "knobs", [{}, {"shape": "path", "factor": 4.0}, {"depth": 8, "least": 0.5, "nodes": 5}]
)
def test_greedy(kits, knobs):
    assert (
        check_greedy(
            suffix_decoding.METHOD, kits, ([1], [1, 1, 1, 1, 1, 1], [1, 0, 0, 1, 1, 0, 0]), 48, **knobs
        )
        > 1.2
    )


def test_distribution():
    check_distribution(suffix_decoding.METHOD, kit(3), nodes=4, factor=4.0)


def test_second_answer_is_drafted_from_the_first():
    one = kit(12, 1, memory=Memory())
    prompt = [3, 7, 1]
    first, slow, _ = play_all(suffix_decoding.METHOD, one, prompt, 24)
    one.memory.add(first)
    again, fast, state = play_all(suffix_decoding.METHOD, one, prompt, 24)
    assert first == again and len(fast) < len(slow)
    sources = {o.source for outcome in fast for o in outcome.tree.origin}
    assert "answers" in sources
    assert {"answers", "context"} >= {data["source"] for kind, data in state.notes if kind == "suffix"}


def test_without_memory_runs_do_not_know_of_each_other():
    one = kit(12, 1)
    rounds = [len(play_all(suffix_decoding.METHOD, one, [3, 7, 1], 24)[1]) for _ in range(2)]
    assert rounds[0] == rounds[1]


def test_stays_within_budget_and_end_tokens():
    drafter = CountedSuffixes(Memory(), depth=16, factor=8.0)
    state = State([1, 2, 3, 4, 5, 1, 2], stop=frozenset({4}))
    drafter.start(state, None, None)
    tree = drafter.propose(state, Budget(3, 8, 16))
    assert tree.tokens == (3, 4)
    assert max(drafter.propose(State([1, 2, 3, 4, 5, 1, 2]), Budget(2, 8, 16)).depths) == 2
    assert len(drafter.propose(State([1, 2, 1]), Budget(0))) == 0
