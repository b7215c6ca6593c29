"""The forward of fixed shapes gives the eager one's numbers, and does nothing that a recording could not
hold."""

from __future__ import annotations

import random

import pytest
import torch
import transformers
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from specviz.core import DraftTree, Verdict
from specviz.models.cuda_graph_capture import BUCKETS
from specviz.targets.fast import FastModel
from specviz.targets.slot_map import SlotMap
from specviz.targets.static_shapes import TOO_MANY, StaticModel

from .rounds import Reference, play_rounds, random_tree
from .tiny import CONTEXT, FAST, VOCAB, checkpoint


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("checkpoints")


@pytest.fixture(scope="module")
def model(folder):
    return StaticModel(checkpoint(folder, "llama"))


def text(seed: int, n: int) -> list[int]:
    source = random.Random(seed)
    return [source.randrange(VOCAB) for _ in range(n)]


@torch.inference_mode()
def poison(target):
    """Large finite values in every slot that nothing may read."""
    if target._cache is not None:
        target._cache[:, :, :, target._map.slot[len(target.cached_tokens) :]] = 1e4


def held(target):
    return [target.kv(layer) for layer in range(target.layers)]


def as_it_lies(target):
    """Keys and values by the map, without moving them into order."""
    target.flush()
    rows = target._map.slot[: len(target.cached_tokens)]
    return [
        tuple(
            x.unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2) if i == 0 else x
            for i, x in enumerate(layer[:, :, rows])
        )
        for layer in target._cache
    ]


@pytest.mark.parametrize("cache_of", [held, as_it_lies])
@pytest.mark.parametrize("kind", FAST)
def test_random_rounds_equal_the_uncached_forward(folder, kind, cache_of):
    path = checkpoint(folder, kind)
    reference = Reference(transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval())
    target = StaticModel(path).open()
    seen = set()
    moved = 0
    for error, cache, happened in play_rounds(target, reference, cache_of, poison, 30, seed=FAST.index(kind)):
        assert error < 1e-5 and cache < 1e-5, (error, cache, happened)
        seen.add(happened)
        moved += len(target._map.moved)
    assert len(seen) == 7 and set(target.eager) == {"prompt"}
    assert moved or cache_of is held, "no row ever lay elsewhere than in its own slot"


def test_rows_of_any_number_equal_the_eager_ones(folder):
    """Every bucket filled and half filled; beyond the largest the eager forward, which is counted."""
    path, source = checkpoint(folder, "qwen3"), random.Random(0)
    model, eager = StaticModel(path), FastModel(path).open()
    for nodes in (0, 1, 2, 3, 6, 15, 40, 63, 64, 100):
        target, tokens = model.open(), text(nodes, 20)
        target.sync(tokens)
        eager.sync(tokens)
        tree = random_tree(source, VOCAB, nodes, 6)
        assert (target.score(tree).logits - eager.score(tree).logits).abs().max() < 2e-5
        assert (
            target.bucket == min(b for b in BUCKETS if b > nodes)
            if nodes < 64
            else target.eager[TOO_MANY] == 1
        )
        path_taken = tree.path(nodes - 1) if nodes else ()
        for one in (target, eager):
            one.commit(Verdict(tuple(path_taken), 5, "plain"))
        assert (
            target.score(DraftTree.chain((3, 4))).logits - eager.score(DraftTree.chain((3, 4))).logits
        ).abs().max() < 2e-5


def test_a_path_is_committed_without_moving_a_row(model):
    target = model.open()
    target.sync(text(1, 20))
    target.score(DraftTree((1, 2, 3, 4, 5), (-1, -1, 1, 1, 3), (-1,) * 5))
    before = target._cache.clone()
    target.commit(Verdict((1, 3, 4), 7, "plain"))
    assert torch.equal(target._cache, before) and target._map.slot[19:25] == [19, 21, 23, 24, 20, 22]
    target.score(DraftTree.chain((1, 2, 3)))
    map_before = list(target._map.slot)
    target.commit(Verdict((0, 1), 8, "plain"))
    assert target._map.slot == map_before, "a chain changes nothing"


def test_the_map_stays_a_permutation():
    source, slots = random.Random(0), SlotMap(64)
    where = {}  # what lies in a slot
    past = 0
    for step in range(300):
        count = source.randrange(1, 12)
        if past + count > 64:
            past = source.randrange(0, 30)
        for row in range(count):
            where[slots.slot[past + row]] = (step, row)
        want = [where[slots.slot[i]] for i in range(past)]
        rows = [0, *sorted(source.sample(range(1, count), source.randrange(0, count)))]
        slots.keep(past, rows)
        past += len(rows)
        want += [(step, row) for row in rows]
        assert [where[slots.slot[i]] for i in range(past)] == want
        assert sorted(slots.slot) == list(range(64))
        assert all(slots.inverse()[slot] == i for i, slot in enumerate(slots.slot))
        assert slots.moved == {i for i, slot in enumerate(slots.slot) if i != slot}
        if step % 20 == 0:
            to, source_slots = slots.reset_to_identity(past)
            where.update({a: where[b] for a, b in zip(to, source_slots)} if to else {})
            assert [where[i] for i in range(past)] == want and not slots.moved


