"""config.json against the weights of the families with states: the logits of transformers, or a refusal
that names what is wrong."""

from __future__ import annotations

import json

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from specviz.checkpoints.config_defaults import BIASED, DEFAULTS
from specviz.checkpoints.weights import ModelError
from specviz.core import DraftTree
from specviz.targets.recurrent import RecurrentModel

from .tiny import CONTEXT, STATE_SPACE, network

IDS = [5, 9, 20, 33, 41, 7, 18, 2, 44, 30]
ROTARY = sorted(set(STATE_SPACE) - {"mamba2"})
EMBEDDING = {
    kind: "backbone.embeddings.weight" if kind == "mamba2" else "model.embed_tokens.weight"
    for kind in STATE_SPACE
}
CONV = {
    "mamba2": ("use_conv_bias", "mixer.conv1d.bias"),
    "bamba": ("mamba_conv_bias", "mamba.conv1d.bias"),
    "falcon_h1": ("mamba_conv_bias", "mamba.conv1d.bias"),
}


@pytest.fixture(scope="module", params=sorted(STATE_SPACE))
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def made(kind, tmp_path_factory):
    """Config and tensors of a checkpoint with an output matrix of its own."""
    folder, config = tmp_path_factory.mktemp(kind), STATE_SPACE[kind]()
    config.tie_word_embeddings = False
    network(config).save_pretrained(folder)
    return json.loads((folder / "config.json").read_text()), load_file(folder / "model.safetensors")


def written(folder, config, tensors):
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def agrees(folder):
    """Whether the logits are those of transformers."""
    target = RecurrentModel(folder).open()
    target.sync(IDS[:1])
    got = target.score(DraftTree.chain(tuple(IDS[1:]))).logits
    with torch.no_grad():
        want = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)(
            input_ids=torch.tensor([IDS])
        ).logits[0]
    return bool(torch.allclose(got, want, atol=2e-4, rtol=1e-3))


def refusal(folder):
    with pytest.raises(ModelError) as told:
        RecurrentModel(folder)
    return told.value.code, str(told.value)


def without(things, *names):
    return {name: thing for name, thing in things.items() if name not in names}


@pytest.mark.parametrize("tied", [True, False, None])
def test_an_output_matrix_in_the_file_is_used_even_where_the_config_ties_it(made, tmp_path, tied):
    config, tensors = made
    config = without(config, "tie_word_embeddings") | ({} if tied is None else {"tie_word_embeddings": tied})
    assert agrees(written(tmp_path, config, tensors))


@pytest.mark.parametrize("tied", [True, False, None])
def test_the_embedding_is_the_output_matrix_only_where_the_config_or_its_class_ties_it(
    kind, made, tmp_path, tied
):
    config, tensors = made
    config = without(config, "tie_word_embeddings") | ({} if tied is None else {"tie_word_embeddings": tied})
    folder = written(tmp_path, config, without(tensors, "lm_head.weight"))
    if tied or tied is None and kind == "lfm2":
        assert agrees(folder)
        return
    code, words = refusal(folder)
    assert code == "checkpoint.lacks_weight" and "lm_head.weight" in words


def test_an_equal_output_matrix_is_held_once(kind, made, tmp_path):
    config, tensors = made
    folder = written(tmp_path, config, tensors | {"lm_head.weight": tensors[EMBEDDING[kind]].clone()})
    model = RecurrentModel(folder)
    assert model.output is model.embedding and agrees(folder)


@pytest.mark.parametrize("key, tied", [("tie_embedding", True), ("tie_embedding", False)])
def test_the_older_key_of_lfm2_ties_the_output(kind, made, tmp_path, key, tied):
    if kind != "lfm2":
        return
    config, tensors = made
    folder = written(
        tmp_path, config | {"tie_word_embeddings": not tied, key: tied}, without(tensors, "lm_head.weight")
    )
    assert agrees(folder) if tied else refusal(folder)[0] == "checkpoint.lacks_weight"


