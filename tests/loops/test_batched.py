"""Requests of a batch write what they write alone, whoever joins, leaves or drafts further beside them."""

from __future__ import annotations

import copy
import random
from dataclasses import replace
from functools import partial

import pytest
import torch

from specviz.core import Budget, Drafter, DraftTree, Sampling, State, common_prefix_length, open_run
from specviz.loops.batched import Batch, unbatchable_reason
from specviz.policies import BatchTokenBudget, Fixed
from specviz.targets.fast import FastModel

from ..exactness.pair import Pair
from ..exactness.toys import CAPABILITIES, greedy, later, methods, needs_own_target, player, sample
from ..message_codes import refuses
from ..targets.tiny import CONFIGS, VOCAB, network

TEXTS = [[7, 3, 21, 7, 3, 40, 7], [3, 21, 9, 7, 3, 40], [1, 2, 3, 4, 1, 2, 3]]
METHODS = [method for method in methods("exact", "greedy only") if not needs_own_target(method)]
SAMPLE = sample()
SIZES = (1, 2, 5, 16)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Target and draft in double precision, so that no sum of another order breaks a tie; the draft is
    right now and then."""
    config, folder = CONFIGS["llama"](), tmp_path_factory.mktemp("pair")
    config.tie_word_embeddings = False
    net = network(config, seed=2)
    noisy, source = copy.deepcopy(net), torch.Generator().manual_seed(1)
    with torch.no_grad():
        net.get_input_embeddings().weight.mul_(0.2)  # so that the layers have a say, and the text varies
        noisy.get_input_embeddings().weight.mul_(0.2)
        for weight in noisy.parameters():
            weight.add_(torch.randn(weight.shape, generator=source) * float(weight.std()) * 0.1)
    for name, one in (("target", net), ("draft", noisy)):
        one.save_pretrained(folder / name)
    return [FastModel(folder / name, device="cpu", dtype=torch.float64) for name in ("target", "draft")]


def kit_of(models) -> Pair:
    return Pair(*models, VOCAB, TEXTS)


def batched_methods():
    """Everything exact; what cannot be batched, as its parts say, must be refused."""
    return [later(pytest.param(method, id=method.key), method.key in SAMPLE) for method in METHODS]


def request(method, models, seed: int, sampling: Sampling = Sampling()):
    """(parts, target, state) of a request of its own: prompt, length and random numbers by the seed."""
    source, kit = random.Random(seed), kit_of(models)
    prompt = (TEXTS[seed % 3] * 2)[: source.randrange(2, 14)]
    state = State(
        prompt, Sampling(sampling.temperature, seed=seed), limit=source.randrange(1, 13), stop=frozenset({11})
    )
    return method.build(kit, **method.read_knobs({})), kit.target, state


@torch.inference_mode()
def alone(method, models, seed, sampling=Sampling()):
    parts, target, state = request(method, models, seed, sampling)
    open_run(parts, target, state)
    while not state.done:
        player(parts)(parts, target, state)
    return state.tokens


@torch.inference_mode()
def together(method, models, seeds, sampling=Sampling(), leaves=None):
    """Tokens by seed. The second half joins while the first is under way; ``leaves`` is taken out after two
    rounds."""
    batch = Batch()
    here = {}
    wrote = {}
    waiting = list(seeds)

    def join(count):
        for seed in [waiting.pop(0) for _ in range(min(count, len(waiting)))]:
            here[seed] = batch.join(*request(method, models, seed, sampling))[0]

    join((len(seeds) + 1) // 2)
    rounds = 0
    while here:
        batch.round()
        rounds += 1
        if rounds == 2 and leaves in here:
            batch.leave(here.pop(leaves))
        for seed in [seed for seed, one in here.items() if one.state.done]:
            wrote[seed] = here[seed].state.tokens
            batch.leave(here.pop(seed))
        join(len(waiting) if rounds == 1 else 0)
    return wrote


@pytest.mark.parametrize("method", batched_methods())
def test_each_request_of_a_batch_writes_what_it_writes_alone(method, models):
    kit = kit_of(models)
    if not method.needs <= kit.target.capabilities | CAPABILITIES or unbatchable_reason(
        method.build(kit, **method.read_knobs({}))
    ):
        with refuses(ValueError, "method.not_batchable"):
            Batch().join(*request(method, models, 0))
        return
    for size in SIZES if method.key in ("speculative", "autoregressive") else (5,):
        seeds = range(20 * size, 21 * size)
        wrote = together(method, models, seeds, leaves=seeds[0] if size > 2 else None)
        assert len(wrote) == size or size > 2 and len(wrote) == size - 1
        for seed, tokens in wrote.items():
            _, target, state = request(method, models, seed)
            assert tokens == greedy(partial(logits, target), state.tokens, state.limit, state.stop), (
                size,
                seed,
            )


@pytest.mark.thorough
@pytest.mark.parametrize("method", [pytest.param(method, id=method.key) for method in METHODS])
def test_every_method_in_batches_of_one_to_sixteen(method, models):
    """Ragged ends, the second half joining while the first is under way, and one that leaves in the
    middle."""
    kit = kit_of(models)
    if not method.needs <= kit.target.capabilities | CAPABILITIES or unbatchable_reason(
        method.build(kit, **method.read_knobs({}))
    ):
        return  # that these are refused is tested above
    for size in (1, 2, 3, 4, 6, 9, 12, 16):
        wrote = together(method, models, range(size), leaves=0 if size > 2 else None)
        assert len(wrote) >= size - (size > 2)
        for seed, tokens in wrote.items():
            assert tokens == alone(method, models, seed), (size, seed)


@pytest.mark.parametrize(
    "size", [pytest.param(n, marks=[pytest.mark.thorough] if n not in (3, 7) else []) for n in range(1, 17)]
)
def test_every_size_above_temperature_0_keeps_each_requests_own_random_numbers(models, size):
    """A request's draws are its seed's, so that the run is the same alone and in any batch."""
    method = next(m for m in METHODS if m.key == "speculative")
    temperature = Sampling(1.0)
    for seed, tokens in together(method, models, range(size), temperature).items():
        assert tokens == alone(method, models, seed, temperature)


@torch.inference_mode()
def logits(target, tokens):
    target.close()
    target.sync(tokens[:1])
    return target.score(DraftTree.chain(tokens[1:])).logits


def test_a_loop_of_its_own_and_the_targets_own_layers_are_refused(models):
    by_key = {method.key: method for method in METHODS}
    for key, why in (("pearl", "method.not_batchable"), ("layerskip", "method.not_batchable")):
        with refuses(ValueError, *why.split()):
            Batch().join(*request(by_key[key], models, 0))


def test_requests_of_different_methods_share_a_pass(models, monkeypatch):
    """What is drafted, and how, is each request's own matter."""
    by_key = {m.key: m for m in METHODS}
    batch = Batch()
    here = []
    for seed, key in enumerate(("autoregressive", "speculative", "draft_tree", "prompt_lookup")):
        parts, target, state = request(by_key[key], models, seed)
        here.append(batch.join(parts, target, State(state.tokens, limit=9))[0])
    sizes, project = [], models[0].project
    monkeypatch.setattr(
        models[0], "project", lambda block, x, turn: sizes.append(len(x)) or project(block, x, turn)
    )
    with torch.inference_mode():
        outcomes = batch.round()
    assert len(sizes) == models[0].layers, "one pass of the target for all of them"
    assert sizes[0] == sum(len(outcome.tree) + 1 for _, outcome in outcomes)


