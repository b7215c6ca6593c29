"""A draft that learns while it serves: what a step is made of, that agreement rises, and that a seed gives
the same run again."""

from __future__ import annotations

import pytest
import torch

from specviz.core import Parts, Sampling, State, open_run, play
from specviz.core.errors import InvalidUse
from specviz.drafters.model.online import OnlineChain
from specviz.policies import Fixed
from specviz.targets.tiny import TinyNet, TinyTarget
from specviz.verifiers import TokenRejection

from ...message_codes import refuses

TEXT = [3, 1, 4, 1, 5]


def served(length, rate=1e-2, every=4, temperature=1.0, seed=5, kind=OnlineChain):
    """A run on a draft that was made for another target: its drafter, state, notes and outcomes."""
    net = TinyNet(12, 3, sharp=1.5)
    drafter = kind(TinyTarget(TinyNet(12, 8, sharp=1.5), 400), every, rate)
    target, parts = TinyTarget(net, 400), Parts(drafter, Fixed(3), TokenRejection())
    state = State(list(TEXT), Sampling(temperature, seed=seed), limit=length)
    reported = []
    outcomes = []
    open_run(parts, target, state)
    while not state.done:
        state.notes = []
        outcomes.append(play(parts, target, state))
        reported += [data for _, data in state.notes]
    return drafter, state, reported, outcomes


@pytest.fixture(scope="module")
def long():
    return served(170)


def test_agreement_rises_and_what_never_learned_stays_behind(long):
    drafter, _, reported, _ = long
    steps = [note for note in reported if "now" in note]
    early, late = steps[: len(steps) // 3], steps[-len(steps) // 3 :]

    def mean(notes, name):
        return sum(note[name] for note in notes) / len(notes)

    assert len(steps) == drafter.updates >= 9
    gained = [mean(part, "now") - mean(part, "before") for part in (early, late)]
    assert gained[1] > 0.08 and gained[1] > gained[0] + 0.04, (
        "both on the same places: the text itself is easy here and hard there"
    )
    assert steps[0]["before"] == pytest.approx(steps[0]["now"], abs=1e-4), (
        "before the first step both are one"
    )
    fresh = TinyNet(12, 8, sharp=1.5)
    assert torch.equal(drafter.original.net.embedding, fresh.embedding) and not torch.equal(
        drafter.model.net.embedding, fresh.embedding
    )


def test_a_seed_gives_the_same_run_again(long):
    _, state, reported, _ = served(170)
    assert state.tokens == long[1].tokens and reported == long[2]


def test_a_step_comes_with_every_so_many_refusals(long):
    """Refusals are counted by hand from the verdicts; a token that was never judged is none."""
    waiting = updates = 0
    for note, outcome in zip(long[2], long[3]):
        waiting += outcome.verdict.kind == "correction"
        if waiting == 4:
            waiting, updates = 0, updates + 1
        assert (note["waiting"], note["updates"], note["every"]) == (waiting, updates, 4)
        assert ("now" in note) == (updates > 0 and waiting == 0 and outcome.verdict.kind == "correction")


class Told(OnlineChain):
    """Keeps what it was asked to learn, and the weights before and after."""

    def learn(self, tokens, places):
        before = [weight.detach().clone() for weight in self.model.weights]
        super().learn(tokens, places)
        self.lessons = [
            *getattr(self, "lessons", []),
            (list(tokens), places, before, [w.detach().clone() for w in self.model.weights]),
        ]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_step_is_soft_cross_entropy_at_the_refused_places(temperature):
    """The first step by hand: the target's distributions without a cache, the gradient by plain operations,
    AdamW's first update."""
    drafter, state, _, _ = served(60, every=3, temperature=temperature, kind=Told)
    tokens, places, before, after = drafter.lessons[0]
    net, plain = TinyNet(12, 3, sharp=1.5), TinyTarget(TinyNet(12, 8, sharp=1.5)).learning()
    assert len(places) == 3 and all(place.refused for place in places)
    loss = 0.0
    for place in places:
        p = net.logits(tokens[: place.at])[-1].softmax(-1)
        assert torch.allclose(p, place.logits.softmax(-1), atol=1e-9)
        loss = loss - (p * plain.logits(tokens[: place.at])[-1].log_softmax(-1)).sum() / 3
    loss.backward()
    scale = min(1.0, 1.0 / float(torch.stack([w.grad.norm() for w in plain.weights]).norm()))
    for weight, old, new in zip(plain.weights, before, after):
        grad = weight.grad * scale
        assert torch.equal(weight.detach(), old) and torch.allclose(
            new, old - 1e-2 * grad / (grad.abs() + 1e-8), atol=1e-6
        )


def test_its_cache_is_that_of_the_weights_it_has_now(long):
    drafter, state, _, _ = long
    fresh = TinyTarget(drafter.model.net, 400)
    drafter.model.sync(state.tokens)
    drafter.model.flush()
    fresh.sync(state.tokens)
    for layer in range(2):
        assert all(torch.allclose(a, b, atol=1e-9) for a, b in zip(drafter.model.kv(layer), fresh.kv(layer)))


def test_few_places_are_kept_however_seldom_it_is_wrong(monkeypatch):
    """Each is a row of the vocabulary; what was refused is never dropped, and of the rest the newest stay."""
    from specviz.drafters.model import online

    monkeypatch.setattr(online, "PASSED", 5)
    drafter, state, reported, outcomes = served(60, every=1000)
    refused = sum(outcome.verdict.kind == "correction" for outcome in outcomes)
    passed = [place.at for place in drafter.places if not place.refused]
    assert reported[-1]["waiting"] == refused == len(drafter.places) - len(passed) and len(passed) == 5
    accepted = sum(len(outcome.verdict.path) for outcome in outcomes)
    assert accepted > 5 and passed == sorted(passed) and passed[-1] >= len(state.tokens) - 8


def test_a_draft_that_cannot_be_trained_is_refused():
    plain = TinyTarget(TinyNet(12, 8, sharp=1.5))
    plain.capabilities = plain.capabilities - {"learning"}
    with refuses(InvalidUse, "draft.capability"):
        OnlineChain(plain, 4, 1e-3)
