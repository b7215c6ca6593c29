"""What a part uses, not only what it yields: an exact method stays exact when its head ignores the text,
its lookup the memory, or its policy what was measured. So each is shown two worlds that differ in that
alone, and has to draft differently. The methods are found by the catalogue; below stand mutants of single
parts that every other check lets live."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch

from specviz.core import (
    Budget,
    Clock,
    Costs,
    Outcome,
    Parts,
    Sampling,
    Scores,
    State,
    Verdict,
    open_run,
    play,
)
from specviz.drafters.layers.layer_skipping import SkippedLayers
from specviz.drafters.lookup.trigram_search import TrigramSearch
from specviz.methods import catalogue
from specviz.policies import Fixed as FixedLength
from specviz.training.dense_store import with_states
from specviz.verifiers import TokenRejection

from ..models import tiny as heads
from .toys import TinyNet, TinyTarget, begin, player, provided, store, toy_of

VOCAB = 12
WRITTEN = [6, 8, 5, 3, 7, 4, 2]  # of the answer so far, as long as the longest keys
SEEN = [*WRITTEN, 11, 10, 0, 9, 1, *WRITTEN]
UNSEEN = [3, 10, 8, 0, 6, 9, 5, 11, 7, 1, 2, 4, *WRITTEN]  # the same end after another past


def of(folder: str):
    found = [m for m in catalogue().values() if f".{folder}." in f".{m.build.__module__}."]
    assert found, f"no method lies in methods/{folder}"
    return [pytest.param(m, id=m.key) for m in found]


def kit_of(method, **how):
    kit = toy_of(method, VOCAB, **{"share": 0.7, "sharp": 1.5, **how})
    provided(method, kit)
    return kit


def knobs_of(method):
    """The defaults, with no gate that holds back what was found, no likeness too small, and tokens that carry
    their distribution where a method can draw them."""
    free = {
        "caution": 0.0,
        "least": min((k.low for k in method.knobs if k.name == "least"), default=0),
        "walk": "left to right",
    }
    return method.read_knobs(
        {name: value for name, value in free.items() if any(k.name == name for k in method.knobs)}
    )


def first_draft(method, kit, prompt, spoil=lambda target: target, sampling=Sampling(0.0)):
    parts = method.build(kit, **knobs_of(method))
    target = spoil(kit.target)
    kit.target = target
    state = begin(parts, kit, sampling, 40, prompt=prompt, start=max(2, len(prompt) - len(WRITTEN)))
    tree = parts.drafter.propose(state, replace(parts.policy.plan(state), gamma=4))
    return tree.tokens, tree.parents, None if tree.probs is None else tree.probs.tolist()


# --- trained heads -----------------------------------------------------------------------------------------------------
class Shuffled:
    """A target whose states, as it lends them to a head, lie in another order."""

    def __init__(self, target):
        self._target = target

    def __getattr__(self, name):
        return getattr(self._target, name)

    def sync(self, tokens):
        scores = self._target.sync(tokens)
        return replace(
            scores, hidden_states={name: rows.flip(-1) for name, rows in scores.hidden_states.items()}
        )

    def kv(self, layer):
        return tuple(part.flip(-1) for part in self._target.kv(layer))

    def early(self, layer):
        view = self._target.early(layer)
        step = view.step
        view.step = lambda tree, start: step(tree, start).flip(-1)
        return view


def next_draft(method, prompt):
    """What follows a round that only guessed and wrote token 0: the draft of a head whose rows ride along
    with the target's passes."""
    kit = kit_of(method)
    parts = method.build(kit, **knobs_of(method))
    state = begin(parts, kit, Sampling(1.0), 40, prompt=prompt)
    budget = Budget(4, 3)
    tree, verdict = parts.drafter.propose(state, budget), Verdict((), 0, "plain")
    parts.drafter.observe(state, Outcome(tree, kit.target.score(tree), verdict, budget, (0,), (0,), {}))
    kit.target.commit(verdict)
    state.tokens.append(0)
    tree = parts.drafter.propose(state, budget)
    return tree.tokens, None if tree.probs is None else tree.probs.tolist()


