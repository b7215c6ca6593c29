"""Datastores: built, saved, mapped, refused when they cannot be used; REST over one."""

from __future__ import annotations

import json
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

from specviz.core import Budget, Parts, State, Verdict, Verifier
from specviz.drafters.lookup.datastore import LongerMatch, StoreTree
from specviz.indexes.earlier_answers import Memory
from specviz.indexes.store import Store, StoreError, vocabulary_mark
from specviz.methods.lookup import rest, sam_store
from specviz.policies import Fixed
from specviz.training.datastore import build_store, main, save

from ..drafters.lookup.toys import (
    FREE,
    check_distribution,
    check_greedy,
    distance,
    greedy,
    joint,
    kit,
    play_all,
    probs_of,
)
from ..message_codes import command_codes, refuses

TEXTS = [[1, 2, 3, 4], [1, 2, 3, 5], [2, 3, 4, 1], [7], []]


@pytest.fixture
def folder(tmp_path):
    save(build_store("text", TEXTS, mark="m", source="a test"), tmp_path / "text")
    return tmp_path / "text"


def test_saved_and_mapped(folder):
    store = Store.open(folder, "m")
    assert (
        isinstance(store.array.tokens, np.memmap)
        and store.facts["documents"] == 5
        and store.facts["tokens"] == 18
    )
    low, high = store.array.range([2, 3])
    assert high - low == 3
    assert store.facts["bytes"] == store.array.tokens.nbytes + store.array.order.nbytes > 0


def test_refused_with_a_sentence(folder, tmp_path):
    with refuses(StoreError, "datastore.missing"):
        Store.open(tmp_path / "nowhere")
    with refuses(StoreError, "datastore.tokenizer"):
        Store.open(folder, "other")

    def damaged(name, content):
        old = (folder / name).read_bytes()
        (folder / name).write_bytes(content)
        with pytest.raises(StoreError) as caught:
            Store.open(folder, "m")
        assert caught.value.code in ("datastore.damaged", "datastore.missing")
        assert "\n" not in str(caught.value)
        (folder / name).write_bytes(old)

    facts = json.loads((folder / "store.json").read_text())
    for content in (
        b"",
        b"{",
        b"[]",
        json.dumps({**facts, "tokens": 3}).encode(),
        json.dumps({**facts, "depth": 0}).encode(),
    ):
        damaged("store.json", content)
    whole = (folder / "tokens.npy").read_bytes()
    for content in (b"", whole[:-9], b"\x80\x04pickle", whole.replace(b"<u4", b"<f4")):
        damaged("tokens.npy", content)
    order = np.load(folder / "order.npy")
    order[3] = 10**6
    np.save(folder / "order.npy", order)
    with refuses(StoreError, "datastore.damaged"):
        Store.open(folder, "m")


def test_mark_changes_with_the_vocabulary():
    def tokenizer(**vocab):
        return SimpleNamespace(get_vocab=lambda: vocab)

    assert (
        vocabulary_mark(tokenizer(a=1, b=2))
        == vocabulary_mark(tokenizer(b=2, a=1))
        != vocabulary_mark(tokenizer(a=2, b=1))
    )


def test_tree_of_the_most_frequent(folder):
    store = Store.open(folder)
    state = State([9, 2, 3])
    tree = StoreTree(store).propose(state, Budget(3, 8, 8))
    paths = [tuple(tree.tokens[j] for j in tree.path(i)) for i in range(len(tree))]
    assert paths == [(4,), (5,), (4, 1)]
    assert [int(store.array.tokens[o.start]) for o in tree.origin] == list(tree.tokens)
    assert state.notes[-1] == ("retrieved", {"source": "text", "n": 2, "places": 3, "nodes": 3})
    assert StoreTree(store).propose(state, Budget(3, 1, 8)).tokens == (4, 1)
    assert StoreTree(store).propose(State([2, 3], stop=frozenset({4})), Budget(3, 8, 8)).tokens == (4, 5)
    assert len(StoreTree(store, min_match=3).propose(state, Budget(3, 8, 8))) == 0


