"""The forward of fixed shapes under every method: what plain decoding writes, and in half precision the
very same bits."""

from __future__ import annotations

import copy

import pytest
import torch

from specviz.core import FixedCosts, Sampling, State, open_run
from specviz.loops.batched import Batch, unbatchable_reason
from specviz.methods import catalogue
from specviz.targets.fast import FastModel
from specviz.targets.static_shapes import StaticModel

from ..targets.tiny import CONFIGS, VOCAB, network
from .pair import Pair
from .test_architectures import LENGTH, PROMPT, write
from .toys import CAPABILITIES, greedy, later, methods, needs_own_target, player, sample

METHODS = [method for method in methods("exact", "greedy only") if not needs_own_target(method)]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Target and draft, and the target's network; the draft is the target with noise on its weights."""
    config, folder = CONFIGS["llama"](), tmp_path_factory.mktemp("static")
    net = network(config, seed=2)
    noisy, source = copy.deepcopy(net), torch.Generator().manual_seed(1)
    with torch.no_grad():
        net.get_input_embeddings().weight.mul_(0.2)
        noisy.get_input_embeddings().weight.mul_(0.2)
        for weight in noisy.parameters():
            weight.add_(torch.randn(weight.shape, generator=source) * float(weight.std()) * 0.15)
    net.save_pretrained(folder / "target")
    noisy.save_pretrained(folder / "draft")
    return folder, net


@pytest.fixture(scope="module")
def pair(folders):
    folder, net = folders

    @torch.inference_mode()
    def logits(tokens):
        return net(input_ids=torch.tensor([tokens])).logits[0]

    models = [StaticModel(folder / name) for name in ("target", "draft")]
    want = greedy(logits, PROMPT, LENGTH)
    assert len(set(want[len(PROMPT) :])) > 3
    texts = [PROMPT, [3, 21, 9, 7, 3, 40], greedy(logits, PROMPT, 6)]
    return lambda: Pair(*models, VOCAB, texts), logits, want


@pytest.mark.parametrize(
    "method", [later(pytest.param(method, id=method.key), method.key in sample()) for method in METHODS]
)
def test_methods_write_what_plain_decoding_writes(pair, method):
    make, logits, want = pair
    kit = make()
    assert method.needs <= kit.target.capabilities | CAPABILITIES
    tokens, _ = write(method, kit, logits)
    assert tokens == want
    assert kit.target.passes > sum(kit.target.eager.values()) or method.needs & {
        "early",
        "skip",
        "layer_parallel",
    }


EVERY = [
    method for method in catalogue().values() if not needs_own_target(method)
]  # no static forward runs their targets
APPROXIMATE = [method for method in methods("approximate") if not needs_own_target(method)]


@torch.inference_mode()
def reported(models, method, temperature):
    """The text of a run whose costs no clock decides."""
    kit = Pair(*models, VOCAB, [PROMPT, [3, 21, 9, 7, 3, 40]])
    parts = method.build(kit, **method.read_knobs({}))
    state = State(list(PROMPT), Sampling(temperature, seed=3), limit=LENGTH, costs=FixedCosts())
    open_run(parts, kit.target, state)
    while not state.done:
        player(parts)(parts, kit.target, state)
    return state.tokens


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(
    "method", [later(pytest.param(method, id=method.key), method in APPROXIMATE[::8]) for method in EVERY]
)
def test_every_method_writes_what_it_writes_on_the_eager_forward(folders, method, temperature):
    """Also what does not keep the target's distribution, which plain decoding says nothing about, and what
    is drawn, by the same random numbers."""
    folder, _ = folders
    eager, static = (
        [kind(folder / name) for name in ("target", "draft")] for kind in (FastModel, StaticModel)
    )
    assert reported(static, method, temperature) == reported(eager, method, temperature)


def test_the_two_tests_leave_no_method_out():
    assert {method.key for method in METHODS} | {method.key for method in APPROXIMATE} == {
        method.key for method in EVERY
    }


