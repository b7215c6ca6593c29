"""A chain that a draft model writes in one call is the one that its passes give: tokens, distributions,
states, and what lies in its cache."""

from __future__ import annotations

import random

import pytest

from specviz.core import (
    Budget,
    DraftTree,
    RandomStreams,
    Sampling,
    State,
    Step,
    StopBelowProbability,
    UnbatchedCall,
)
from specviz.drafters.model.chain import DraftChain, StateChain
from specviz.targets.fast import FastTarget
from specviz.targets.int8 import Int8Model

from ...targets.tiny import CONTEXT, FAST, VOCAB, checkpoint


class PassByPass(FastTarget):
    capabilities = FastTarget.capabilities - {"draft_chain"}


@pytest.fixture(scope="module", params=FAST)
def model(request, tmp_path_factory):
    return Int8Model(checkpoint(tmp_path_factory.mktemp("checkpoints"), request.param))


def chains(model, sampling, gamma=4, stop=None, rounds=12, chain=DraftChain, rng=0):
    """Trees of a run of either kind of target, both told the same text; it goes on behind right, wrong and
    long guesses."""
    pair = [chain(kind(model)) for kind in (FastTarget, PassByPass)]
    source = random.Random(1)
    tokens = [3, 7, 9, 1]
    reported = []
    rolls = [RandomStreams(rng), RandomStreams(rng)]
    for n in range(rounds):
        budget = Budget(gamma=gamma, stop=stop(n)) if stop else Budget(gamma=gamma)
        trees = []
        for drafter, roll in zip(pair, rolls):
            state = State(list(tokens), sampling, limit=99)
            state.rng = roll
            trees.append(drafter.propose(state, budget))
        reported.append(trees)
        kept = source.randrange(len(trees[0]) + 1)
        tokens = tokens + list(trees[0].tokens[:kept]) + [source.randrange(VOCAB)] * (1 + (n % 5 == 4))
        if n % 6 == 5:
            tokens = tokens[:6]
    return reported, [drafter.model for drafter in pair]


@pytest.mark.parametrize("temperature", [0.0, 1.0, 0.6])
def test_the_same_tokens_from_the_same_distributions(model, temperature):
    reported, (quick, slow) = chains(model, Sampling(temperature))
    assert model.can_generate
    for mine, theirs in reported:
        assert mine.tokens == theirs.tokens and len(mine) == 4 and mine.draw == theirs.draw
        assert [mine.label(i) for i in range(4)] == [theirs.label(i) for i in range(4)]
        assert (mine.probs - theirs.probs).abs().max() < 1e-5
    assert quick.cached_tokens == slow.cached_tokens
    quick.flush(), slow.flush()
    assert all((a - b).abs().max() < 1e-4 for a, b in zip(quick.kv(1), slow.kv(1)))


def test_it_really_writes_in_one_call(model, monkeypatch):
    calls = []
    generate = model.generate
    monkeypatch.setattr(model, "generate", lambda *asked: calls.append(asked[1]) or generate(*asked))
    monkeypatch.setattr(FastTarget, "_forward", None)
    drafter = DraftChain(FastTarget(model))
    assert len(drafter.propose(State([3], limit=99), Budget(gamma=5))) == 5 and calls == [5]


def test_another_temperature_has_other_distributions(model):
    """What the tests above would miss if the temperature were not used."""
    warm, hot = (chains(model, Sampling(temperature), rounds=1)[0][0][0] for temperature in (0.6, 1.4))
    assert (warm.probs[0] - hot.probs[0]).abs().max() > 1e-3
    assert (
        chains(model, Sampling(1.4), rounds=8, rng=1)[0][0][0].tokens
        != chains(model, Sampling(1.4), rounds=8, rng=2)[0][0][0].tokens
    )


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_who_looks_on_sees_every_token_once_and_ends_the_chain(model, temperature):
    seen = []

    def stop(round):
        def ends(step: Step) -> bool:
            seen.append((round, step.depth, step.token, float(step.probs[step.token]), step.hidden))
            return step.depth == round % 4

        return ends

    reported, _ = chains(
        model, Sampling(temperature), gamma=6, stop=stop, chain=StateChainOf(model), rounds=8
    )
    for n, (mine, theirs) in enumerate(reported):
        assert len(mine) == len(theirs) == n % 4 + 1
        steps = [step for step in seen if step[0] == n]
        ours, passes = steps[: len(mine)], steps[len(mine) :]
        assert [s[1:3] for s in ours] == list(enumerate(mine.tokens))
        if temperature == 0:
            for a, b in zip(ours, passes):
                assert (
                    a[:3] == b[:3]
                    and a[3] == pytest.approx(b[3], abs=1e-5)
                    and (a[4] - b[4]).abs().max() < 1e-4
                )