def test_an_empty_store_drafts_nothing():
    for texts in ([], [[]]):
        assert (
            len(StoreTree(build_store("text", texts), min_match=1).propose(State([1]), Budget(3, 8, 8))) == 0
        )


def stored(one, seed=0):
    """A kit with a store of what the target itself writes, and of other things."""
    texts = [greedy(one.net, [first], 24) for first in range(one.vocab)] + [[0, 0, 0, 0], [1, 0, 1, 0]]
    one.open_store = lambda role: build_store(role, texts)
    return one


def test_rest_greedy():
    kits = [stored(kit(vocab, seed)) for vocab, seed in ((4, 0), (12, 1), (2, 3))]
    for knobs in ({}, {"least": 1, "nodes": 4, "depth": 2}, {"hits": 2, "longest": 3}):
        assert check_greedy(rest.METHOD, kits, ([1], [1, 1, 1, 1, 1, 1]), 24, **knobs) > 1.2


def test_rest_distribution():
    check_distribution(rest.METHOD, stored(kit(3)), least=1, depth=2, nodes=5)


def test_published_redraw_is_caught():
    """REST as published draws anew after a mismatch, so a drafted token has two chances: the exact
    distribution sees it."""

    class Redraw(Verifier):
        def verify(self, tree, scores, state):
            node, path = -1, []
            while True:
                p = state.sampling.probs(scores.logits[node + 1])
                drawn = state.rng.pick("verify", p)
                hit = next((c for c in tree.children(node) if tree.tokens[c] == drawn), None)
                if hit is None:
                    return Verdict(tuple(path), state.rng.pick("verify", p), "correction", (), p)
                path, node = [*path, hit], hit

    one = stored(kit(3, sharp=0.5))

    def once(rng):
        parts = Parts(StoreTree(one.open_store("text"), min_match=1), Fixed(2, 8, 1), Redraw())
        return tuple(play_all(None, one, [1, 2, 0], 2, FREE, rng, parts=parts)[0])

    assert distance(probs_of(once), joint(one.net, [1, 2, 0], 2)) > 1e-2


def test_places_looked_at_are_spread():
    """With fewer places allowed than there are, the frequent continuation is still seen as the frequent
    one."""
    texts = [[5, 1]] * 10 + [[5, 9]] * 90
    store = build_store("text", texts)
    low, high = store.array.range([5])
    found = store.array.frequent_continuations(1, low, high, max_depth=1, max_nodes=2, hits=20)
    assert [token for token, *_ in found] == [9, 1]
    assert Counter({token: count for token, _, count, _ in found}) == {9: 18, 1: 2}


def test_the_longer_match_drafts():
    store = build_store("text", [[1, 2, 3, 4, 5, 6, 7, 8]])

    def sources(tokens, **settings):
        drafter, state = LongerMatch(store, **settings), State(list(tokens))
        drafter.start(state, None, None)
        tree = drafter.propose(state, Budget(3, 2, 3))
        return tree.tokens, {o.source for o in tree.origin}

    here = [3, 4, 9, 9, 2, 3, 4]  # two tokens match here, three in the store
    assert sources(here, min_match=2, bias=0) == ((5, 6, 7), {"text"})
    assert sources(here, min_match=2, bias=1) == ((9, 9, 2), {"context"})
    assert sources(here, min_match=3, bias=0) == ((5, 6, 7), {"text"})
    assert sources(here, min_match=3, bias=1) == ((), set())
    assert sources([9, 9, 9], min_match=1, bias=0) == ((9, 9), {"context"})


