"""Several candidates a place: SpecHub, K-SEQ, greedy multi-draft, stochastic beams. Distributions by
enumeration, golden numbers."""

import math

import pytest
import torch

from specviz.core import (
    CHOSEN,
    IID,
    Budget,
    DraftTree,
    IncompatibleVerifier,
    RandomStreams,
    Sampling,
    Scores,
    State,
    TreeBuilder,
)
from specviz.drafters.combined.fusion import merge_trees
from specviz.drafters.model.multi_draft import DraftPaths, StochasticBeam, truncated_gumbel
from specviz.trees import (
    HUB,
    drawn_children,
    full_tree,
    grow_shape,
    hub_children,
    independent_children,
    top_and_one_children,
)
from specviz.verifiers import KSeq, MultiStep, SpecHub, TokenRejection, Traversal
from specviz.verifiers.kseq import best_rho

from ..message_codes import refuses
from ..methods.toys import Rows, distance, probs_of, round_probs, table, target_probs

P, Q = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64), torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
ONE = Sampling(1.0)


def shaped(draft, vocab, widths, children):
    """propose(state): a product tree grown from the distribution ``draft`` after the root."""

    def propose(state):
        model = Rows(lambda tokens: draft(tokens[1:]), vocab)
        model.sync(state.tokens)
        return grow_shape(model, full_tree(widths), state, children)

    return propose


def drafted(drafter, draft, vocab, budget):
    def propose(state):
        return drafter(Rows(lambda tokens: draft(tokens[1:]), vocab)).propose(state, budget)

    return propose


@pytest.mark.parametrize(
    "children,verifier,vocab,widths",
    [
        (hub_children, SpecHub(), 4, (2, 2)),
        (hub_children, SpecHub(), 6, (2,)),
        (top_and_one_children, TokenRejection(), 4, (2, 2)),
        (top_and_one_children, TokenRejection(), 5, (4,)),
        (top_and_one_children, Traversal(), 4, (2, 2)),
        (independent_children, TokenRejection(), 3, (2, 1)),
        (independent_children, KSeq(), 4, (3,)),
        (independent_children, KSeq(), 3, (2, 1)),
        (drawn_children, Traversal(), 3, (2, 1)),
    ],
)
@pytest.mark.parametrize("seed", [0, pytest.param(5, marks=pytest.mark.thorough)])
def test_the_output_distribution_is_the_targets(children, verifier, vocab, widths, seed):
    target = table(vocab, seed + 1)
    draft = table(vocab, seed + 2)
    depth = len(widths) + 1
    probs, _, _ = round_probs(shaped(draft, vocab, widths, children), verifier, target, depth)
    assert distance(probs, target_probs(target, vocab, depth)) < 1e-12


@pytest.mark.parametrize(
    "children,verifier,k,want",
    [
        (hub_children, SpecHub(), 2, 0.9),
        (top_and_one_children, TokenRejection(), 2, 0.9),
        (top_and_one_children, TokenRejection(), 3, 1),
        (independent_children, KSeq(), 2, 0.791355),
        (independent_children, KSeq(), 3, 0.858519),
        (hub_children, SpecHub(), 1, 0.7),
    ],
)
def test_golden_acceptance_at_one_node(children, verifier, k, want):
    """p = (.5, .3, .2), q = (.2, .3, .5)."""
    _, _, first = round_probs(shaped(lambda c: Q, 3, (k,), children), verifier, lambda c: P, 1)
    assert first == pytest.approx(want, abs=1e-6)


def test_golden_rho():
    for k, want in ((1, 1), (2, 1.456776), (3, 1.792593)):
        rho = best_rho(P, Q, k)
        beta = float(torch.minimum(Q, P / rho).sum())
        assert rho == pytest.approx(want, abs=1e-6) and 1 - (1 - beta) ** k <= rho * beta + 1e-12


@pytest.mark.parametrize("seed", range(2))
def test_kseq_never_accepts_more_than_the_best_transport_and_not_much_less(seed):
    target, draft = table(4, 30 + seed), table(4, 40 + seed)
    _, _, first = round_probs(shaped(draft, 4, (3,), independent_children), KSeq(), target, 1)
    p, q = target([]), draft([])
    order, best = (q / p).argsort(descending=True), 1.0
    for n in range(5):
        inside = order[:n]
        best = min(best, float(p[inside].sum()) + 1 - float(q[inside].sum()) ** 3)
    assert (1 - 1 / math.e) * best - 1e-9 <= first <= best + 1e-9


