"""One pass for several sequences gives each the scores it gets alone, and leaves each the cache it would
have alone."""

from __future__ import annotations

import random
import threading

import pytest
import torch
import transformers

from specviz.core import DraftTree, HiddenInput, Verdict
from specviz.targets.fast import FastModel
from specviz.targets.int8 import Int8Model
from specviz.targets.packed_pass import score_packed

from ..message_codes import refuses
from .rounds import random_tree
from .tiny import FAST, VOCAB, checkpoint


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("checkpoints")


@pytest.fixture(scope="module")
def model(folder):
    return FastModel(checkpoint(folder, "llama"), dtype=torch.float64)


def text(source: random.Random, n: int) -> list[int]:
    return [source.randrange(VOCAB) for _ in range(n)]


def path_of(source: random.Random, tree: DraftTree) -> tuple[int, ...]:
    """A path from the root to anywhere."""
    return tuple(tree.path(source.randrange(-1, len(tree)))) if len(tree) else ()


def same_cache(a, b) -> float:
    return max(
        float((x - y).abs().max()) for i in range(a.layers) for x, y in zip(a.kv(i), b.kv(i)) if x.numel()
    )


@pytest.mark.parametrize("kind", FAST)
def test_a_pass_of_many_is_the_passes_of_each(folder, kind):
    """Ragged trees, some empty; ragged accepted paths; sequences that miss a pass, leave and join anew in
    the middle."""
    model, source = FastModel(checkpoint(folder, kind), dtype=torch.float64), random.Random(FAST.index(kind))
    pairs = []
    for step in range(12):
        if step in (0, 4, 5, 9):  # joins
            tokens = text(source, source.randrange(1, 20))
            pairs.append((model.open(), model.open()))
            for target in pairs[-1]:
                target.sync(tokens)
        if step in (6, 10):
            pairs.pop(0)  # leaves
        here = source.sample(pairs, source.randrange(1, len(pairs) + 1))
        trees = [
            random_tree(source, VOCAB, size, 4) if (size := source.randrange(0, 9)) else DraftTree()
            for _ in here
        ]
        before = [together.passes for together, _ in here]
        packed = here[0][0].score_many([together for together, _ in here], trees)
        assert [together.passes for together, _ in here] == [n + 1 for n in before]
        for (together, alone), tree, got in zip(here, trees, packed):
            want = alone.score(tree)
            assert (
                (got.logits - want.logits).abs().max() < 1e-11
                and got.first_position == want.first_position
                and len(got.logits) == len(tree) + 1
            )
            path, token = path_of(source, tree), source.randrange(VOCAB)
            for target in (together, alone):
                target.commit(Verdict(path, token, "plain"))
            assert together.cached_tokens == alone.cached_tokens and same_cache(together, alone) < 1e-11
            assert together._cache.shape[3] < 512, "nothing is padded in the cache"


def test_sequences_may_be_closed_while_another_thread_runs_a_pass(folder):
    model = Int8Model(checkpoint(folder, "llama"))
    stop = threading.Event()
    failed = []

    def closes():
        while not stop.is_set():
            one = model.open()
            one.sync([1, 2])
            one.close()

    def runs():
        try:
            source = random.Random(1)
            for _ in range(60):
                targets = [model.open() for _ in range(2)]
                for target in targets:
                    target.sync(text(source, 5))
                score_packed(targets, [DraftTree.chain((1,))] * 2)
                for target in targets:
                    target.close()
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=closes), *(threading.Thread(target=runs) for _ in range(2))]
    for thread in threads:
        thread.start()
    for thread in threads[1:]:
        thread.join()
    stop.set()
    threads[0].join()
    assert not failed


def test_states_and_entries_go_to_whom_they_belong(model):
    source = random.Random(3)
    tokens = [text(source, 9), text(source, 14)]
    plain = DraftTree((5, 7), (-1, 0), (-1, -1))
    probed = DraftTree(
        (7, -1),
        (-1, 0),
        (-1,) * 2,
        probes=frozenset({1}),
        inputs=(HiddenInput(1, (1,), lambda x: x[[0]] * 2),),
    )
    alone, together = [[model.open() for _ in tokens] for _ in range(2)]
    for targets in (alone, together):
        for target, ids, want in zip(targets, tokens, (frozenset({"final", "layer:2"}), frozenset())):
            target.capture(want)
            target.sync(ids)
    wants = [target.score(tree) for target, tree in zip(alone, (plain, probed))]
    gots = together[0].score_many(together, [plain, probed])
    for got, want in zip(gots, wants):
        assert (
            got.hidden_states.keys() == want.hidden_states.keys()
            and (got.logits - want.logits).abs().max() < 1e-11
        )
        assert all(
            (got.hidden_states[name] - want.hidden_states[name]).abs().max() < 1e-11
            for name in want.hidden_states
        )
    again = together[0].score_many(together, [plain.add(3, 1), probed])
    assert (again[0].logits[:3] - gots[0].logits).abs().max() < 1e-11


