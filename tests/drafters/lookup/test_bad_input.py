"""What nobody would wish for, on every method of these families: tiny and dull prompts, empty and broken
stores, the last position of the context, a hundred answers in a row."""

from __future__ import annotations

import pickle

import pytest

from specviz import Sampling, Session
from specviz.core import RandomStreams
from specviz.indexes.earlier_answers import Memory
from specviz.methods import catalogue
from specviz.targets.tiny import TinyTarget
from specviz.training.datastore import build_store, save
from specviz.training.dense_store import with_states
from specviz.zoo import Kit, Loaded, ZooError

from ...message_codes import refuses
from ...run.fakes import FakeLoaded
from .toys import FREE, greedy, kit, play_loop

FAMILIES = ("Lookup", "Parallel decoding", "Self-speculation")
CAPABILITIES = TinyTarget.capabilities | {"draft", "store:text", "store:dense"}
METHODS = [m for m in catalogue().values() if m.family in FAMILIES and m.needs <= CAPABILITIES]
REMEMBERING = tuple(m.key for m in METHODS if "memory_of" in m.build.__globals__)
named = pytest.mark.parametrize("method", METHODS, ids=lambda m: m.key)


def test_the_families_are_here():
    assert {
        "prompt_lookup",
        "sam_store",
        "dresd_store",
        "lookahead",
        "superposed",
        "swift",
        "skipdecode",
    } <= {m.key for m in METHODS}


def stored(one, texts):
    def open_store(role):
        store = build_store(role, texts)
        return with_states(store, one.fresh(), 4) if role == "dense" else store

    one.open_store = open_store
    return one


def check(method, one, prompt, count):
    """Right tokens where it promises them, and in any case all of them."""
    tokens, _ = play_loop(method, one, prompt, count)
    assert len(tokens) == count and all(0 <= t < one.vocab for t in tokens)
    if method.exactness in ("exact", "greedy only"):
        assert tokens == greedy(one.net, prompt, count)
    if method.exactness != "greedy only":
        assert len(play_loop(method, one, prompt, count, FREE, RandomStreams(4))[0]) == count


@named
@pytest.mark.parametrize(
    "texts", [[], [[]], [[3, 1, 2, 3, 1, 2, 4]]], ids=["no store", "empty store", "store"]
)
def test_dull_prompts_and_empty_stores(method, texts):
    if texts != [[3, 1, 2, 3, 1, 2, 4]] and not any(need.startswith("store") for need in method.needs):
        texts = []
    for prompt in ([3], [2] * 7):
        check(method, stored(kit(12, 1), texts), prompt, 9)


@named
def test_to_the_last_position_of_the_context(method):
    """The last tokens have no room for a draft behind them, and probes would stand beyond the end."""
    one = stored(kit(12, 1), [[3, 1, 2, 3, 1, 2, 4]])
    one.fresh = lambda: TinyTarget(one.net, 40)
    one.open = lambda role: TinyTarget(one.net, 40)
    check(method, one, [3, 7, 1] * 4, 40 - 12)


@pytest.mark.thorough
@pytest.mark.parametrize("key", REMEMBERING)
def test_nothing_grows_across_a_hundred_answers(key):
    method = catalogue()[key]
    memory = Memory(capacity=300)
    sizes = []
    assert {"suffix_decoding", "rasd", "sam_store", "token_recycling", "trie_lookahead", "ngram_mod"} <= set(
        REMEMBERING
    )
    one = stored(kit(12, 1, memory=memory), [[3, 1, 2]])
    knobs = {
        name: value
        for name, value in (("room", 1000), ("nodes", 8))
        if any(k.name == name for k in method.knobs)
    }
    for i in range(100):
        tokens = [(i * j + j // 3) % 12 for j in range(30)]
        if i % 4 == 0:
            prompt = [i % 12, i // 12 % 12, i % 5]
            tokens, _ = play_loop(method, one, prompt, 24, **knobs)
            assert tokens == greedy(one.net, prompt, 24)
        memory.add([*tokens, i % 12, i // 12])
        sizes.append(len(pickle.dumps(memory)))
    assert max(sizes[80:]) < 1.2 * max(sizes[:80])


def test_a_run_becomes_a_past_answer_of_its_visitor_alone():
    loaded = FakeLoaded()
    mine = Memory()
    other = Memory()
    first = list(Session(loaded, "autoregressive", memory=mine).run("the cat sat", 12))
    assert len(mine.answers) == 1 and len(mine.answers[0]) == 12 and mine.mark == loaded.name
    Session(loaded, "suffix_decoding", memory=other)
    assert not other.answers and first
    events = list(
        Session(loaded, "suffix_decoding", {"caution": 0.0}, Sampling(), mine).run("the cat sat", 12)
    )
    sources = {e.data["source"] for e in events if getattr(e, "kind", "") == "suffix"}
    assert "answers" in sources and len(mine.answers) == 1  # the same answer is kept once
    lone = list(Session(loaded, "suffix_decoding", {"caution": 0.0}).run("the cat sat", 12))
    assert "answers" not in {e.data["source"] for e in lone if getattr(e, "kind", "") == "suffix"}


def test_a_store_that_cannot_be_used_is_named_in_one_sentence(tmp_path):
    loaded = Loaded(
        "toy", tmp_path, None, None, None, stores={"text": tmp_path / "text", "gone": tmp_path / "gone"}
    )
    loaded.__dict__["tokenizer"] = FakeLoaded().tokenizer
    store = object.__new__(Kit)
    store.loaded = loaded
    store.weight_folders = []
    save(build_store("text", [[1, 2]], mark="of another tokenizer"), tmp_path / "text")
    for name, words in (
        ("text", "datastore.tokenizer"),
        ("gone", "datastore.missing"),
        ("none", "datastore.unknown"),
    ):
        with refuses(ZooError, *words.split()):
            store.open_store(name)
    (tmp_path / "text" / "order.npy").write_bytes(b"")
    (tmp_path / "text" / "store.json").write_text("{}")
    with refuses(ZooError, "datastore.damaged"):
        store.open_store("text")