def test_a_match_in_the_store_counts_as_long_as_it_is_and_is_copied_for_long():
    """Forty tokens stand in the store and twenty in the text; the array is sorted by eight."""
    library = list(range(100, 200))
    store = build_store("text", [library, [7, 8, 9]])
    here = [
        *library[20:40],
        5,
        5,
        *library[:40],
    ]  # its last 20 tokens stood here before, followed by 5; in the store all 40 did
    drafter, state = LongerMatch(store, min_match=2, bias=5), State(list(here))
    drafter.start(state, None, None)
    tree = drafter.propose(state, Budget(50, 1, 50))
    assert list(tree.tokens) == library[40:90] and drafter.matched == 40
    assert state.notes[-1] == ("match", {"source": "text", "start": 0, "end": 40, "n": 40, "copied": 50})
    state.tokens += library[40:95]
    drafter.observe(state, None)
    assert list(drafter.propose(state, Budget(50, 1, 50)).tokens) == library[95:], (
        "and no further than its document"
    )


def test_a_match_in_an_earlier_answer_counts_as_long_as_it_is():
    """Of an answer of 200 tokens 120 are written again; the text itself has a match of 60."""
    memory, answer = Memory(), list(range(1000, 1200))
    memory.add(answer)
    here = [*answer[60:120], 5, *answer[:120]]
    drafter, state = (
        LongerMatch(build_store("text", [[9, 9]]), min_match=2, bias=5, memory=memory),
        State(list(here)),
    )
    drafter.start(state, None, None)
    assert list(drafter.propose(state, Budget(40, 1, 40)).tokens) == answer[120:160]
    assert drafter.matched == 120
    assert len(drafter.propose(State([3, answer[0]]), Budget(8, 1, 8))) == 0, (
        "another text is read from its beginning"
    )


def test_sam_store_greedy_and_distribution():
    kits = [stored(kit(vocab, seed)) for vocab, seed in ((4, 0), (12, 1), (2, 3))]
    assert check_greedy(sam_store.METHOD, kits, ([1], [1, 1, 1, 1, 1, 1]), 24, least=1, bias=0) > 1.2
    check_distribution(sam_store.METHOD, stored(kit(3)), least=1, bias=0, gamma=2)


@pytest.mark.thorough
def test_the_command_builds_a_store_for_the_embedded_target(tmp_path, capsys):
    from transformers import AutoTokenizer

    from specviz.training.job import SHIPPED, TARGET

    assert main(["--work", str(tmp_path), "--tokens", "3000", "--name", "small"]) == 0
    said = capsys.readouterr().out
    assert "3,000 " in said and " MB" in said
    tokenizer = AutoTokenizer.from_pretrained(SHIPPED / TARGET)
    store = Store.open(tmp_path / "stores" / "small", vocabulary_mark(tokenizer))
    assert (
        store.name == "small"
        and len(store.array) == 3000
        and store.facts["source"] == "the project's own generated rows"
    )
    text = store.array.tokens[:12].tolist()
    assert 0 in store.array.order[slice(*store.array.range(text))].tolist()
    assert main(["--work", str(tmp_path), "--data", str(tmp_path / "nowhere")]) == 1
    assert "data.folder" in command_codes(capsys.readouterr().err)


def test_past_answers_are_copied_from_too():
    memory = Memory()
    memory.add([5, 6, 7, 8, 9, 4])
    memory.add([1, 2])
    drafter, state = (
        LongerMatch(build_store("text", [[9, 9]]), min_match=2, bias=1, memory=memory),
        State([3, 6, 7, 8]),
    )
    drafter.start(state, None, None)
    tree = drafter.propose(state, Budget(8, 1, 8))
    assert tree.tokens == (9, 4) and {o.source for o in tree.origin} == {
        "answers"
    }  # and nothing beyond that answer's end
    assert state.notes[-1] == ("match", {"source": "answers", "start": 1, "end": 4, "n": 3, "copied": 2})
    assert (
        len(drafter.propose(State([3, 7, 8]), Budget(8, 1, 8))) == 0
    )  # two tokens match, three are asked for
