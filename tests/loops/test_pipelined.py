"""PEARL: drafts that run ahead, in a thread or one after the other; what is kept of them and what is thrown
away."""

from __future__ import annotations

import threading
import time

import pytest
import torch

from specviz.core import Clock, Drafter, DraftTree, IncompatibleVerifier, Parts, Sampling, State, open_run
from specviz.drafters.model.chain import DraftChain
from specviz.loops import Pipelined
from specviz.loops.draft_thread import DraftThread
from specviz.loops.pipelined import concatenate_chains
from specviz.loops.predicted_outcomes import PredictedOutcomes
from specviz.policies import Fixed
from specviz.targets.fast import FastModel
from specviz.targets.hf import HFModel
from specviz.trace.events import Committed, Decided, Drafted, Verified
from specviz.trace.metrics import Totals
from specviz.verifiers import TokenRejection
from specviz.verifiers.pearl import PearlVerification

from ..exactness.enumeration import distance, joint, probs_of, probs_of_engine
from ..exactness.toys import PROMPT, TinyTarget, greedy, toy
from ..message_codes import refuses
from ..targets.tiny import CONFIGS, checkpoint, network
from ..trace.records import retell
from .toys import commits, cores, decode, notes, ticks

CPU = torch.device("cpu")


def pearl(kit, gamma=3, drafter=DraftChain, **how):
    return Parts(drafter(kit.open("draft")), Fixed(gamma), PearlVerification(), Pipelined(**how))


def run(parts, kit, limit, sampling=Sampling(), **state):
    state = State(list(PROMPT), sampling, limit=limit, **state)
    return state, list(parts.loop(parts, kit.target, state))


# --- what is written ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind, model", [("llama", FastModel), ("gpt2", HFModel), ("gemma3", HFModel)])
def test_two_threads_write_what_plain_decoding_writes(kind, model, tmp_path):
    """Real networks; the draft is the target itself, and another network whose drafts are all refused."""
    folder = checkpoint(tmp_path, kind)
    target, other = model(folder, device="cpu"), tmp_path / "other"
    network(CONFIGS["llama"](), seed=5).save_pretrained(other)
    tokens = [7, 3, 21, 7, 3]
    plain = State(list(tokens), limit=14)
    alone = target.open()
    while not plain.done:
        alone.sync(plain.tokens)
        plain.tokens.append(int(alone.score(DraftTree()).logits[0].argmax()))
    with cores(2):
        for draft, least, most in ((target, 0.9, 1.0), (FastModel(other, device="cpu"), 0.0, 0.7)):
            state, large = State(list(tokens), limit=14), target.open()
            parts = Parts(DraftChain(draft.open()), Fixed(4), PearlVerification(), Pipelined())
            events, totals = list(parts.loop(parts, large, state)), Totals()
            for event in events:
                totals.fold(event)
            assert state.tokens == plain.tokens and least <= totals.accepted / totals.tried <= most
            assert {note["clock"] for note in notes(events, "timeline")} == {"measured"}


def test_a_thread_changes_nothing_about_what_is_drawn():
    for seed in range(4):
        written = []
        for count in (1, 2):
            with cores(count):
                kit = toy(12, share=0.8, sharp=2.0)
                written.append(run(pearl(kit), kit, 30, Sampling(1.0, seed=seed))[0].tokens)
        assert written[0] == written[1]


def test_the_distribution_of_a_run_with_a_real_thread_is_the_targets():
    kit = toy(3, share=0.5, sharp=0.8)
    sampling = Sampling(1.0)
    prompt = [1, 2, 0]

    def once(rng):
        state = State(list(prompt), sampling, rng, 2)
        parts = pearl(kit, 2)
        for _ in parts.loop(parts, TinyTarget(kit.net), state):
            pass
        return tuple(state.tokens[len(prompt) :])

    with cores(2):
        probs = probs_of(once)
    assert distance(probs, joint(kit.net.logits, prompt, 2, sampling, 3)) < 1e-12


