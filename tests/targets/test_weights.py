"""Checkpoints that cannot be used are refused with one sentence before anything runs; those that can need
no transformers."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

from specviz.checkpoints.weights import ModelError
from specviz.core import DraftTree
from specviz.models import pretrained as hub
from specviz.models.linear import (
    Layout,
    PlainLinear,
    TransposedLinear,
    _measure,
    fastest_layout,
)
from specviz.models.llama import WHY_NOT, unsupported_reason
from specviz.targets.fast import FastModel

from ..message_codes import refuses
from .tiny import checkpoint


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    return checkpoint(tmp_path_factory.mktemp("good"), "llama")


@pytest.fixture(scope="module")
def sharded(tmp_path_factory):
    return checkpoint(tmp_path_factory.mktemp("sharded"), "llama", max_shard_size="20KB")


def spoil(source, tmp_path, change):
    path = tmp_path / "spoiled"
    shutil.copytree(source, path)
    change(path)
    return path


def edit_weights(change):
    def spoiled(path):
        tensors = load_file(path / "model.safetensors")
        change(tensors)
        save_file(tensors, path / "model.safetensors")

    return spoiled


def edit_json(name, change):
    def spoiled(path):
        found = json.loads((path / name).read_text())
        change(found)
        (path / name).write_text(json.dumps(found))

    return spoiled


def cut(path):
    whole = (path / "model.safetensors").read_bytes()
    (path / "model.safetensors").write_bytes(whole[: len(whole) // 2])


WRONG = {
    "config.missing spoiled": lambda path: (path / "config.json").unlink(),
    "config.read spoiled": lambda path: (path / "config.json").write_text("{"),
    "config.not_object spoiled": lambda path: (path / "config.json").write_text("[]"),
    "checkpoint.missing spoiled": lambda path: (path / "model.safetensors").unlink(),
    "checkpoint.cut_short": cut,
    "checkpoint.lacks_weight model.layers.1.mlp.up_proj.weight": edit_weights(
        lambda t: t.pop("model.layers.1.mlp.up_proj.weight")
    ),
    "checkpoint.lacks_weight lm_head.weight": edit_weights(lambda t: t.pop("lm_head.weight")),
    "checkpoint.shape model.norm.weight (5,) (32,)": edit_weights(
        lambda t: t.update({"model.norm.weight": torch.ones(5)})
    ),
    "checkpoint.not_numbers model.layers.2.self_attn.k_proj.weight": edit_weights(
        lambda t: t["model.layers.2.self_attn.k_proj.weight"][3].fill_(torch.nan)
    ),
    "checkpoint.not_numbers model.norm.weight": edit_weights(
        lambda t: t["model.norm.weight"].fill_(torch.inf)
    ),
    "config.lacks hidden_size": edit_json("config.json", lambda c: c.pop("hidden_size")),
    "config.sizes": edit_json("config.json", lambda c: c.update(num_key_value_heads=3)),
    "config.size": edit_json("config.json", lambda c: c.update(num_hidden_layers=0)),
    "config.number": edit_json("config.json", lambda c: c.update(rope_theta=float("nan"))),
    "forward.unsupported gpt2": edit_json("config.json", lambda c: c.update(model_type="gpt2")),
}


@pytest.mark.parametrize("code", WRONG)
def test_a_checkpoint_that_cannot_be_used_is_refused(good, tmp_path, code):
    with refuses(ModelError, *re.split(r" (?!\d)", code)) as caught:
        FastModel(spoil(good, tmp_path, WRONG[code]))
    assert "\n" not in str(caught.value)


INDEX = "model.safetensors.index.json"
WRONG_SHARDS = {
    "checkpoint.lacks_shard model-00002-of": lambda path: next(path.glob("model-00002-of*")).unlink(),
    "checkpoint.index weight_map": edit_json(INDEX, lambda index: index.pop("weight_map")),
    "checkpoint.outside": edit_json(
        INDEX, lambda index: index["weight_map"].update({"model.norm.weight": "../good.safetensors"})
    ),
    "checkpoint.lacks_indexed": edit_json(
        INDEX,
        lambda index: index["weight_map"].update(
            {"model.norm.weight": index["weight_map"]["model.embed_tokens.weight"]}
        ),
    ),
}


@pytest.mark.parametrize("code", WRONG_SHARDS)
def test_a_broken_index_is_refused(sharded, tmp_path, code):
    shutil.copy(next(sharded.glob("model-00001-of*")), tmp_path / "good.safetensors")
    with refuses(ModelError, *code.split()):
        FastModel(spoil(sharded, tmp_path, WRONG_SHARDS[code]))


def test_shards_and_one_file_give_the_same_model(good, sharded):
    one, many = FastModel(good), FastModel(sharded)
    assert len(list(sharded.glob("*.safetensors"))) > 2
    assert torch.equal(one.embedding, many.embedding) and one.parameters == many.parameters == sum(
        t.numel() for t in load_file(good / "model.safetensors").values()
    )
    logits = []
    for model in (one, many):
        target = model.open()
        target.sync([1, 2, 3, 4])
        logits.append(target.score(DraftTree.chain((5, 6))).logits)
    assert (logits[0] - logits[1]).abs().max() < 1e-5


def test_nothing_of_transformers_is_imported(good):
    code = f"""