def test_a_room_outlives_its_run_and_grows(model, folder):
    eager = FastModel(checkpoint(folder, "llama")).open()
    first = model.open()
    first.sync(text(1, 10))
    first.score(DraftTree((1, 2, 3), (-1, -1, 1), (-1,) * 3))
    first.commit(Verdict((1, 2), 4, "plain"))
    slots = first._cache.data_ptr()
    first.close()
    second = model.open()
    second.sync(text(2, 12))
    assert second._cache.data_ptr() == slots, "the room of the run before"
    other = model.open()
    other.sync(text(3, 12))
    assert other._cache.data_ptr() != slots
    eager.sync(text(2, 12))
    assert (second.score(DraftTree()).logits - eager.score(DraftTree()).logits).abs().max() < 1e-5
    tree = DraftTree((1, 2, 3), (-1, -1, 1), (-1,) * 3)
    for target in (second, eager):
        target.score(tree)
        target.commit(Verdict((1, 2), 4, "plain"))
    second._reserve(300)
    assert second._cache.shape[3] == 512
    assert (second.score(tree).logits - eager.score(tree).logits).abs().max() < 1e-5


class Shapes(TorchDispatchMode):
    """Every operation below autograd: its name and the shapes it gives; and those that read values to know
    a shape."""

    def __init__(self, waits, counts):
        super().__init__()
        self.waits = waits
        self.shapes = []
        self.counts = counts

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name, out = func.overloadpacket.__name__, func(*args, **(kwargs or {}))
        by_mask = name in ("index", "index_put_") and any(
            i is not None and i.dtype == torch.bool for i in args[1]
        )
        reads = by_mask or any(
            word in name for word in ("_local_scalar_dense", "nonzero", "masked_select", "unique", "equal")
        )
        if reads and self.counts(args[0]):
            self.waits.append(name)
        several = out if isinstance(out, (tuple, list)) else [out]
        self.shapes.append((name, *(tuple(x.shape) for x in several if isinstance(x, torch.Tensor))))
        return out


class Watch(TorchFunctionMode):
    """What a recording could not hold: values read by the host, shapes that follow from values, shapes that
    change.

    counts: of which tensors a read counts.
    """

    READS = {"tolist", "item", "cpu", "numpy", "__bool__", "__int__", "__float__", "__index__"}

    def __init__(self, counts=lambda x: True):
        super().__init__()
        self.waits, self.counts = [], counts
        self._below = Shapes(self.waits, counts)

    @property
    def shapes(self):
        return self._below.shapes

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if getattr(func, "__name__", "") in self.READS and self.counts(args[0]):
            self.waits.append(func.__name__)
        return func(*args, **(kwargs or {}))

    def __enter__(self):
        self._below.__enter__()
        return super().__enter__()

    def __exit__(self, *error):
        super().__exit__(*error)
        self._below.__exit__(*error)


@pytest.fixture
def watched(monkeypatch):
    """Every call of the forward that would be recorded, as its watch."""
    from specviz.targets import static_shapes as static

    seen, forward = [], static.forward

    def watching(*args):
        with Watch() as watch:
            out = forward(*args)
        seen.append(watch)
        return out

    monkeypatch.setattr(static, "forward", watching)
    return seen


def test_what_is_recorded_reads_no_value_and_never_changes_shape(model, watched):
    target = model.open()
    target.expect(12)
    target.sync(text(1, 20))
    source = random.Random(3)
    for _ in range(12):
        tree = random_tree(source, VOCAB, source.randrange(0, 15), 4)
        target.score(tree)
        path = tree.path(source.randrange(-1, len(tree)))
        target.commit(Verdict(tuple(path), 5, "plain"))
    assert len(watched) == 12 and target.bucket == 16
    for watch in watched:
        assert watch.waits == [] and watch.shapes == watched[0].shapes
    assert len(watched[0].shapes) > 50


@pytest.mark.parametrize(
    "wait",
    [
        lambda x: bool(x.sum() > 2),
        lambda x: x.nonzero(),
        lambda x: x[x > 1],
        lambda x: x.tolist(),
        lambda x: x.cpu(),
        lambda x: int(x[0]),
        lambda x: x[x[1] :],
        lambda x: x.masked_select(x > 1),
        lambda x: x.numpy(),
        lambda x: x.max().item(),
    ],
)
def test_the_watch_sees_what_it_must(wait):
    with Watch() as watch:
        wait(torch.arange(4))
    assert watch.waits


def test_a_pass_reads_nothing_back_from_the_device(model):
    """Around what is recorded, too: inputs are written from the host, the map is the host's own, and logits
    are handed on unread."""
    target, source = model.open(), random.Random(4)
    target.sync(text(1, 20))
    for _ in range(4):
        tree = random_tree(source, VOCAB, 6, 3)
        with Watch(torch.is_floating_point) as reads:  # the host's own lists are whole numbers and booleans
            target.score(tree)
            target.commit(Verdict(tuple(tree.path(5)), 5, "plain"))
        assert reads.waits == []


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_replay_gives_what_the_forward_gives(folder, dtype):
    path = checkpoint(folder, "llama")
    captured, plain = StaticModel(path, "cuda", dtype).open(), StaticModel(path, "cuda", dtype)
    plain.captures_graphs = False
    plain, source = plain.open(), random.Random(1)
    for target in (captured, plain):
        target.expect(16)
        target.sync(text(1, 20))
    for _ in range(20):
        if len(captured.cached_tokens) > CONTEXT - 20:
            break
        tree = random_tree(source, VOCAB, source.randrange(0, 15), 4)
        a, b = captured.score(tree).logits, plain.score(tree).logits
        assert torch.equal(a, b)
        verdict = Verdict(tuple(tree.path(source.randrange(-1, len(tree)))), 5, "plain")
        captured.commit(verdict)
        plain.commit(verdict)
    assert len(captured._buffer.recorded.graphs) == 1
