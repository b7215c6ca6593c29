"""Published heads: every layout of keys and configs gives the numbers that its authors' own forward would
give."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F

from specviz.checkpoints import pickles as convert
from specviz.checkpoints.weights import ModelError
from specviz.methods.trained_heads.medusa import medusa_network as heads_medusa
from specviz.models import hydra as heads_hydra
from specviz.models.heads import TargetInfo, calibration

from ..message_codes import refuses

D = 8
V = 12
HEADS = 3
LLAMA = {
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "intermediate_size": 16,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-6,
    "rope_theta": 100.0,
}
BODY = TargetInfo("toy", D, V, 2, dtype=torch.float64, config=LLAMA)


def tensors(**shapes):
    source = torch.Generator().manual_seed(0)
    return {
        name.replace("__", "."): torch.randn(*shape, generator=source, dtype=torch.float64)
        for name, shape in shapes.items()
    }


def written(folder, weights, config=None, name="model.safetensors"):
    folder.mkdir(exist_ok=True)
    save_file({key: tensor.contiguous().clone() for key, tensor in weights.items()}, folder / name)
    (folder / "config.json").write_text(json.dumps(config or {}))
    return folder


def output(weight):
    return lambda states: states @ weight.T


STATE, TARGETS = (tensors(state=[D], head=[V, D])[key] for key in ("state", "head"))


# --- Medusa --------------------------------------------------------------------------------------------------------------
def authors(layers=1, at=""):
    weights = {}
    for i in range(HEADS):
        for j in range(layers):
            weights |= {
                f"{at}{i}.{j}.linear.{part}": t for part, t in tensors(weight=[D, D], bias=[D]).items()
            }
            weights[f"{at}{i}.{j}.linear.bias"] = weights[f"{at}{i}.{j}.linear.bias"] + i + 0.1 * j
        weights[f"{at}{i}.{layers}.weight"] = tensors(lm=[V, D])["lm"] * (i + 1)
    return weights


def by_hand(weights, i, layers, at=""):
    x = STATE
    for j in range(layers):
        x = x + F.silu(weights[f"{at}{i}.{j}.linear.weight"] @ x + weights[f"{at}{i}.{j}.linear.bias"])
    return weights[f"{at}{i}.{layers}.weight"] @ x


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize(
    "at, config, name",
    [
        (
            "",
            {"medusa_num_heads": 2, "medusa_num_layers": 1},
            "medusa_lm_head.safetensors",
        ),  # the config of Vicuna's heads says 2, wrongly
        (
            "medusa_head.",
            {"model_type": "llama", "hidden_size": D, "vocab_size": V, "medusa_num_heads": HEADS},
            "model.safetensors",
        ),
    ],
)
def test_medusa_as_its_authors_publish_it(tmp_path, at, config, name, layers):
    weights = authors(layers, at)
    whole = (
        {"model.layers.0.mlp.up_proj.weight": torch.ones(3, 3)} if at else {}
    )  # Medusa-2 lies inside a whole model
    made = heads_medusa.load(written(tmp_path / "m", weights | whole, config, name), BODY)
    logits = made(STATE, 2, output(TARGETS))
    assert len(made) == HEADS and logits.shape == (2, V) and made.accuracy == [] and made.nodes == 0
    for i, row in enumerate(made(STATE, HEADS, output(TARGETS))):
        assert torch.allclose(row, by_hand(weights, i, layers, at))
    assert torch.equal(logits, made(STATE, HEADS, output(TARGETS))[:2])


def test_a_block_that_is_applied_again_may_be_stored_once(tmp_path):
    weights = authors(2)
    for i in range(HEADS):
        for part in ("weight", "bias"):
            weights[f"{i}.1.linear.{part}"] = weights[f"{i}.0.linear.{part}"]
    want = heads_medusa.load(written(tmp_path / "all", weights), BODY)(STATE, HEADS, output(TARGETS))
    once = {key: tensor for key, tensor in weights.items() if ".1.linear." not in key}
    assert torch.equal(
        heads_medusa.load(written(tmp_path / "once", once), BODY)(STATE, HEADS, output(TARGETS)), want
    )


def vllm(matrices, bias=True):
    weights = {
        f"blocks.{i}.layers.{j}.weight": tensors(w=[D, D])["w"] + i - j
        for i in range(HEADS)
        for j in range(2)
    }
    if bias:
        weights |= {
            f"blocks.{i}.layers.{j}.bias": torch.full((D,), 0.1 * i, dtype=torch.float64)
            for i in range(HEADS)
            for j in range(2)
        }
    return weights | matrices


def run_blocks(weights, i):
    x = STATE
    for j in range(2):
        x = x + F.silu(
            weights[f"blocks.{i}.layers.{j}.weight"] @ x + weights.get(f"blocks.{i}.layers.{j}.bias", 0.0)
        )
    return x


OWN = {f"lm_heads.{i}.weight": tensors(lm=[V, D])["lm"] + i for i in range(HEADS)}
SHARED = tensors(lm=[V, D])["lm"]


@pytest.mark.parametrize(
    "matrices, matrix",
    [
        (OWN, lambda i: OWN[f"lm_heads.{i}.weight"]),
        ({"lm_head.weight": SHARED}, lambda i: SHARED),
        ({}, lambda i: TARGETS),
    ],
    ids=["own", "shared", "the target's"],
)
@pytest.mark.parametrize("bias", [True, False])
def test_medusa_as_vllm_has_it(tmp_path, matrices, matrix, bias):
    weights = vllm(matrices, bias)
    made = heads_medusa.load(
        written(tmp_path / "m", weights, {"model_type": "medusa", "hidden_size": D, "num_heads": HEADS}), BODY
    )
    for i, row in enumerate(made(STATE, HEADS, output(TARGETS))):
        assert torch.allclose(row, matrix(i) @ run_blocks(weights, i))


def test_a_reduced_vocabulary_never_proposes_what_it_lacks(tmp_path):
    ids = torch.tensor([7, 0, 3, 11])
    weights = vllm(
        {f"lm_heads.{i}.weight": tensors(lm=[4, D])["lm"] for i in range(HEADS)} | {"token_map": ids}
    )
    logits = heads_medusa.load(written(tmp_path / "m", weights, {"truncated_vocab_size": 4}), BODY)(
        STATE, 1, output(TARGETS)
    )[0]
    assert torch.allclose(logits[ids], tensors(lm=[4, D])["lm"] @ run_blocks(weights, 0))
    assert sorted(logits.isfinite().nonzero()[:, 0].tolist()) == sorted(ids.tolist())


# --- Hydra ---------------------------------------------------------------------------------------------------------------
def hydra(dropout, layers=3, prefix=False):
    """As the authors' state_dict has it: with dropout every other slot is a dropout, and later blocks are
    one block again."""
    weights = {}
    slot = (lambda k: 2 * k + 1) if dropout else (lambda k: k)
    for i in range(HEADS):
        first = tensors(w=[D, D * (i + 2)], b=[D], r=[D, D * (i + 2)], rb=[D])
        at = f"hydra_mlp.{i}.{slot(0)}"
        weights |= {
            f"{at}.linear.weight": first["w"],
            f"{at}.linear.bias": first["b"],
            f"{at}.res_connection.weight": first["r"],
            f"{at}.res_connection.bias": first["rb"],
        }
        for k in range(1, layers):
            again = tensors(w=[D, D], b=[D])
            weights |= {
                f"hydra_mlp.{i}.{slot(k)}.linear.weight": again["w"] + i,
                f"hydra_mlp.{i}.{slot(k)}.linear.bias": again["b"],
            }
        lm = f"hydra_lm_head.{i}.1" if dropout else f"hydra_lm_head.{i}"
        weights |= {
            f"{lm}.weight": tensors(lm=[V, D])["lm"] + i,
            f"{lm}.bias": torch.arange(V, dtype=torch.float64),
        }
    if prefix:
        at = "prefix_embeding_layer."
        parts = tensors(q_proj=[D, D], k_proj=[4, D], v_proj=[4, D], o_proj=[D, D])
        weights |= {f"{at}layers.0.self_attn.{name}.weight": t for name, t in parts.items()}
        parts = tensors(gate_proj=[16, D], up_proj=[16, D], down_proj=[D, 16])
        weights |= {f"{at}layers.0.mlp.{name}.weight": t for name, t in parts.items()}
        norms = ("layers.0.input_layernorm", "layers.0.post_attention_layernorm", "norm")
        weights |= {f"{at}{name}.weight": torch.linspace(0.5, 1.5, D, dtype=torch.float64) for name in norms}
        weights[f"{at}embed_tokens.weight"] = torch.ones(V, D)  # is there and never used
    return weights


CONFIG = {"hydra_num_heads": HEADS, "hydra_num_layers": 3, "grounded_heads": True, "hydra_head_arch": "mlp"}


@pytest.mark.parametrize("dropout", [True, False], ids=["dropout slots", "none"])
@pytest.mark.parametrize("once", [True, False], ids=["copies left out", "all"])
def test_hydra_as_its_authors_publish_it(tmp_path, dropout, once):
    weights = hydra(dropout)
    slots = (5,) if dropout else (2,)
    kept = {
        key: t for key, t in weights.items() if not (once and any(f".{slot}.linear" in key for slot in slots))
    }
    made = heads_hydra.load(written(tmp_path / "h", kept, CONFIG), BODY)
    assert len(made) == HEADS and made.prefix is None
    for i in range(HEADS):
        inputs = tensors(x=[2, D * (i + 2)])["x"]
        at = f"hydra_mlp.{i}.{1 if dropout else 0}"
        x = inputs @ weights[f"{at}.res_connection.weight"].T + weights[f"{at}.res_connection.bias"]
        x = x + F.silu(inputs @ weights[f"{at}.linear.weight"].T + weights[f"{at}.linear.bias"])
        at = f"hydra_mlp.{i}.{3 if dropout else 1}"
        for _ in range(2):
            x = x + F.silu(x @ weights[f"{at}.linear.weight"].T + weights[f"{at}.linear.bias"])
        lm = f"hydra_lm_head.{i}.1" if dropout else f"hydra_lm_head.{i}"
        assert torch.allclose(
            made(i, inputs, output(TARGETS)), x @ weights[f"{lm}.weight"].T + weights[f"{lm}.bias"]
        )


def test_the_prefix_layer_of_hydra_is_a_llama_layer_and_its_cache_is_that_layer(tmp_path):
    import transformers as tf

    weights = hydra(True, prefix=True)
    made = heads_hydra.load(
        written(tmp_path / "h", weights, CONFIG | {"hydra_head_arch": "prefix-mlp"}), BODY
    )
    llama = tf.LlamaModel(
        tf.LlamaConfig(
            vocab_size=V,
            hidden_size=D,
            num_hidden_layers=1,
            pad_token_id=None,
            **{key: value for key, value in LLAMA.items() if key != "rope_theta"},
            rope_parameters={"rope_type": "default", "rope_theta": 100.0},
        )
    )
    at = "prefix_embeding_layer."
    llama.double().load_state_dict(
        {key.removeprefix(at): t for key, t in weights.items() if key.startswith(at)}
    )
    states = tensors(x=[9, D])["x"]
    with torch.inference_mode():
        want = llama(inputs_embeds=states[None]).last_hidden_state[0]
        assert torch.allclose(made.prefix(states[None])[0], want, atol=1e-6)
        rows = heads_hydra.PrefixRows(made.prefix)
        for first, last in ((0, 4), (4, 5), (5, 9)):  # as a run reads them: the prompt, then round by round
            found = rows.read(states[first:last], 0)
            assert torch.allclose(found, want[last - 1], atol=1e-6)


# --- ours ----------------------------------------------------------------------------------------------------------------
NUMBERS = {"heads": 2, "layers": 2, "output": "target", "prefix": True, "through": False, "own_output": False}


@pytest.mark.parametrize("kind", [heads_medusa, heads_hydra], ids=["medusa", "hydra"])
def test_what_a_recipe_writes_is_read_back(tmp_path, kind):
    torch.manual_seed(0)
    for matrices in ("target", "own"):
        made = kind.build(
            BODY,
            NUMBERS | {"output": matrices, "own_output": matrices == "own", "through": matrices == "own"},
        ).double()
        for weight in made.parameters():
            nn.init.normal_(weight)
        made.accuracy, made.nodes = [[0.5, 0.25], [0.25, 0.125]], 5
        folder = written(tmp_path / matrices, made.state_dict(), made.config)
        back = kind.load(folder, BODY)
        assert back.accuracy == made.accuracy and back.nodes == 5 and back.config == made.config
        assert all(torch.equal(back.state_dict()[key], t) for key, t in made.state_dict().items())
        assert not any(weight.requires_grad for weight in back.parameters()) and not back.training


# --- what cannot be used -------------------------------------------------------------------------------------------------
def refused(kind, folder, body=BODY):
    with pytest.raises(ModelError) as error:
        kind.load(folder, body)
    assert "\n" not in str(error.value)
    return f"{error.value.code}: {error.value}"


def represents_exactly(words, code, *parts):
    return words.startswith(f"{code}: ") and all(str(part) in words for part in parts)


def test_heads_that_do_not_fit_or_are_broken(tmp_path):
    wide = TargetInfo("big", 2 * D + 1, V, 2, dtype=torch.float64, config=LLAMA)
    for kind, weights in ((heads_medusa, authors()), (heads_medusa, vllm(OWN)), (heads_hydra, hydra(True))):
        folder = written(tmp_path / "w", weights)
        assert represents_exactly(refused(kind, folder, wide), "head.states", D, "big", 2 * D + 1)
        rich = TargetInfo("rich", D, V + 1, 2, dtype=torch.float64, config=LLAMA)
        assert represents_exactly(refused(kind, folder, rich), "head.vocabulary", V, "rich", V + 1)
    empty = written(tmp_path / "e", {"model.norm.weight": torch.ones(D)})
    assert represents_exactly(
        refused(heads_medusa, empty), "head.other_kind", "Medusa"
    ) and represents_exactly(refused(heads_hydra, empty), "head.other_kind", "Hydra")
    assert represents_exactly(
        refused(heads_medusa, written(tmp_path / "n", {"0.0.linear.weight": torch.ones(D, D)})),
        "head.lacks_weight",
        "0.1.weight",
    )
    gap = {key.replace("1.", "4.", 1) if key.startswith("1.") else key: t for key, t in authors().items()}
    assert represents_exactly(
        refused(heads_medusa, written(tmp_path / "g", gap)), "head.other_kind", "Medusa"
    )
    odd = {key: t[:, : 2 * D] if key.endswith("2.1.linear.weight") else t for key, t in hydra(True).items()}
    assert represents_exactly(refused(heads_hydra, written(tmp_path / "u", odd)), "hydra.columns", 16)
    for kind, weights in ((heads_medusa, authors()), (heads_medusa, vllm(OWN)), (heads_hydra, hydra(True))):
        assert represents_exactly(
            refused(kind, written(tmp_path / "x", weights | {"gate.weight": torch.ones(D)})),
            "head.unknown_weights",
            "gate.weight",
        )
    alien = vllm(
        {f"lm_heads.{i}.weight": torch.ones(2, D) for i in range(HEADS)} | {"token_map": torch.tensor([1, V])}
    )
    assert represents_exactly(refused(heads_medusa, written(tmp_path / "a", alien)), "head.tokens")
    lost = {key: t for key, t in hydra(True).items() if "hydra_mlp.1.1.linear.bias" not in key}
    assert represents_exactly(refused(heads_hydra, written(tmp_path / "l", lost)), "checkpoint.lacks_weight")
    cut = written(tmp_path / "c", authors()) / "model.safetensors"
    cut.write_bytes(cut.read_bytes()[:-100])
    assert represents_exactly(refused(heads_medusa, cut.parent), "checkpoint.cut_short")
    nan = authors()
    nan["0.1.weight"][0, 0] = float("nan")
    assert represents_exactly(refused(heads_medusa, written(tmp_path / "nan", nan)), "checkpoint.not_numbers")


def test_pickles_are_never_opened(tmp_path):
    folder = tmp_path / "p"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "medusa_lm_head.pt").write_bytes(b"\x80\x04cos\nsystem\n")
    said = refused(heads_medusa, folder)
    assert "medusa_lm_head.pt" in said and "specviz.checkpoints.pickles" in said


@pytest.fixture
def here(monkeypatch):
    """The reader in this process, where importing torch again costs nothing."""

    def run(command, **_):
        monkeypatch.setattr(convert.sys, "argv", ["-c", *map(str, command[4:])])
        try:
            exec(command[3], {})
        except Exception as error:
            return SimpleNamespace(returncode=1, stderr=f"{type(error).__name__}: {error}")
        return SimpleNamespace(returncode=0, stderr="")

    monkeypatch.setattr(convert.subprocess, "run", run)


def test_pickled_tensors_are_converted_and_code_is_not_run(tmp_path, here):
    folder, weights = tmp_path / "p", authors()
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    torch.save(weights, folder / "medusa_lm_head.pt")
    assert [path.name for path in convert.convert(folder)] == ["medusa_lm_head.safetensors"]
    made = heads_medusa.load(folder, BODY)
    assert torch.allclose(made(STATE, 1, output(TARGETS))[0], by_hand(weights, 0, 1))
    bad, mark = tmp_path / "bad", tmp_path / "was run"
    bad.mkdir()
    torch.save({"0.0.linear.weight": Touch(mark)}, bad / "medusa_lm_head.pt")
    with refuses(ModelError, "convert.not_tensors"):
        convert.convert(bad)
    assert not mark.exists() and [path.name for path in bad.iterdir()] == ["medusa_lm_head.pt"]
    assert convert.main([str(tmp_path / "none")]) == 1 and convert.main([]) == 2


@pytest.mark.soak
def test_the_converter_works_in_a_process_of_its_own(tmp_path):
    torch.save(authors(), tmp_path / "medusa_lm_head.bin")
    assert convert.main([str(tmp_path)]) == 0 and (tmp_path / "medusa_lm_head.safetensors").is_file()


class Touch:
    """Unpickled by a reader that trusts it, it leaves a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_hydra_that_is_not_grounded_reads_the_state_alone(tmp_path):
    weights = {
        key: t[:, :D] if key.endswith((".1.linear.weight", "connection.weight")) else t
        for key, t in hydra(True).items()
    }
    made = heads_hydra.load(written(tmp_path / "h", weights, CONFIG | {"grounded_heads": False}), BODY)
    inputs = tensors(x=[2, D * (HEADS + 1)])["x"]
    for i in range(HEADS):
        want = made(i, inputs[:, :D], output(TARGETS))
        assert torch.equal(made(i, inputs[:, : D * (i + 2)], output(TARGETS)), want)
        x = (
            inputs[:, :D] @ weights[f"hydra_mlp.{i}.1.res_connection.weight"].T
            + weights[f"hydra_mlp.{i}.1.res_connection.bias"]
        )
        x = x + F.silu(
            inputs[:, :D] @ weights[f"hydra_mlp.{i}.1.linear.weight"].T
            + weights[f"hydra_mlp.{i}.1.linear.bias"]
        )
        for _ in range(2):
            x = x + F.silu(
                x @ weights[f"hydra_mlp.{i}.3.linear.weight"].T + weights[f"hydra_mlp.{i}.3.linear.bias"]
            )
        assert torch.allclose(
            want, x @ weights[f"hydra_lm_head.{i}.1.weight"].T + weights[f"hydra_lm_head.{i}.1.bias"]
        )


@pytest.mark.parametrize(
    "config, code",
    [
        ({"accuracy": 3}, "head.calibration"),
        ({"accuracy": [["x"]]}, "head.calibration"),
        ({"accuracy": [[1.5]]}, "head.calibration_shares"),
        ({"nodes": "many"}, "head.calibration"),
        ({"nodes": -1}, "head.calibration_shares"),
    ],
)
def test_a_calibration_that_is_none(config, code):
    with refuses(ModelError, code):
        calibration(config, "it")