@pytest.mark.parametrize("method", of("trained_heads"))
def test_a_heads_drafts_change_when_its_context_is_shuffled(method):
    prompts = [[(seed * 5 + 3 * i * i + i) % VOCAB for i in range(9)] for seed in range(6)]
    drawn = Sampling(1.0)  # where nodes carry distributions, those may tell before the tokens do
    if "entry" in method.needs or not any(
        need.startswith("tap:") or need in ("kv", "early") for need in method.needs
    ):  # it is lent no
        # states: what it reads is the text, through the target's layers or its own
        assert any(
            next_draft(method, prompt) != next_draft(method, [*prompt[-3::-1], *prompt[-2:]])
            for prompt in prompts
        )
        return
    assert any(
        first_draft(method, kit_of(method), prompt, sampling=drawn)
        != first_draft(method, kit_of(method), prompt, Shuffled, drawn)
        for prompt in prompts
    )


# --- lookups -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("method", of("lookup"))
def test_a_lookups_drafts_change_when_its_memory_is_another(method):
    kit, other = kit_of(method), kit_of(method)
    kit.predicted = other.predicted = ()  # so that the prompt is what is expected
    if any(
        need.startswith("store:") for need in method.needs
    ):  # its memory is the store: another one, of texts without this end
        other.open_store = lambda role: other_store(role, other)
    kit.predicted, other.predicted = tuple(SEEN), tuple(UNSEEN)
    drafts = first_draft(method, kit, SEEN)
    assert drafts[0], "with the end in its memory it drafts"
    assert drafts != first_draft(method, other, UNSEEN)


def other_store(role, kit):
    plain = store(role, [[first, 0, first, 1] for first in range(VOCAB)])
    return with_states(plain, TinyTarget(kit.net, kit.context), 4) if role == "dense" else plain


# --- policies ----------------------------------------------------------------------------------------------------------
class Fixed(Costs):
    """Costs that no clock has a say in."""

    def learn(self, *measured):
        pass


def drafted(method, kit, rounds=24, **knobs):
    """How many tokens each round drafted, on a clock that counts how often it is asked."""
    ticks = itertools.count()
    parts = method.build(kit, **method.read_knobs(knobs))
    state = begin(
        parts,
        kit,
        Sampling(1.0, seed=2),
        10**6,
        prompt=SEEN,
        clock=Clock(lambda: next(ticks)),
        costs=Fixed({1: 4.0, 20: 5.0}, {1: 1.0, 20: 20.0}),
    )
    return [len(player(parts)(parts, kit.target, state).tree) for _ in range(rounds)]


# BlockPilot chooses once, from the target's states of the prompt: no draft changes its choice.
@pytest.mark.parametrize("method", [one for one in of("draft_length") if one.id != "blockpilot"])
def test_a_policys_drafts_change_when_what_it_measures_is_another(method):
    """A draft that is the target and sure of itself, beside one that is another net and knows nothing. A
    fixed length, and one that hears nothing of what was accepted, drafts as much in both. What an untrained
    network says lies anywhere, so its limit is tried at several places, and one without a limit with
    several seeds."""
    trained = any(need.startswith("head:") for need in method.needs)
    limited = trained and any(knob.name == "threshold" for knob in method.knobs)
    places = [{}, *({"threshold": place} for place in (0.74, 0.76, 0.78, 0.8, 0.3, 0.9) if limited)]
    for seed, knobs in itertools.product(range(1 if limited or not trained else 8), places):
        worlds = [
            kit_of(method, share=1.0, sharp=6.0, context=1024),
            kit_of(method, share=0.0, sharp=0.3, context=1024),
        ]
        for kit in worlds:
            kit.head = lambda kind, on=kit, seed=seed: heads.head(kind, heads.body(on.target), seed)
        if drafted(method, worlds[0], **knobs) != drafted(method, worlds[1], **knobs):
            return
    raise AssertionError("it drafts as much in both")


# --- mutants -----------------------------------------------------------------------------------------------------------
class ShiftedTokens(SkippedLayers):
    """Layer sets are held against the tokens one place further on."""

    def try_layer_set(self, state):
        self.choices = self.choices[1:] + self.choices[:1]
        super().try_layer_set(state)