def passes_of(model, monkeypatch):
    """Rows of each pass of a model from now on."""
    rows = []
    project = model.project
    first = model.blocks[0]

    def counted(block, x, *more):
        if block is first:
            rows.append(len(x))
        return project(block, x, *more)

    monkeypatch.setattr(model, "project", counted)
    return rows


def test_the_drafts_of_a_batch_are_made_in_one_pass_a_token(models, monkeypatch):
    """Each request's draft is the one that it makes alone, from its own random stream."""
    method, temperature = next(m for m in METHODS if m.key == "ems_sd"), Sampling(1.0)
    batch, alone = Batch(), {}
    with torch.inference_mode():
        for seed in range(4):
            parts, target, state = request(method, models, seed, temperature)
            parts, single = replace(parts, policy=Fixed(4)), request(method, models, seed, temperature)
            batch.join(parts, target, State(state.tokens, state.sampling, limit=6 if seed else 3))
            open_run(single[0], single[1], single[2])
            alone[seed] = single[0].drafter.propose(
                State(state.tokens, state.sampling, limit=6), Budget(4 if seed else 2)
            )
        rows = passes_of(models[1], monkeypatch)
        outcomes = batch.round()
    assert rows == [4, 4, 3, 3], "each pass is everybody's; the prompts were read as the requests joined"
    for seed, (_, outcome) in enumerate(outcomes):
        assert outcome.tree.tokens == alone[seed].tokens and len(outcome.tree) == (4 if seed else 2)
        assert (outcome.tree.probs - alone[seed].probs).abs().max() < 1e-9


