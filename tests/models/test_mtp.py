"""MTP modules: four published layouts are read and compute what a plain re-statement of the published
forward computes; what does not fit is refused with a sentence."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import save_file

from specviz.checkpoints.weights import ModelError
from specviz.methods.trained_heads.mtp import mtp_network as mtp

from ..message_codes import refuses
from .test_eagle3 import BODY, CONFIG, HD, HEADS, INNER, KV, VOCAB, D, norm, turned

FORMS = ("qwen", "added", "speculators", "mimo", "deepseek")
NAMES = {
    "qwen": ("mtp.fc", "mtp.pre_fc_norm_embedding", "mtp.pre_fc_norm_hidden", "mtp.norm", "mtp.layers.0."),
    "speculators": (
        "mtp_layers.0.input_proj",
        "mtp_layers.0.token_layernorm",
        "mtp_layers.0.hidden_layernorm",
        "mtp_layers.0.final_layernorm",
        "mtp_layers.0.",
    ),
    "deepseek": (
        "model.layers.61.eh_proj",
        "model.layers.61.enorm",
        "model.layers.61.hnorm",
        "model.layers.61.shared_head.norm",
        "model.layers.61.",
    ),
}
NAMES["added"] = NAMES["qwen"]
NAMES["mimo"] = tuple(f"model.{name}" for name in NAMES["speculators"])
ZEROED = ("mimo", "deepseek")  # vLLM's readers zero the embedding at position 0


def published(folder, form, drop=(), config=(), **more):
    """A module under its published names, of random numbers; also its parts as the arithmetic has them."""
    source = torch.Generator().manual_seed(5)

    def draw(*shape):
        return torch.randn(*shape, generator=source, dtype=torch.float64) / shape[-1] ** 0.5

    fc, embedding, hidden, last, at = NAMES[form]
    found = {f"{fc}.weight": draw(D, 2 * D)} | {
        f"{name}.weight": draw(D) for name in (embedding, hidden, last)
    }
    found |= {f"{at}{name}.weight": draw(D) for name in ("input_layernorm", "post_attention_layernorm")}
    found |= {
        f"{at}self_attn.{name}_proj.weight": draw(*shape)
        for name, shape in {
            "q": (HEADS * HD, D),
            "k": (KV * HD, D),
            "v": (KV * HD, D),
            "o": (D, HEADS * HD),
        }.items()
    }
    found |= {
        f"{at}mlp.{name}_proj.weight": draw(*shape)
        for name, shape in {"gate": (INNER, D), "up": (INNER, D), "down": (D, INNER)}.items()
    }
    if form in ("qwen", "added"):
        found |= {f"{at}self_attn.{name}_norm.weight": draw(HD) for name in "qk"}
    if form in ("speculators", "mimo"):
        found |= {
            f"{at}self_attn.{name}_proj.bias": draw(size)
            for name, size in {"q": HEADS * HD, "k": KV * HD, "v": KV * HD}.items()
        }
    if form == "deepseek":
        found |= {f"{at}shared_head.head.weight": draw(VOCAB, D), f"{at}embed_tokens.weight": draw(VOCAB, D)}
    found = {name: tensor for name, tensor in {**found, **more}.items() if name not in drop}
    folder.mkdir(parents=True, exist_ok=True)
    save_file(found, folder / "model.safetensors")
    told = (
        CONFIG
        | {
            "model_type": {"added": "qwen3_5_text", "qwen": "qwen3"}.get(form, "llama"),
            "num_hidden_layers": 4,
        }
        | dict(config)
    )
    if form == "speculators":  # the layer's config is nested
        told = {
            "speculators_model_type": "mtp",
            "architectures": ["MTPDraftModel"],
            "transformer_layer_config": told,
        }
    (folder / "config.json").write_text(json.dumps(told))
    return {
        name: tensor + 1 if form == "added" and "norm" in name else tensor for name, tensor in found.items()
    }


def restated(w, form, embeds, states, drafted):
    """The published forward, a row and a head at a time; rows after the true states [c, d] read the row
    before them. -> (what is fed back, what the target's head reads)."""
    fc, embedding, hidden, last, at = NAMES[form]
    keys = []
    values = []
    out = []
    read = []
    m = {
        name.removeprefix(at).removesuffix(".weight"): tensor
        for name, tensor in w.items()
        if name.startswith(at)
    }
    for place in range(len(states) + drafted):
        e = norm(embeds[place] * (place > 0 or form not in ZEROED), w[f"{embedding}.weight"])
        h = norm(states[place] if place < len(states) else out[-1], w[f"{hidden}.weight"])
        x = w[f"{fc}.weight"] @ torch.cat([h, e] if form == "mimo" else [e, h])
        row = norm(x, m["input_layernorm"])
        q, k, v = (
            (m[f"self_attn.{name}_proj"] @ row + m.get(f"self_attn.{name}_proj.bias", 0)).view(-1, HD)
            for name in "qkv"
        )
        if "self_attn.q_norm" in m:
            q, k = norm(q, m["self_attn.q_norm"]), norm(k, m["self_attn.k_norm"])
        keys.append([turned(one, place) for one in k])
        values.append(v)
        mixed = []
        for head, query in enumerate(q):
            group = head // (HEADS // KV)
            weights = torch.stack([turned(query, place) @ key[group] / HD**0.5 for key in keys]).softmax(0)
            mixed.append(sum(share * value[group] for share, value in zip(weights, values)))
        x = x + m["self_attn.o_proj"] @ torch.cat(mixed)
        y = norm(x, m["post_attention_layernorm"])
        gate = m["mlp.gate_proj"] @ y
        x = x + m["mlp.down_proj"] @ (gate * torch.sigmoid(gate) * (m["mlp.up_proj"] @ y))
        read.append(norm(x, w[f"{last}.weight"]))
        out.append(x if form == "deepseek" else read[-1])
    return torch.stack(out), torch.stack(read)


@pytest.mark.parametrize("form", FORMS)
@torch.inference_mode()
def test_a_published_module_computes_the_published_forward(tmp_path, form):
    """Reading text in two parts and drafting three tokens on; the training forward too, whose rollout is
    the same chain."""
    weights = published(tmp_path / "module", form)
    module = mtp.load(tmp_path / "module", BODY)
    embeds, states = torch.randn(2, 8, D, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    want, read = restated(weights, form, embeds, states[:5], 3)
    rows = module.open()
    got = [rows.read(embeds[:2], states[:2]), rows.read(embeds[2:5], states[2:5])]
    for step in range(3):
        got.append(rows.branch(embeds[5 + step : 6 + step], got[-1][-1:], [step - 1], [step + 1]))
    got = torch.cat(got)
    assert float((got - want).abs().max()) < 1e-6
    assert float((module.logits(got, lambda x: x) - read).abs().max()) < 1e-6
    rolled = module(
        embeds[None], states[None], 4
    )  # the true states behind the fifth are there, and the rollout must not see them
    for step in range(4):
        assert float((rolled[step][0, 4 + step] - want[4 + step]).abs().max()) < 1e-6


@pytest.mark.parametrize(
    "form, how, why",
    [
        ("qwen", dict(drop=("mtp.norm.weight",)), "checkpoint.lacks_weight mtp.norm.weight"),
        ("qwen", dict(drop=("mtp.pre_fc_norm_embedding.weight",)), "head.other_kind"),
        (
            "qwen",
            {"mtp.layers.0.mlp.gate.weight": torch.zeros(2, D)},
            "head.unknown_weights mtp.layers.0.mlp.gate.weight",
        ),
        (
            "deepseek",
            dict(drop=("model.layers.61.self_attn.q_proj.weight",)),
            "checkpoint.lacks_weight model.layers.61.self_attn.q_proj.weight",
        ),
        ("speculators", dict(config={"hidden_size": 8}), "head.states 8"),
    ],
)
def test_what_does_not_fit_is_refused_with_a_sentence(tmp_path, form, how, why):
    published(tmp_path / "module", form, **how)
    with refuses(ModelError, *why.split()) as told:
        mtp.load(tmp_path / "module", BODY)
    assert "\n" not in str(told.value)
