"""EAGLE-3 heads: the published layouts are read and compute what a plain re-statement of the published
forward computes; what does not fit is refused with a sentence."""

from __future__ import annotations

import json
import math

import pytest
import torch
from safetensors.torch import save_file

from specviz.checkpoints.weights import ModelError
from specviz.models import eagle, eagle3
from specviz.models.heads import TargetInfo

from ..message_codes import refuses

D = 16
VOCAB = 40
SPOKEN = 9
HEADS = 4
KV = 2
HD = 6
INNER = 20
EPS = 1e-5
THETA = 300.0
BODY = TargetInfo("toy", D, VOCAB, 8, torch.device("cpu"), torch.float64)
CONFIG = {
    "hidden_size": D,
    "num_hidden_layers": 1,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV,
    "head_dim": HD,
    "intermediate_size": INNER,
    "rms_norm_eps": EPS,
    "rope_theta": THETA,
    "max_position_embeddings": 64,
}
IDS = torch.tensor([0, 2, 3, 7, 11, 19, 20, 33, 39])
FORMS = {
    "authors": {},
    "speculators": {"norm_before_residual": True},
    "later": {"norm_output": True},
    "whole": {"qk_norm": True},
}


def published(folder, form="authors", drop=(), config=(), **more):
    """A head under its published names, of random numbers; also its weights under the names of the authors'
    layout."""
    source = torch.Generator().manual_seed(5)

    def draw(*shape):
        return torch.randn(*shape, generator=source, dtype=torch.float64) / shape[-1] ** 0.5

    spoken = VOCAB if form == "whole" else SPOKEN
    found = {"fc.weight": draw(D, 3 * D), "norm.weight": 1 + draw(D), "lm_head.weight": draw(spoken, D)}
    found |= {
        f"midlayer.{name}.weight": 1 + draw(D)
        for name in ("input_layernorm", "hidden_norm", "post_attention_layernorm")
    }
    found |= {
        f"midlayer.self_attn.{name}_proj.weight": draw(*shape)
        for name, shape in {
            "q": (HEADS * HD, 2 * D),
            "k": (KV * HD, 2 * D),
            "v": (KV * HD, 2 * D),
            "o": (D, HEADS * HD),
        }.items()
    }
    found |= {
        f"midlayer.mlp.{name}_proj.weight": draw(*shape)
        for name, shape in {"gate": (INNER, D), "up": (INNER, D), "down": (D, INNER)}.items()
    }
    if form == "later":
        found |= {f"fc_norm.{i}.weight": 1 + draw(D) for i in range(3)}
    if form == "whole":
        found |= {f"midlayer.self_attn.{name}_norm.weight": 1 + draw(HD) for name in "qk"}
    else:
        found |= {"d2t": IDS - torch.arange(SPOKEN), "t2d": torch.isin(torch.arange(VOCAB), IDS)}
    found = {name: tensor for name, tensor in {**found, **more}.items() if name not in drop}
    stored = {
        name if form == "authors" else name.replace("midlayer.", "layers.0."): tensor
        for name, tensor in found.items()
    }
    told = CONFIG | {"draft_vocab_size": spoken} | FORMS[form]
    if form == "speculators":
        told = {
            "transformer_layer_config": CONFIG,
            "speculators_model_type": "eagle3",
            "norm_before_residual": True,
        }
        stored |= {"verifier_norm.weight": draw(D), "embed_tokens.weight": draw(VOCAB, D)}
    folder.mkdir(parents=True, exist_ok=True)
    save_file(stored, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(told | dict(config)))
    return found


def norm(x, weight):
    return x / (x.pow(2).mean(-1, keepdim=True) + EPS).sqrt() * weight


def turned(x, place):
    """Rotary position on one head, halves rotating together."""
    half = HD // 2
    angle = torch.tensor([place * THETA ** (-i / half) for i in range(half)], dtype=torch.float64)
    a, b = x[:half], x[half:]
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()])


def restated(w, form, embeds, states, drafted):
    """The published forward, a row and a head at a time. embeds [n, d], states [c, 3d] of the first rows;
    the others read the row before them. -> (states of all rows, logits of all rows over the whole
    vocabulary)."""
    keys = []
    values = []
    out = []
    logits = []
    m = {name.removeprefix("midlayer."): tensor for name, tensor in w.items() if name.startswith("midlayer.")}
    for place in range(len(states) + drafted):
        if place < len(states):
            parts = states[place].split(D)
            if form == "later":
                parts = [norm(part, w[f"fc_norm.{i}.weight"]) for i, part in enumerate(parts)]
            x = w["fc.weight"] @ torch.cat(list(parts))
        else:
            x = out[-1]
        state = norm(x, m["hidden_norm.weight"])
        row = torch.cat([norm(embeds[place], m["input_layernorm.weight"]), state])
        q, k, v = ((m[f"self_attn.{name}_proj.weight"] @ row).view(-1, HD) for name in "qkv")
        if form == "whole":
            q, k = norm(q, m["self_attn.q_norm.weight"]), norm(k, m["self_attn.k_norm.weight"])
        keys.append([turned(one, place) for one in k])
        values.append(v)
        mixed = []
        for h, query in enumerate(q):
            group = h // (HEADS // KV)
            weights = torch.stack(
                [turned(query, place) @ key[group] / math.sqrt(HD) for key in keys]
            ).softmax(0)
            mixed.append(sum(share * value[group] for share, value in zip(weights, values)))
        x = (state if form == "speculators" else x) + m["self_attn.o_proj.weight"] @ torch.cat(mixed)
        y = norm(x, m["post_attention_layernorm.weight"])
        gate = m["mlp.gate_proj.weight"] @ y
        x = x + m["mlp.down_proj.weight"] @ (gate * torch.sigmoid(gate) * (m["mlp.up_proj.weight"] @ y))
        normed = norm(x, w["norm.weight"])
        out.append(normed if form == "later" else x)
        said = w["lm_head.weight"] @ normed
        whole = torch.full((VOCAB,), -torch.inf, dtype=torch.float64)
        for i, value in enumerate(said):
            whole[i if form == "whole" else i + int(w["d2t"][i])] = value
        logits.append(whole)
    return torch.stack(out), torch.stack(logits)


