"""A draft that merges its tokens into the target's, and learns while it serves: the distribution, what is
merged, the cache, the steps."""

from __future__ import annotations

import pytest
import torch

from specviz.core import Budget, Parts, Sampling, State, open_run, play
from specviz.drafters.vocabulary.bridge import Bridge
from specviz.drafters.vocabulary.ngrams import MergingChain, NgramCache, PositionProposal
from specviz.drafters.vocabulary.omni import OmniChain, untrained_head
from specviz.models.draft_length import acceptance_loss
from specviz.policies import Fixed
from specviz.targets.tiny import TinyNet, TinyTarget
from specviz.verifiers import TokenRejection

from ...exactness.rounds import World
from ...methods.toys import Rows, distance, round_probs, target_probs
from . import toys

OURS = [b"c", b"ab", b"a", b"abc", b"b"]  # of theirs "ab" is two and "abc" three
THEIRS = [b"a", b"b", b"c", b"ca"]
A, B, C = range(3)


def bridge() -> Bridge:
    return Bridge(toys.Letters(OURS), toys.Letters(THEIRS), len(OURS), len(THEIRS))


def chain(draft, known=(b"ab", b"abc"), ahead=4, place=PositionProposal) -> MergingChain:
    """A drafter whose model's distribution is ``draft(their tokens)``, with these of our tokens in its
    cache."""
    made = MergingChain(Rows(lambda tokens: draft(tuple(tokens)), len(THEIRS)), bridge(), ahead)
    made.proposal_class = place
    assert all(made.cache.add(OURS.index(piece)) for piece in known)
    return made


def proposing(seed, gamma, **how):
    their = World(len(THEIRS), seed + 50)

    def propose(state):
        state.tokens = [0]
        return chain(their.draft, **how).propose(state, Budget(gamma))

    return propose


class KeepsTheFirst(PositionProposal):
    """A merged token's mass is not taken from the token it begins with, and the distribution made whole
    again: the naive form."""

    def __init__(self, *args):
        super().__init__(*args)
        self.probs = self.probs / self.probs.sum()

    def move_probability(self, source, destination, mass):
        self.probs[destination] += mass


class TakesFromTheFirst(PositionProposal):
    """What three tokens become is taken from the first of them although the first two were one already."""

    def move_probability(self, source, destination, mass):
        super().move_probability(self.cache.bridge.to_ours[A], destination, mass)


@pytest.mark.parametrize(
    "place, right",
    [(PositionProposal, True), (KeepsTheFirst, False), (TakesFromTheFirst, False)],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_the_output_distribution_is_the_targets_and_wrong_masses_are_caught(place, right):
    world = World(len(OURS), 2)
    probs, accepted, _ = round_probs(
        proposing(2, 2, place=place), TokenRejection(), lambda rows: world.target(tuple(rows)), 2
    )
    off = distance(probs, target_probs(lambda rows: world.target(tuple(rows)), len(OURS), 2))
    assert (off < 1e-12 and accepted > 0.1) if right else off > 1e-3


def by_hand(q, known):
    """The distribution of the proposed token by going through all that the draft could draw; q(their tokens
    behind the text) -> distribution."""
    have, out = bridge().to_ours, torch.zeros(len(OURS), dtype=torch.float64)
    first = torch.tensor(
        [float(q(())[t]) if t in have else 0.0 for t in range(len(THEIRS))], dtype=torch.float64
    )
    for one, prob in enumerate((first / first.sum()).tolist()):
        if one not in have:
            continue
        for two in range(len(THEIRS)):
            for three in range(len(THEIRS)):
                odds = prob * float(q((one,))[two]) * float(q((one, two))[three])
                whole = [
                    piece
                    for piece in known
                    if piece == b"".join(THEIRS[t] for t in (one, two, three))[: len(piece)]
                    and len(piece) > 1
                ]
                merged = max(
                    (
                        piece
                        for piece in whole
                        if len(piece) <= (3 if (one, two, three) == (A, B, C) else 2) and (one, two) == (A, B)
                    ),
                    key=len,
                    default=None,
                )
                out[OURS.index(merged) if merged else have[one]] += odds
    return out


@pytest.mark.parametrize("known", [(), (b"ab",), (b"abc",), (b"ab", b"abc")], ids=str)
def test_the_masses_are_those_of_all_that_could_be_drawn(known):
    their = World(len(THEIRS), 52)
    begin = tuple(bridge().encode([0]))
    tree = chain(their.draft, known).propose(State([0], Sampling(1.0)), Budget(1))
    want = by_hand(lambda behind: their.draft((*begin, *behind)), known)
    assert torch.allclose(tree.draft_probs(0), want, atol=1e-12)
    assert all((want[OURS.index(piece)] > 0) == (piece in known) for piece in (b"ab", b"abc"))


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(1.0)], ids=["greedy", "sampled"])
@pytest.mark.parametrize(
    "known, ahead, want",
    [
        ((), 4, [b"a", b"b", b"c"]),
        ((b"ab",), 4, [b"ab", b"c", b"ab"]),
        ((b"ab", b"abc"), 4, [b"abc"] * 3),
        ((b"ab", b"abc"), 0, [b"a", b"b", b"c"]),
    ],
    ids=str,
)
def test_the_longest_known_spelling_is_proposed_whole(sampling, known, ahead, want):
    """The draft says a, b, c, a, b, c ... for sure."""

    def sure(tokens):
        return torch.zeros(len(THEIRS), dtype=torch.float64).index_fill_(
            0, torch.tensor([{A: B, B: C, C: A}[tokens[-1]]]), 1.0
        )

    state = State([0], sampling)
    tree = chain(sure, known, ahead).propose(state, Budget(3))
    assert [OURS[t] for t in tree.tokens] == want
    assert all(float(tree.draft_probs(i)[t]) == pytest.approx(1) for i, t in enumerate(tree.tokens))
    ((kind, reported),) = state.notes
    assert kind == "alignment" and "".join(text for text, *_ in reported["theirs"]) == b"".join(want).decode()


