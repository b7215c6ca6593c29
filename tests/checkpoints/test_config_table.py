"""config.json against the weights: for every key, family and way to be wrong, the logits of transformers or
a refusal that names it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from specviz.checkpoints.config_defaults import CONTEXTS, DEFAULTS, context_of
from specviz.checkpoints.weights import ModelError
from specviz.core import DraftTree
from specviz.models.llama import Llama, unsupported_reason
from specviz.models.pretrained import load_causal
from specviz.targets.fast import FastModel

FAMILIES = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3", "mistral": "Mistral"}
IDS = [5, 9, 20, 33, 41, 7, 18, 2, 44, 30, 12, 6]
MISSING = object()


def folder_of(path: Path, kind: str, **more: Any) -> Path:
    """A random checkpoint of a family, whose biases and norms are no constants."""
    size = {"head_dim": 16} if kind == "qwen3" else {}
    config = getattr(transformers, f"{FAMILIES[kind]}Config")(
        vocab_size=48,
        hidden_size=32,
        intermediate_size=40,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        initializer_range=0.3,
        **size | more,
    )
    torch.manual_seed(1)
    net = getattr(transformers, f"{FAMILIES[kind]}ForCausalLM")(config)
    with torch.no_grad():
        for weight in net.parameters():
            if weight.dim() == 1:
                weight.add_(torch.randn_like(weight) * 0.3)
    net.save_pretrained(path)
    return path


def change(folder: Path, **keys: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    config.update(keys)
    (folder / "config.json").write_text(
        json.dumps({key: value for key, value in config.items() if value is not MISSING})
    )


def ours(folder: Path) -> torch.Tensor | str:
    """The logits of the fast forward, else of the forward of transformers behind our checks, else the
    refusal."""
    try:
        refusal = unsupported_reason(json.loads((folder / "config.json").read_text()))
        if refusal is None:
            target = FastModel(folder, dtype=torch.float32).open()
            target.sync(IDS[:1])
            return target.score(DraftTree.chain(IDS[1:])).logits
        net = load_causal("theirs", str(folder), None, dtype=torch.float32)
    except ModelError as error:
        return str(error)
    try:
        return logits(net)
    except Exception as error:  # of transformers' forward
        return f"transformers: {error}"


def logits(net: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return net(input_ids=torch.tensor([IDS])).logits[0]


def theirs(folder: Path) -> torch.Tensor | None:
    """The logits of transformers alone; None where it raises."""
    try:
        return logits(
            transformers.AutoModelForCausalLM.from_pretrained(
                folder, dtype=torch.float32, trust_remote_code=False
            )
        )
    except Exception:  # it has no error of its own
        return None


def same_or_named(folder: Path, *names: str) -> bool:
    """Assert that the logits are those of transformers, or that the refusal holds one of the names; returns
    whether it ran."""
    mine, want = ours(folder), theirs(folder)
    if isinstance(mine, str) and mine.startswith("transformers"):
        assert want is None, mine
        return False
    if isinstance(mine, str):
        assert any(name in mine for name in names), mine
        return False
    assert want is not None and torch.allclose(mine, want, atol=2e-4, rtol=1e-3), names
    return True


@pytest.mark.parametrize("kind", FAMILIES)
def test_defaults_are_those_of_the_installed_transformers(kind):
    found = getattr(transformers, f"{FAMILIES[kind]}Config")(hidden_size=32, num_attention_heads=4)
    for key, value in DEFAULTS[kind].items():
        if key == "rope_theta":
            assert found.rope_parameters["rope_theta"] == value
        elif value is not None and not (
            key == "sliding_window" and kind.startswith("qwen")
        ):  # without use_sliding_window it is none
            assert getattr(found, key) == value, key


@pytest.mark.parametrize("key, value", [("is_causal", False), ("use_bidirectional_attention", True)])
def test_attention_to_later_tokens_is_refused_by_the_key(tmp_path, key, value):
    folder = folder_of(tmp_path / "m", "llama")
    change(folder, **{key: value})
    for load in (FastModel, lambda folder: load_causal("theirs", str(folder), None, dtype=torch.float32)):
        with pytest.raises(ModelError) as told:
            load(folder)
        assert key in str(told.value) and told.value.code in ("config.not_causal", "checkpoint.load")


@pytest.mark.parametrize(
    "key, value, code",
    [
        ("tie_word_embeddings", "false", "config.switch"),
        ("tie_word_embeddings", None, "config.switch"),
        ("attention_bias", None, "config.switch"),
        ("attention_bias", 1, "config.switch"),
        ("mlp_bias", "", "config.switch"),
        ("layer_types", ["full_attention"], "config.layer_types"),
        ("layer_types", ["full_attention"] * 3, "config.layer_types"),
        ("layer_types", [], "config.layer_types"),
    ],
)
@pytest.mark.parametrize("kind", FAMILIES)
def test_a_value_of_another_type_is_refused_as_transformers_refuses_it(tmp_path, kind, key, value, code):
    folder = folder_of(tmp_path / "m", kind)
    change(folder, **{key: value})
    with pytest.raises(ModelError) as told:
        FastModel(folder)
    assert told.value.code == code and key in str(told.value)


KEYS: list[tuple[str, list[Any]]] = [
    ("rms_norm_eps", [MISSING, 1e-2]),
    ("hidden_act", [MISSING, "gelu", "nonsense"]),
    ("num_key_value_heads", [MISSING, None, 4]),
    ("head_dim", [MISSING, None, 16]),
    ("max_position_embeddings", [MISSING, 32]),
    ("rope_theta", [MISSING, 500.0]),
    (
        "rope_parameters",
        [
            MISSING,
            {"rope_theta": 77.0, "rope_type": "default"},
            {"rope_type": "linear", "factor": 2.0, "rope_theta": 77.0},
            {"rope_type": "default", "partial_rotary_factor": 0.5, "rope_theta": 77.0},
            {
                "full_attention": {"rope_type": "default", "rope_theta": 9.0},
                "sliding_attention": {"rope_theta": 8.0},
            },
        ],
    ),
    (
        "rope_scaling",
        [
            {"rope_type": "linear", "factor": 4.0},
            {"type": "linear", "factor": 4.0},
            {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 32},
            {"rope_type": "dynamic", "factor": 2.0},
        ],
    ),
    ("partial_rotary_factor", [0.5, 1.0]),
    ("sliding_window", [MISSING, None, 4, 4096]),
    ("use_sliding_window", [MISSING, True, False]),
    ("layer_types", [["sliding_attention", "full_attention"], ["full_attention", "full_attention"]]),
    ("max_window_layers", [0, 1]),
    ("attention_bias", [MISSING, True, False]),
    ("mlp_bias", [MISSING, True]),
    ("tie_word_embeddings", [MISSING, True, False]),
    ("num_hidden_layers", [1, 3]),
    ("intermediate_size", [MISSING, 20]),
    ("vocab_size", [MISSING, 40]),
    ("hidden_size", [MISSING, 16]),
]


@pytest.mark.parametrize(
    "kind",
    ["qwen3", "mistral", *(pytest.param(kind, marks=pytest.mark.thorough) for kind in ("llama", "qwen2"))],
)
@pytest.mark.parametrize("key, values", KEYS, ids=[key for key, _ in KEYS])
def test_a_key_that_is_missing_odd_or_contradicts_the_file(tmp_path, kind, key, values):
    folder = folder_of(tmp_path / "m", kind)
    original = (folder / "config.json").read_text()
    for value in values:
        (folder / "config.json").write_text(original)
        change(folder, **{key: value})
        if (kind, key, value) == ("qwen2", "head_dim", None):  # transformers itself breaks on it
            continue
        same_or_named(
            folder,
            key,
            "layers.1",
            "layers.2",
            "bias",
            "lm_head",
            "shape",
            "rotary",
            "activation",
            "attention",
            "yarn",
            "dynamic",
        )


@pytest.mark.parametrize("kind", FAMILIES)
@pytest.mark.parametrize(
    "more",
    [
        {"sliding_window": 4, "use_sliding_window": True, "max_window_layers": 1},
        {"sliding_window": 4},
        {"sliding_window": 4, "use_sliding_window": False},
        {"rope_theta": 9.0, "rope_scaling": {"type": "linear", "factor": 2.0}},
        {
            "rope_parameters": {"rope_type": "default", "rope_theta": 9.0},
            "rope_scaling": {"rope_type": "linear", "factor": 3.0},
        },
    ],
)
def test_keys_that_contradict_each_other(tmp_path, kind, more):
    folder = folder_of(tmp_path / "m", kind)
    change(folder, **more)
    same_or_named(folder, "window", "rotary", "rope", "attention")


@pytest.mark.parametrize("kind", FAMILIES)
@pytest.mark.parametrize("tied", [True, False])
def test_an_output_matrix_in_the_file_is_used_even_where_the_config_ties_it(tmp_path, kind, tied):
    folder = folder_of(tmp_path / "m", kind, tie_word_embeddings=False)
    change(folder, tie_word_embeddings=tied)
    assert same_or_named(folder)
    tensors = load_file(folder / "model.safetensors")
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    assert same_or_named(folder)
    del tensors["lm_head.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    assert same_or_named(folder, "lm_head") == tied


EXTRA = {
    "model.layers.0.self_attn.q_proj.lora_A.weight": (2, 32),
    "model.layers.0.self_attn.sinks": (4,),
    "model.layers.99.mlp.up_proj.weight": (40, 32),
    "model.layers.0.mlp.up_proj.zero_point": (40, 1),
    "model.layers.0.self_attn.o_proj.bias": (32,),
    "model.norm.bias": (32,),
    "model.layers.0.self_attn.q_norm.bias": (16,),
    "lm_head.bias": (48,),
    "model.layers.1.input_layernorm.bias": (32,),
}


@pytest.mark.parametrize(
    "kind",
    [
        "llama",
        "gpt2",
        *(pytest.param(kind, marks=pytest.mark.thorough) for kind in ("qwen2", "qwen3", "mistral")),
    ],
)
@pytest.mark.parametrize("name", EXTRA)
def test_a_weight_without_a_place_is_refused_by_its_name(tmp_path, kind, name):
    if kind == "gpt2":
        transformers.GPT2LMHeadModel(
            transformers.GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=48, n_positions=64)
        ).save_pretrained(tmp_path / "m")
        folder = tmp_path / "m"
    else:
        folder = folder_of(tmp_path / "m", kind)
    tensors = load_file(folder / "model.safetensors")
    tensors[name] = torch.ones(EXTRA[name])
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    assert name in str(ours(folder))


def test_derived_buffers_are_no_weights(tmp_path):
    folder = folder_of(tmp_path / "m", "llama")
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(4)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    assert same_or_named(folder)


def test_the_context_is_the_smallest_that_any_key_states(tmp_path):
    assert context_of({}) is None and context_of({"max_position_embeddings": 64, "seq_length": None}) == 64
    for key in CONTEXTS:
        assert context_of({"max_position_embeddings": 64, key: 48}) == 48
        with pytest.raises(ModelError, match=key):
            context_of({key: "x"})
    folder = folder_of(tmp_path / "m", "llama")
    change(folder, seq_length=40)
    assert Llama(folder).context == 40