def material(rows=8, true=5):
    source = torch.Generator().manual_seed(1)
    return (
        torch.randn(rows, D, generator=source, dtype=torch.float64),
        torch.randn(true, 3 * D, generator=source, dtype=torch.float64),
    )


@pytest.mark.parametrize("form", FORMS)
@torch.inference_mode()
def test_a_published_head_computes_the_published_forward(tmp_path, form):
    """Reading text in two parts and drafting three tokens on; the training forward too, whose rollout is
    the same chain."""
    weights = published(tmp_path / "head", form)
    head = eagle3.load(tmp_path / "head", BODY)
    embeds, states = material()
    want, said = restated(weights, form, embeds, states, 3)
    rows = head.open()
    got = [rows.read(embeds[:2], states[:2]), rows.read(embeds[2:5], states[2:])]
    for step in range(3):
        got.append(rows.branch(embeds[5 + step : 6 + step], got[-1][-1:], [step - 1], [step + 1]))
    got = torch.cat(got)
    assert float((got - want).abs().max()) < 1e-6
    logits = head.logits(got, None)
    finite = said.isfinite()
    assert torch.equal(logits.isfinite(), finite) and float((logits - said)[finite].abs().max()) < 1e-6
    more = torch.cat(
        [states, torch.randn(3, 3 * D, dtype=torch.float64)]
    )  # true states that the rollout must not have seen
    rolled = head(embeds[None], more[None], 4)
    for step in range(4):
        assert float((rolled[step][0, 4 + step] - want[4 + step]).abs().max()) < 1e-6
    assert head.hidden_states == ("layer:2", "layer:4", "layer:5")


@pytest.mark.parametrize(
    "config, hidden_states",
    [
        ({}, (2, 4, 5)),
        ({"eagle_aux_hidden_state_layer_ids": [1, 3, 6]}, (1, 3, 6)),
        ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 3, 6]}}, (2, 4, 7)),
        ({"target_layer_ids": [0, 3, 4]}, (1, 4, 5)),
    ],
)
def test_the_layers_that_are_read_are_counted_as_the_file_counts(tmp_path, config, hidden_states):
    published(tmp_path / "head", config=config)
    assert eagle3.load(tmp_path / "head", BODY).read_layers == hidden_states


@pytest.mark.parametrize(
    "how, why",
    [
        (dict(drop=("midlayer.hidden_norm.weight",)), "checkpoint.lacks_weight layers.0"),
        (dict(drop=("d2t", "t2d")), "eagle3.no_d2t 9 40 d2t"),
        (dict(d2t=torch.zeros(8, dtype=torch.long)), "eagle3.d2t 9"),
        (dict(d2t=torch.full((9,), 35)), "eagle3.d2t 9"),
        (dict(t2d=torch.arange(VOCAB) < SPOKEN), "eagle3.t2d d2t t2d"),
        (dict(mask_hidden=torch.zeros(1, 1, 3 * D)), "head.unknown_weights mask_hidden"),
        (dict(config={"eagle_aux_hidden_state_layer_ids": [1, 3, 8]}), "head.read_layers 8 0 7"),
        (dict(config={"eagle_aux_hidden_state_layer_ids": [1, 3]}), "checkpoint.shape fc.weight"),
        (dict(config={"eagle_aux_hidden_state_layer_ids": "all"}), "head.config_layers"),
        (dict(config={"hidden_size": 8}), "head.states 8"),
    ],
)
def test_what_does_not_fit_is_refused_with_a_sentence(tmp_path, how, why):
    published(tmp_path / "head", **how)
    with refuses(ModelError, *why.split()) as told:
        eagle3.load(tmp_path / "head", BODY)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("form", ["authors", "speculators", "whole"])
def test_it_is_not_read_as_an_eagle_head(tmp_path, form):
    published(tmp_path / "head", form)
    with pytest.raises(ModelError):
        eagle.load(tmp_path / "head", BODY)


@torch.inference_mode()
def test_the_draft_vocabulary_is_the_targets_tokens_it_was_given():
    head = eagle3.build(BODY, {"draft_vocab": SPOKEN}).double().eval()
    head.set_draft_vocab(IDS.flip(0))
    states = material()[0]
    logits = head.logits(states, None)
    assert logits.isfinite().any(0).nonzero()[:, 0].tolist() == IDS.tolist() == head.tokens.tolist()
    assert torch.equal(logits[:, IDS], head.draft_logits(states)) and torch.equal(
        head.t2d.nonzero()[:, 0], IDS
    )
