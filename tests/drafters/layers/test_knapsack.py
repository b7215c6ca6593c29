"""KnapSpec: sublayers on given states, the dynamic programme over them, and the objective."""

from __future__ import annotations

import itertools

import pytest
import torch

from specviz.core import DraftTree, Sampling, play
from specviz.drafters.layers.knapsack import best_plan, expected_speedup, find_skip_sets, integer_costs
from specviz.methods import catalogue
from specviz.targets.fast import FastModel
from specviz.targets.sublayers import Sublayers
from specviz.targets.tiny import TinyNet, TinyTarget

from ...exactness.toys import PROMPT, begin, greedy, toy

COUNT = 4
METHOD = catalogue()["knapspec"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("llama")
    LlamaForCausalLM(
        LlamaConfig(
            vocab_size=61,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=64,
        )
    ).save_pretrained(folder)
    return FastModel(folder, dtype=torch.float64)


def tiny():
    return TinyTarget(TinyNet(7, 3, layers=4))


def synced(target):
    target.sync([*PROMPT, 3, 1, 4])
    return target


def through(sub, skipped, layers):
    """The states of the last tokens after all sublayers but the skipped ones."""
    x = sub.enter()[None]
    for s in range(2 * layers):
        x = x if s in skipped else sub.run(s, x)
    return x[0]


@pytest.mark.parametrize("kind", ["fast", "tiny"])
def test_all_sublayers_in_order_are_the_target(kind, model):
    target = synced(model.open() if kind == "fast" else tiny())
    sub, text = target.sublayers(COUNT), list(target.cached_tokens)
    fresh = model.open() if kind == "fast" else tiny()
    fresh.sync(text[: -COUNT + 1])
    want = fresh.score(DraftTree.chain(text[-COUNT + 1 :])).logits
    assert torch.allclose(sub.logits(through(sub, (), target.layers)), want, atol=1e-9)


class Mixed(Sublayers):
    """Wrong: alternatives see each other's keys."""

    def _mask(self, alternatives, count, like):
        return torch.zeros(alternatives * count, self.past + alternatives * count, dtype=like.dtype)


@pytest.mark.parametrize("kind, same", [(Sublayers, True), (Mixed, False)])
def test_alternatives_do_not_see_each_other(kind, same, model):
    sub = kind(synced(model.open()), COUNT)
    x = sub.enter()
    states = torch.stack([x, x.flip(0), x * 0.5])
    together = sub.run(2, states)
    apart = torch.cat([Sublayers(sub.target, COUNT).run(2, one[None]) for one in states])
    assert torch.allclose(together, apart, atol=1e-9) == same


@pytest.mark.parametrize("share", [0.25, 0.5, 0.9])
def test_each_cell_is_its_own_skip_set_and_keeps_the_budget(share, model):
    target = synced(model.open())
    sub = target.sublayers(COUNT)
    weights = integer_costs(sub.costs)
    cells, full = find_skip_sets(sub, 4, share, 0.0)
    assert torch.allclose(full, through(sub, (), 4)) and len(cells) > 1
    for cell in cells:
        assert torch.allclose(cell.states, through(sub, cell.skipped, 4), atol=1e-9)
        assert not {0, 1, 6, 7} & set(cell.skipped)
        assert sum(weights[s % 2] for s in cell.skipped) <= sum(weights) * 4 * share
    assert find_skip_sets(sub, 4, share, 2.0)[0] == []  # no cosine is above 1


def authors_skip_sets(sub, layers, weights, threshold):
    """Facts of kaist-flexml-lab/knapspec 802ef80, Knapspec.optimize: {saved cost: skipped sublayers},
    within half of the whole cost."""
    budget, full = sum(weights) * layers // 2, [sub.enter()]
    for s in range(2 * layers):
        full.append(sub.run(s, full[-1][None])[0])
    table, parents = {0: full[2]}, []
    for i in range(3, 2 * layers + 1):
        s = i - 1
        best = {}
        states = {}
        parent = {}
        offers = [(saved, sub.run(s, state[None])[0], saved, False) for saved, state in table.items()]
        if s < 2 * layers - 2:
            offers += [
                (saved + weights[s % 2], state, saved, True)
                for saved, state in table.items()
                if saved + weights[s % 2] <= budget
            ]
        for saved, state, before, skipped in offers:
            similarity = float(torch.cosine_similarity(state, full[i], dim=-1).sum())
            if similarity / len(state) >= threshold and similarity > best.get(saved, -torch.inf):
                best[saved], states[saved], parent[saved] = similarity, state, (before, skipped)
        table = states
        parents.append(parent)
    found = {}
    for end in table:
        saved, skipped = end, set()
        for i in range(2 * layers, 2, -1):
            before, left_out = parents[i - 3][saved]
            skipped |= {i - 1} if left_out else set()
            saved = before
        found[end] = skipped
    return found


@pytest.mark.parametrize("threshold", [0.0, 0.5, 0.9])
def test_the_skip_sets_are_the_authors(threshold, model):
    sub = synced(model.open()).sublayers(COUNT)
    weights = integer_costs(sub.costs)
    want = authors_skip_sets(sub, 4, weights, threshold)
    cells, _ = find_skip_sets(sub, 4, 0.5, threshold)
    assert {sum(weights[s % 2] for s in cell.skipped): set(cell.skipped) for cell in cells} == want and len(
        want
    ) > 1


def test_of_one_sublayer_the_most_similar_is_skipped(model):
    """With one skip allowed the programme is a search over all, so it can be compared with one."""
    sub = synced(model.open()).sublayers(COUNT)
    weights = integer_costs(sub.costs)
    cells, full = find_skip_sets(sub, 4, min(weights) / (sum(weights) * 4), -1.0)
    cheap = [s for s in range(2, 6) if weights[s % 2] == min(weights)]
    similarity = {
        s: float(torch.cosine_similarity(through(sub, (s,), 4), full, dim=-1).mean()) for s in cheap
    }
    found = next(cell for cell in cells if cell.skipped)
    assert len(found.skipped) == 1 and found.similarity == pytest.approx(similarity[found.skipped[0]])


def test_the_plan_is_the_best_of_all_sets_and_lengths(model):
    sub = synced(model.open()).sublayers(COUNT)
    plan, (cells, full) = best_plan(sub, 4, 0.5, 0.0, 5), find_skip_sets(sub, 4, 0.5, 0.0)
    want = sub.logits(full).argmax(-1)
    speeds = [
        expected_speedup(
            float((sub.logits(cell.states).argmax(-1) == want).double().mean()),
            length,
            cell.skipped,
            4,
            sub.costs,
        )
        for cell, length in itertools.product(cells, range(1, 6))
        if cell.skipped
    ]
    assert plan.speed == max(speeds) and 1 <= plan.length <= 5 and plan.skipped


@pytest.mark.parametrize("agreement", [0.0, 0.3, 0.9, 1.0])
def test_the_speed_is_expected_tokens_over_cost(agreement):
    length = 3
    skipped = (2, 3, 5)
    layers = 4
    costs = (2.0, 7.0)
    tokens = sum(agreement**i for i in range(length + 1))
    cost = length * (2.0 * 3 + 7.0 * 2) + 4 * 9.0
    assert expected_speedup(agreement, length, skipped, layers, costs) == pytest.approx(tokens / cost * 36)


@pytest.mark.parametrize(
    "costs, weights", [((10, 10), (1, 1)), ((10, 26), (1, 3)), ((100, 10), (5, 1)), ((1, 99), (1, 5))]
)
def test_the_cheaper_sublayer_weighs_one(costs, weights):
    assert integer_costs(costs) == weights


def test_it_plans_again_after_so_many_rounds_and_writes_the_targets_text(monkeypatch):
    kit, asked = toy(7, layers=4), []
    inner = TinyTarget.sublayers
    monkeypatch.setattr(
        TinyTarget,
        "sublayers",
        lambda self, count: asked.append(list(self.cached_tokens)) or inner(self, count),
    )
    parts = METHOD.build(kit, **METHOD.read_knobs({"every": 3}))
    state = begin(parts, kit, Sampling(0.0), 20)
    while not state.done:
        play(parts, kit.target, state)
    assert state.tokens == greedy(kit.net.logits, PROMPT, 20)
    assert len(asked) == 1 + state.round // 3 and asked[0] == PROMPT[:-1]
