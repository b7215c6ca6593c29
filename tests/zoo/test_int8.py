"""One folder under two names, in floats and in eight bits: what was made for it serves both, and elsewhere
than on a processor it is loaded as the table says."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import save_file

from specviz import load
from specviz.evidence.certificate import fix_bucket
from specviz.methods import catalogue
from specviz.run.result import collect
from specviz.run.session import Session
from specviz.zoo import survey
from specviz.zoo.backends import FORWARDS, chosen_for
from specviz.zoo.registry import Entry, register

from ..models import tiny
from . import checkpoints

TABLE = {"fast": ("llama",), "int8": ("llama",)}


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A pair with a head, and the same folder once more in eight bits."""
    path = checkpoints.register(
        tmp_path,
        int8="  bytes: {path: target, draft: tiny-draft, backend: int8}",
        head="  tiny-medusa: {path: head, role: head, for: tiny, kind: medusa}",
    )
    path.write_text(path.read_text().replace("  hf: ['*']", "  int8: [llama]\n  hf: ['*']"))
    monkeypatch.setenv("SPECVIZ_MODELS", str(path))
    made = tiny.head("medusa", tiny.body(load("tiny").open_target()))
    (tmp_path / "head").mkdir()
    save_file(
        {key: tensor.clone() for key, tensor in made.state_dict().items()},
        tmp_path / "head" / "model.safetensors",
    )
    (tmp_path / "head" / "config.json").write_text(json.dumps(made.config))
    return tmp_path


def test_it_is_loaded_in_eight_bits_and_says_so(home):
    loaded = load("bytes")
    assert loaded.facts["target"]["backend"] == "int8" and loaded.facts["env"]["dtype"] == "int8"
    assert fix_bucket(loaded) == "compiled, int8", "and so does a certificate"
    assert loaded.model is not load("tiny").model and load("tiny").facts["env"]["dtype"] == "float32"
    assert loaded.draft is load("tiny").draft, "only the target is in eight bits"
    plain = collect(Session(loaded, "autoregressive").run("the cat", 12)).token_ids
    assert all(
        collect(Session(loaded, key).run("the cat", 12)).token_ids == plain
        for key in ("speculative", "draft_tree", "prompt_lookup")
    )


def offered(target: str) -> list[str]:
    unsupported_reason = survey(target)
    return [method.key for method in catalogue().values() if unsupported_reason(method) is None]


def test_what_is_made_for_a_folder_serves_every_name_of_it(home):
    assert "head:medusa" in load("bytes").capabilities == load("tiny").capabilities
    assert offered("bytes") == offered("tiny") and "medusa" in offered("bytes")
    plain, medusa = (
        collect(Session(load("bytes"), key).run("the cat", 12)).token_ids
        for key in ("autoregressive", "medusa")
    )
    assert medusa == plain


def test_so_do_those_of_the_embedded_target():
    """Its largest shard lies in parts, so that what is opened is a folder elsewhere."""
    book = register()
    names = [
        name
        for name, entry in book.entries.items()
        if entry.path == book.entries["SmolLM2-135M-Instruct"].path
    ]
    assert len(names) == 2 and {book.entries[name].backend for name in names} == {"", "int8"}
    assert offered(names[0]) == offered(names[1]) and {"eagle2", "dspark"} <= set(offered(names[0]))


def test_further_models_run_in_the_forward_of_their_target():
    """They ran in 32-bit floats, which hid what their methods earn."""
    loaded = load("SmolLM2-135M-Instruct")
    roles = [role for role in loaded.role_folders if role.startswith("draft:")]
    models = [loaded.model_for(role) for role in (*roles, "small")]
    models += [loaded.other_model, *(loaded.other_size(size) for size in ("wide", "deep"))]
    assert len(roles) >= 4
    assert {getattr(model, "numbers", "") for model in models} == {"int8"}
    plain = load("SmolLM2-135M-Instruct-float")
    assert not hasattr(plain.model_for("draft:fastdraft"), "numbers")


def test_on_another_device_the_table_decides(tmp_path):
    folder = checkpoints.write(tmp_path / "target")
    entry = Entry("bytes", path=folder, backend="int8")
    assert (
        chosen_for(entry, TABLE, folder)
        is chosen_for(entry, TABLE, folder, torch.device("cpu"))
        is FORWARDS["int8"]
    )
    assert chosen_for(entry, TABLE, folder, torch.device("cuda")) is FORWARDS["fast"]


def test_the_context_of_a_longer_checkpoint_ends_where_sums_are_exact(tmp_path):
    folder = checkpoints.write(tmp_path / "target", max_position_embeddings=8192)
    forward = chosen_for(Entry("bytes", path=folder, backend="int8"), {"int8": ("llama",)}, folder)
    assert forward.name == "int8" and forward.load(folder, torch.device("cpu")).context == 2048