class ShiftedChoices(SkippedLayers):
    """What the target would have written is kept from one place further on."""

    late = False

    def observe(self, state, outcome):
        super().observe(state, outcome)
        if not self.late:
            self.late = self.choices.pop(0) is not None


@pytest.mark.parametrize(
    "swift, matched", [(SkippedLayers, True), (ShiftedTokens, False), (ShiftedChoices, False)]
)
@pytest.mark.parametrize("gamma", [0, 3])
def test_the_whole_target_matches_its_own_text_in_every_token(swift, matched, gamma):
    """With nothing skipped the trial is the target itself, however many tokens a round wrote."""
    target, drafter = TinyTarget(TinyNet(VOCAB, 3, layers=4, sharp=1.5), 96), swift(0.0, 0.0, 2, 8, 1)
    parts, state = (
        Parts(drafter, FixedLength(gamma), TokenRejection()),
        State([1, 2, 0, 3], Sampling(0.0), limit=60),
    )
    open_run(parts, target, state)
    while len(drafter.choices) < drafter.context:
        play(parts, target, state)
    assert len(set(state.tokens[4:])) > 1, "a text of one token alone would match itself shifted, too"
    drafter.try_layer_set(state)
    assert (drafter.search.matched == 1.0) == matched


class NoTiers(SkippedLayers):
    """As wide where it is sure as where it is not."""

    def propose(self, state, budget):
        class Flat:
            sync = self.view.sync

            def score(_, tree, start=0):
                return Scores(self.view.score(tree, start).logits * 0)

        inner = SkippedLayers.__new__(SkippedLayers)
        inner.__dict__ = {**self.__dict__, "view": Flat()}
        return SkippedLayers.propose(inner, state, budget)


class Scripted:
    """A view that is sure of its best token by these chances, depth by depth."""

    def __init__(self, *token_probs):
        self.token_probs, self.layers = token_probs, 4

    def skipping(self, sublayers):
        return self

    def sync(self, tokens):
        return None

    def score(self, tree, start=0):
        depths = [0, *tree.depths][start + 1 if start else 0 :]
        rows = torch.full((len(depths), 12), 0.0)
        for row, depth in zip(rows, depths):
            prob = self.token_probs[min(depth, len(self.token_probs) - 1)]
            row += (1 - prob) / 11
            row[3] = prob
        return Scores(rows.log())


@pytest.mark.parametrize("swift, tiered", [(SkippedLayers, True), (NoTiers, False)])
def test_swift_is_wider_where_it_is_less_sure(swift, tiered):
    target, drafter = Scripted(0.97, 0.9, 0.6, 0.3), swift(0.5, 0.0, 4, 8, 1)
    state = State([1, 2, 0, 3], Sampling(0.0))
    drafter.start(state, target, Scores(torch.zeros(1, 12)))
    tree = drafter.propose(state, Budget(4, 4, 64))
    wide, node = [], -1
    while tree.children(node):
        wide.append(len(tree.children(node)))
        node = tree.children(node)[0]
    assert (len(wide) == 4 and wide == sorted(wide) and len(set(wide)) == 4) == tiered, wide


class LastTrigramOnly(TrigramSearch):
    """A path is worth what its last tri-gram is."""

    def expand(self, place):
        found = super().expand(place)
        for child in place.children:
            child.score = 0.0
        return found

    def rollout(self, pair, depth, rolls):
        return super().rollout(pair, min(depth, 1), rolls)


@pytest.mark.parametrize("aded, right", [(TrigramSearch, True), (LastTrigramOnly, False)])
def test_aded_rewards_every_trigram_of_a_path(aded, right):
    import random

    search = aded(iterations=20)
    search.matrix = {(0, 1): {2: 1.0}, (1, 2): {3: 2.0}, (2, 3): {4: 3.0}}
    root = search.search((0, 1), 3, random.Random(0))
    assert (root.reward / root.visits == pytest.approx(1 + 1 + 2 + 3)) == right
