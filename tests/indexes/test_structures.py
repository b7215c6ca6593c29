"""Each index against brute force on random strings, with taking back and following other texts in between."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from specviz.core import common_prefix_length
from specviz.indexes.ngram_counts import NgramCounts
from specviz.indexes.suffix_array import PART, SuffixArray
from specviz.indexes.suffix_automaton import NgramIndex, SuffixAutomaton

from ..message_codes import refuses

MANY = settings(max_examples=300, deadline=None, derandomize=True)
strings = st.integers(1, 4).flatmap(lambda v: st.lists(st.integers(0, v), max_size=24))


def longest_match(text):
    """(n, first end) of the longest suffix that ends somewhere before the end too."""
    for n in range(len(text) - 1, 0, -1):
        for end in range(n, len(text)):
            if text[end - n : end] == text[-n:]:
                return n, end
    return 0, 0


def occurrences(text, part):
    return sum(text[i : i + len(part)] == part for i in range(len(text) - len(part) + 1))


def state_of(index, part):
    state = 0
    for token in part:
        state = index.next[state].get(token, -1)
        if state < 0:
            return None
    return state


@MANY
@given(strings, strings)
def test_common(a, b):
    n = common_prefix_length(a, b)
    assert a[:n] == b[:n] and (n == min(len(a), len(b)) or a[n] != b[n])


@MANY
@given(strings)
def test_automaton_matches_and_size(text):
    index = SuffixAutomaton()
    for i in range(1, len(text) + 1):
        index.follow(text[:i])
        assert index.longest() == longest_match(text[:i])
        assert len(index) <= max(2 * i, 2)
        for n, state in index.suffixes(99):
            assert index.first[state] == next(e for e in range(n, i) if text[e - n : e] == text[i - n : i])


@MANY
@given(strings, st.integers(1, 8))
def test_automaton_counts(text, depth):
    index = SuffixAutomaton(depth)
    index.follow(text)
    parts = {tuple(text[i : i + n]) for n in range(1, depth + 1) for i in range(len(text) - n + 1)}
    for part in parts:
        assert index.count[state_of(index, part)] == occurrences(text, list(part))


@MANY
@given(strings, st.lists(strings, min_size=1, max_size=4), st.integers(0, 6), st.booleans())
def test_automaton_follows_anything(text, others, depth, extend):
    """Whatever it followed before, it ends as a fresh one would; also after tokens were settled."""
    index, fresh = SuffixAutomaton(depth), SuffixAutomaton(depth)
    index.follow(text)
    if extend:
        index.extend(text)
    for other in others:
        index.follow(text[: len(text) // 2] + other)
    index.follow(text)
    fresh.follow(text)
    for name in (
        "text",
        "next",
        "link",
        "length",
        "first",
        "count",
        "state",
        "matched",
        "_tail",
        "_tail_length",
    ):
        assert getattr(index, name) == getattr(fresh, name), name


@MANY
@given(strings, st.integers(1, 8))
def test_shorter_match_when_too_little_follows(text, want):
    index = SuffixAutomaton()
    index.follow(text)
    n, end = index.longest(want)
    if n:
        assert text[end - n : end] == text[-n:] and end < len(text)
    best, place = longest_match(text)
    if best and len(text) - place >= want:
        assert (n, end) == (best, place)


def test_documents_are_parted():
    index = SuffixAutomaton(4)
    index.follow([1, 2, 3, -1, 1, 2, -1, 3, 1, 2])
    n, end = index.longest()
    assert n == 2 and index.text[end - 2 : end] == [1, 2]
    assert index.count[state_of(index, [1, 2])] == 3


@MANY
@given(strings, st.integers(1, 4), strings)
def test_gram_index(text, n, extra):
    index = NgramIndex(n)
    index.follow(text + extra)
    index.follow(text)
    ends = [e for e in range(n, len(text)) if text[e - n : e] == text[-n:]] if len(text) >= n else []
    assert index.before() == ends
    assert (index.earliest(), index.latest()) == ((ends[0], ends[-1]) if ends else (0, 0))


@MANY
@given(strings, st.integers(2, 4), strings)
def test_ngram_counts(text, most, extra):
    index = NgramCounts(most)
    index.follow(text + extra)
    index.follow(text)
    for n in range(1, most):
        for start in range(max(len(text) - n, 0)):
            key = tuple(text[start : start + n])
            places = [(text[i + n], i + n) for i in range(len(text) - n) if tuple(text[i : i + n]) == key]
            counts, last = Counter(t for t, _ in places), dict(places)
            order = sorted(counts, key=lambda t: (-counts[t], -last[t]))
            assert index.successors(key, 99) == [(t, counts[t]) for t in order]
            token, size, place = index.best(key)
            assert (token, size, place) == (order[0], n + 1, last[order[0]])


def test_ngram_counts_backs_off():
    index = NgramCounts(3)
    index.follow([1, 2, 3])
    assert index.best([9, 2]) == (3, 2, 2)
    assert index.best([9]) == (-1, 0, 0)
    with refuses(ValueError, "ngram.size", 2):
        NgramCounts(1)


def brute_places(text, pattern):
    return [i for i in range(len(text) - len(pattern) + 1) if text[i : i + len(pattern)] == pattern]


@MANY
@given(strings, st.lists(st.integers(0, 4), min_size=1, max_size=5), st.sampled_from([8, 16, 32]))
def test_suffix_array_ranges(text, pattern, depth):
    array = SuffixArray.build(np.array(text, dtype=np.uint32), depth)
    assert sorted(array.order.tolist()) == list(range(len(text)))
    cut = [text[i : i + depth] for i in array.order]
    assert cut == sorted(cut)
    low, high = array.range(pattern)
    assert sorted(array.order[low:high].tolist()) == brute_places(text, pattern)
    n, low, high = array.longest(pattern, 5)
    longest = max((k for k in range(1, len(pattern) + 1) if brute_places(text, pattern[-k:])), default=0)
    assert n == longest and sorted(array.order[low:high].tolist()) == (
        brute_places(text, pattern[-n:]) if n else []
    )


@MANY
@given(strings, st.integers(1, 4), st.integers(1, 12), st.booleans())
def test_most_frequent_continuations(text, deep, nodes, parted):
    if parted and text:
        text = text[: len(text) // 2] + [int(PART)] + text[len(text) // 2 :]
    array = SuffixArray.build(np.array(text, dtype=np.uint32), 16)
    for token in sorted(set(text) - {int(PART)}):
        low, high = array.range([token])
        found = array.frequent_continuations(1, low, high, max_depth=deep, max_nodes=nodes, hits=10**6)
        counts = Counter()
        for place in brute_places(text, [token]):
            for d in range(1, deep + 1):
                part = tuple(text[place + 1 : place + 1 + d])
                if len(part) < d or int(PART) in part:
                    break
                counts[part] += 1
        paths = []
        for head, parent, count, place in found:
            paths.append((paths[parent] if parent >= 0 else ()) + (head,))
            assert counts[paths[-1]] == count and text[place] == head
        assert len(set(paths)) == len(paths) == min(nodes, len(counts))
        rest = [(-counts[p], len(p)) for p in counts if p not in paths]
        assert not rest or not paths or min(rest) >= max((-counts[p], len(p)) for p in paths)


def test_lookups_stay_cheap():
    """Work, not seconds: comparisons of a lookup grow with the logarithm of the store, automaton steps stay
    constant."""
    rolls = random.Random(1)

    class Counting(SuffixArray):
        looks = 0

        def _first(self, *args):
            Counting.looks += max(args[2] - args[1], 1).bit_length()
            return super()._first(*args)

    work = []
    for size in (1_000, 100_000):
        text = np.array([rolls.randrange(50) for _ in range(size)], dtype=np.uint32)
        array, Counting.looks = SuffixArray.build(text, 16), 0
        Counting(array.tokens, array.order, 16).longest(text[-20:].tolist(), 16)
        work.append(Counting.looks)
    assert work[1] < 2.5 * work[0]
