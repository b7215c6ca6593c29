"""Our forward gives the numbers of transformers' own, for every tree and after every kind of round."""

from __future__ import annotations

import random

import pytest
import torch
import transformers

from specviz.core import DraftTree, HiddenInput, Verdict
from specviz.models.linear import Layout, PlainLinear, TransposedLinear
from specviz.targets.fast import FastModel

from ..message_codes import refuses
from .rounds import Reference, play_rounds, random_tree
from .tiny import CONTEXT, FAST, VOCAB, checkpoint


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("checkpoints")


@pytest.fixture(scope="module")
def model(folder):
    return FastModel(checkpoint(folder, "llama"))


@pytest.fixture(scope="module")
def network(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(
        checkpoint(folder, "llama"), dtype=torch.float32
    ).eval()


def text(seed: int, n: int) -> list[int]:
    source = random.Random(seed)
    return [source.randrange(VOCAB) for _ in range(n)]


@torch.inference_mode()
def poison(target):
    """Large finite values in every slot that nothing may read (NaN would leak through 0 * NaN even where it
    is masked)."""
    if target._cache is not None:
        target._cache[:, :, :, len(target.cached_tokens) :] = 1e4


def held(target):
    return [target.kv(layer) for layer in range(target.layers)]


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.thorough] if i else []) for i, kind in enumerate(FAST)]
)
def test_200_random_rounds_equal_the_uncached_forward(folder, kind):
    path = checkpoint(folder, kind)
    reference = Reference(transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval())
    seen = set()
    for error, cache, happened in play_rounds(
        FastModel(path).open(), reference, held, poison, 200, seed=FAST.index(kind)
    ):
        assert error < 1e-5 and cache < 1e-5, (error, cache, happened)
        seen.add(happened)
    assert len(seen) == 7


@pytest.mark.parametrize("kind", [PlainLinear, TransposedLinear])
def test_every_layout_of_the_weights_gives_the_same_numbers(folder, kind, network, monkeypatch):
    monkeypatch.setattr(
        "specviz.models.llama.fastest_layout",
        lambda weights, total: Layout({tuple(w.shape): (kind, kind) for w in weights}),
    )
    model = FastModel(checkpoint(folder, "llama"))
    assert model.kernel == kind.kernel
    target, tokens = model.open(), text(1, 30)
    target.sync(tokens[:10])
    want = Reference(network)(tokens)[0]
    assert (target.score(DraftTree.chain(tokens[10:])).logits - want[9:]).abs().max() < 3e-5


def test_two_layouts_take_turns_by_the_number_of_rows(folder, network, monkeypatch):
    monkeypatch.setattr(
        "specviz.models.llama.fastest_layout",
        lambda weights, total: Layout({tuple(w.shape): (TransposedLinear, PlainLinear) for w in weights}),
    )
    model = FastModel(checkpoint(folder, "llama3"))
    assert model.kernel == "transposed and plain"
    net = transformers.AutoModelForCausalLM.from_pretrained(
        checkpoint(folder, "llama3"), dtype=torch.float32
    ).eval()
    for *errors, _ in play_rounds(model.open(), Reference(net), held, poison, 30, seed=3):
        assert max(errors) < 1e-5


def test_a_row_does_not_depend_on_what_is_scored_beside_it(model):
    tokens, target = text(2, 40), model.open()
    alone = []
    for i in range(20, 40):
        target.sync(tokens[: i + 1])
        alone.append(target.score(DraftTree()).logits[0])
    source = random.Random(5)
    for _ in range(20):
        i = source.randrange(20, 39)
        target.sync(tokens[: i + 1])
        tree = random_tree(source, VOCAB, source.randrange(1, 60), 6)
        tree = tree.add(tokens[i + 1], -1) if i + 1 < 40 else tree
        logits = target.score(tree).logits
        assert (logits[0] - alone[i - 20]).abs().max() < 1e-5
        assert (logits[-1] - alone[i - 19]).abs().max() < 1e-5


def test_taps_are_what_transformers_shows(model, network):
    tokens, target = text(3, 25), model.open()
    with torch.inference_mode():
        hidden = network(torch.tensor([tokens]), output_hidden_states=True).hidden_states
    target.capture(frozenset({"final", "layer:0", "layer:2"}))
    num_computed = target.sync(tokens[:16])
    assert (
        num_computed.num_computed == 15 and num_computed.first_position == 0 and len(num_computed.logits) == 1
    )
    scores = target.score(DraftTree.chain(tokens[16:20]))
    scores = target.score(DraftTree.chain(tokens[16:]), start=4)
    for name, want in (("layer:0", hidden[0]), ("layer:2", hidden[2]), ("final", hidden[3])):
        assert (num_computed.hidden_states[name] - want[0, :15]).abs().max() < 2e-5
        assert (scores.hidden_states[name] - want[0, 15:]).abs().max() < 2e-5
    assert (target.head(num_computed.hidden_states["final"][-1:]) - num_computed.logits).abs().max() < 1e-6
    assert torch.equal(target.embed(tokens[:15]), num_computed.hidden_states["layer:0"])
    for unknown in ("layer:3", "layer:x", "all"):
        with refuses(ValueError, "target.state"):
            target.capture(frozenset({unknown}))


