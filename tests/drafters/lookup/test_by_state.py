"""DReSD: the nearest states against brute force, partial prefill, greedy equality and the exact
distribution."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from specviz.core import Budget, Scores, State, open_run, play
from specviz.drafters.lookup.hidden_state_lookup import HiddenStateCopy
from specviz.indexes.nearest import is_made_for, target_fingerprint
from specviz.indexes.store import Store, StoreError
from specviz.methods.lookup import dresd, dresd_store
from specviz.targets.tiny import TinyTarget
from specviz.training.datastore import build_store, save
from specviz.training.dense_store import with_states

from ...message_codes import refuses
from .toys import check_distribution, check_greedy, greedy, kit


@pytest.mark.parametrize("prompt", [[1], [3, 7, 1, 1, 3, 7, 2, 3, 7]])
def test_nearest_of_all_states(prompt):
    """Keys grow with every round and stay those of a fresh pass over the text; the neighbours are the most
    similar ones."""
    one = kit(12, 1)
    parts = dresd.METHOD.build(
        one, **dresd.METHOD.read_knobs({"least": -1.0, "neighbours": 3, "caution": 0.0})
    )
    state = State(list(prompt), limit=90)
    target, drafter = one.target, parts.drafter
    open_run(parts, target, state)
    while not state.done:
        play(parts, target, state)
        fresh = TinyTarget(one.net, 128)
        fresh.capture(frozenset({"final"}))
        states = fresh.sync(state.tokens).hidden_states["final"]
        assert drafter.first == 0 and drafter.count == len(states) == len(state.tokens) - 1
        keys = drafter._key(states)
        assert torch.allclose(keys, drafter.keys[: drafter.count], atol=1e-5)
        end = len(state.tokens)
        brute = [
            (i + 1, float(keys[i - 1] @ keys[-1]))
            for i in range(1, end - 1)
            if state.tokens[i] == state.tokens[-1]
        ]
        brute.sort(key=lambda x: -x[1])
        found = drafter.nearest(state.tokens)
        assert [x for _, x in found] == pytest.approx([x for _, x in brute[:3]], abs=1e-4)
        assert all(state.tokens[place - 1] == state.tokens[-1] for place, _ in found)


def test_a_part_of_the_prompt_is_enough():
    """A cache kept between turns gives the states of the new rows only."""
    drafter, tokens = HiddenStateCopy(2, -1.0), [5, 6, 7, 5, 6, 8, 5]
    states = torch.eye(6)[3:]  # of positions 3, 4, 5
    drafter.start(State(tokens), None, Scores(torch.zeros(0, 9), {"final": states}, 3))
    assert drafter.nearest(tokens) == []  # the token 5 at 3 was predicted by a state that is not here
    drafter.start(State(tokens), None, Scores(torch.zeros(0, 9), {"final": torch.eye(6)[2:]}, 2))
    assert [place for place, _ in drafter.nearest(tokens)] == [4]
    state = State(list(tokens))
    assert drafter.propose(state, Budget(2, 2, 8)).tokens == (6, 8)
    assert state.notes[0][1]["places"] == [4]
    assert (
        len(drafter.propose(State([*tokens, 1]), Budget(2, 2, 8))) == 0
    )  # no state for a token the target has not read


def test_chains_are_merged_and_end():
    drafter, tokens = HiddenStateCopy(3, -1.0), [1, 5, 6, 7, 5, 6, 8, 5, 9, 9, 5]
    states = torch.randn(10, 4, generator=torch.Generator().manual_seed(0))
    drafter.start(State(tokens), None, Scores(torch.zeros(0, 9), {"final": states}, 0))

    def paths(tree):
        return {tuple(tree.tokens[j] for j in tree.path(i)) for i in range(len(tree))}

    tree = drafter.propose(State(list(tokens)), Budget(2, 3, 9))
    assert paths(tree) == {(6,), (6, 7), (6, 8), (9,), (9, 9)} and len(tree) == 5
    assert all(tokens[o.start] == t for o, t in zip(tree.origin, tree.tokens))
    assert paths(drafter.propose(State(list(tokens), stop=frozenset({6, 9})), Budget(2, 3, 9))) == {
        (6,),
        (9,),
    }
    assert len(drafter.propose(State(list(tokens)), Budget(2, 3, 3))) <= 3


def test_greedy():
    kits = [kit(vocab, seed) for vocab, seed in ((4, 0), (12, 1), (2, 3))]
    assert check_greedy(dresd.METHOD, kits, ([1], [1, 1, 1, 1, 1, 1], [1, 0, 0, 1, 1, 0, 0]), 32) > 1.2


def test_distribution():
    check_distribution(dresd.METHOD, kit(3), least=-1.0, length=2)


# --- a store with states -------------------------------------------------------------------------------------------------
TEXTS = [[1, 2, 3, 4, 1, 2, 5], [2, 3, 1, 2, 4], [7], [], [3, 1, 2, 6, 1, 2, 3]]


def dense_store(one, texts=TEXTS, **settings):
    return with_states(build_store("dense", texts), one.fresh(), 6, **settings)


def test_a_states_key_is_that_of_the_row_that_wrote_the_token(tmp_path):
    one = kit(12, 1)
    store = dense_store(one)
    tokens, keys = store.array.tokens.tolist(), store.dense.keys
    at = 0
    for text in TEXTS:
        rows = store.dense.frame.keys(states_of(one, text)) if len(text) > 1 else []
        for i in range(len(text)):
            want = rows[i - 1] if i else torch.zeros(6)
            assert torch.allclose(torch.from_numpy(keys[at + i].astype("float32")), want, atol=2e-3)
        at += len(text) + 1
    key = torch.nn.functional.normalize(torch.arange(6.0), dim=0)
    found = store.dense.nearest(store.array, 2, key, 3)
    brute = sorted(
        (
            (float(torch.from_numpy(keys[i].astype("float32")) @ key), i)
            for i, t in enumerate(tokens)
            if t == 2
        ),
        reverse=True,
    )
    assert [x for _, x in found] == pytest.approx([x for x, _ in brute[:3]], abs=1e-5) and all(
        tokens[p] == 2 for p, _ in found
    )
    assert store.dense.nearest(store.array, 9, key, 3) == [] and store.dense.how == "exact"
    save(store, tmp_path / "dense")
    again = Store.open(tmp_path / "dense")
    assert (
        isinstance(again.dense.keys, np.memmap)
        and is_made_for(again.facts["states"], one.target)
        and again.facts["dim"] == 6
    )
    assert again.dense.nearest(again.array, 2, key, 3) == found


def states_of(one, text):
    target = one.fresh()
    target.capture(frozenset({"final"}))
    return target.sync(text).hidden_states["final"].float()


def test_a_graph_finds_the_same_places(tmp_path, monkeypatch):
    pytest.importorskip("faiss")
    from specviz.indexes import nearest as near

    one = kit(12, 1)
    store = dense_store(one, [[(i * j) % 7 for j in range(30)] for i in range(1, 9)], graph=1)
    save(store, tmp_path / "dense")
    again = Store.open(tmp_path / "dense")
    assert again.dense.how == "faiss HNSW" and again.facts["search"] == "faiss HNSW"
    key = torch.nn.functional.normalize(torch.arange(6.0), dim=0)
    exact = again.dense.nearest(again.array, 2, key, 4)
    monkeypatch.setattr(near, "FEW", 1)
    assert [x for _, x in again.dense.nearest(again.array, 2, key, 4)] == pytest.approx(
        [x for _, x in exact], abs=5e-3
    )


def test_without_faiss_the_search_is_exact(monkeypatch):
    from specviz.indexes import nearest as near

    monkeypatch.setattr(near, "import_faiss", lambda: None)
    assert dense_store(kit(12, 1), graph=1).dense.how == "exact"


def test_dense_store_greedy_and_distribution():
    kits = []
    for vocab, seed in ((12, 1), (4, 0)):
        one = kit(vocab, seed)
        texts = [greedy(one.net, [first], 24) for first in range(vocab)]
        one.open_store = lambda role, one=one, texts=texts: dense_store(one, texts)
        kits.append(one)
    assert check_greedy(dresd_store.METHOD, kits, ([1], [3, 1, 1, 1, 1]), 24, least=-1.0) > 1.2
    one = kit(3)
    one.open_store = lambda role: dense_store(one, [greedy(one.net, [first], 8) for first in range(3)])
    check_distribution(dresd_store.METHOD, one, length=2, neighbours=2, least=-1.0)


@pytest.mark.parametrize("noise", [1e-5, 3e-3])
def test_a_target_is_known_again_on_a_processor_that_rounds_otherwise(noise):
    """Float32 in another order of its sums, and half precision. A digest of rounded numbers is another one
    on the next machine."""
    one, rng = kit(12, 1), torch.Generator().manual_seed(3)
    head = one.target.head
    reported = target_fingerprint(one.target)
    one.target.head = lambda states: (
        (logits := head(states)) * (1 + noise * torch.randn(logits.shape, generator=rng))
    )
    assert (
        target_fingerprint(one.target) != reported
        and is_made_for(reported, one.target)
        and not is_made_for(reported, kit(12, 5).target)
    )
    assert not any(
        is_made_for(other, one.target)
        for other in (
            "89aebf618721103d",
            None,
            reported[1:],
            [*reported[1:], "0"],
            [*reported[1:], float("nan")],
        )
    )


def test_states_of_another_target_are_refused(tmp_path):
    one = kit(12, 1)
    for store in (build_store("dense", TEXTS), dense_store(kit(12, 5))):
        one.open_store = lambda role, store=store: store
        with refuses(StoreError, "datastore.no_states"):
            dresd_store.METHOD.build(one, **dresd_store.METHOD.read_knobs({}))
    save(dense_store(one), tmp_path / "dense")
    for name, content in (
        ("keys.npy", b"x"),
        ("frame.npz", b"x"),
        ("keys.npy", (tmp_path / "dense" / "keys.npy").read_bytes()[:-9]),
    ):
        old = (tmp_path / "dense" / name).read_bytes()
        (tmp_path / "dense" / name).write_bytes(content)
        with refuses(StoreError, "datastore.damaged"):
            Store.open(tmp_path / "dense")
        (tmp_path / "dense" / name).write_bytes(old)
    assert len(dense_store(one, []).dense.keys) == 0


def test_states_are_compared_in_their_main_directions():
    """Eighty states of two hundred dimensions, which vary in three of them but for a little noise: three
    are kept, and they are those."""
    from specviz.drafters.lookup.hidden_state_lookup import principal_components

    source = torch.Generator().manual_seed(3)
    plane = torch.linalg.qr(torch.randn(200, 3, generator=source)).Q
    states = torch.randn(80, 3, generator=source) @ plane.T + 1e-3 * torch.randn(80, 200, generator=source)
    assert float((plane.T @ principal_components(states - states.mean(0), 3)).svd().S.min()) > 0.999
    for dims, width in ((64, 64), (79, 79), (80, 200), (4096, 200)):
        drafter = HiddenStateCopy(2, -1.0, dims)
        drafter.start(State(list(range(81))), None, Scores(torch.zeros(1, 9), {"final": states}))
        assert drafter.keys.shape[1] == width
