"""The matrix of requests: every processor x every verifier family x chain, tree and batch, greedy and
sampled.

test_processors.py has all methods with groups of processors; here each processor stands alone, once for
each kind of verifier.
"""

from __future__ import annotations

import itertools

import pytest
import torch

from specviz.core import RandomStreams, State, open_run
from specviz.loops.batched import Batch, unbatchable_reason
from specviz.methods import catalogue

from .enumeration import distance, every
from .test_processors import (
    COUNT,
    STOP,
    Bigrams,
    LastRowOnly,
    Processors,
    Raw,
    Spec,
    WithoutPath,
    joint,
    off,
    plain,
)
from .toys import PROMPT, SMALL, later, methods, player, provided, small_knobs, toy_of

PROCESSORS = {
    "min_p": Spec(min_p=0.3),
    "top_k": Spec(top_k=2),
    "top_p": Spec(top_p=0.7),
    "repetition_penalty": Spec(repetition=1.5),
    "frequency_penalty": Spec(frequency=0.8),
    "presence_penalty": Spec(presence=0.9),
    "logit_bias": Spec(bias=((0, 1.5), (2, -0.8))),
    "bad_words": Spec(bad=((1, 2), (0, 0), (2, 1, 0))),
    "min_tokens": Spec(least=5),
    "mask": Spec(grammar=True),
}
VERIFIERS = {  # (class of the verifier, shape of its drafts): a method that uses it
    ("TokenRejection", "chain"): "speculative",
    ("TokenRejection", "tree"): "rsd_s",
    ("BlockVerification", "chain"): "block_verification",
    ("PearlVerification", "chain"): "pearl",
    ("MultiStep", "tree"): "specinfer",
    ("SpecHub", "tree"): "spechub",
    ("KSeq", "tree"): "spectr",
    ("Traversal", "tree"): "traversal",
}


def cases(quick: int = 10):
    """Every processor for every verifier; ``make test`` tries each processor with one verifier, or
    ``quick`` of these pairs."""
    for (i, pair), (j, name) in itertools.product(enumerate(VERIFIERS), enumerate(PROCESSORS)):
        case = pytest.param(catalogue()[VERIFIERS[pair]], pair[1], name, id=f"{pair[0]}-{pair[1]}-{name}")
        yield later(case, j % len(VERIFIERS) == i and i < quick)


def stop_of(name: str) -> frozenset[int]:
    return STOP if name == "min_tokens" else frozenset()


def begun(
    method, name: str, vocab: int, temperature: float, limit: int, prompt, rng=None, seed: int = 0, knobs=None
):
    """(parts, kit, state) of a request that is not opened yet."""
    spec, stop = PROCESSORS[name], stop_of(name)
    kit = toy_of(method, vocab, seed=seed, share=0.6, sharp=3.0 if temperature == 0 else 0.8)
    provided(method, kit)
    state = State(
        list(prompt),
        spec.sampling(temperature),
        rng,
        limit=limit,
        stop=stop,
        processors=spec.processors(vocab, stop),
    )
    return method.build(kit, **(method.read_knobs({}) if knobs is None else knobs)), kit, state


def test_every_kind_of_verifier_of_an_exact_method_has_its_rows():
    used = {
        type(method.build(toy_of(method, 3), **small_knobs(method)[0]).verifier).__name__
        for method in methods("exact")
        if method.family in {catalogue()[key].family for key in VERIFIERS.values()} | {"Pipelined"}
    }
    assert used == {name for name, _ in VERIFIERS}


@pytest.mark.parametrize("method, shape, name", cases())
def test_greedy_alone(method, shape, name):
    for seed in range(2):
        parts, kit, state = begun(method, name, 12, 0.0, 20, PROMPT, seed=seed)
        open_run(parts, kit.target, state)
        while not state.done:
            player(parts)(parts, kit.target, state)
        assert state.tokens == plain(kit.net, PROCESSORS[name], PROMPT, 20, stop_of(name))