def test_the_cache_takes_what_is_several_of_theirs_and_nothing_else():
    cache = NgramCache(
        Bridge(toys.Letters([*OURS, b"bz", b"<|end|>"], special=[6]), toys.Letters(THEIRS), 7, len(THEIRS))
    )
    assert [cache.add(token) for token in range(7)] == [False, True, False, True, False, False, False]
    assert (
        cache.known == {(A, B): 1, (A, B, C): 3}
        and cache.after == {(A,): [B], (A, B): [C]}
        and cache.longest == 3
    )
    assert not cache.add(1) and [cache.is_missing_in_draft(token) for token in range(7)] == [
        False,
        True,
        False,
        True,
        False,
        True,
        False,
    ]


# --- learning ----------------------------------------------------------------------------------------------------------
def nets():
    """A target of our five tokens, and a draft of their four that was made for another."""
    return TinyNet(len(OURS), 3, sharp=1.5), TinyNet(len(THEIRS), 8, sharp=1.5)


def served(length, kind=OmniChain, every=8, head=None, met=None, **how):
    net, small = nets()
    drafter = kind(TinyTarget(small, 900), met or bridge(), every=every, rate=1e-2, head=head)
    target, parts = TinyTarget(net, 400), Parts(drafter, Fixed(3), TokenRejection())
    state = State([2, 4, 0, 2], Sampling(**{"temperature": 1.0, "seed": 5, **how}), limit=length)
    reported = []
    outcomes = []
    open_run(parts, target, state)
    while not state.done:
        state.notes = []
        outcomes.append(play(parts, target, state))
        reported += [data for kind, data in state.notes if kind == "ngrams"]
    return drafter, state, reported, outcomes


@pytest.fixture(scope="module")
def long():
    return served(160)


def test_what_is_reported_is_what_happened(long):
    drafter, state, reported, outcomes = long
    known: set[int] = set()
    for note, outcome in zip(reported, outcomes):
        several = [t for t in outcome.committed if len(OURS[t]) > 1]
        assert (note["lacking"], note["hits"]) == (len(several), sum(t in known for t in several))
        assert set(note["tokens"]) == {*several} - known and note["merged"] == sum(
            len(OURS[t]) > 1 for t in outcome.tree.tokens
        )
        known |= {*several}
        assert (note["known"], note["drafted"], note["accepted"]) == (
            len(known),
            len(outcome.tree),
            len(outcome.verdict.path),
        )
    assert len(reported) == len(outcomes) and known == {1, 3} and sum(note["merged"] for note in reported) > 5
    assert drafter.updates == reported[-1]["updates"] >= 8 and reported[-1]["waiting"] < 8