def test_spectr_twins_are_walked_together():
    target, draft = table(3, 1), table(3, 2)
    probs, accepted, _ = round_probs(
        drafted(DraftPaths, draft, 3, Budget(gamma=2, width=2)), KSeq(), target, 3
    )
    assert distance(probs, target_probs(target, 3, 3)) < 1e-12
    _, alone, _ = round_probs(drafted(DraftPaths, draft, 3, Budget(gamma=2, width=1)), KSeq(), target, 3)
    assert accepted > alone + 0.01
    # both drafts begin with 1; the second one carries on where the first is refused
    rows = torch.tensor([[0.0, 1, 0], [0, 0, 1], [0, 0, 1], [1, 0, 0], [1, 0, 0]], dtype=torch.float64)
    tree = DraftTree(
        (1, 1, 0, 2), (-1, -1, 0, 1), (0, 0, 1, 2), torch.full((3, 3), 1 / 3, dtype=torch.float64), (IID,) * 3
    )
    verdict = KSeq().verify(tree, Scores((rows + 1e-300).log()), State([0], ONE, RandomStreams(0)))
    assert [tree.tokens[i] for i in verdict.path] == [1, 2] and verdict.path == (1, 3)
    assert [(t.node, t.verdict) for t in verdict.decisions] == [
        (1, "accepted"),
        (2, "rejected"),
        (3, "accepted"),
    ]


def test_spectr_drafts_once_when_greedy_and_follows_its_distributions():
    draft = table(4, 3)
    tree = drafted(DraftPaths, draft, 4, Budget(gamma=3, width=4))(State([0]))
    assert tree.parents == (-1, 0, 1)
    tree = drafted(DraftPaths, draft, 4, Budget(gamma=3, width=4))(State([0], ONE, RandomStreams(1)))
    assert tree.parents == (-1,) * 4 + tuple(range(8))
    for i in range(12):
        assert torch.allclose(tree.draft_probs(i), draft([tree.tokens[j] for j in tree.path(i)[:-1]]))


@pytest.mark.parametrize(
    "make",
    [
        lambda model, state: DraftPaths(model).propose(state, Budget(gamma=3, width=8)),
        lambda model, state: grow_shape(model, full_tree((8, 1, 1)), state, independent_children),
    ],
    ids=["paths", "a shape"],
)
def test_what_stands_below_twins_is_of_one_draw_however_rows_are_rounded(make):
    """The rows of a batch differ in their last digits; a third of the places was judged as draws from
    several distributions because of that."""
    draft, count = table(3, 2), [0]

    def probs(tokens):
        count[0] += 1
        return draft(tokens[1:]) * (1 + 1e-12 * count[0])

    twins = 0
    for seed in range(5):
        model = Rows(probs, 3)
        model.sync([0])
        tree = make(model, State([0], ONE, RandomStreams(seed)))
        below = {}
        for i in range(len(tree)):
            below.setdefault(tuple(tree.tokens[j] for j in tree.path(i)[:-1]), set()).add(tree.draw[i])
            twins += len(below[()]) == 1
        assert all(len(draws) == 1 for draws in below.values()) and len(tree.drawn) == len(below)
    assert twins


def test_equal_siblings_are_one_place_to_multi_step_sampling():
    """Two draws of the same token: once one is accepted, the text goes on below both; without merging the
    second's line is lost."""
    target, draft = table(3, 1), table(3, 2)
    propose = shaped(draft, 3, (2, 1), independent_children)
    probs, merged, _ = round_probs(propose, MultiStep(), target, 3)
    assert distance(probs, target_probs(target, 3, 3)) < 1e-12
    _, alone, _ = round_probs(propose, TokenRejection(), target, 3)
    assert merged > alone * 1.003


@pytest.mark.parametrize("seed", [0, 4])
def test_trees_of_several_draft_models_are_judged_as_one(seed):
    target, models = table(2, seed + 1), [table(2, seed + 2), table(2, seed + 3)]

    def propose(state, count):
        return merge_trees(
            [shaped(draft, 2, (1, 1), independent_children)(state) for draft in models[:count]]
        )

    probs, both, _ = round_probs(lambda state: propose(state, 2), MultiStep(), target, 3)
    assert distance(probs, target_probs(target, 2, 3)) < 1e-12
    assert both > round_probs(lambda state: propose(state, 1), MultiStep(), target, 3)[1] + 0.01


def test_hub_pairs_have_the_papers_chances():
    probs = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)

    def pair(rng):
        build = TreeBuilder()
        hub_children(build, [-1], [2], probs.log()[None], State([0], ONE, rng))
        return tuple(build.tokens)

    want = {(0, 2): 0.2, (1, 2): 0.3, (2, 0): 0.5 * 0.2 / 0.5, (2, 1): 0.5 * 0.3 / 0.5}
    assert distance(probs_of(pair), want) < 1e-12


def test_what_the_rules_cannot_judge_is_refused():
    two = Q.repeat(2, 1)
    with refuses(IncompatibleVerifier, "verifier.incompatible"):
        TokenRejection().check(DraftTree((2, 1), (-1, -1), (0, 0), Q[None], (HUB,)))
    with refuses(IncompatibleVerifier, "verifier.hub_pairs"):
        SpecHub().check(DraftTree((2, 1, 0), (-1,) * 3, (0, 0, 1), two, (HUB, IID)))
    with refuses(IncompatibleVerifier, "verifier.incompatible", "without_replacement"):
        KSeq().check(DraftTree((2,), (-1,), (0,), Q[None], ("without_replacement",)))


