"""Layers side by side: what is exact, what is fuzzy, and that nothing fuzzy is kept."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from specviz.core import DraftTree, Sampling, State, open_run, play
from specviz.methods.self_speculation.easyspec import METHOD, build
from specviz.targets.fast import FastModel
from specviz.targets.layer_groups import groups_of
from specviz.targets.tiny import TinyNet, TinyTarget

from ...message_codes import refuses
from ...zoo.checkpoints import write

PROMPT = [7, 30, 2, 90, 41, 7, 30]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("layers")
    return [
        FastModel(write(folder / name, layers=layers, seed=seed, tokenizer=False), "cpu", torch.float64)
        for name, layers, seed in (("target", 6, 0), ("draft", 5, 0))
    ]


def test_the_end_layers_are_alone_and_the_others_grouped():
    assert groups_of(8, 4) == [[0], [1, 2, 3, 4], [5, 6], [7]] and groups_of(6, 1) == [[i] for i in range(6)]
    assert groups_of(2, 4) == [[0], [1]] and groups_of(1, 4) == [[0]]


def targets(models):
    net = TinyNet(20, 3, layers=6)
    return [lambda: models[0].open(), lambda: TinyTarget(net)]


@pytest.mark.parametrize("which", [0, 1], ids=["fast", "scripted"])
def test_one_layer_a_group_is_the_model_itself_and_more_is_not(models, which):
    tokens, tree = [1, 5, 3, 9, 2], DraftTree((4, 6, 7), (-1, 0, 0), (-1,) * 3)
    with torch.inference_mode():
        rows = []
        for size in (1, 3):
            whole = targets(models)[which]()
            whole.sync(tokens)
            view = whole.layer_parallel(size)
            view.sync(tokens)
            root = view.score(DraftTree()).logits[0]
            rows.append((root, view.score(tree, 0).logits))
        want = targets(models)[which]()
        want.sync(tokens)
        want = want.score(tree).logits
    torch.testing.assert_close(rows[0][1], want, atol=1e-9, rtol=1e-9)
    torch.testing.assert_close(rows[1][0], want[0], atol=1e-9, rtol=1e-9)  # the root is exact
    assert float((rows[1][1][1:] - want[1:]).abs().max()) > 1e-4, "the nodes are fuzzy"


def test_a_node_reads_what_entered_its_group(models):
    """Against the same arithmetic written out: one node behind five rows, layers 1-4 in groups of three and
    one."""
    model, tokens = models[0], [1, 5, 3, 9, 2]
    with torch.inference_mode():
        whole = model.open()
        whole.sync(tokens)
        view = whole.layer_parallel(3)
        view.sync(tokens)
        view.score(DraftTree())
        got = view.score(DraftTree.chain([4])).logits[1]
        slots = model.new_slots(8)
        x = model.embed(torch.tensor(tokens))
        mask = torch.full((5, 5), -torch.inf, dtype=torch.float64).triu(1).repeat(model.group, 1)
        for i, block in enumerate(model.blocks):
            x = model.transform(block, model.attend(block, x, model.rotations(6)[:5], slots[i], 0, mask))
        x = model.embed(torch.tensor([4]))
        for group in ([0], [1, 2, 3], [4], [5]):
            entered = x
            for i in group:
                x = (
                    x
                    + model.attend(model.blocks[i], entered, model.rotations(6)[5:6], slots[i], 5, None)
                    - entered
                )
                x = model.transform(model.blocks[i], x)
        torch.testing.assert_close(got, model.head(model.norm_final(x))[0], atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize(
    "which, drafts", [("target", "chain"), ("target", "tree"), ("draft", "chain"), ("deep draft", "tree")]
)
def test_the_text_is_plain_decodings_and_committed_rows_are_exact(models, which, drafts):
    made = []

    def opened(role):
        made.append(models[1].open())
        return made[-1]

    with torch.inference_mode():
        plain = models[0].open()
        want = list(PROMPT)
        for _ in range(30):
            plain.sync(want)
            want.append(int(plain.score(DraftTree()).logits[0].argmax()))
        kit = SimpleNamespace(target=models[0].open(), open=opened)
        parts = build(kit, which, 2, 3, drafts, 2, 4)
        state = State(list(PROMPT), Sampling(0.0), limit=30)
        accepted = 0
        open_run(parts, kit.target, state)
        while not state.done:
            outcome = play(parts, kit.target, state)
            accepted += len(outcome.verdict.path)
            assert state.left < 4 or len(outcome.tree) == (4 if drafts == "tree" else 3)
        assert state.tokens == want and accepted > 0
        view, fresh = parts.drafter.model, (models[0] if which == "target" else models[1]).open()
        view.sync(state.tokens)
        fresh.sync(state.tokens)
        for layer in range(view.layers):
            for a, b in zip(view.kv(layer), fresh.kv(layer)):
                torch.testing.assert_close(a, b, atol=1e-9, rtol=1e-9)
    kind, data = state.notes[-1]
    assert kind == "side_by_side" and data["groups"] == 2 and data["steps"] == 4


def test_a_draft_that_cannot_is_refused():
    kit = SimpleNamespace(target=None, open=lambda role: SimpleNamespace(capabilities=frozenset({"tree"})))
    with refuses(ValueError, "draft.capability"):
        build(kit, "draft", 4, 3, "tree", 2, 4)
    assert METHOD.needs == {"draft", "layer_parallel"} and METHOD.read_knobs({})["model"] == "deep draft"
