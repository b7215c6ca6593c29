"""SSD: drafts for predicted outcomes change the time of a run, never its text or its distribution."""

from __future__ import annotations

import pytest
import torch

from specviz.core import DraftTree, Parts, Sampling, State
from specviz.drafters.model.chain import DraftChain
from specviz.loops.predicted_outcomes import PredictedOutcomes, likely_outcomes
from specviz.policies import Fixed
from specviz.verifiers import TokenRejection

from ..exactness.enumeration import distance, joint, probs_of
from ..exactness.toys import PROMPT, TinyTarget, greedy, toy
from .toys import cores, notes


def ssd(kit, gamma=3, outcomes=3, loop=PredictedOutcomes, **how):
    return Parts(DraftChain(kit.open("draft")), Fixed(gamma), TokenRejection(), loop(outcomes, **how))


def run(parts, kit, limit, sampling=Sampling(), **state):
    state = State(list(PROMPT), sampling, limit=limit, **state)
    return state, list(parts.loop(parts, kit.target, state))


@pytest.mark.parametrize("outcomes", [0, 1, 4])
@pytest.mark.parametrize("share", [0.0, 0.6, 1.0])
def test_greedy_text_is_plain_decodings(outcomes, share):
    kit = toy(12, share=share, sharp=3.0)
    assert run(ssd(kit, outcomes=outcomes), kit, 30)[0].tokens == greedy(kit.net.logits, PROMPT, 30)


def test_a_perfect_draft_is_ready_in_every_round_but_the_first():
    kit = toy(12, share=1.0, sharp=3.0)
    _, events = run(ssd(kit, outcomes=16), kit, 24)
    found = notes(events, "outcomes")
    assert [note["ready"] for note in found] == [False] + [True] * (len(found) - 1) and len(found) == 6


def test_without_outcomes_nothing_is_ever_ready():
    kit = toy(12, share=1.0, sharp=3.0)
    assert not any(
        note["ready"] or note["prepared"] for note in notes(run(ssd(kit, outcomes=0), kit, 24)[1], "outcomes")
    )


def test_corrections_are_predicted_too():
    kit = toy(12, seed=2, share=0.6, sharp=3.0)
    _, events = run(ssd(kit, outcomes=8), kit, 60)
    ready = [note["ready"] for note in notes(events, "outcomes")]
    few = [note["ready"] for note in notes(run(ssd(kit, outcomes=1), kit, 60)[1], "outcomes")]
    assert sum(ready) / len(ready) > sum(few) / len(few) > 0


def test_outcomes_are_ranked_by_the_drafts_probability():
    kit = toy(6, share=0.7, sharp=1.0)
    model, state = kit.open("draft"), State(list(PROMPT), Sampling(1.0))
    model.sync(state.tokens)
    tree = DraftTree.chain((2, 4))
    found = likely_outcomes(model, state, tree, 50)
    probs = model.score(tree).logits.softmax(-1)

    def chance(tokens):
        out = 1.0
        for at, token in enumerate(tokens):
            out *= float(probs[at, token])
        return out

    assert all(
        tokens[:-1] == (2, 4)[: len(tokens) - 1] and tokens[-1] != (*tree.tokens, None)[len(tokens) - 1]
        for tokens in found
    )
    assert [chance(tokens) for tokens in found] == pytest.approx(
        sorted((chance(tokens) for tokens in found), reverse=True)
    )
    assert (
        len(set(found))
        == len(found)
        == 3 * 4 - sum(token in probs[at].topk(4).indices for at, token in enumerate(tree.tokens))
    )


def authors_forks(logits, drafted, hit, fan_out, fan_out_miss):
    """Facts of tanishqkumar/ssd 6ed3022, get_forked_recovery_tokens_from_logits: the drafted token of a
    position is left out, then the best ``fan_out[position]`` tokens are kept, after a miss
    ``fan_out_miss[position]``; the last position has no drafted token."""
    logits = logits.clone()
    for position, token in enumerate(drafted):
        logits[position, token] = -torch.inf
    counts = fan_out if hit else fan_out_miss
    return [set(row.topk(count).indices.tolist()) for row, count in zip(logits, counts, strict=True)]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("count", [1, 3, 7, 99])