@pytest.mark.parametrize(
    "method, shape", [pytest.param(catalogue()[key], shape, id=key) for (_, shape), key in VERIFIERS.items()]
)
def test_the_rows_have_the_shape_they_say(method, shape):
    parts, kit, state = begun(method, "top_p", 12, 1.0, 40, PROMPT)
    open_run(parts, kit.target, state)
    widest = 0
    while not state.done:
        tree = player(parts)(parts, kit.target, state).tree
        widest = max(widest, *(len(tree.children(node)) for node in range(-1, len(tree))))
    assert (widest > 1) == (shape == "tree")


@pytest.mark.parametrize("method, shape, name", cases())
def test_sampled_alone(method, shape, name):
    stop, spec = stop_of(name), PROCESSORS[name]
    kit = toy_of(method, 3, share=0.5, sharp=0.8)
    parts = method.build(kit, **small_knobs(method)[0])
    assert off(parts, kit, spec, spec.processors(3, stop), 1.0, 0, COUNT, stop) < 1e-12


def batched(case) -> bool:
    method = case.values[0]
    return unbatchable_reason(method.build(toy_of(method, 3), **small_knobs(method)[0])) is None


@pytest.mark.parametrize("method, shape, name", filter(batched, cases()))
def test_greedy_in_a_batch_of_other_requests(method, shape, name):
    """Its neighbours have other prompts and other processors, and end at other times."""
    batch, asked = Batch(), []
    for i, other in enumerate([name, *[one for one in PROCESSORS if one != name][:2]]):
        parts, kit, state = begun(method, other, 12, 0.0, 20 - 6 * i, PROMPT[i:])
        batch.join(parts, kit.target, state)
        asked.append((other, kit, state, PROMPT[i:], 20 - 6 * i))
    with torch.inference_mode():
        while batch.round():
            pass
    for other, kit, state, prompt, count in asked:
        assert state.tokens == plain(kit.net, PROCESSORS[other], prompt, count, stop_of(other))


@pytest.mark.parametrize("method, shape, name", filter(batched, cases(1)))
def test_sampled_in_a_batch_of_another_request(method, shape, name):
    count = 2
    net = None
    probs = {}
    knobs = small_knobs(method, SMALL | {"depth": 1, "gamma": 1})[0]

    def written(rng):
        nonlocal net
        batch = Batch()
        parts, kit, state = begun(
            method, name, 3, 1.0, count + 1, [token % 3 for token in PROMPT], rng, knobs=knobs
        )
        batch.join(parts, kit.target, state)
        net = kit.net
        batch.join(
            *_again(
                begun(
                    method,
                    "mask" if name != "mask" else "logit_bias",
                    3,
                    1.0,
                    9,
                    [2, 1],
                    RandomStreams(1),
                    1,
                    knobs,
                )
            )
        )
        while len(state.tokens) - state.start < count and not state.ended:
            batch.round()
        return tuple(state.tokens[state.start :][:count])

    with torch.inference_mode():
        for tokens, prob in every(written):
            probs[tokens] = probs.get(tokens, 0.0) + prob
    prompt = [token % 3 for token in PROMPT]
    want = joint(
        net, PROCESSORS[name], prompt, len(prompt), count, PROCESSORS[name].sampling(1.0), stop_of(name)
    )
    assert distance(probs, want) < 1e-12


def _again(request):
    parts, kit, state = request
    return parts, kit.target, state


@pytest.mark.parametrize("key", ["speculative", "rsd_s"])
@pytest.mark.parametrize(
    "name, wrong",
    [
        ("frequency_penalty", WithoutPath(1.0, 0.8, 0.0)),
        ("logit_bias", LastRowOnly(PROCESSORS["logit_bias"].bias)),
        ("mask", None),
    ],
)
def test_wrong_variants_are_caught_on_chains_and_trees(key, name, wrong):
    method, spec = catalogue()[key], PROCESSORS[name]
    kit = toy_of(method, 3, share=0.5, sharp=0.8)
    parts = method.build(kit, **small_knobs(method)[0])
    if wrong is None:  # the mask on the draft only
        object.__setattr__(parts, "verifier", Raw())
    assert off(parts, kit, spec, Processors([wrong or Bigrams(3)]), 1.0, 0, COUNT) > 0.02