def test_trees_that_grow_are_scored_from_their_new_nodes_on(model):
    """As drafts do: each pass adds a node to some of the trees, and runs that row alone."""
    source = random.Random(5)
    alone, together = [[model.open() for _ in range(3)] for _ in range(2)]
    for targets in (alone, together):
        for i, target in enumerate(targets):
            target.sync(text(random.Random(i), 6 + i))
    chains = [text(source, 4) for _ in together]
    for depth in range(4):
        here = [i for i in range(3) if depth <= 2 * i]
        trees, starts = [DraftTree.chain(chains[i][:depth]) for i in here], [max(0, depth - 1)] * len(here)
        for i, tree, got in zip(
            here, trees, together[0].score_many([together[i] for i in here], trees, starts)
        ):
            want = alone[i].score(tree, max(0, depth - 1))
            assert got.logits.shape == want.logits.shape and (got.logits - want.logits).abs().max() < 1e-11


def test_rows_that_wait_are_fed_with_the_pass(model):
    source = random.Random(4)
    tokens, longer = text(source, 8), text(source, 12)
    first, second, alone = (model.open() for _ in range(3))
    for target in (first, alone):
        target.sync(tokens)
        target.sync([*tokens, 3, 4, 5])
    second.sync(longer)
    tree = DraftTree.chain((1, 2))
    got = first.score_many([first, second], [tree, DraftTree()])[0]
    assert (
        got.logits - alone.score(tree).logits
    ).abs().max() < 1e-11 and first.cached_tokens == alone.cached_tokens


def test_what_is_no_batch_is_refused(model, folder):
    one, other = model.open(), FastModel(checkpoint(folder, "llama")).open()
    for target in (one, other):
        target.sync([1, 2])
    for batch in ([one, one], [one, other]):
        with refuses(ValueError, "target.batch"):
            one.score_many(batch, [DraftTree(), DraftTree()])


def test_a_pass_that_fails_leaves_no_half_of_a_round(model, monkeypatch):
    targets = [model.open(), model.open()]
    for target in targets:
        target.sync([1, 2, 3])
    monkeypatch.setattr(model, "project", lambda *args: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        targets[0].score_many(targets, [DraftTree(), DraftTree.chain((4,))])
    monkeypatch.undo()
    with refuses(ValueError, "target.not_synced"):
        targets[1].score(DraftTree())
    targets[1].sync([1, 2, 3])
    assert len(targets[1].score(DraftTree()).logits) == 1


def test_one_pass_multiplies_once_for_all(model, monkeypatch):
    """The gain of a batch: each matrix meets the rows of all sequences at once."""
    targets, rows = [model.open() for _ in range(5)], []
    for i, target in enumerate(targets):
        target.sync([1, 2, 3, i])
    transform = model.transform
    monkeypatch.setattr(model, "transform", lambda block, x: rows.append(len(x)) or transform(block, x))
    targets[0].score_many(targets, [DraftTree.chain(range(i)) for i in range(5)])
    assert rows == [15] * model.layers


def test_the_reference_is_transformers(folder):
    """A batch against the network itself, in the precision that is shipped."""
    path, source = checkpoint(folder, "qwen3"), random.Random(8)
    net = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    fast = FastModel(path)
    targets, prompts = [fast.open() for _ in range(6)], [text(source, 3 + 4 * i) for i in range(6)]
    for target, tokens in zip(targets, prompts):
        target.sync(tokens)
    chains = [text(source, i) for i in range(6)]
    for tokens, chain, got in zip(
        prompts, chains, targets[0].score_many(targets, [DraftTree.chain(c) for c in chains])
    ):
        with torch.inference_mode():
            want = net(torch.tensor([[*tokens, *chain]])).logits[0][len(tokens) - 1 :]
        assert (got.logits - want).abs().max() < 3e-5