def test_kseq_judges_draws_of_several_distributions_one_after_the_other():
    target = table(4, 1)
    draft = table(4, 2)
    other = table(4, 3)

    def propose(state):
        build = TreeBuilder()
        for probs in (draft([]), other([])):
            draw = build.begin(probs, IID)
            for _ in range(2):
                build.add(state.rng.pick("draft", probs), -1, draw)
        build.add(1, -1)
        return build.tree()

    probs, _, _ = round_probs(propose, KSeq(), target, 1)
    assert distance(probs, target_probs(target, 4, 1)) < 1e-12


@pytest.mark.parametrize("verifier", [SpecHub(), KSeq()], ids=["hub", "k-seq"])
def test_chosen_children_are_judged_by_token_rejection(verifier):
    target = table(4, 3)

    def propose(state):
        return DraftTree((2, 1, 0), (-1, -1, 0), (-1,) * 3)

    probs, _, first = round_probs(propose, verifier, target, 3)
    assert propose(None).label(0) == CHOSEN
    assert distance(probs, target_probs(target, 4, 3)) < 1e-12 and first == pytest.approx(
        float(target([])[[2, 1]].sum())
    )


@pytest.mark.parametrize("verifier", [TokenRejection(), Traversal()], ids=["token", "traversal"])
@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.thorough) for n in (1, 2, 3))])
def test_stochastic_beams_keep_the_distribution_whatever_the_lottery_says(verifier, seed):
    """The bulk uniforms are fixed by the seed; the distribution must be right for each."""
    target, draft = table(3, 1), table(3, 2)
    probs, _, _ = round_probs(
        drafted(StochasticBeam, draft, 3, Budget(gamma=2, width=2)), verifier, target, 3, seed
    )
    assert distance(probs, target_probs(target, 3, 3)) < 1e-12


def test_stochastic_beams_are_draws_without_replacement_of_whole_sequences():
    """Two levels over two tokens with a beam of two: level two holds two of the four sequences, best
    first."""
    draft = table(2, 7)
    joint = dict(target_probs(draft, 2, 2))
    want = {(a, b): joint[a] * joint[b] / (1 - joint[a]) for a in joint for b in joint if a != b}
    got, runs = {}, 1500
    propose = drafted(StochasticBeam, draft, 2, Budget(gamma=2, width=2))
    for seed in range(runs):
        tree = propose(State([0], ONE, RandomStreams(seed)))
        deep = tuple(
            tuple(tree.tokens[j] for j in tree.path(i)) for i in range(len(tree)) if tree.depths[i] == 2
        )
        got[deep] = got.get(deep, 0) + 1 / runs
    assert distance(got, want) < 0.05


def test_a_later_sibling_has_a_gumbel_of_what_is_left_of_its_sequence():
    """Two sequences go on, each with its own probability; the values the lottery compares are those of
    whole sequences."""
    rows = torch.stack([table(4, 1)([]), table(4, 2)([])]).log()
    for seed in range(5):
        build, beam = TreeBuilder(), [(0, -0.4, 0.7), (1, -3.0, 0.1)]
        for node in (0, 1):
            build.add(node, -1)
        uniforms = RandomStreams(seed)
        out = StochasticBeam._drawn(build, beam, rows, 6, State([0], ONE, RandomStreams(seed)))
        want = []
        left = rows.exp()
        value = [0.7, 0.1]
        for node, _, _ in out:
            parent = build.parents[node]
            want.append(max(value))
            assert value[parent] == max(value), "the greatest value goes first"
            left[parent, build.tokens[node]] = 0
            uniforms.pick("draft", rows[0].exp())
            u, mass = (
                1 - float(uniforms.uniform_tensor("draft", (1,))) if left[parent].sum() > 0 else 1.0,
                float(left[parent].sum()),
            )
            value[parent] = (
                truncated_gumbel(beam[parent][1] + math.log(mass), value[parent], u)
                if mass > 0
                else -math.inf
            )
        assert [g for _, _, g in out] == pytest.approx(want)
        assert [logprob for _, logprob, _ in out] == pytest.approx(
            [beam[build.parents[n]][1] + float(rows[build.parents[n], build.tokens[n]]) for n, _, _ in out]
        )


def test_stochastic_beams_have_the_width_they_are_given():
    tree = drafted(StochasticBeam, table(6, 4), 6, Budget(gamma=3, width=4))(
        State([0], ONE, RandomStreams(3))
    )
    assert [tree.depths.count(d) for d in (1, 2, 3)] == [4, 4, 4]
    greedy = drafted(StochasticBeam, table(6, 4), 6, Budget(gamma=2, width=3))(State([0]))
    joint = target_probs(table(6, 4), 6, 1)
    assert sorted(greedy.tokens[:3]) == sorted(t for (t,) in sorted(joint, key=lambda k: -joint[k])[:3])
    assert set(greedy.draw) == {-1}


def test_next_gumbel_inverts_the_cut_off_distribution():
    for location, below, u in ((0.3, 1.0, 0.2), (-4, 2, 0.9), (2, -3, 0.5), (-60, 5, 0.01)):
        g = truncated_gumbel(location, below, u)
        assert g <= below
        assert math.exp(location - g) == pytest.approx(math.exp(location - below) - math.log(u))
    assert truncated_gumbel(0.0, 1.5, 1.0) == pytest.approx(1.5)