def test_who_changes_a_proposal_below_its_steps_changes_the_steps():
    """A class that says propose() anew below one with steps would be drafted for by the old ones."""
    work, wrong = [Drafter], []
    while work:
        kind = work.pop()
        work += kind.__subclasses__()
        first = {
            name: next(i for i, c in enumerate(kind.__mro__) if name in vars(c))
            for name in ("propose", "steps")
        }
        wrong += [kind.__name__] * (
            kind.__module__.startswith("specviz.drafters")
            and first["propose"] < first["steps"]
            and kind.__mro__[first["steps"]] is not Drafter
        )
    assert not wrong


class Counted(BatchTokenBudget):
    """TETRIS with as many rows as drafts of length gamma would have, and what those would have kept of the
    same drafts."""

    def __init__(self, texts, gamma: int, extra: int):
        super().__init__(gamma, extra)
        self.texts = texts
        self.tetris = 0
        self.fixed = 0
        self.total = 0

    def plan_all(self, states):
        self.total, self.min_prob = 10**9, 0.0  # whole drafts, so that the fixed length's are among them
        return super().plan_all(states)

    def budget(self, states):
        return self.total

    def share(self, states, trees):
        self.total = sum(min(len(tree), self.gamma) for tree in trees)
        kept = super().share(states, trees)
        assert sum(map(len, kept)) == self.total
        for state, tree, few in zip(states, trees, kept):
            right = common_prefix_length(tree.tokens, self.texts[state.sampling.seed][len(state.tokens) :])
            self.tetris += min(right, len(few))
            self.fixed += min(right, self.gamma, len(tree))
        return kept


def test_tetris_keeps_at_least_what_the_fixed_length_keeps_of_the_same_drafts_in_as_many_rows(models):
    """A count on seeds, no clock."""
    method = next(m for m in METHODS if m.key == "tetris")
    seeds = range(8)
    texts = {}
    with torch.inference_mode():
        for seed in seeds:
            _, target, state = request(method, models, seed)
            texts[seed] = greedy(partial(logits, target), state.tokens, 32, frozenset())
        policy, batch = Counted(texts, 2, 2), Batch()
        for seed in seeds:
            parts, target, state = request(method, models, seed)
            batch.join(replace(parts, policy=policy), target, State(state.tokens, state.sampling, limit=32))
        while batch.round():
            pass
    assert {r.state.sampling.seed: r.state.tokens for r in batch.requests} == texts
    assert policy.tetris > policy.fixed > 0, (policy.tetris, policy.fixed)
