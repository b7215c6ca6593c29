import errno
import os

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from specviz.checkpoints import mx
from specviz.models.pretrained import open_network
from specviz.training import files
from specviz.training.job import SHIPPED, TARGET, Job, TrainingError

from ..message_codes import refuses


def full(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_leaves_the_previous_file(tmp_path, monkeypatch):
    path = tmp_path / "weights.safetensors"
    files.write_tensors(path, {"a": torch.ones(3)})
    monkeypatch.setattr(os, "fsync", full)
    with refuses(TrainingError, "training.save"):
        files.write_tensors(path, {"a": torch.zeros(3)})
    assert load_file(path)["a"].tolist() == [1, 1, 1]
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_a_kill_while_writing_leaves_the_previous_file(tmp_path, monkeypatch):
    path = tmp_path / "state.json"
    files.write_json(path, {"step": 1})
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        files.write_json(path, {"step": 2})
    assert "1" in path.read_text() and len(list(tmp_path.iterdir())) == 1


def model(seed):
    torch.manual_seed(seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=32,
            hidden_size=16,
            intermediate_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            tie_word_embeddings=True,
        )
    )


def test_export_is_loadable_and_survives_a_full_disk(tmp_path, monkeypatch):
    words = AutoTokenizer.from_pretrained(SHIPPED / TARGET)
    job = Job(work=tmp_path / "work", shipped=tmp_path / "assets", ship=True)
    files.export(job, "M", model(0), words)
    back = open_network(job.shipped / "M", torch.bfloat16)
    assert torch.equal(back.model.embed_tokens.weight, model(0).model.embed_tokens.weight.bfloat16())
    assert AutoTokenizer.from_pretrained(job.shipped / "M").chat_template == words.chat_template
    monkeypatch.setattr(LlamaForCausalLM, "save_pretrained", full)
    with refuses(TrainingError, "training.save"):
        files.export(job, "M", model(1), words)
    again = open_network(job.shipped / "M", torch.bfloat16)
    assert torch.equal(again.lm_head.weight, back.lm_head.weight)
    assert {p.name for p in job.shipped.iterdir()} == {"M"}


def test_weights_are_judged_as_they_are_stored(tmp_path, monkeypatch):
    monkeypatch.setattr(mx, "WORTH", 100)
    net = model(0)
    place = files.export(Job(work=tmp_path), "M", net, AutoTokenizer.from_pretrained(SHIPPED / TARGET))
    stored, read = files.as_stored(net).state_dict(), open_network(place, torch.bfloat16).state_dict()
    assert all(torch.equal(stored[name], tensor) for name, tensor in read.items())
    name = "model.layers.0.mlp.up_proj.weight"
    assert not torch.equal(stored[name], net.state_dict()[name].bfloat16())
