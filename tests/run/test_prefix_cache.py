"""The KV cache of the turn before is reused, and the answer equals that after a fresh prefill."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from specviz.run import Session, collect
from specviz.run.prefix_cache import PrefixCache, PrefixPool
from specviz.run.request import GenerationRequest
from specviz.trace.events import Prefilled

from .fakes import FakeLoaded

FIRST = [{"role": "user", "content": "the cat sat on the mat"}]


def conversation(loaded, method, cache, turns: int = 3, temperature: float = 0.0):
    """(tokens, tokens computed in the prefill, tokens reused) of each turn."""
    messages, out = list(FIRST), []
    request = GenerationRequest(temperature=temperature, max_tokens=14, seed=4)
    for turn in range(turns):
        events = list(
            Session(loaded, method, request=request, prefix_cache=cache, deterministic=True).run(messages)
        )
        result = collect(events)
        out.append(
            (
                result.token_ids,
                next(e.n for e in events if isinstance(e, Prefilled)),
                events[-1].totals.get("reused"),
            )
        )
        messages += [
            {"role": "assistant", "content": "the sea is deep"},
            {"role": "user", "content": f"and then {turn}"},
        ]
    return out


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize(
    "method", ["autoregressive", "speculative", "draft_tree", "prompt_lookup", "pearl", "lookahead", "staged"]
)
def test_every_turn_equals_one_after_a_fresh_prefill(method, temperature):
    cache = PrefixCache()
    fresh = conversation(FakeLoaded(context=256), method, None, temperature=temperature)
    again = conversation(FakeLoaded(context=256), method, cache, temperature=temperature)
    assert [turn[0] for turn in again] == [turn[0] for turn in fresh]
    assert [turn[2] for turn in fresh] == [None] * 3 and again[0][2] == 0
    for (_, computed, reused), (_, whole, _) in zip(again[1:], fresh[1:]):
        assert computed + reused == whole and reused >= 12
    assert cache.target is not None
    cache.close()
    assert cache.target is None


def test_a_method_that_is_not_exact_leaves_no_cache():
    cache, loaded = PrefixCache(), FakeLoaded(context=256)
    conversation(loaded, "speculative", cache, 1)
    kept = cache.target
    assert kept.cached_tokens
    conversation(loaded, "lenience", cache, 1)
    assert cache.target is None and kept.cached_tokens == []


def test_a_failed_or_abandoned_run_keeps_no_cache():
    cache, loaded = PrefixCache(), FakeLoaded(context=256)
    stream = Session(loaded, "speculative", prefix_cache=cache).run(FIRST, 30)
    for event in stream:
        if isinstance(event, Prefilled):
            break
    stream.close()
    assert cache.target is None and all(
        model.cached_tokens == [] for kit in loaded.kits for model in kit.opened
    )


def test_a_pool_gives_a_conversation_its_own_cache_and_nobody_elses():
    loaded, pool = FakeLoaded(context=256), PrefixPool(2)
    request = GenerationRequest(max_tokens=10)

    def turn(owner, messages, method="speculative"):
        session = Session(loaded, method, request=request)
        session.lease(pool, owner, messages)
        return collect(session.run(messages)), session.prefix_cache

    first, cache = turn("a", FIRST)
    longer = [*FIRST, {"role": "assistant", "content": first.text}, {"role": "user", "content": "and then"}]
    again, same = turn("a", longer)
    assert same is cache and again.totals.first_token_seconds > 0
    assert again.token_ids == collect(Session(loaded, "speculative", request=request).run(longer)).token_ids
    assert turn("b", longer)[1] is not cache
    turn("c", FIRST)
    assert cache.target is None, "the third conversation takes the place of the first"
    pool.close()


def test_a_prompt_that_matches_part_of_anothers_does_not_learn_how_much():
    pool = PrefixPool(100)
    cache = pool.lease("one address", list(range(20)), whole=True)
    cache._target = SimpleNamespace(
        cached_tokens=list(range(24)), close=lambda: None
    )  # 20 of a prompt, 4 of its answer
    cache.prompt = 20
    for count in range(8, 20):
        assert pool.lease("one address", [*range(count), 99, 98], whole=True) is not cache
    assert pool.lease("one address", list(range(20)), whole=True) is cache
    assert pool.lease("another", list(range(20)), whole=True) is not cache
    assert pool.lease("one address", [*range(12), 99]) is cache  # a page's visitor is one person
