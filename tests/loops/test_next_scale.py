"""Painting by scales, and CoDe: N of all scales is the large model alone to the bit, N of none the small
one; every picture is drawn with the probability that the models give it."""

from __future__ import annotations

import io
import itertools
from types import SimpleNamespace

import pytest
import torch

from specviz.cli.terminal import TokenPrinter
from specviz.core import Drafter, Parts, RandomStreams, Sampling, State
from specviz.core.logits_processors import Context, Processors, TokenMask
from specviz.loops.next_scale import NextScale, paint_scales
from specviz.policies import Fixed
from specviz.trace.events import Committed, Noted, TextEmitted, Verified
from specviz.verifiers import TokenRejection

from ..models.scale_nets import WORDS, model

PROMPT = [1, 3, 2]


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scales")
    return model(folder / "large"), model(folder / "small", 5, hidden_size=8)


def paint(pair, large, temperature=1.0, seed=0, limit=10**9, rng=None, processors=None):
    """Return (tokens painted, events)."""
    target, refiner = (one.open() for one in pair)
    state = State(
        list(PROMPT),
        Sampling(temperature, seed=seed),
        rng or RandomStreams(seed),
        limit=min(limit, pair[0].scales.tokens),
        processors=processors,
    )
    parts = Parts(Drafter(), Fixed(0), TokenRejection(), helpers={"refiner": refiner})
    loop = paint_scales if large is None else NextScale(large)
    events = list(loop(parts, target, state))
    return state.tokens[len(PROMPT) :], events


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_all_scales_large_is_plain_and_none_is_the_refiner_alone(pair, temperature):
    plain, small = paint(pair, None, temperature), paint(pair[::-1], None, temperature)
    assert paint(pair, 3, temperature)[0] == paint(pair, 99, temperature)[0] == plain[0]
    assert paint(pair, 0, temperature)[0] == small[0] != plain[0]
    kinds = [event.kind for event in paint(pair, 0, temperature)[1] if isinstance(event, Committed)]
    assert kinds == ["small"] * 3


def test_a_round_is_a_scale_and_only_the_large_model_counts_as_target(pair):
    tokens, events = paint(pair, 1)
    rounds = [event for event in events if isinstance(event, Committed)]
    assert [len(event.tokens) for event in rounds] == [1, 4, 9] and [event.kind for event in rounds] == [
        "plain",
        "small",
        "small",
    ]
    assert [event.round for event in events if isinstance(event, Verified)] == [0]
    notes = [event.data for event in events if isinstance(event, Noted)]
    assert [(note["scale"], note["grid"], note["writer"]) for note in notes] == [
        (0, 1, "large"),
        (1, 2, "small"),
        (2, 3, "small"),
    ]
    assert [len(note["probs"]) for note in notes] == [1, 4, 9] and tokens[0] == paint(pair, None)[0][0]
    assert len(paint(pair, 1, limit=7)[0]) == 7


class Scripted(RandomStreams):
    """Draws a given picture, and multiplies the probabilities of the draws."""

    def __init__(self, tokens):
        super().__init__(0)
        self.tokens, self.prob = list(tokens), 1.0

    def pick(self, stream, probs):
        token = self.tokens.pop(0)
        self.prob *= float(probs[token])
        return token


def test_the_joint_distribution_is_that_of_the_models(tmp_path):
    """All 3 * 2 ** 4 pictures of two scales, of which the small model paints the second."""
    sizes = {"grids": [1, 2], "entries": [3, 2], "vocab_size": WORDS + 5}
    pair = model(tmp_path / "large", **sizes), model(tmp_path / "small", 5, hidden_size=8, **sizes)
    large, small = (one.open() for one in pair)
    total = 0.0
    for first, *rest in itertools.product(range(3), *[range(3, 5)] * 4):
        tokens = [WORDS + entry for entry in (first, *rest)]
        script = Scripted(tokens)
        assert paint(pair, 1, rng=script)[0] == tokens
        large.sync(PROMPT)
        small.sync(PROMPT + tokens[:1])
        rows = torch.cat([large.next_scale(), small.next_scale()]).log_softmax(-1)
        assert script.prob == pytest.approx(float(rows[range(5), tokens].sum().exp()), rel=1e-4)
        total += script.prob
    assert total == pytest.approx(1, abs=1e-5)


def test_the_method_hands_over_after_n_scales(pair):
    from specviz.methods import catalogue

    method = catalogue()["collaborative_decoding"]
    parts = method.build(
        SimpleNamespace(open=lambda role, required: pair[1].open()), **method.read_knobs({"large_scales": 2})
    )
    state = State(list(PROMPT), Sampling(1.0, seed=4), RandomStreams(4), limit=14)
    events = list(parts.loop(parts, pair[0].open(), state))
    assert [event.kind for event in events if isinstance(event, Committed)] == ["plain", "plain", "small"]
    assert state.tokens[3:] == paint(pair, 2, seed=4)[0]


class Repeats(TokenMask):
    """A grammar on tokens: t may not be followed by t, nor by t + 3."""

    def banned(self, context, path):
        last = (*context.prompt, *context.output, *path)[-1]
        assert 0 <= last < WORDS + 12  # llguidance refuses other ids, too
        return [token for token in (last, last + 3) if token < WORDS + 12]


@pytest.mark.parametrize("large", [0, 1, 3])
def test_every_patch_keeps_to_a_mask_whichever_model_paints_it(pair, large):
    """The context of a patch's mask holds the patches of its own scale that were drawn before it."""
    broken = {True: 0, False: 0}
    for masked in broken:
        for seed in range(4):
            tokens = paint(pair, large, seed=seed, processors=Processors([Repeats()]) if masked else None)[0]
            broken[masked] += sum(
                after in Repeats().banned(Context([before], (), ()), ())
                for before, after in zip(tokens, tokens[1:])
            )
    assert broken[True] == 0 < broken[False]


class Bytes:
    """A table in which each token is one letter."""

    special = frozenset()

    def __call__(self, token):
        return b"x"

    def output_bytes(self, token, first=False):
        return b"x"


def test_the_terminal_takes_all_patches_of_a_scale(pair):
    out = io.StringIO()
    writer = TokenPrinter(out, Bytes())
    tokens, events = paint(pair, 1)
    for event in events:
        writer.print_event(event)
        if isinstance(event, Committed):
            writer.print_event(TextEmitted(event.round, tuple((token, b"x", 0, 1) for token in event.tokens)))
    writer.close()
    assert out.getvalue().count("x") == len(tokens) == 14