@pytest.mark.parametrize(
    "scaling, runs",
    [
        ({"rope_type": "default", "rope_theta": 77.0}, True),
        ({"rope_type": "default"}, True),
        ({}, True),
        ({"rope_type": "linear", "factor": 2.0}, False),
        ({"type": "linear", "factor": 2.0}, False),
        (
            {
                "rope_type": "llama3",
                "factor": 2.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 32,
            },
            False,
        ),
    ],
)
def test_rope_scaling_comes_before_rope_parameters(kind, made, tmp_path, scaling, runs):
    if kind not in ROTARY:
        return
    config, tensors = made
    config = config | {
        "rope_parameters": {"rope_type": "default", "rope_theta": 500.0},
        "rope_scaling": scaling,
    }
    folder = written(tmp_path, config, tensors)
    if runs:
        assert agrees(folder)
        return
    code, words = refusal(folder)
    assert code == "forward.unsupported" and "rope_scaling" in words


@pytest.mark.parametrize(
    "more",
    [
        {"rope_theta": 77.0},
        {"rope_theta": 77.0, "partial_rotary_factor": 0.25},
        {},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 9.0}, "rope_theta": 77.0},
    ],
)
def test_the_rotary_base_is_read_where_transformers_reads_it(kind, made, tmp_path, more):
    if kind in ROTARY:
        assert agrees(written(tmp_path, without(made[0], "rope_parameters") | more, made[1]))


def test_a_bias_that_the_config_gives_no_place_is_refused_by_its_name(kind, made, tmp_path):
    config, tensors = made
    if kind in CONV:
        key, name = CONV[kind]
        code, words = refusal(written(tmp_path, config | {key: False}, tensors))
        assert code == "checkpoint.unexpected_weight" and name in words
        bare = {one: tensor for one, tensor in tensors.items() if not one.endswith(name)}
        assert agrees(written(tmp_path, config | {key: False}, bare))
        code, words = refusal(written(tmp_path, config | {key: True}, bare))
        assert code == "checkpoint.lacks_weight" and name in words


def test_every_key_of_a_bias_asks_for_it(kind, made, tmp_path):
    for key, parts in BIASED[kind].items():
        if not DEFAULTS[kind][key]:
            code, words = refusal(written(tmp_path, made[0] | {key: True}, made[1]))
            assert code == "checkpoint.lacks_weight" and any(f"{part}.bias" in words for part in parts), key
    config = STATE_SPACE[kind]()
    for key in BIASED[kind]:
        setattr(config, key, True)
    if kind != "linear_llama":  # its forward has no biases
        network(config).save_pretrained(tmp_path)
        assert agrees(tmp_path)


def test_the_norms_of_queries_and_keys_of_lfm2_are_needed(kind, made, tmp_path):
    name = "model.layers.1.self_attn.k_layernorm.weight"
    if kind == "lfm2":
        code, words = refusal(written(tmp_path, made[0], without(made[1], name)))
        assert code == "checkpoint.lacks_weight" and name in words
    else:
        code, words = refusal(written(tmp_path, made[0], made[1] | {name: torch.ones(8)}))
        assert code == "checkpoint.unexpected_weight" and name in words


@pytest.mark.parametrize(
    "name",
    [
        "model.layers.0.self_attn.q_proj.lora_A.weight",
        "backbone.layers.0.mixer.in_proj.lora_A.weight",
        "model.layers.99.feed_forward.up_proj.weight",
        "lm_head.bias",
        "model.layers.0.self_attn.sinks",
    ],
)
def test_a_weight_without_a_place_is_refused_by_its_name(made, tmp_path, name):
    code, words = refusal(written(tmp_path, made[0], made[1] | {name: torch.ones(48)}))
    assert code in ("checkpoint.unexpected_weight", "checkpoint.unread_weight") and name in words


@pytest.mark.parametrize("key", ["seq_length", "n_ctx", "max_seq_len"])
def test_the_context_is_the_smallest_that_any_key_states(kind, made, tmp_path, key):
    config, tensors = made
    assert RecurrentModel(written(tmp_path, config, tensors)).context == (
        32768 if kind == "mamba2" else CONTEXT
    )
    assert RecurrentModel(written(tmp_path, config | {key: 40}, tensors)).context == 40
    code, words = refusal(written(tmp_path, config | {key: "x"}, tensors))
    assert code in ("config.context", "config.size") and key in words


def test_defaults_are_those_of_the_installed_transformers(kind):
    found = type(STATE_SPACE[kind]())()
    for key, value in DEFAULTS[kind].items():
        assert (
            found.rope_parameters[key] if key == "rope_theta" else getattr(found, key)
        ) == value or value is None, key