class KeepsWhatWasRefused(Pipelined):
    """Forgets to throw away: what was written ahead stays pending, the refused token itself included."""

    def round(self, parts, target, state):
        outcome = super().round(parts, target, state)
        refused = [t.node for t in outcome.verdict.decisions if t.verdict == "rejected"]
        if refused and not state.done:
            self.pending = concatenate_chains((outcome.tree, len(outcome.tree)), first=refused[0])
        return outcome


class ShiftedLaws(Pipelined):
    """The pending tokens carry the distribution of the token before: off by one."""

    def round(self, parts, target, state):
        outcome = super().round(parts, target, state)
        if len(self.pending) > 1:
            chain = self.pending
            self.pending = DraftTree.chain(chain.tokens, chain.probs.roll(1, 0))
        return outcome


@pytest.mark.parametrize(
    "loop, exact", [(Pipelined, True), (KeepsWhatWasRefused, False), (ShiftedLaws, False)]
)
def test_what_ran_ahead_is_kept_by_the_right_rule(loop, exact):
    kit = toy(2, share=0.3, sharp=0.8)
    sampling = Sampling(1.0)
    count = 3
    parts = Parts(DraftChain(kit.open("draft")), Fixed(3), PearlVerification(), loop())
    state = State([1, 0, 1], sampling, limit=count)
    open_run(parts, kit.target, state)
    probs, endings = probs_of_engine(parts, kit.target, state, count, shared=(kit.net, kit.small))
    off = distance(probs, joint(kit.net.logits, [1, 0, 1], count, sampling, 2))
    assert (off < 1e-12) if exact else (off > 1e-3)
    assert endings > 30


# --- rounds ------------------------------------------------------------------------------------------------------------
def test_a_perfect_draft_never_waits_and_there_is_no_bonus():
    kit = toy(12, share=1.0, sharp=3.0)
    state, events = run(pearl(kit, 3), kit, 16)
    assert state.tokens == greedy(kit.net.logits, PROMPT, 16)
    assert [len(c.tokens) for c in commits(events)] == [1, 3, 3, 3, 3, 3]
    assert {c.kind for c in commits(events)} == {"accepted"}
    assert [note["mode"] for note in notes(events, "timeline")] == ["pre-verify"] + ["post-verify"] * 5
    assert [e.rows for e in events if isinstance(e, Verified)] == [1, 3, 3, 3, 3, 3], (
        "the last token judged is not read"
    )


def test_a_refusal_throws_away_what_was_written_ahead():
    kit = toy(12, seed=2, share=0.6, sharp=3.0)
    state, events = run(pearl(kit, 3), kit, 40)
    modes = [note["mode"] for note in notes(events, "timeline")]
    for i, commit in enumerate(commits(events)[:-4]):
        drafted = [e for e in events if isinstance(e, Drafted)][i]
        refused = commit.kind == "correction"
        assert modes[i + 1] == ("pre-verify" if refused else "post-verify")
        note = notes(events, "timeline")[i]
        assert note["kept"] == (0 if refused else 2) and note["written"] == 3
        assert len(drafted.nodes) == note["waiting"] + (3 if refused else 1), (
            "what is thrown away is told in this round"
        )
    assert {"pre-verify", "post-verify"} == set(modes)


class Counted(DraftChain):
    written = 0

    def propose(self, state, budget):
        tree = super().propose(state, budget)
        self.written += len(tree)
        return tree


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_every_drafted_token_is_a_node_of_one_round(temperature):
    kit = toy(12, share=0.8, sharp=2.0)
    parts = pearl(kit, 3, Counted)
    state, events = run(parts, kit, 40, Sampling(temperature))
    totals = Totals()
    for event in events:
        totals.fold(event)
    assert totals.drafted == parts.drafter.written > 40 > totals.rounds
    assert retell(events, PROMPT, own_loop=True) == state.tokens