def StateChainOf(model):
    return lambda target: StateChain(target, model.hidden)


def test_what_cannot_be_written_in_one_call_goes_pass_by_pass(model):
    for sampling in (Sampling(1.0, top_k=3), Sampling(1.0, top_p=0.8)):
        reported, _ = chains(model, sampling, rounds=3)
        assert all(mine.tokens == theirs.tokens for mine, theirs in reported)
    target = FastTarget(model)
    target.sync(list(range(10)))
    target.score(DraftTree())
    assert target.draft_chain((), 3, 0.0, None) is None  # the root was scored already
    target.sync([1] * (CONTEXT - 2))
    assert target.draft_chain((), 8, 0.0, None) is None and target.passes == 3  # both prompts and the root
    tapped = FastTarget(model)
    tapped.capture(frozenset({"layer:1"}))
    tapped.sync([1, 2, 3])
    assert tapped.draft_chain((), 3, 0.0, None) is None


def test_a_batch_asks_for_passes(model):
    """Passes of many requests are one; nobody writes alone there."""
    drafter = DraftChain(FastTarget(model))
    steps = drafter.steps(State([3, 7], limit=99), Budget(gamma=2))
    first = next(steps)
    assert type(first) is UnbatchedCall and first.alone
    asked = steps.send(None)
    assert not asked.alone and len(asked.tree) == 0


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_token_of_little_chance_ends_the_chain_within_the_call(model, temperature, monkeypatch):
    """The distribution of each token, the random numbers, and with them the next drafts are those of passes
    one by one."""
    seen = []
    calls = []
    generate = model.generate
    chains(
        model,
        Sampling(temperature),
        gamma=6,
        stop=lambda n: lambda step: seen.append(float(step.probs[step.token])),
        rounds=12,
    )
    monkeypatch.setattr(model, "generate", lambda *asked: calls.append(asked) or generate(*asked))
    lower = sorted(seen)[len(seen) // 4 :]
    between = next((a + b) / 2 for a, b in zip(lower, lower[1:]) if b > a + 1e-6)
    for least, lengths in ((0.0, {6}), (between, None), (1.0, {1})):
        calls.clear()
        reported, (quick, slow) = chains(
            model,
            Sampling(temperature),
            gamma=6,
            stop=lambda n, least=least: StopBelowProbability(least),
            rounds=12,
        )
        assert len(calls) == 12, "one call a draft"
        for mine, theirs in reported:
            assert mine.tokens == theirs.tokens and (mine.probs - theirs.probs).abs().max() < 1e-5
        assert quick.passes == slow.passes
        found = {len(mine) for mine, _ in reported}
        assert found == lengths if lengths else len(found) > 1


def test_a_draft_that_was_ended_leaves_its_random_numbers_to_the_next(model):
    """What others would see: a request in a batch, where nothing is written in one call, draws the same
    tokens."""
    state, other = State([3, 7], Sampling(1.0), limit=99), State([3, 7], Sampling(1.0), limit=99)
    for run, chain in ((state, DraftChain(FastTarget(model))), (other, DraftChain(PassByPass(model)))):
        chain.propose(run, Budget(gamma=5, stop=lambda step: step.depth == 2))
    assert state.rng.uniforms("draft", 3) == other.rng.uniforms("draft", 3)