def test_entries_replace_what_enters_a_layer(model, network):
    """A probe fed the embedding of another token scores as that token; one replaced in mid-network as
    computed by hand."""
    tokens, target = text(4, 12), model.open()
    target.sync(tokens)
    tree = DraftTree(
        (7, -1, -1),
        (-1, 0, 0),
        (-1,) * 3,
        probes=frozenset({1, 2}),
        inputs=(
            HiddenInput(0, (1,), lambda x: target.embed([9])),
            HiddenInput(2, (2,), lambda x: x[[3]] * 0 + x[[1]]),
        ),
    )
    logits = target.score(tree).logits
    want, _ = Reference(network)(tokens + [7, 9])
    assert (logits[:3] - want[11:]).abs().max() < 3e-5
    target.capture(frozenset({"layer:2"}))
    states = target.score(tree).hidden_states["layer:2"]
    assert torch.equal(states[3], states[1])


def test_an_early_exit_leaves_its_work_to_score(model, network, monkeypatch):
    tokens, target = text(6, 20), model.open()
    with torch.inference_mode():
        hidden = network(torch.tensor([tokens]), output_hidden_states=True).hidden_states
    target.sync(tokens[:15])
    exit = target.early(2)
    first = exit.step(DraftTree())
    assert (first - hidden[2][0, 14:15]).abs().max() < 2e-5
    for n in range(1, 4):
        states = exit.step(DraftTree.chain(tokens[15 : 15 + n]), start=n - 1)
        want = hidden[2][0, 14 + n : 15 + n] if n > 1 else hidden[2][0, 14:16]
        assert (states - want).abs().max() < 2e-5
    calls = []
    run_blocks = model.run_blocks
    monkeypatch.setattr(
        model, "run_blocks", lambda x, *rest: calls.append((*rest[4:6], len(x))) or run_blocks(x, *rest)
    )
    logits = target.score(DraftTree.chain(tokens[15:])).logits
    assert (logits - Reference(network)(tokens)[0][14:]).abs().max() < 3e-5
    assert calls == [(0, 2, 2), (2, 3, 6)]  # the two new nodes below the exit, every row above it
    target.commit(Verdict((0, 1), tokens[17], "plain"))
    with refuses(ValueError, "target.scratch"):
        exit.step(DraftTree.chain((1, 2)), start=1)
    with pytest.raises(ValueError, match="exit"):
        target.early(3)


def test_early_work_on_another_tree_is_not_used_where_they_part(model, network):
    source = random.Random(8)
    for *errors, _ in play_rounds(
        _Eager(model, source), Reference(network), held, poison, 60, seed=11, pieces=False
    ):
        assert max(errors) < 1e-5


class _Eager:
    """A target whose early exit has always looked at something first: part of the tree, more than it, or
    something else."""

    def __init__(self, model, source):
        self._target, self._source = model.open(), source

    def __getattr__(self, name):
        return getattr(self._target, name)

    def score(self, tree, start=0):
        exit, source = self._target.early(source_exit := self._source.choice([1, 2])), self._source
        cut = source.randrange(len(tree) + 1)
        part = DraftTree(tree.tokens[:cut], tree.parents[:cut], tree.draw[:cut])
        other = part.add(source.randrange(VOCAB), source.randrange(-1, cut))
        states = exit.step(source.choice([part, other]))
        assert states.shape[0] >= cut + 1 and source_exit in (1, 2)
        return self._target.score(tree, start)