import sys
from specviz.core import DraftTree
from specviz.targets.fast import FastModel
from specviz.core import DraftTree
from specviz.models import pretrained as hub
target = FastModel({str(good)!r}).open()
target.sync([1, 2, 3])
target.score(DraftTree())
assert "transformers" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_our_forward_cannot_run_is_said_from_the_config_alone():
    llama, qwen = ({"model_type": kind, "max_position_embeddings": 100} for kind in ("mistral", "qwen2"))
    assert unsupported_reason(llama) is None
    assert (
        unsupported_reason({**llama, "sliding_window": 100}) is None
        and unsupported_reason({**qwen, "sliding_window": 8, "use_sliding_window": False}) is None
    )
    assert unsupported_reason({**llama, "sliding_window": 8}) == WHY_NOT["window"]
    assert unsupported_reason({**llama, "hidden_act": "gelu"}) == WHY_NOT["activation"].format(kind="gelu")
    for rope in ({"rope_parameters": {"rope_type": "yarn"}}, {"rope_scaling": {"type": "yarn", "factor": 2}}):
        assert unsupported_reason({**llama, **rope}) == WHY_NOT["rotary"].format(kind="yarn")
    assert "gpt2" in unsupported_reason({"model_type": "gpt2"})


def test_what_transformers_will_offer_is_read_from_the_config_alone():
    assert (
        "tree" in hub.capabilities({"model_type": "gpt2"})
        and hub.unsupported_reason({"model_type": "gpt2"}) is None
    )
    assert "tree" not in hub.capabilities({"layer_types": ["linear_attention", "full_attention"]})
    assert "encoder-decoder" in hub.unsupported_reason({"model_type": "t5", "is_encoder_decoder": True})
    assert "model_type" in hub.unsupported_reason({})


@pytest.mark.parametrize("kind", [PlainLinear, TransposedLinear])
@pytest.mark.parametrize("biased", [False, True])
def test_a_layer_is_f_linear_in_every_layout(kind, biased):
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(24, 16, generator=generator).bfloat16().float()
    bias = torch.randn(24, generator=generator) if biased else None
    layer = Layout({(24, 16): (kind, kind)})(weight, bias)
    for rows in (1, 3, 8):
        x, more = torch.randn(rows, 16, generator=generator), torch.randn(rows, 24, generator=generator)
        want = torch.nn.functional.linear(x, weight, bias)
        assert (layer(x) - want).abs().max() < 1e-5 and (layer.add(x, more) - more - want).abs().max() < 1e-5


def test_a_layout_that_does_not_work_here_is_not_chosen(monkeypatch):
    class Wrong(TransposedLinear):
        kernel = "wrong"

        def __call__(self, x):
            return super().__call__(x) * 1.01

    class Absent(TransposedLinear):
        kernel = "absent"

        def __init__(self, weight, bias=None):
            raise AttributeError("no such op")

    threads = torch.get_num_threads()
    for kind in (Wrong, Absent):
        monkeypatch.setattr("specviz.models.linear.TransposedLinear", kind)
        assert fastest_layout([torch.randn(64, 64)], total=1, budget=0).kernel == "plain"
    assert torch.get_num_threads() == threads


def test_a_large_model_is_kept_in_one_layout(monkeypatch):
    monkeypatch.setattr(
        "specviz.models.linear._measure",
        lambda *_: {
            (4, 4): {
                PlainLinear: {1: 6.0, 8: 3.0},
                TransposedLinear: {1: 2.0, 8: 6.0},
            }
        },
    )
    assert fastest_layout([torch.ones(4, 4)], total=10).kernel == "transposed and plain"
    assert (
        fastest_layout([torch.ones(4, 4)], total=2**40).kernel == "transposed"
    )  # half again as slow on average, against twice
    assert fastest_layout([torch.ones(4, 4, dtype=torch.float64)], total=10).kernel == "plain"


def test_a_small_model_has_a_layout_for_every_shape_and_a_larger_one_the_best_for_all(monkeypatch):
    monkeypatch.setattr(
        "specviz.models.linear._measure",
        lambda *_: {
            (4, 4): {PlainLinear: {1: 1.0, 8: 1.0}, TransposedLinear: {1: 2.0, 8: 2.0}},
            (9, 4): {PlainLinear: {1: 9.0, 8: 9.0}, TransposedLinear: {1: 5.0, 8: 5.0}},
        },
    )
    weights = [torch.ones(4, 4), torch.ones(9, 4)]
    small, large = fastest_layout(weights, total=100), fastest_layout(weights, total=2**27)
    assert small.kernel == "plain and transposed" and large.kernel == "transposed"
    assert [type(small(w)) for w in weights] == [PlainLinear, TransposedLinear]
    assert [type(large(w)) for w in weights] == [TransposedLinear, TransposedLinear]
    assert type(small(torch.ones(7, 4))) is PlainLinear  # a shape that was not measured


def test_every_shape_of_a_stack_is_measured_in_every_layout_that_works(monkeypatch):
    found = _measure([torch.ones(8, 4), torch.ones(8, 4), torch.ones(16, 4)], 0.0)
    assert set(found) == {(8, 4), (16, 4)}
    for seconds in found.values():
        assert PlainLinear in seconds and all(
            set(by_rows) == {1, 8} and min(by_rows.values()) > 0 for by_rows in seconds.values()
        )