@pytest.mark.parametrize(
    "method",
    [
        later(pytest.param(method, id=method.key), method.key in ("speculative", "smartspec"))
        for method in METHODS
    ],
)
def test_requests_of_a_batch_write_on_the_static_forward_what_they_write_alone(pair, method):
    """Its rooms hold one sequence, so passes of a batch run one after the other; what is written must not
    show it."""
    make, _, want = pair
    batch, states = Batch(), []
    for length in (5, LENGTH):
        kit = make()
        parts = method.build(kit, **method.read_knobs({}))
        if unbatchable_reason(parts):
            return  # refused with a sentence: tests/loops/test_batched.py
        states.append(State(list(PROMPT), Sampling(0.0), limit=length))
        batch.join(parts, kit.target, states[-1])
    while batch.requests:
        for request, _ in batch.round():
            if request.state.done:
                batch.leave(request)
    assert [state.tokens for state in states] == [want[: len(PROMPT) + 5], want]


@pytest.fixture(scope="module")
def half(folders):
    folder, _ = folders
    return [StaticModel(folder / name, dtype=torch.bfloat16) for name in ("target", "draft")]


def run(models, method, prompt, rows, length=12):
    """Tokens, and the rows of logits that chose them."""
    kit, chosen = Pair(*models, VOCAB, [prompt, PROMPT]), []
    kit.target.expect(rows)
    parts, state = (
        method.build(kit, **method.read_knobs({})),
        State(list(prompt), Sampling(0.0), limit=length),
    )
    open_run(parts, kit.target, state)
    while not state.done:
        outcome = player(parts)(parts, kit.target, state)
        chosen += [outcome.scores.logits[row].clone() for row in outcome.kept[: len(outcome.committed)]]
    assert kit.target.bucket == rows and set(kit.target.eager) <= {"prompt"}
    return state.tokens, chosen


@pytest.mark.parametrize(
    "key", ["speculative", "draft_tree", "specinfer", "prompt_lookup", "medusa", "eagle2"]
)
def test_half_precision_is_the_same_to_the_last_bit_through_one_bucket(half, key):
    """Not close: equal. Plain decoding through the bucket of 64 rows and verification through the same
    one."""
    known = {method.key: method for method in methods("exact", "greedy only")}
    plain, rows = run(half, known["autoregressive"], PROMPT, 64)
    ours, theirs = run(half, known[key], PROMPT, 64)
    assert ours == plain and len(rows) == len(theirs) == len(ours) - len(PROMPT)
    assert all(torch.equal(a, b) for a, b in zip(rows, theirs))


@torch.inference_mode()
def test_without_steady_sums_half_precision_depends_on_where_rows_lie(half):
    """What the sums in double precision are for: the same rows in other slots give the same bits, and in
    half precision do not."""
    model = half[0]
    source = torch.Generator().manual_seed(0)
    apart = {}
    shape, order = (2, model.kv_heads, 2048, model.head_dim), torch.randperm(2048, generator=source)
    kept, x = (
        torch.randn(shape, generator=source).bfloat16(),
        torch.randn(64, model.hidden, generator=source).bfloat16(),
    )
    place = torch.empty_like(order).scatter_(
        0, order, torch.arange(2048)
    )  # where row i of the plain order lies after it
    for dtype in (torch.bfloat16, torch.float64):
        found = [
            model.attend(
                model.blocks[0],
                x,
                model.rotations(64)[:64],
                slots.clone(),
                where,
                torch.zeros(64 * model.group, 2048, dtype=dtype),
            )
            for slots, where in ((kept, torch.arange(64)), (kept[:, :, order], place[:64]))
        ]
        apart[dtype] = int((found[0] != found[1]).sum())
    assert apart[torch.float64] == 0 and apart[torch.bfloat16] > 0


@pytest.mark.gpu
@pytest.mark.parametrize("key", ["speculative", "draft_tree", "eagle2"])
def test_on_a_card_too_plain_and_verified_rows_are_the_same_bits(folders, key):
    """Whether its matrix products treat the rows of one bucket alike, recorded."""
    folder, _ = folders
    models = [StaticModel(folder / name, "cuda") for name in ("target", "draft")]
    known = {method.key: method for method in methods("exact", "greedy only")}
    (plain, rows), (ours, theirs) = (run(models, known[name], PROMPT, 64) for name in ("autoregressive", key))
    assert models[0].forward == "captured" and models[0].dtype == torch.bfloat16
    assert ours == plain and all(torch.equal(a, b) for a, b in zip(rows, theirs))