def test_at_each_position_the_outcomes_are_the_authors_forks(seed, count):
    """Ours ranks the positions together; with its numbers per position the authors' code names the same
    tokens."""
    model = toy(12, seed=seed, sharp=0.8).open("draft")
    state = State(list(PROMPT), Sampling(1.0))
    drafted = (seed, 5, 7)
    found = likely_outcomes(model, state, DraftTree.chain(drafted), count)
    model.sync(state.tokens)
    logits = model.score(DraftTree.chain(drafted)).logits
    ours = [{tokens[-1] for tokens in found if len(tokens) == position + 1} for position in range(4)]
    sizes = [len(tokens) for tokens in ours]
    most = 16 - sum(token in row.topk(4).indices for token, row in zip(drafted, logits))
    assert sum(sizes) == len(found) == min(count, most)
    assert (
        authors_forks(logits, drafted, True, sizes, [0] * 4)
        == authors_forks(logits, drafted, False, [0] * 4, sizes)
        == ours
    )


class StaleDrafts(PredictedOutcomes):
    """Spoiled: uses a prepared draft after another outcome of the same length."""

    def round(self, parts, target, state):
        lengths = {len(text): chain for text, chain in self.prepared.items()}
        chain = lengths.get(len(state.tokens) - state.start)
        if chain is not None:
            self.prepared = {tuple(state.tokens[state.start :]): chain}
        return super().round(parts, target, state)


class SharedProbabilities(PredictedOutcomes):
    """Spoiled: a prepared draft carries the distributions of the token before."""

    def prepare(self, *given):
        return {
            text: DraftTree(chain.tokens, chain.parents, chain.draw, chain.probs.roll(1, 0), chain.drawn)
            for text, chain in super().prepare(*given).items()
            if len(chain) > 1
        }


@pytest.mark.parametrize("loop, exact", [(PredictedOutcomes, True), (SharedProbabilities, False)])
def test_the_joint_distribution_is_the_targets(loop, exact):
    kit = toy(2, share=0.3, sharp=0.8)
    sampling = Sampling(1.0)
    count = 4

    def once(rng):
        begun = State([1, 0, 1], sampling, rng, count)
        again = ssd(kit, 2, 2, loop, parallel=False)
        for _ in again.loop(again, TinyTarget(kit.net), begun):
            pass
        return tuple(begun.tokens[3:])

    off = distance(probs_of(once), joint(kit.net.logits, [1, 0, 1], count, sampling, 2))
    assert (off < 1e-12) if exact else (off > 1e-3)


def test_a_stale_draft_is_slower_and_still_exact():
    """A draft of another outcome is only a bad guess: the verifier holds it against its own distributions.
    What it costs shows."""
    kit = toy(12, seed=2, share=0.8, sharp=3.0)
    right, stale = (
        run(ssd(kit, outcomes=4, loop=loop), kit, 60) for loop in (PredictedOutcomes, StaleDrafts)
    )
    assert right[0].tokens == stale[0].tokens == greedy(kit.net.logits, PROMPT, 60)
    assert right[0].round <= stale[0].round


def test_a_thread_changes_nothing_about_what_is_drawn():
    for seed in range(4):
        written = []
        for count in (1, 2):
            with cores(count):
                kit = toy(12, share=0.8, sharp=2.0)
                written.append(run(ssd(kit), kit, 30, Sampling(1.0, seed=seed))[0].tokens)
        assert written[0] == written[1]


def test_end_tokens_and_the_limit_end_it():
    kit = toy(12, share=0.9, sharp=3.0)
    want = greedy(kit.net.logits, PROMPT, 40)
    new = want[len(PROMPT) :]
    stop = new[9]
    state, _ = run(ssd(kit), kit, 40, stop=frozenset({stop}))
    assert state.tokens == [*PROMPT, *new[: new.index(stop) + 1]]
    for limit in (1, 2, 5):
        assert run(ssd(kit), kit, limit)[0].tokens == want[: len(PROMPT) + limit]
