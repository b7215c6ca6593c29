"""The target that reads a picture: rows of trees equal transformers' on each path behind the picture's
rows, after every commit and rewind; a target that forgets those rows is caught."""

from __future__ import annotations

import json

import pytest
import torch

from specviz.checkpoints.weights import ModelError
from specviz.core import DraftTree, Verdict
from specviz.core.errors import InvalidUse
from specviz.targets.llama import LlamaTarget
from specviz.targets.vision import VisionModel, VisionTarget, unsupported_reason

from .vision import PICTURES, SIZES, network, reference, save

VOCAB = 23
PROMPT = [3, 17, 5, 19, 11, 8, 8]
POSITIONS = 24
TREE = DraftTree((5, 7, 9, 11, 13, 5), (-1, -1, 0, 0, 1, 2), (-1,) * 6)


@pytest.fixture(scope="module")
def net():
    return network(VOCAB, POSITIONS)


@pytest.fixture(scope="module")
def model(net, tmp_path_factory):
    return VisionModel(save(net, tmp_path_factory.mktemp("vision") / "tiny"))


def opened(model, picture, kind=VisionTarget):
    target = kind(model)
    if picture is not None:
        target.set_picture(picture)
    return target


def expected(net, tokens, tree, picture):
    paths = [[], *([tree.tokens[j] for j in tree.path(i)] for i in range(len(tree)))]
    return torch.stack([reference(net, tokens + path, picture)[-1] for path in paths])


def gap(a, b):
    return float((a - b).abs().max())


@pytest.mark.parametrize("picture", [None, 0, 1])
def test_rows_of_a_tree_equal_the_plain_forward_behind_the_picture(net, model, picture):
    picture = None if picture is None else PICTURES[picture]
    target = opened(model, picture)
    prefill = target.sync(PROMPT)
    assert prefill.num_computed == len(PROMPT) - 1 and prefill.first_position == 0, (
        "the picture's rows are no tokens"
    )
    assert gap(prefill.logits[-1], reference(net, PROMPT[:-1], picture)[-1]) < 1e-4
    assert gap(target.score(TREE).logits, expected(net, PROMPT, TREE, picture)) < 1e-4


def drive(kind, net, model):
    """The largest error of a target's logits over commits and rewinds."""
    target = opened(model, PICTURES[0], kind)
    tokens = list(PROMPT)
    worst = 0.0
    target.sync(tokens)
    for path, token in (((1, 4), 2), ((), 6), ((0, 2, 5), 1)):
        worst = max(worst, gap(target.score(TREE).logits, expected(net, tokens, TREE, PICTURES[0])))
        target.commit(Verdict(path, token, "bonus"))
        tokens += [TREE.tokens[i] for i in path] + [token]
        worst = max(worst, gap(target.score(DraftTree()).logits[0], reference(net, tokens, PICTURES[0])[-1]))
    for text in (
        tokens[:-3],
        tokens[:2] + [4, 4],
        tokens[:5],
    ):  # a round is taken back; another text; a prefix
        target.sync(text)
        worst = max(worst, gap(target.score(TREE).logits, expected(net, text, TREE, PICTURES[0])))
    return worst


def test_commits_and_rewinds_keep_the_picture(net, model):
    assert drive(VisionTarget, net, model) < 1e-4


class GathersUnshifted(VisionTarget):
    """Moves accepted rows as if no picture lay before the text."""

    def _gather(self, past, rows):
        LlamaTarget._gather(self, past, rows)


class ForgetsAfterRollback(VisionTarget):
    """Counts positions without the picture's rows once tokens were dropped."""

    dropped = False

    def _crop(self, length):
        self.dropped = length > 0

    def _forward(self, rows):
        return LlamaTarget._forward(self, rows) if self.dropped else super()._forward(rows)


class PlacesLate(VisionTarget):
    """Shifts positions and slots, and never runs the picture's rows."""

    def _place_picture(self):
        self._reserve(self.prefix)
        self.slots[:, :, :, : self.prefix] = 0


@pytest.mark.parametrize("kind", [GathersUnshifted, ForgetsAfterRollback, PlacesLate])
def test_a_target_that_forgets_the_picture_is_caught(net, model, kind):
    assert drive(kind, net, model) > 1e-2


def test_the_last_positions_of_the_context_are_the_models_own(net, model):
    assert model.context == POSITIONS - SIZES["columns"] * SIZES["rows"]
    tokens = [i % VOCAB for i in range(model.context)]
    target = opened(model, PICTURES[1])
    for text in (tokens[:-1], tokens):
        target.sync(text)
        assert gap(target.score(DraftTree()).logits[0], reference(net, text, PICTURES[1])[-1]) < 1e-4
    with pytest.raises(ValueError):
        target.sync([*tokens, 1])


def test_another_picture_drops_the_cache_and_has_another_name(net, model):
    target = opened(model, PICTURES[0])
    target.sync(PROMPT)
    first = target.prefix_id
    target.set_picture(PICTURES[1])
    assert (
        target.cached_tokens == []
        and target.prefix_id not in ("", first)
        and opened(model, None).prefix_id == ""
    )
    target.sync(PROMPT)
    assert gap(target.score(DraftTree()).logits[0], reference(net, PROMPT, PICTURES[1])[-1]) < 1e-4


def test_hidden_states_belong_to_the_tokens_alone(net, model):
    target = opened(model, PICTURES[0])
    target.capture(frozenset({"final", "layer:1"}))
    states = target.sync(PROMPT).hidden_states
    assert {name: tuple(rows.shape) for name, rows in states.items()} == {
        name: (len(PROMPT) - 1, 16) for name in ("final", "layer:1")
    }


def test_a_target_of_text_reads_no_picture(model):
    with pytest.raises(InvalidUse) as error:
        LlamaTarget(model).set_picture(PICTURES[0])
    assert error.value.code == "target.picture"


@pytest.mark.parametrize(
    "change",
    [
        {"vision_config": None},
        {"vision_config": {**SIZES, "patch": 0}},
        {"vision_config": {**SIZES, "labels": [[1], [2], [99]]}},
        {"vision_config": SIZES},
    ],
)
def test_a_config_without_a_readable_encoder_is_refused(net, change):
    config = json.loads(net.config.to_json_string()) | {"model_type": "llama"}
    assert unsupported_reason(config) is None and unsupported_reason(config | change)


def test_weights_that_lack_the_encoder_are_refused(net, tmp_path):
    folder = save(net, tmp_path / "tiny")
    from safetensors.torch import load_file, save_file

    save_file(
        {name: t for name, t in load_file(folder / "model.safetensors").items() if "enter" not in name},
        folder / "model.safetensors",
    )
    with pytest.raises(ModelError) as error:
        VisionModel(folder)
    assert error.value.code == "checkpoint.lacks_weight"


def test_a_caption_names_what_the_output_layer_reads_from_a_patch(net, model):
    rows, caption = model.encode_picture(PICTURES[0])
    with torch.no_grad():
        want = net.vision(torch.from_numpy(PICTURES[:1].copy()))[0]
        thing = net.lm_head(net.model.norm(want))[:, [1, 2, 0]].argmax(-1)
    assert gap(rows, want) < 1e-5 and rows.shape == (6, 16)
    assert (caption == () or caption[0] == 0) and len(caption[1:]) >= 2 * int((thing < 2).sum())
