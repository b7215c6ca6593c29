"""A model whose shard is too large for plain git loads from its parts, and only from all of them."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from specviz.checkpoints.split import joined_folder, split_shards
from specviz.checkpoints.weights import ModelError
from specviz.training.job import fingerprint

from ..message_codes import refuses


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    place = tmp_path / "tiny"
    torch.manual_seed(0)
    LlamaForCausalLM(
        LlamaConfig(
            vocab_size=64,
            hidden_size=16,
            intermediate_size=24,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=1,
        )
    ).save_pretrained(place)
    return place


def test_parts_are_the_same_model(folder):
    before, want = fingerprint(folder), AutoModelForCausalLM.from_pretrained(folder).state_dict()
    assert joined_folder(folder) == folder
    split_shards(folder, largest=1000, part=4096)
    assert (
        not list(folder.glob("*.safetensors"))
        and max(p.stat().st_size for p in folder.glob("*.part-*")) <= 4096
    )
    assert fingerprint(folder) == before
    again = AutoModelForCausalLM.from_pretrained(joined_folder(folder)).state_dict()
    assert want.keys() == again.keys() and all(torch.equal(want[name], again[name]) for name in want)
    assert joined_folder(folder) == joined_folder(folder) != folder


def test_other_parts_are_another_model(folder):
    split_shards(folder, largest=1000, part=4096)
    first = joined_folder(folder)
    part = next(folder.glob("*.part-02*"))
    part.write_bytes(bytes(reversed(part.read_bytes())))
    assert joined_folder(folder) != first


def test_a_missing_part_is_named(folder):
    split_shards(folder, largest=1000, part=4096)
    next(folder.glob("*.part-02*")).unlink()
    with refuses(ModelError, "checkpoint.lacks_part", "tiny", "model.safetensors"):
        joined_folder(folder)


def test_small_shards_stay_and_old_parts_go(folder):
    split_shards(folder, largest=1000, part=4096)
    save_file({"a": torch.zeros(3)}, folder / "model.safetensors")
    split_shards(folder)
    assert [p.name for p in folder.glob("*safetensors*")] == ["model.safetensors"]
