"""At temperature 0 every exact method writes, token by token, what plain decoding writes; its cache is a
fresh prefill's."""

from __future__ import annotations

import random

import pytest

from specviz.core import Sampling, State, open_run

from .toys import (
    PROMPT,
    TinyTarget,
    any_knobs,
    cache_error,
    greedy,
    kv_error,
    later,
    methods,
    player,
    provided,
    sample,
    small_knobs,
    toy_of,
)

GREEDY = methods("exact", "greedy only")
SAMPLE = sample()
CASES = [later(pytest.param(method, id=method.key), method.key in SAMPLE) for method in GREEDY]
LENGTH = 36


def write(method, knobs, kit, prompt, limit, stop=frozenset()):
    """The tokens of a run; every cache is compared with a fresh prefill after each round. Also the draft
    tokens accepted."""
    parts = method.build(kit, **knobs)
    state = State(list(prompt), Sampling(0.0), limit=limit, stop=stop)
    fresh = TinyTarget(kit.net, kit.context)
    accepted = 0
    open_run(parts, kit.target, state)
    while not state.done:
        outcome = player(parts)(parts, kit.target, state)
        accepted += len(outcome.verdict.path) + (outcome.verdict.kind == "accepted")
        assert cache_error(kit.target, fresh, state.tokens) < 1e-11
        for model in kit.opened[
            1:
        ]:  # a draft with a wrong cache would still be compatible, only seldom right
            assert kv_error(model, TinyTarget(model.net, kit.context), model.cached_tokens + [0]) < 1e-11
    return state.tokens, accepted


@pytest.mark.parametrize("method", CASES)
def test_tokens_and_cache_equal_plain_decoding(method):
    """Default knobs, every small combination, and knobs from anywhere in their ranges, on drafts from
    hopeless to perfect."""
    taken = 0
    settings = [method.read_knobs({}), *small_knobs(method), *(any_knobs(method, i) for i in range(2))]
    for i, knobs in enumerate(settings):
        kit = toy_of(method, 12, seed=i, share=(0.85, 0.0, 1.0, 0.6, 0.95)[i % 5], sharp=3.0)
        provided(method, kit)
        prompt = ([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5], PROMPT, [7])[i % 3]
        want = greedy(kit.net.logits, prompt, LENGTH)
        tokens, accepted = write(method, knobs, kit, prompt, LENGTH)
        assert tokens == want, f"{knobs} left plain decoding at token {first_difference(tokens, want)}"
        taken += accepted
    assert (taken > 0) == (method.key != "autoregressive"), "a run in which nothing is accepted proves little"


@pytest.mark.parametrize("method", CASES)
def test_end_tokens_and_limits_cut_where_plain_decoding_stops(method):
    rng = random.Random(method.key)
    for i in range(6):
        kit = toy_of(method, 12, seed=i, share=0.95, sharp=3.0)
        limit, stop = rng.randint(1, 14), frozenset(rng.sample(range(12), i % 3))
        knobs = method.read_knobs({}) if i % 2 else any_knobs(method, i)
        want = greedy(kit.net.logits, PROMPT, limit, stop)
        assert write(method, knobs, kit, PROMPT, limit, stop)[0] == want, (
            f"{knobs}, limit {limit}, end tokens {set(stop)}"
        )


def first_difference(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