def test_it_learns_with_a_bridge_that_somebody_made_where_nothing_learns():
    """One bridge serves every run of a pair, and the first may have been of a method without gradients."""
    with torch.inference_mode():
        met = bridge()
    assert served(20, met=met)[0].updates >= 1


def test_it_agrees_more_than_one_that_never_learned(long):
    """The same cache and text, the first weights against the last."""
    drafter, state, _, _ = long
    net, small = nets()
    rows, agree = net.logits(state.tokens).softmax(-1), []
    for model in (TinyTarget(small, 900), drafter.model):
        fixed, total = MergingChain(model, bridge()), 0.0
        fixed.cache = drafter.cache
        for at in range(110, 150):
            tree = fixed.propose(State(state.tokens[:at], Sampling(1.0)), Budget(1))
            total += float(tree.draft_probs(0).minimum(rows[at - 1]).sum()) / 40
        agree.append(total)
    assert agree[1] > agree[0] + 0.05
    assert not torch.equal(drafter.model.net.embedding, small.embedding) and torch.equal(
        small.embedding, nets()[1].embedding
    )


class Told(OmniChain):
    def learn(self, tokens):
        self.lesson = getattr(self, "lesson", None) or (
            list(tokens),
            list(self.written),
            self.hybrid_loss(tokens, self.written).item(),
        )
        super().learn(tokens)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_step_is_the_hybrid_loss_of_the_written_tokens(temperature):
    """The first step's loss by hand: each token's own beginning encoded by itself, both models without a
    cache."""
    tokens, written, found = served(60, Told, 20, temperature=temperature)[0].lesson
    (net, small), both, terms = nets(), bridge(), []
    shared, mapped = both.shared
    for place in written:
        before, token = both.encode(tokens[: place.at]), tokens[place.at]
        if (
            both.encode(tokens[: place.at + 1])[: len(before)] != before
            or both.encode(tokens)[: len(before)] != before
        ):
            continue  # the draft reads "c" and "a" as one
        p = net.logits(tokens[: place.at])[-1]
        assert torch.allclose(p, place.logits, atol=1e-9)
        spelled = both.theirs.encode(OURS[token])
        if len(spelled) == 1:
            q, p = small.logits(before)[-1][mapped].softmax(-1), p[shared].softmax(-1)
            terms.append(float((q * (q / p).log()).sum()))
        else:
            rows = small.logits([*before, *spelled])[len(before) - 1 :].log_softmax(-1)
            terms.append(-0.2 * sum(float(rows[i, t]) for i, t in enumerate(spelled)))
    assert len(terms) > 10 and found == pytest.approx(sum(terms) / len(terms), abs=1e-9)


def test_the_head_learns_what_passes():
    """From states that have read a token to the chance that it passed with; before, it takes all for
    likely."""
    head = untrained_head(8, len(THEIRS))
    state = torch.randn(8)
    assert float(head(state).detach()) == pytest.approx(float(torch.tensor(2.0).sigmoid()))

    class Keeps(OmniChain):
        pairs: list = []

        def learn(self, tokens):
            self.pairs += self.verified
            super().learn(tokens)

    drafter, _, _, outcomes = served(150, Keeps, head=head)
    tried = [
        trial.accept
        for outcome in outcomes
        for trial in outcome.verdict.decisions
        if trial.node + 1 < len(outcome.tree)
    ]
    assert [prob for _, prob in [*drafter.pairs, *drafter.verified]] == tried
    states, token_probs = (
        torch.stack([state for state, _ in drafter.pairs]),
        torch.tensor([prob for _, prob in drafter.pairs]),
    )
    reported = drafter.head(states).detach()
    fresh = untrained_head(8, len(THEIRS))

    def hybrid_loss(head):
        return float(acceptance_loss(head.logit(states), token_probs, 6.0).detach())

    assert hybrid_loss(drafter.head) < hybrid_loss(fresh) - 0.05
    assert len(reported) > 60 and float(reported.mean()) < 0.8
