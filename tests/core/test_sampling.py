"""The distribution a token is drawn from, and the random streams."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specviz.core import RandomStreams, Sampling, SingleStream, argmax_tokens

from ..message_codes import refuses

quick = settings(max_examples=80, deadline=None, derandomize=True)
logits = st.lists(
    st.sampled_from([-40.0, -3.0, -1.5, 0.0, 0.25, 0.5, 1.0, 2.0, 7.0]), min_size=1, max_size=7
)  # ties are common


def plain(x: list[float], temperature: float, top_k: int, top_p: float) -> list[float]:
    """The distribution in plain Python: scale, keep the top k (with ties), keep the nucleus (ties by
    index), renormalise."""
    if temperature == 0:
        return [float(i == x.index(max(x))) for i in range(len(x))]
    x = [v / temperature for v in x]
    floor = sorted(x)[-top_k] if 0 < top_k < len(x) else -math.inf
    w = [math.exp(v - max(x)) if v >= floor else 0.0 for v in x]
    p = [v / sum(w) for v in w]
    if top_p < 1:
        mass, keep = 0.0, set()
        for i in sorted(range(len(p)), key=lambda i: -p[i]):
            if mass >= top_p - 1e-12:
                break
            keep.add(i)
            mass += p[i]
        p = [v if i in keep else 0.0 for i, v in enumerate(p)]
        p = [v / sum(p) for v in p]
    return p


@quick
@given(
    logits,
    st.sampled_from([0.0, 0.3, 1.0, 2.0]),
    st.integers(0, 8),
    st.sampled_from([0.05, 0.31, 0.77, 0.93, 1.0]),
)
def test_distribution_equals_a_plain_reference(x, temperature, top_k, top_p):
    probs = Sampling(temperature, top_k, top_p).probs(torch.tensor(x, dtype=torch.float64))
    assert probs.dtype == torch.float64
    torch.testing.assert_close(
        probs, torch.tensor(plain(x, temperature, top_k, top_p), dtype=torch.float64), atol=1e-12, rtol=0
    )


@pytest.mark.parametrize(
    "sampling",
    [Sampling(0.0), Sampling(1.0), Sampling(0.7, top_k=3), Sampling(1.0, top_p=0.6), Sampling(1.3, 4, 0.8)],
)
def test_rows_are_independent_and_the_logits_are_left_alone(sampling):
    x = torch.randn(3, 5, 9, generator=torch.Generator().manual_seed(1))
    before = x.clone()
    probs = sampling.probs(x)
    assert probs.shape == x.shape and probs.dtype == torch.float32 and torch.equal(x, before)
    torch.testing.assert_close(probs.sum(-1), torch.ones(3, 5))
    for i in range(3):
        for j in range(5):
            torch.testing.assert_close(probs[i, j], sampling.probs(x[i, j]))


def test_ties():
    tie = torch.tensor([1.0, 3.0, 3.0, 3.0])
    assert Sampling(0.0).probs(tie).tolist() == [0, 1, 0, 0], "greedy takes the argmax plain decoding takes"
    assert (
        Sampling(1.0, top_k=1).probs(tie)[0] == 0 and (Sampling(1.0, top_k=1).probs(tie)[1:] == 1 / 3).all()
    )
    assert Sampling(1.0, top_p=0.3).probs(tie).tolist() == [0, 1, 0, 0], (
        "a nucleus is the smallest set, first index first"
    )


def test_the_best_token_always_stays():
    assert Sampling(1.0, top_p=1e-9).probs(torch.tensor([0.0, 1.0, 0.5])).tolist() == [0, 1, 0]


def test_tiny_temperatures_are_a_distribution_too():
    x = torch.tensor([5.0, 30.0, 29.0])
    for temperature in (1e-3, 1e-30, 1e-42, 1e-300):
        assert Sampling(temperature).probs(x).tolist() == [0, 1, 0], temperature


def test_half_precision_is_widened():
    assert Sampling(1.0).probs(torch.zeros(3, dtype=torch.bfloat16)).dtype == torch.float32
    assert Sampling(0.0).probs(torch.zeros(3, dtype=torch.bfloat16)).dtype == torch.float32


@pytest.mark.parametrize(
    "bad",
    [
        dict(temperature=-0.1),
        dict(temperature=2.1),
        dict(temperature=float("nan")),
        dict(top_p=0.0),
        dict(top_p=1.1),
        dict(top_p=float("nan")),
        dict(top_k=-1),
    ],
)
def test_settings_out_of_range_are_refused_with_a_sentence(bad):
    with refuses(ValueError, f"sampling.{next(iter(bad))}"):
        Sampling(**bad)


class Fixed:
    """A source of uniforms that always says the same."""

    def __init__(self, u: float):
        self.u = u

    def random(self) -> float:
        return self.u


def rigged(u: float) -> RandomStreams:
    rng = RandomStreams(0)
    rng._streams["s"] = Fixed(u)
    return rng


@quick
@given(
    st.lists(st.sampled_from([0.0, 1e-9, 0.1, 0.25, 1.0]), min_size=1, max_size=6).filter(any),
    st.sampled_from([0.0, 1e-12, 0.3, 0.5, 0.999999999, math.nextafter(1, 0)]),
    st.sampled_from([torch.float32, torch.float64]),
)
def test_a_token_of_probability_zero_is_never_drawn(weights, u, dtype):
    probs = torch.tensor(weights, dtype=dtype)
    probs = probs / probs.sum()
    assert probs[rigged(u).pick("s", probs)] > 0


def test_pick_follows_the_distribution():
    probs = torch.tensor([0.0, 0.2, 0.5, 0.0, 0.3], dtype=torch.float64)
    picks = [rigged((i + 0.5) / 1000).pick("s", probs) for i in range(1000)]
    assert [picks.count(x) for x in range(5)] == [0, 200, 500, 0, 300]


def test_flip_says_yes_iff_the_draw_is_below():
    for u in (0.0, 0.25, math.nextafter(1, 0)):
        for accept in (0.0, 0.25, 0.5, 1.0):
            assert rigged(u).flip("s", accept) == (u < accept, u)
    assert not rigged(0.0).flip("s", 0.0)[0] and rigged(math.nextafter(1, 0)).flip("s", 1.0)[0]


def test_streams_do_not_shift_each_other():
    probs = torch.full((50,), 0.02)
    alone, mixed = RandomStreams(3), RandomStreams(3)
    want = [alone.pick("verify", probs) for _ in range(20)]
    got = []
    for i in range(20):
        for _ in range(i % 4):
            mixed.pick("draft", probs)
            mixed.flip("policy", 0.5)
        got.append(mixed.pick("verify", probs))
    assert got == want


def test_seeds_and_streams_differ_and_repeat():
    def draws(seed, stream):
        return tuple(RandomStreams(seed).uniform_tensor(stream, (6,)).tolist())

    assert draws(1, "draft") == draws(1, "draft")
    assert len({draws(s, n) for s in range(5) for n in ("draft", "verify", "policy")}) == 15


def test_raw_takes_the_same_uniforms_as_flip():
    a, b = RandomStreams(5), RandomStreams(5)
    uniform_tensor = a.uniform_tensor("verify", (2, 3))
    assert uniform_tensor.shape == (2, 3) and uniform_tensor.dtype == torch.float64
    assert uniform_tensor.flatten().tolist() == [b.flip("verify", 0.5)[1] for _ in range(6)]
    assert a.flip("verify", 0.5) == b.flip("verify", 0.5)


def test_a_nested_run_draws_from_one_stream():
    probs = torch.full((50,), 0.02)
    rng, other = RandomStreams(7), RandomStreams(7)
    nested = SingleStream(rng, "draft")
    got = [
        nested.pick("verify", probs),
        nested.flip("verify", 0.5),
        nested.uniform_tensor("policy", (2,)).tolist(),
    ]
    assert got == [
        other.pick("draft", probs),
        other.flip("draft", 0.5),
        other.uniform_tensor("draft", (2,)).tolist(),
    ]
    assert rng.pick("verify", probs) == RandomStreams(7).pick("verify", probs)


@given(
    st.lists(
        st.lists(st.sampled_from([-math.inf, -3.0, 0.0, 2.0, 7.0, math.nan]), min_size=5, max_size=5),
        min_size=1,
        max_size=4,
    )
)
@quick
def test_the_likeliest_is_the_first_of_several(rows):
    for kind in (torch.float32, torch.float64, torch.bfloat16):
        x = torch.tensor(rows, dtype=kind)
        found = argmax_tokens(x)
        assert found == x.argmax(-1).tolist() and all(type(place) is int for place in found)
        for row, place in zip(rows, found):
            broken = [i for i, value in enumerate(row) if math.isnan(value)]
            assert place == (broken[0] if broken else row.index(max(row)))
    assert argmax_tokens(torch.zeros(1, 3, requires_grad=True)) == [0]
