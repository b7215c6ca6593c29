"""Policies of a batch on scripted rounds: BASS's length, the rows of TETRIS, SmartSpec's goodput on
scripted costs."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest
import torch

from specviz.core import (
    IID,
    Budget,
    DraftTree,
    FixedCosts,
    JointPolicy,
    Outcome,
    Scores,
    State,
    Step,
    Verdict,
)
from specviz.policies import BatchDraftLength, BatchTokenBudget, Goodput, RaggedDraftLengths
from specviz.policies.batch_budget import WHY, path_probs, tokens_per_chain
from specviz.policies.batch_lengths import FULL, STOPPED
from specviz.policies.linear_cost import LinearCost


def states(count: int, tokens: int = 10) -> list[State]:
    return [State([0] * tokens) for _ in range(count)]


def outcome(drafted: int, accepted: int, verify: float = 1.0, draft: float = 0.0) -> Outcome:
    return Outcome(
        DraftTree.chain([1] * drafted),
        Scores(torch.zeros(1, 2)),
        Verdict(tuple(range(accepted)), 0, ""),
        None,
        (1,) * (accepted + 1),
        (0,),
        {"verify": verify, "draft": draft},
    )


def sure(prob: float, depth: int = 0) -> Step:
    return Step(0, torch.tensor([prob, (1 - prob) / 2, (1 - prob) / 2]), depth)


def test_bass_follows_the_luckiest_request_and_falls_faster_the_second_time():
    policy = BatchDraftLength(7, 2, 12)
    crowd = states(2)
    lengths = []
    for accepted in ((7, 0), (1, 9), (4, 11), (12, 12), (0, 0), (1, 0), (0, 0), (8, 2)):
        assert {budget.gamma for budget in policy.plan_all(crowd)} == {policy.gamma}
        policy.learn_all(crowd, [outcome(policy.gamma, n) for n in accepted])
        lengths.append(policy.gamma)
    assert lengths == [9, 11, 12, 12, 10, 8, 6, 8]
    for _ in range(9):
        policy.learn_all(crowd, [outcome(3, 0)])
    assert policy.gamma == 1


def test_tetris_gives_rows_to_the_most_probable_tokens_of_all():
    assert tokens_per_chain([[0.9, 0.8, 0.7, 0.6], [0.5, 0.1], [0.3]], 5) == [4, 1, 0]
    assert tokens_per_chain([[0.5, 0.5], [0.5, 0.5]], 2) == [1, 1], "of equal ones the nearer to the root"
    assert tokens_per_chain([[0.5], []], 9) == [1, 0] and tokens_per_chain([], 3) == []


def test_tetris_is_the_best_choice_of_rows_for_the_beliefs_it_has():
    """No other beginnings of the chains with so many rows promise more accepted tokens."""
    source = torch.Generator().manual_seed(1)
    for budget in range(7):
        chains = [torch.rand(n, generator=source).cumprod(0).tolist() for n in (3, 2, 4)]
        chosen = tokens_per_chain(chains, budget)
        promised = {
            lengths: sum(sum(chain[:n]) for chain, n in zip(chains, lengths))
            for lengths in itertools.product(*(range(len(chain) + 1) for chain in chains))
            if sum(lengths) == budget
        }
        assert promised[tuple(chosen)] == pytest.approx(max(promised.values()))


@pytest.mark.parametrize("requests, gamma, extra", [(1, 4, 2), (4, 2, 1), (4, 4, 2), (16, 4, 4)])
def test_tetris_writes_at_least_what_the_fixed_length_writes_in_as_many_rows(requests, gamma, extra):
    """Whole answers of requests of different ease, no clock: draft models that know their chances, the same
    rows in every round."""

    def rounds(policy):
        rng, crowd = (
            [random.Random(i) for i in range(requests)],
            [State([0] * 10, limit=120) for _ in range(requests)],
        )
        prob = [[rng[i].choice((0.2, 0.6, 0.95)) for _ in range(160)] for i in range(requests)]
        holds = [[rng[i].random() < prob[i][at] for at in range(160)] for i in range(requests)]
        written = played = 0
        while played < 40:
            budgets, trees = policy.plan_all(crowd), []
            for state, budget, mine in zip(crowd, budgets, prob):
                for depth in range(budget.gamma):
                    budget.stop(sure(mine[len(state.tokens) - 10 + depth], depth))
                trees.append(DraftTree.chain([1] * budget.gamma))
            for i, (state, tree) in enumerate(zip(crowd, policy.share(crowd, trees))):
                at = len(state.tokens) - 10
                kept = next((n for n in range(len(tree)) if not holds[i][at + n]), len(tree))
                state.tokens += [0] * (kept + 1)
                written, state.limit = written + kept + 1, state.limit + kept + 1
                rows[policy] = rows.get(policy, 0) + len(tree)
                prob[i] += [rng[i].choice((0.2, 0.6, 0.95)) for _ in range(kept + 1)]
                holds[i] += [rng[i].random() < one for one in prob[i][len(holds[i]) :]]
            played += 1
        return written

    rows = {}
    tetris = BatchTokenBudget(gamma, extra)
    fixed = Always(gamma)
    earned, wanted = rounds(tetris), rounds(fixed)
    assert rows[tetris] == rows[fixed] == 40 * requests * gamma and (
        earned > wanted if requests > 1 else earned == wanted
    ), (earned, wanted)


def test_tetris_cuts_by_the_distributions_and_keeps_the_draws():
    policy, crowd = BatchTokenBudget(2, 1), states(2)
    budgets = policy.plan_all(crowd)
    assert [budget.gamma for budget in budgets] == [3, 3]
    distributions = torch.full((3, 4), 0.25)
    stopped = [
        [budget.stop(sure(prob, depth)) for depth in range(3)] for budget, prob in zip(budgets, (0.9, 0.4))
    ]
    assert stopped == [[False, False, False], [True, True, True]], (
        "four rows are spoken for once the second has drafted a token"
    )
    kept = policy.share(
        crowd, [DraftTree.chain([1, 2, 3], distributions), DraftTree.chain([3, 2, 1], distributions)]
    )
    assert [tree.tokens for tree in kept] == [(1, 2, 3), (3,)] and kept[1].label(0) == IID
    note = dict(crowd[1].notes)["rows"]
    assert note["given"] == [4, 2] and note["asked"] == [4, 4] and note["padded"] == 8 and note["budget"] == 4
    assert note["why"] == WHY.format(count=1, drafted=3, budget=4) and note["request"] == 1


def test_tetris_stops_drafting_where_rows_are_spoken_for_and_verifies_what_whole_drafts_would_have_given():
    """In levels, as a batch drafts: who stops would have got no further row."""
    rng, saved = random.Random(5), 0
    for _ in range(300):
        count, policy = rng.randint(1, 6), BatchTokenBudget(rng.randint(1, 4), rng.randint(0, 3))
        crowd = [State([0] * 10, limit=rng.choice((1, 2, 4, 99))) for _ in range(count)]
        beliefs = [[rng.choice((0.375, 0.5, 0.875, 0.96875)) for _ in range(7)] for _ in crowd]
        budgets = policy.plan_all(crowd)
        most = [min(budget.gamma, state.left - 1) for budget, state in zip(budgets, crowd)]
        lengths, going = [0] * count, {i for i in range(count) if most[i]}
        for depth in range(7):
            for i in sorted(going):
                lengths[i] = depth + 1
                if budgets[i].stop(sure(beliefs[i][depth], depth)) or lengths[i] == most[i]:
                    going.discard(i)
        budget = policy.budget(crowd)
        whole = tokens_per_chain([path_probs(line[:n], n) for line, n in zip(beliefs, most)], budget)
        assert [
            len(tree) for tree in policy.share(crowd, [DraftTree.chain([1] * n) for n in lengths])
        ] == whole
        assert sum(whole) == min(budget, sum(most)) and (count > 1 or lengths == whole), (
            "alone nothing is drafted for nothing"
        )
        saved += sum(most) - sum(lengths)
    assert saved > 200


def test_tetris_drafts_no_further_than_the_least_likely_token_that_got_a_row_before():
    """Beside others; a request alone drafts what the fixed length drafts, however it doubts."""
    policy, crowd = BatchTokenBudget(2, 1), states(2)
    for budget, prob in zip(policy.plan_all(crowd), (0.9, 0.6)):
        assert not budget.stop(sure(prob))
    policy.share(crowd, [DraftTree.chain([1]), DraftTree.chain([1])])
    assert policy.min_prob == pytest.approx(0.6)
    assert [budget.stop(sure(prob)) for budget, prob in zip(policy.plan_all(crowd), (0.61, 0.59))] == [
        False,
        True,
    ]
    assert not policy.plan_all(crowd[:1])[0].stop(sure(0.4))
    policy.share(crowd[:1], [DraftTree()])
    assert policy.min_prob == 0, "where nobody got a row, nobody is measured by one"


def test_a_request_without_beliefs_gets_rows_all_the_same():
    policy, crowd = BatchTokenBudget(1, 1), states(2)
    policy.plan_all(crowd)[0].stop(sure(0.4))
    assert [len(tree) for tree in policy.share(crowd, [DraftTree.chain([1]), DraftTree.chain([1, 2])])] == [
        1,
        1,
    ]


def test_each_request_of_a_ragged_batch_stops_by_its_own_doubt():
    policy, crowd = RaggedDraftLengths(5, 0.5), states(2)
    stop = policy.plan_all(crowd)[0].stop
    assert [stop(sure(prob)) for prob in (0.9, 0.51, 0.49)] == [False, False, True]
    policy.share(crowd, [DraftTree.chain([1] * 5), DraftTree.chain([1])])
    why = [dict(state.notes)["rows"]["why"] for state in crowd]
    assert why == [FULL, STOPPED.format(tokens=1)]
    assert dict(crowd[0].notes)["rows"]["padded"] == 12


def settled(requests: int, row: float, step: float, accept: float) -> Goodput:
    """After thirty rounds with so many requests, where a row costs ``row`` passes, a level of their drafts
    ``step`` a request, and so many drafts hold."""
    policy = Goodput(4, 8)
    crowd = states(requests)
    count = itertools.count()
    for _ in range(30):
        gammas = [budget.gamma for budget in policy.plan_all(crowd)]
        kept = [
            next((i for i in range(gamma) if (next(count) % 100) / 100 >= accept), gamma) for gamma in gammas
        ]
        took = 1.0 + row * (requests + sum(gammas)), step * sum(gammas)
        policy.learn_all(crowd, [outcome(gamma, n, *took) for gamma, n in zip(gammas, kept)])
    return policy


def test_smartspec_drafts_for_few_and_not_for_many():
    free, costly = settled(1, 0.0, 0.01, 0.8), settled(1, 0.0, 2.0, 0.8)
    assert free.plan_all(states(1))[0].gamma >= 5 and costly.plan_all(states(1))[0].gamma == 0
    few, many = settled(1, 0.05, 0.01, 0.8), settled(32, 0.5, 0.2, 0.4)
    assert few.plan_all(states(1))[0].gamma >= 3 and many.plan_all(states(32))[0].gamma == 0
    loads = [few.goodput(n, 4, 10) / few.goodput(n, 0, 10) for n in (1, 8, 64)]
    assert loads == sorted(loads, reverse=True), "what speculation brings falls with the load"


def test_smartspec_takes_the_best_length_by_its_own_figures():
    policy = settled(4, 0.1, 0.05, 0.7)
    gamma = policy.plan_all(states(4))[0].gamma
    a, rows = policy.acceptance, lambda k: 4 * (k + 1)
    by_hand = [4 * (1 - a ** (k + 1)) / (1 - a) / (1.0 + 0.1 * rows(k) + 0.05 * 4 * k) for k in range(9)]
    assert gamma == max(range(9), key=policy.goodputs.__getitem__) and by_hand[gamma] >= 0.99 * max(by_hand)
    assert policy.goodputs[:5] == pytest.approx(by_hand[:5], rel=0.05), "longer drafts were not tried much"


def test_smartspec_wakes_up_now_and_then():
    """One request tries, and all of trying together takes two hundredths of the time."""
    policy = settled(3, 0.0, 3.0, 0.9)
    crowd = states(3)
    drafted = []
    for _ in range(3000):
        drafted.append([budget.gamma for budget in policy.plan_all(crowd)])
        policy.learn_all(crowd, [outcome(n, 0, 1.0, 3.0 * sum(drafted[-1])) for n in drafted[-1]])
    spent = [3.0 * sum(lengths) for lengths in drafted]
    assert {tuple(sorted(lengths)) for lengths in drafted} == {(0, 0, 0), (0, 0, 4)} and 3 <= sum(
        map(bool, spent)
    ) <= 6
    assert sum(spent) <= 0.025 * (sum(spent) + len(spent))


# name -> (a pass by rows, a level of drafts by its rows, the draft model's reading of a token); seconds
COSTS = {
    "rows ride along": (lambda rows: 1 + 0.02 * rows, lambda rows: 0.05 + 0.005 * rows, 0.01),
    "rows are expensive": (lambda rows: 1 + 0.12 * rows, lambda rows: 0.06 + 0.03 * rows, 0.02),
    "drafts are expensive": (lambda rows: 1 + 0.02 * rows, lambda rows: 0.5 + 0.005 * rows, 0.02),
    "one row is cheap": (
        lambda rows: 1 if rows == 1 else 1.35 + 0.04 * rows,
        lambda rows: 0.12 + 0.01 * rows,
        0.01,
    ),
    "the embedded pair": (
        lambda rows: 0.9 + 0.04 * rows + 0.03 * max(0, rows - 8),
        lambda rows: 0.06 + 0.02 * rows,
        0.006,
    ),
    "from seven rows on they are expensive": (
        lambda rows: max(1, 0.15 * rows),
        lambda rows: 0.06 + 0.02 * rows,
        0.02,
    ),
}


PLAYED = {
    (drafted, accepted): outcome(drafted, accepted) for drafted in range(9) for accepted in range(drafted + 1)
}


def simulated(
    policy, users: int, accept: float | None, costs, seed: int, answers: int, length: int = 32
) -> float:
    """Tokens a second of so many users, each of whom asks anew when answered, on scripted costs that waver
    by a fifth. accept: of every drafted token; None: of a hard text or an easy one."""
    rng, noise, clock, seen, (verify, draft, read) = (
        random.Random(seed),
        random.Random(seed + 1),
        0.0,
        {},
        costs,
    )
    todo = [State([0] * 40, limit=rng.randint(length // 2, length)) for _ in range(answers)]
    path_probs = {id(state): rng.choice((0.3, 0.95)) if accept is None else accept for state in todo}
    holds = {
        id(state): [rng.random() < path_probs[id(state)] for _ in range(40 + length)] for state in todo
    }  # whatever drafts it, and when
    crowd = []
    everybody = list(todo)
    written = sum(state.limit for state in todo)
    while todo or crowd:
        while todo and len(crowd) < users:
            crowd.append(todo.pop(0))
        gammas = [min(budget.gamma, state.left - 1) for budget, state in zip(policy.plan_all(crowd), crowd)]
        unread = sum(len(s.tokens) - seen.get(id(s), 0) for s, gamma in zip(crowd, gammas) if gamma)
        passed = verify(sum(gamma + 1 for gamma in gammas)) * noise.uniform(0.8, 1.2)
        drafted = (
            sum(draft(sum(gamma > depth for gamma in gammas)) for depth in range(max(gammas))) + read * unread
        )
        drafted *= noise.uniform(0.8, 1.2)
        clock += passed + drafted
        outcomes = []
        for state, gamma in zip(crowd, gammas):
            kept = next((i for i in range(gamma) if not holds[id(state)][len(state.tokens) + i]), gamma)
            state.tokens += [0] * (kept + 1)
            seen |= {id(state): len(state.tokens)} if gamma else {}
            outcomes.append(replace(PLAYED[gamma, kept], seconds={"verify": passed, "draft": drafted}))
        policy.learn_all(crowd, outcomes)
        crowd = [state for state in crowd if not state.done]
    assert all(len(state.tokens) == 40 + state.limit for state in everybody)
    return written / clock


class Always(JointPolicy):
    def __init__(self, gamma: int):
        self.gamma = gamma

    def plan_all(self, states):
        return [Budget(self.gamma)] * len(states)


@pytest.mark.parametrize(
    "costs, accept",
    [
        pytest.param(costs, accept, marks=[] if (i + j) % 3 == 0 else [pytest.mark.thorough])
        for i, costs in enumerate(COSTS)
        for j, accept in enumerate((0.25, 0.6, 0.9, None))
    ],
)
def test_smartspec_is_never_far_under_the_better_of_plain_and_fixed(costs, accept):
    """As under a load that is measured: a short warm-up of the largest load, then each load of the sweep on
    what was learned so far. Whatever pays there, and however short it is, what is spent on measuring and
    trying is little."""
    loads, seeds = (1, 2, 4, 8, 16), (7, 11, 23)
    reached = dict.fromkeys(loads, 0.0)
    for seed in seeds:
        policy = Goodput(4, 8)
        simulated(policy, loads[-1], accept, COSTS[costs], seed + 100, loads[-1], 16)
        for users in loads:
            best = max(simulated(Always(gamma), users, accept, COSTS[costs], seed, 24) for gamma in (0, 4))
            reached[users] += simulated(policy, users, accept, COSTS[costs], seed, 24) / best / len(seeds)
    assert min(reached.values()) >= 0.95, reached


@pytest.mark.parametrize("seed", [7, 11, 23])
def test_a_wavering_clock_never_makes_reading_a_text_seem_too_costly_to_try(seed):
    """A request's text is read once; what its drafts waver by is not taken for the price of that, which no
    later round would mend."""
    drafts = (lambda rows: 0.61 + 0.06 * rows, lambda rows: 0.08 + 0.025 * rows, 0.006)
    policy = Goodput(4, 8)
    best = max(simulated(Always(gamma), 1, 0.75, drafts, seed, 12) for gamma in (0, 4))
    assert simulated(policy, 1, 0.75, drafts, seed, 12) >= 0.95 * best and policy.gamma


def test_smartspec_reads_new_texts_and_leaves_out_those_that_end_soon():
    """Of requests that were never drafted for, one near its end would have its text read for a token or
    two."""
    policy = settled(2, 0.01, 0.02, 0.9)
    policy.draft_cost.coefficients = [0.02, 0.02, 0.05]
    old, new = State([0] * 60, limit=400), State([0] * 400, limit=3)
    new.tokens += [0]
    found = [budget.gamma for budget in policy.plan_all([new, old])]
    assert found[0] == 0 < found[1]


def test_no_clock_decides_where_none_may():
    def lengths(seconds):
        policy = Goodput(4, 8)
        crowd = [State([0] * 10, costs=FixedCosts(0.1)) for _ in range(3)]
        out = []
        for i in range(12):
            out.append(policy.plan_all(crowd)[0].gamma)
            policy.learn_all(crowd, [outcome(out[-1], out[-1] // 2, seconds(i), seconds(i)) for _ in crowd])
        return out

    assert lengths(lambda i: 0.01) == lengths(lambda i: 5.0 * (i % 3))


def test_a_cost_is_a_line_over_its_sizes_that_never_falls():
    cost = LinearCost(3)
    for rows, context in ((1, 10), (5, 12), (9, 30), (2, 80), (16, 7)):
        cost.learn(rows, (1.0, rows, context), 2.0 + 0.3 * rows + 0.01 * context)
    assert cost.coefficients == pytest.approx([2.0, 0.3, 0.01], rel=1e-2)
    odd = LinearCost(3)
    for rows, seconds in ((1, 3.0), (8, 1.0), (1, 3.2), (8, 0.9)):
        odd.learn(rows, (1.0, rows, 5.0), seconds)
    assert min(odd.coefficients) >= 0 and odd.seconds(1, 99, 5) >= odd.seconds(1, 1, 5) > 0


def test_a_place_visited_often_outweighs_no_other_and_a_slow_pass_does_little():
    cost = LinearCost(2)
    for _ in range(400):
        cost.learn(2, (1.0, 2.0), 2.0)
    for _ in range(8):
        cost.learn(10, (1.0, 10.0), 6.0)
    assert cost.seconds(1, 10) == pytest.approx(6.0, rel=1e-3) and cost.seconds(1, 2) == pytest.approx(
        2.0, rel=1e-3
    )
    for seconds in [200.0] + [2.0] * 15:
        cost.learn(2, (1.0, 2.0), seconds)
    assert cost.seconds(1, 2) < 2.2
