"""Acceptance at the first place: closed forms against golden numbers and brute force, and the real engine
against them."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from safetensors.torch import save_file

from specviz.core import Sampling, State, open_run, play
from specviz.methods import catalogue
from specviz.targets.fast import FastModel
from specviz.verifiers.acceptance_rates import (
    k_seq_rate,
    optimal_rate,
    recursive_rejection_rate,
    single_draft_rate,
)
from specviz.verifiers.kseq import best_rho

from ..zoo.checkpoints import weights, write
from .rounds import World

P, Q = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64), torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)


def k_seq(p, q, k):
    return k_seq_rate(p, q, k, best_rho(p, q, k))


def greedy_multidraft_rate(p, q, k):
    """Return the acceptance rate of greedy multi-draft (Hu et al. 2502.18779): the k - 1 most probable
    tokens of q [vocab], and one sampled from the other tokens. A SpecHub pair is the case k = 2."""
    top = q.topk(min(k - 1, len(q))).indices
    rest = q.double().index_fill(0, top, 0.0)
    mass = float(rest.sum())
    inside = float(p[top].sum())
    if mass <= 0:
        return inside
    return inside + single_draft_rate(p.double().index_fill(0, top, 0.0), rest / mass)


def without_replacement(p, q, k) -> float:
    """By walking every refusal: the second child is judged against what the first one left, with its own
    distribution."""
    total = 0.0
    for x in q.nonzero().flatten().tolist():
        accept = min(1.0, float(p[x] / q[x]))
        total += float(q[x]) * accept
        if k > 1 and accept < 1:
            rest, left = (p - q).clamp(min=0), q.clone()
            left[x] = 0
            if float(left.sum()) > 0:
                total += (
                    float(q[x])
                    * (1 - accept)
                    * without_replacement(rest / rest.sum(), left / left.sum(), k - 1)
                )
    return total


@pytest.mark.parametrize(
    "rule, k, want",
    [
        (recursive_rejection_rate, 1, 0.7),
        (recursive_rejection_rate, 2, 0.76),
        (recursive_rejection_rate, 3, 0.808),
        (k_seq, 2, 0.791355),
        (k_seq, 3, 0.858519),
        (without_replacement, 2, 0.82),
        (without_replacement, 3, 1.0),
        (greedy_multidraft_rate, 2, 0.9),
        (greedy_multidraft_rate, 3, 1.0),
        (optimal_rate, 1, 0.7),
        (optimal_rate, 2, 0.86),
        (optimal_rate, 3, 0.988),
    ],
)
def test_golden_numbers(rule, k, want):
    assert rule(P, Q, k) == pytest.approx(want, abs=1e-6)


def test_the_optimum_is_the_least_over_all_sets():
    for seed in range(12):
        world, k = World(6, seed, zeros=seed % 3), 1 + seed % 4
        p, q = world.target(()), world.draft(())
        sets = [list(h) for n in range(7) for h in itertools.combinations(range(6), n)]
        assert optimal_rate(p, q, k) == pytest.approx(
            min(float(p[h].sum()) + 1 - float(q[h].sum()) ** k for h in sets), abs=1e-12
        )


def test_no_rule_beats_the_optimum_and_k_seq_is_near_it():
    for seed in range(20):
        world, k = World(8, seed, zeros=seed % 2), 1 + seed % 4
        p, q = world.target(()), world.draft(())
        best = optimal_rate(p, q, k)
        assert (
            recursive_rejection_rate(p, q, k) <= best + 1e-12
            and (1 - 1 / math.e) * best - 1e-12 <= k_seq(p, q, k) <= best + 1e-12
        )
        assert single_draft_rate(p, q) == pytest.approx(optimal_rate(p, q, 1), abs=1e-12)
    assert optimal_rate(p, p, 3) == pytest.approx(1) == recursive_rejection_rate(p, p, 3)


CASES = {  # method, knobs that make its first place one node of k drafts, closed form of that place
    "speculative": ({"gamma": 1}, single_draft_rate),
    "block_verification": ({"gamma": 1}, single_draft_rate),
    "specinfer": ({"width": 3, "split": 1, "depth": 1}, lambda p, q: recursive_rejection_rate(p, q, 3)),
    "spectr": ({"drafts": 3, "gamma": 1}, lambda p, q: k_seq(p, q, 3)),
    "spechub": ({"depth": 1, "nodes": 2}, lambda p, q: greedy_multidraft_rate(p, q, 2)),
    "greedy_multidraft": ({"width": 3, "depth": 1, "nodes": 3}, lambda p, q: greedy_multidraft_rate(p, q, 3)),
    "rsd_c": ({"branches": 2, "depth": 1}, lambda p, q: without_replacement(p, q, 2)),
    "rsd_s": ({"width": 2, "depth": 1}, lambda p, q: without_replacement(p, q, 2)),
    "mcsd": ({"first": 2, "depth": 1}, lambda p, q: without_replacement(p, q, 2)),
    "traversal": ({"width": 2, "depth": 1, "nodes": 2}, lambda p, q: without_replacement(p, q, 2)),
    "dyspec": ({"width": 2, "depth": 1, "nodes": 2}, lambda p, q: without_replacement(p, q, 2)),
    "draft_tree": (
        {"children": "top-k", "width": 3, "depth": 1, "nodes": 3},
        lambda p, q: float(p[q.topk(3).indices].sum()),
    ),
    "staged": ({"gamma": 1, "drafts": "chain"}, single_draft_rate),
}


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Our own forward on tiny weights: a target and a draft between it and another model, distributions of
    300 tokens."""
    folder = tmp_path_factory.mktemp("pair")
    ours, other = weights(1, 300, 0), weights(1, 300, 5)
    for name, share in (("target", 0.0), ("draft", 0.2)):
        write(folder / name, layers=1, tokenizer=False)
        mixed = {
            key: torch.lerp(ours[key], other[key], share) * (0.75 if "embed" in key else 1.0) for key in ours
        }
        save_file(mixed, folder / name / "model.safetensors", metadata={"format": "pt"})
    return [FastModel(folder / name, device="cpu") for name in ("target", "draft")]