def test_a_view_without_sublayers_equals_a_network_without_them(model, network):
    """The view's text is fed through the kept sublayers; rows the whole target has committed are the whole
    target's."""
    tokens, whole = text(9, 30), model.open()
    view = whole.skipping([2, 3])  # all of layer 1
    blocks, network.model.layers = (
        network.model.layers,
        torch.nn.ModuleList(network.model.layers[i] for i in (0, 2)),
    )
    try:
        view.sync(tokens[:20])  # nothing committed by the whole target: the view reads the text itself
        alone = view.score(DraftTree.chain(tokens[20:])).logits
        assert (alone - network(torch.tensor([tokens]), use_cache=False).logits[0, 19:]).abs().max() < 3e-5
    finally:
        network.model.layers = blocks
    assert whole.busy == view.busy > 0 and whole.passes == 0
    whole.sync(tokens[:20])
    view.sync(tokens[:20])
    assert torch.equal(view._cache[:, :, :, :19], whole._cache[:, :, :, :19])
    view.score(DraftTree.chain(tokens[20:23]))
    whole.score(DraftTree.chain(tokens[20:23]))
    whole.commit(Verdict((0, 1), 5, "plain"))
    view.sync(tokens[:22] + [5])
    assert view.cached_tokens == whole.cached_tokens and torch.equal(
        view._cache[:, :, :, :22], whole._cache[:, :, :, :22]
    )
    none = whole.skipping([])
    none.sync(tokens[:22] + [5])
    assert (
        none.score(DraftTree.chain((1, 2))).logits - whole.score(DraftTree.chain((1, 2))).logits
    ).abs().max() < 1e-6
    with refuses(ValueError, "target.sublayer"):
        whole.skipping([6])


def test_caches_are_apart_weights_shared_and_memory_comes_in_steps(model):
    one, two = model.open(), model.open()
    assert one._cache is None
    one.sync(text(1, 10))
    two.sync(text(2, 20))
    assert one._cache.shape[3] == 256 and one.model is two.model
    before = one.score(DraftTree()).logits.clone()
    two.score(DraftTree.chain(text(3, 5)))
    one.sync(text(1, 9))
    one.sync(text(1, 10))
    assert (one.score(DraftTree()).logits - before).abs().max() < 1e-5
    one.close()
    assert one._cache is None and one.cached_tokens == []
    one.sync(text(1, 10))
    assert (one.score(DraftTree()).logits - before).abs().max() < 1e-5


def test_a_wide_tree_at_the_end_of_the_context(model, network):
    """130 rows beyond a full context: candidates at the last position, probes beyond it held at the last
    position."""
    tokens, target = text(5, CONTEXT), model.open()
    target.sync(tokens)
    tree = DraftTree(tuple(text(6, 130)), (-1,) * 130, (-1,) * 130, probes=frozenset(range(130)))
    logits = target.score(tree).logits
    assert logits.shape == (131, VOCAB) and bool(torch.isfinite(logits).all())
    assert (logits[0] - Reference(network)(tokens)[0][-1]).abs().max() < 3e-5
    causal = torch.ones(CONTEXT + 1, CONTEXT + 1, dtype=torch.bool).tril()[
        None, None
    ]  # else repeated positions read as packed texts
    ids, places = tokens + [tree.tokens[3]], list(range(CONTEXT)) + [CONTEXT - 1]
    with torch.inference_mode():
        want = network(
            torch.tensor([ids]), position_ids=torch.tensor([places]), attention_mask=causal, use_cache=False
        ).logits[0, -1]
    assert (logits[4] - want).abs().max() < 3e-5


def test_double_precision_is_kept(folder):
    target = FastModel(checkpoint(folder, "llama"), dtype=torch.float64).open()
    target.sync(text(1, 10))
    assert target.score(DraftTree.chain(text(2, 4))).logits.dtype == torch.float64


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_half_precision_stays_close(folder, kind):
    """The path that CUDA takes (rotation and norms in float32, the rest in bfloat16), here on the CPU."""
    path = checkpoint(folder, kind)
    tokens = text(1, 40)
    logits = []
    for dtype in (torch.float32, torch.bfloat16):
        target = FastModel(path, dtype=dtype).open()
        target.sync(tokens[:20])
        tree = DraftTree.chain(tokens[20:]).add(7, 3).add(9, 20)
        logits.append(target.score(tree).logits.float())
    assert (logits[0] - logits[1]).abs().mean() < 0.03 * logits[0].std()


@pytest.mark.gpu
@pytest.mark.parametrize("kind", FAST)
def test_on_the_device_the_numbers_are_the_same(folder, kind):
    path = checkpoint(folder, kind)
    reference = Reference(transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval())
    target = FastModel(path, device="cuda", dtype=torch.float32).open()
    tokens = text(1, 40)
    want = reference(tokens)[0]
    target.sync(tokens[:20])
    assert (target.score(DraftTree.chain(tokens[20:])).logits.cpu() - want[19:]).abs().max() < 2e-3
    half = FastModel(path, device="cuda").open()
    half.sync(tokens[:20])
    assert half.model.dtype == torch.bfloat16
    assert (
        half.score(DraftTree.chain(tokens[20:])).logits.float().cpu() - want[19:]
    ).abs().mean() < 0.1 * want.std()
