"""One round: the clip before, the cut after, and what the parts learn."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specviz.core import (
    BrokenModel,
    Budget,
    Clock,
    Decision,
    Drafter,
    DraftTree,
    HiddenInput,
    IncompatibleVerifier,
    Parts,
    Policy,
    Sampling,
    State,
    Verdict,
    Verifier,
    clip,
    open_run,
    play,
)
from specviz.core.round import _cut_at_stop
from specviz.loops import speculate
from specviz.targets.tiny import TinyNet, TinyTarget
from specviz.verifiers import TokenRejection

from ..message_codes import refuses
from .trees import trees

quick = settings(max_examples=60, deadline=None, derandomize=True)
NET = TinyNet(12, seed=3)
PROMPT = [1, 2, 0, 3]


class Says(Drafter):
    """Proposes given trees, whatever the budget; records budgets and outcomes."""

    def __init__(self, *proposals: DraftTree):
        self.proposals = list(proposals)
        self.budgets = []
        self.outcomes = []

    def propose(self, state, budget):
        self.budgets.append(budget)
        return self.proposals.pop(0) if self.proposals else DraftTree()

    def observe(self, state, outcome):
        self.outcomes.append((list(state.tokens), outcome))


class Wants(Policy):
    def __init__(self, budget: Budget):
        self.budget, self.outcomes = budget, []

    def plan(self, state):
        return self.budget

    def observe(self, outcome):
        self.outcomes.append(outcome)


class Chainless(TinyTarget):
    capabilities = TinyTarget.capabilities - {"tree"}


def greedy(count: int) -> list[int]:
    tokens = list(PROMPT)
    for _ in range(count):
        tokens.append(int(NET.logits(tokens)[-1].argmax()))
    return tokens[len(PROMPT) :]


def begin(drafter: Drafter, budget: Budget = Budget(8), target=None, **state):
    parts, target = Parts(drafter, Wants(budget), TokenRejection()), target or TinyTarget(NET)
    state = State(list(PROMPT), **state)
    open_run(parts, target, state)
    return parts, target, state


@quick
@given(trees(), st.integers(0, 4))
def test_clip_drops_candidates_too_deep_and_what_hangs_under_them(tree, deepest):
    cut = clip(tree, State([0], limit=deepest + 1))
    late = {i for i, d in enumerate(tree.depths) if d > deepest and i not in tree.probes}
    want = [i for i in range(len(tree)) if not late.intersection(tree.path(i))]
    assert cut.tokens == tuple(tree.tokens[i] for i in want)
    assert all(d <= deepest for i, d in enumerate(cut.depths) if i not in cut.probes)
    for new, old in enumerate(want):
        a, b = cut.draft_probs(new), tree.draft_probs(old)
        assert (a is None and b is None) or torch.equal(a, b)


def test_clip_leaves_a_tree_that_fits_and_probes_that_reach_further():
    probing = DraftTree(
        (1, 2), (-1, 0), (-1, -1), probes=frozenset({1}), inputs=(HiddenInput(0, (1,), lambda x: x[:1]),)
    )
    assert clip(probing, State([0], limit=2)) is probing


@quick
@given(
    st.lists(st.integers(0, 5), max_size=5), st.integers(0, 5), st.sets(st.integers(0, 5)), st.integers(1, 8)
)
def test_cut_ends_the_path_at_the_first_end_token_or_the_limit(drafted, last, stop, limit):
    tree = DraftTree.chain(drafted)
    path = tuple(range(min(len(drafted), limit - 1)))  # a clipped tree is never deeper
    decisions = tuple(Decision(i, "match", 1.0, None, 1.0, 0.5, "accepted") for i in path)
    state = State([0], limit=limit, stop=frozenset(stop))
    verdict = _cut_at_stop(Verdict(path, last, "bonus", decisions), tree, state)
    written = [tree.tokens[i] for i in verdict.path] + [verdict.token]
    whole = [drafted[i] for i in path] + [last]
    ends = [i for i, x in enumerate(whole) if x in stop]
    assert written == (whole[: ends[0] + 1] if ends else whole) and len(written) <= limit
    cut = len(written) < len(whole)
    assert verdict.kind == ("accepted" if cut else "bonus")
    assert [t.node for t in verdict.decisions] == list(range(len(verdict.path) + cut)), (
        "what comes after an end token was not tried"
    )


def test_cut_keeps_the_trials_of_refused_siblings_before_the_end():
    tree = DraftTree((4, 5, 7, 8), (-1, -1, 1, 1), (-1,) * 4)
    decisions = tuple(
        Decision(i, "match", 0.5, None, 0.5, 0.5, ("rejected", "accepted")[i % 2]) for i in range(4)
    )
    verdict = _cut_at_stop(Verdict((1, 3), 9, "bonus", decisions), tree, State([0], stop=frozenset({5})))
    assert (verdict.path, verdict.token, verdict.kind) == ((), 5, "accepted") and [
        t.node for t in verdict.decisions
    ] == [0, 1]


def test_a_verdict_longer_than_the_run_may_write_is_cut():
    verdict = _cut_at_stop(Verdict((0, 1, 2), 9, "bonus"), DraftTree.chain([4, 5, 6]), State([0], limit=2))
    assert (verdict.path, verdict.token, verdict.kind) == ((0,), 5, "accepted")


@pytest.mark.parametrize("left", [1, 2, 3, 9])
def test_a_round_never_writes_more_than_is_left(left):
    right = greedy(9)
    drafter = Says(DraftTree.chain(right[:6]))
    parts, target, state = begin(drafter, limit=left)
    outcome = play(parts, target, state)
    assert state.tokens == PROMPT + right[: min(left, 7)] and len(outcome.tree) == min(6, left - 1)
    assert drafter.budgets[0].gamma == min(8, left - 1)
    assert state.done == (left <= 7)


def test_an_end_token_inside_the_draft_ends_the_run_and_the_cache_fits():
    right = greedy(6)
    stop = right[3]
    first = right.index(stop)
    parts, target, state = begin(Says(DraftTree.chain(right[:5])), stop=frozenset({stop}))
    outcome = play(parts, target, state)
    assert state.tokens == PROMPT + right[: first + 1] and state.done and outcome.verdict.kind == "accepted"
    assert target.cached_tokens == state.tokens[:-1] and target.root == state.tokens[-1]
    assert target.sync(state.tokens).num_computed == 0, "a committed round leaves nothing to feed"


def test_an_end_token_as_the_bonus_ends_the_run():
    right = greedy(3)
    parts, target, state = begin(
        Says(DraftTree.chain(right[:2])), stop=frozenset({right[2]} - set(right[:2]))
    )
    assert play(parts, target, state).verdict.kind == "bonus"
    assert state.done == (right[2] not in right[:2])


def test_kept_rows_predicted_what_was_committed():
    right = greedy(5)
    wrong = (right[1] + 1) % 12
    tree = DraftTree((right[0], (right[0] + 1) % 12, right[1], wrong, right[2]), (-1, -1, 0, 0, 2), (-1,) * 5)
    drafter = Says(tree)
    parts, target, state = begin(drafter)
    outcome = play(parts, target, state)
    assert outcome.committed == tuple(right[:4]) and outcome.kept == (0, 1, 3, 5)
    assert [int(outcome.scores.logits[r].argmax()) for r in outcome.kept] == list(outcome.committed)
    ((seen, learned),) = drafter.outcomes
    assert (
        seen == state.tokens == PROMPT + right[:4]
        and learned is outcome
        and parts.policy.outcomes == [outcome]
    )


def test_seconds_are_phases_that_fill_the_round():
    ticks = iter(range(1000))
    parts, target, state = begin(Says(DraftTree.chain(greedy(2))))
    state.clock._source, state.clock._start = lambda: next(ticks), 0
    outcome = play(parts, target, state)
    assert set(outcome.seconds) == {"plan", "draft", "verify", "judge", "commit", "observe"}
    assert outcome.began + sum(outcome.seconds.values()) == next(ticks) - 1
    assert (
        state.costs.verify(2) == outcome.seconds["verify"]
        and state.costs.draft(2) == outcome.seconds["draft"]
    )


def test_a_target_without_trees_is_drafted_chains():
    drafter = Says()
    parts, target, state = begin(drafter, Budget(3, width=5), target=Chainless(NET))
    play(parts, target, state)
    assert (drafter.budgets[0].gamma, drafter.budgets[0].width) == (3, 1)


def test_a_verifier_refuses_draws_it_does_not_know():
    tree = DraftTree.chain([1], torch.full((1, 12), 1 / 12), "hub")
    parts, target, state = begin(Says(tree))
    with refuses(IncompatibleVerifier, "verifier.incompatible", "token rejection", "chosen and iid", "hub"):
        play(parts, target, state)
    assert Verifier.labels == {"chosen"}
    with pytest.raises(TypeError, match="Verifier"):
        Verifier().verify(tree, None, state)


def broken() -> TinyTarget:
    net = TinyNet(12, seed=3)
    net.output[5] = torch.nan
    return TinyTarget(net)


@pytest.mark.parametrize("prompt", [PROMPT, [1]], ids=["prompt", "a prompt of one token"])
def test_broken_weights_say_so(prompt):
    state = State(list(prompt), Sampling(1.0), limit=3)
    with refuses(BrokenModel, "model.not_numbers"):
        list(speculate(Parts(Drafter(), Policy(), TokenRejection()), broken(), state))
    assert state.tokens == prompt, "nothing is written from logits that are no numbers"


def test_the_clock_stands_still_while_an_event_is_looked_at():
    ticks = [0.0]
    parts, target = (
        Parts(Says(DraftTree.chain(greedy(3))), Wants(Budget(3)), TokenRejection()),
        TinyTarget(NET),
    )
    state = State(list(PROMPT), limit=12)
    state.clock = Clock(lambda: ticks[0])
    for _ in speculate(parts, target, state):
        assert state.clock.now() == 0
        ticks[0] += 5
    assert state.clock.now() == 0