class Kit:
    def __init__(self, target, draft):
        self.target = target.open()
        self.vocab = target.vocab
        self._draft = draft

    def open(self, role):
        return self._draft.open()


@pytest.mark.parametrize("key", CASES)
def test_the_engine_accepts_as_often_as_the_closed_form_says(pair, key):
    """Temperature 1 with top-p, which leaves the two distributions with different supports; within four
    standard errors."""
    (knobs, closed), runs, sampling, prompt = CASES[key], 200, Sampling(1.0, top_p=0.8), [7, 30, 2, 90, 41]
    method, kit = catalogue()[key], Kit(*pair)
    with torch.inference_mode():
        distributions = [
            sampling.probs(model.open().sync([*prompt, 0]).logits[-1]).double() for model in pair
        ]
        want, hits = closed(*distributions), 0
        parts = method.build(kit, **method.read_knobs(knobs))
        for seed in range(runs):
            state = State(list(prompt), Sampling(1.0, top_p=0.8, seed=seed), limit=4)
            open_run(parts, kit.target, state)
            hits += bool(play(parts, kit.target, state).verdict.path)
    assert 0.05 < want < 0.95, "a place where everything or nothing is accepted proves little"
    assert abs(hits / runs - want) < 4 * math.sqrt(want * (1 - want) / runs)


def test_the_gap_to_the_optimum_is_noted_where_somebody_looks(pair):
    for key, rule in (("specinfer", recursive_rejection_rate), ("spectr", k_seq)):
        method, kit = catalogue()[key], Kit(*pair)
        parts = method.build(kit, **method.read_knobs(CASES[key][0]))
        for looked in (0, 5):
            state = State([7, 30, 2, 90, 41], Sampling(1.0), limit=4, top_k_saved=looked)
            open_run(parts, kit.target, state)
            outcome = play(parts, kit.target, state)
            found = [data for kind, data in state.notes if kind == "optimum"]
            assert len(found) == bool(looked)
        p, q = state.sampling.probs(outcome.scores.logits[0]), outcome.tree.draft_probs(0)
        assert found[0]["accept"] == pytest.approx(rule(p, q, 3), abs=1e-5) and found[0][
            "best"
        ] == pytest.approx(optimal_rate(p, q, 3), abs=1e-5)
        assert found[0]["gap"] >= 0 and found[0]["drafts"] == 3