def test_a_drafter_with_nothing_to_say_leaves_a_bonus_and_then_plain_tokens():
    class Once(Drafter):
        asked = 0

        def propose(self, state, budget):
            self.asked += 1
            return DraftTree.chain(right[:3]) if self.asked == 1 else DraftTree()

    kit = toy(12, share=1.0, sharp=3.0)
    right = greedy(kit.net.logits, PROMPT, 8)[len(PROMPT) :]
    parts = Parts(Once(), Fixed(3), PearlVerification(), Pipelined())
    state, events = run(parts, kit, 8)
    assert state.tokens[len(PROMPT) :] == right
    assert [(c.kind, len(c.tokens)) for c in commits(events)] == [
        ("accepted", 1),
        ("bonus", 3),
        *[("plain", 1)] * 4,
    ]


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 6, 7])
def test_no_more_is_drafted_or_written_than_is_left(limit):
    kit = toy(12, share=1.0, sharp=3.0)
    parts = pearl(kit, 4, Counted)
    assert run(parts, kit, limit)[0].tokens == greedy(kit.net.logits, PROMPT, limit)
    assert parts.drafter.written == limit


def test_an_end_token_ends_the_chain_wherever_it_comes():
    right = greedy(toy(12, share=1.0, sharp=3.0).net.logits, PROMPT, 12)[len(PROMPT) :]
    for end in sorted(set(right)):
        kit = toy(12, share=1.0, sharp=3.0)
        state, events = run(pearl(kit, 4), kit, 12, stop=frozenset({end}))
        assert state.tokens[len(PROMPT) :] == right[: right.index(end) + 1] and state.ended
        assert all(end not in [n["tok"] for n in e.nodes][:-1] for e in events if isinstance(e, Drafted))


def test_trees_are_not_for_this_verifier():
    with refuses(IncompatibleVerifier, "verifier.chains_only"):
        PearlVerification().check(DraftTree((1, 2), (-1, -1), (-1, -1)))


# --- time --------------------------------------------------------------------------------------------------------------
def test_both_are_at_work_at_the_same_time():
    """Neither the draft nor the verification of the first round can end before the other has begun; the
    spans tell that. Both read one clock here: each thread's own leaves out other waits."""
    meet = threading.Barrier(2, timeout=30)

    class Meets(DraftChain):
        first = True

        def propose(self, state, budget):
            if self.first:
                meet.wait()
            self.first = False
            return super().propose(state, budget)

    class MeetsToo(TinyTarget):
        first = True

        def score(self, tree, start=0):
            if self.first:
                meet.wait()
            self.first = False
            return super().score(tree, start)

    kit = toy(12, share=0.9, sharp=3.0)
    kit.target = MeetsToo(kit.net, 96)
    with cores(2):
        state, events = run(pearl(kit, 3, Meets), kit, 6, clock=Clock(time.perf_counter))
    draft, verify = (next(e for e in events if isinstance(e, kind)) for kind in (Drafted, Verified))
    assert max(draft.t0, verify.t0) <= min(draft.t1, verify.t1)
    note = notes(events, "timeline")[0]
    assert note["clock"] == "measured" and note["draft"] == [round(draft.t0, 7), round(draft.t1, 7)]
    assert state.tokens == greedy(kit.net.logits, PROMPT, 6)


@pytest.mark.parametrize(
    "loop, verifier", [(Pipelined, PearlVerification), (PredictedOutcomes, TokenRejection)]
)
def test_the_draft_thread_has_a_clock_of_its_own(loop, verifier):
    """A pause for what is only shown would stop the clock of the target's pass, too."""
    seen = []

    class Asks(DraftChain):
        def propose(self, state, budget):
            seen.append((threading.current_thread() is threading.main_thread(), state.clock))
            return super().propose(state, budget)

    kit = toy(12, share=0.9, sharp=3.0)
    parts = Parts(Asks(kit.open("draft")), Fixed(3), verifier(), loop())
    with cores(2):
        state, _ = run(parts, kit, 12)
    assert {main for main, _ in seen} >= {False}
    assert all((clock is state.clock) == main for main, clock in seen)


