"""What a folder or models.yaml holds is never echoed at length, nor with characters that steer a terminal
or turn a line round."""

from __future__ import annotations

import json
import re

import pytest

from specviz import ZooError, load
from specviz.checkpoints.errors import ModelError
from specviz.zoo.registry import register
from specviz.zoo.trained_heads import heads_of
from specviz.zoo.weight_cache import forget

from ..zoo.checkpoints import write

LONG, STEERING = "many words in a value " * 40 + "x" * 500, "\x1b[2J\u202eevil\u2066\x07\u200b\r"
HIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")
KEYS = (
    "model_type",
    "architectures",
    "hidden_act",
    "rope_scaling",
    "rope_parameters",
    "sliding_window",
    "layer_types",
    "text_config",
    "quantization_config",
    "max_position_embeddings",
    "rms_norm_eps",
    "hidden_size",
    "num_hidden_layers",
    "vocab_size",
    "head_dim",
    "tie_word_embeddings",
    "dtype",
    "torch_dtype",
    "eos_token_id",
    "_attn_implementation",
    "attn_implementation",
    "rope_theta",
    "draft_tokens",
    "embedding_from",
    "auto_map",
    "is_encoder_decoder",
    "speculators_model_type",
    "transformers_version",
)


def shapes(value: str):
    return (
        value,
        [value],
        {value: value},
        {"rope_type": value, "factor": value, "quant_method": value, "type": value},
    )


def fields(key: str, value):
    """A config.json that breaks at this key, on this project's forward and on the one of transformers."""
    yield {key: value}
    yield {
        "model_type": "phi3",
        "sliding_window": None,
        "original_max_position_embeddings": 64,
        "pad_token_id": 0,
        key: value,
    }


def check(message: str, *values: str) -> None:
    assert not HIDDEN.search(message), message
    for value in (value for value in values if len(value) > 80):
        assert value[:81] not in message and repr(value)[1:82] not in message, message
        assert "x" * 81 not in message, message
    assert len(message) <= 600


@pytest.mark.parametrize(
    "key",
    [
        pytest.param(key, marks=[] if at in (0, 2, 3) else [pytest.mark.thorough])
        for at, key in enumerate(KEYS)
    ],
)
def test_no_value_of_a_config_is_echoed_whole(tmp_path, key):
    place = write(tmp_path / "m")
    settings = json.loads((place / "config.json").read_text())
    for text in (LONG, STEERING):
        for value in shapes(text):
            for given in fields(key, value):
                (place / "config.json").write_text(json.dumps(settings | given))
                forget()
                try:
                    load(str(place), "none", device="cpu")
                except (ZooError, ModelError) as error:
                    check(str(error), text)


@pytest.mark.parametrize(
    "name",
    ["tokenizer_config.json", "tokenizer.json", "model.safetensors.index.json", "generation_config.json"],
)
def test_no_value_of_another_file_is_echoed_whole(tmp_path, name):
    for at, text in enumerate((LONG, STEERING)):
        for case, found in enumerate(
            (
                {
                    "tokenizer_class": text,
                    "weight_map": {"a": text},
                    "eos_token_id": text,
                    "version": text,
                    "model": {"type": text},
                },
                text,
                {text: text},
                {"weight_map": {text: "model.safetensors"}},
            )
        ):
            place = write(tmp_path / f"m{at}{case}")
            (place / name).write_text(json.dumps(found))
            try:
                loaded = load(str(place), "none", device="cpu")
                assert loaded.tokenizer and loaded.end_tokens
            except (ZooError, ModelError) as error:
                check(str(error), text)


HEAD_KEYS = (
    "hidden_size",
    "eagle_config",
    "vocab_size",
    "draft_vocab_size",
    "speculators_model_type",
    "architectures",
    "pard_token",
    "block_size",
    "mask_token_id",
    "target_layer_ids",
    "dflash_config",
    "model_type",
)


@pytest.mark.parametrize(
    ("kind", "every"),
    [
        ("eagle", False),
        *(
            pytest.param(kind, True, marks=pytest.mark.thorough)
            for kind in ("eagle", "eagle3", "dflash", "mtp", "pard")
        ),
    ],
)
def test_no_value_of_a_heads_config_is_echoed_whole(tmp_path, monkeypatch, kind, every):
    write(tmp_path / "target")
    head = write(tmp_path / "head", tokenizer=False)
    settings = json.loads((head / "config.json").read_text())
    path = tmp_path / "models.yaml"
    path.write_text(
        f"default: t\nbackends: {{fast: [llama]}}\nmodels:\n  t: {{path: target}}\n"
        f"  h: {{path: head, role: head, for: t, kind: {kind}}}\n"
    )
    monkeypatch.setenv("SPECVIZ_MODELS", str(path))
    for text in (LONG, STEERING):
        for key in HEAD_KEYS if every else HEAD_KEYS[:2]:
            for value in shapes(text):
                (head / "config.json").write_text(json.dumps(settings | {key: value}))
                forget()
                try:
                    loaded = load("t", device="cpu")
                    for problem in loaded.heads.problems.values():
                        check(problem, text)
                    if kind in loaded.heads.folders:
                        loaded.kit().head(kind)
                except (ZooError, ModelError) as error:
                    check(str(error), text)


@pytest.mark.parametrize(
    "key",
    [
        "path",
        "hub",
        "revision",
        "gguf",
        "package",
        "draft",
        "middle",
        "role",
        "for",
        "kind",
        "backend",
        "memory",
        "gated",
        "device_map",
        "quantise",
        "odd",
    ],
)
def test_no_value_of_models_yaml_is_echoed_whole(tmp_path, key):
    write(tmp_path / "target")
    path = tmp_path / "models.yaml"
    for text in (LONG, STEERING):
        for head in ({}, {"role": "head", "for": "t", "kind": "eagle"}):
            entry = {"path": "target"} | head | {key: text}
            models = json.dumps(
                {
                    "default": "t",
                    "backends": {"fast": ["llama"]},
                    "models": {"t": {"path": "target"}, "m": entry},
                },
                ensure_ascii=True,
            )
            path.write_text(models)
            try:
                book = register(path)
                heads_of(book, "t", tmp_path / "target", 32, 300)
                book.entries["m"].folder()
            except (ZooError, ModelError) as error:
                check(str(error), text)