def test_every_second_is_counted_once_whether_or_not_they_overlap():
    for count in (1, 2):
        with cores(count):
            kit = toy(12, share=0.9, sharp=3.0)
            state, events = run(pearl(kit), kit, 20, clock=Clock())
        totals = Totals()
        for event in events:
            totals.fold(event)
        loop = state.clock.now() - totals.prefill_seconds
        assert 0 < totals.seconds <= loop and totals.seconds > 0.5 * loop
        assert all(min(event.seconds.values()) >= -1e-9 for event in events if isinstance(event, Committed))


def test_without_a_second_core_the_timeline_is_simulated_from_what_was_measured():
    kit = toy(12, share=0.9, sharp=3.0)
    _, events = run(pearl(kit), kit, 20, clock=ticks())
    reported, rounds = (
        notes(events, "timeline"),
        list(zip(*([e for e in events if isinstance(e, kind)] for kind in (Drafted, Verified)))),
    )
    saved = 0.0
    for note, (draft, verify) in zip(reported, rounds):
        assert note["clock"] == "simulated" and draft.t1 <= verify.t0, "the records stay what was measured"
        assert note["draft"][0] == note["verify"][0] == pytest.approx(draft.t0 - saved)
        lengths = [note[row][1] - note[row][0] for row in ("draft", "verify")]
        assert lengths == pytest.approx([draft.t1 - draft.t0, verify.t1 - verify.t0])
        saved += min(lengths)
    ends = [max(note["draft"][1], note["verify"][1]) for note in reported]
    assert all(a < b["draft"][0] for a, b in zip(ends, reported[1:])) and saved > 0


def test_threads_are_given_back_and_counts_of_threads_stay_what_they_were():
    with cores(3):
        seen = []

        def draft():
            seen.append(torch.get_num_threads())

        with DraftThread(CPU) as draft_thread:
            draft_thread.run_both(draft, lambda: seen.append(torch.get_num_threads()))
        later = threading.Thread(target=draft)
        later.start()
        later.join()
        assert sorted(seen) == [1, 2, 3] and seen[-1] == 3 == torch.get_num_threads()
    assert DraftThread.fits(CPU) == (torch.get_num_threads() > 1)
    assert not [t for t in threading.enumerate() if t.name.startswith("draft")]


class Breaks(DraftChain):
    def propose(self, state, budget):
        raise RuntimeError("the draft broke")


class BreaksToo(TinyTarget):
    def score(self, tree, start=0):
        raise RuntimeError("the target broke")


def test_what_breaks_in_either_thread_is_reported_and_leaves_no_thread():
    with cores(2):
        for drafter, target, says in (
            (Breaks, TinyTarget, "the draft broke"),
            (DraftChain, BreaksToo, "the target broke"),
        ):
            kit = toy(12)
            kit.target = target(kit.net, 96)
            with pytest.raises(RuntimeError, match=says):
                run(pearl(kit, 3, drafter), kit, 6)
            assert torch.get_num_threads() == 2
        kit = toy(12)
        parts, state = pearl(kit), State(list(PROMPT), limit=30)
        events = parts.loop(parts, kit.target, state)
        assert next(e for e in events if isinstance(e, Decided)).decisions
        events.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("draft")]


def test_a_loop_may_be_used_again():
    kit = toy(12, share=0.9, sharp=3.0)
    parts = pearl(kit)
    first, _ = run(parts, kit, 9)
    again, _ = run(parts, kit, 9)
    assert first.tokens == again.tokens == greedy(kit.net.logits, PROMPT, 9)
    assert decode("pearl", kit, PROMPT, 9)[0].tokens == first.tokens
