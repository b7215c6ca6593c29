"""FSPAD, Jakiro and Falcon: the names of their authors' code are read and compute what a plain re-statement
of that code's forward computes; what does not fit is refused with a sentence."""

from __future__ import annotations

import json
import math

import pytest
import torch
from safetensors.torch import save_file

from specviz.checkpoints.weights import ModelError
from specviz.methods.trained_heads.falcon import falcon_network as falcon
from specviz.methods.trained_heads.fspad import fspad_network as fspad
from specviz.methods.trained_heads.jakiro import jakiro_network as jakiro

from ..message_codes import refuses
from .test_eagle3 import BODY, CONFIG, HD, HEADS, INNER, KV, VOCAB, D, norm, turned

KINDS = {"fspad": fspad, "jakiro": jakiro, "falcon": falcon}


def silu(x):
    return x * torch.sigmoid(x)


def published(folder, kind, drop=(), config=(), **more):
    """A head under its authors' names, of random numbers."""
    source = torch.Generator().manual_seed(5)

    def draw(*shape):
        return torch.randn(*shape, generator=source, dtype=torch.float64) / shape[-1] ** 0.5

    def mlp(at, inner=INNER, out=D):
        return {
            f"{at}.gate_proj.weight": draw(inner, D),
            f"{at}.up_proj.weight": draw(inner, D),
            f"{at}.down_proj.weight": draw(out, inner),
        }

    found = {
        f"layers.0.self_attn.{name}_proj.weight": draw(*shape)
        for name, shape in {
            "q": (HEADS * HD, D),
            "k": (KV * HD, D),
            "v": (KV * HD, D),
            "o": (D, HEADS * HD),
        }.items()
    }
    found |= {"layers.0.post_attention_layernorm.weight": 1 + draw(D), "embed_tokens.weight": draw(VOCAB, D)}
    if kind == "fspad":
        found |= {
            "fc.fc.weight": draw(D, 2 * D),
            "fc.fc.bias": draw(D),
            "fc.post_attention_layernorm.weight": 1 + draw(D),
        }
        found |= mlp("fc.mlp") | mlp("layers.0.mlp", out=2 * D)
    if kind == "jakiro":
        found |= {"fc.weight": draw(D, 2 * D), "fc.bias": draw(D), "layers.0.mlp_moe.gate.weight": draw(4, D)}
        found |= mlp("layers.0.mlp_moe.experts.0") | mlp("layers.0.mlp_moe.experts.1")
    if kind == "falcon":
        found |= mlp("layers.0.mlp")
        for i, wide in enumerate((2 * D, D)):
            found |= {
                f"lstm.weight_ih_l{i}": draw(4 * D, wide),
                f"lstm.weight_hh_l{i}": draw(4 * D, D),
                f"lstm.bias_ih_l{i}": draw(4 * D),
                f"lstm.bias_hh_l{i}": draw(4 * D),
            }
    found = {name: tensor for name, tensor in {**found, **more}.items() if name not in drop}
    folder.mkdir(parents=True, exist_ok=True)
    save_file(found, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(CONFIG | {"k_mask": 2} | dict(config)))
    return found


def entering(w, kind, e, f):
    """What enters the layer of a row with this embedding and feature."""
    if kind == "falcon":
        lstm = torch.nn.LSTM(2 * D, D, num_layers=2).double()
        lstm.load_state_dict(
            {name.removeprefix("lstm."): tensor for name, tensor in w.items() if name.startswith("lstm.")}
        )
        return lstm(torch.cat([e, f])[None])[0][0]
    if kind == "jakiro":
        return w["fc.weight"] @ torch.cat([e, f]) + w["fc.bias"]
    x = w["fc.fc.weight"] @ torch.cat([e, f]) + w["fc.fc.bias"]
    inside = silu(w["fc.mlp.gate_proj.weight"] @ e) * (
        w["fc.mlp.up_proj.weight"] @ norm(x, w["fc.post_attention_layernorm.weight"])
    )
    return x + w["fc.mlp.down_proj.weight"] @ inside


def leaving(w, kind, x):
    """What the row gives behind the attention: one state, or two."""
    y = norm(x, w["layers.0.post_attention_layernorm.weight"])

    def mlp(at):
        return w[f"{at}.down_proj.weight"] @ (
            silu(w[f"{at}.gate_proj.weight"] @ y) * (w[f"{at}.up_proj.weight"] @ y)
        )

    if kind == "falcon":
        return x + mlp("layers.0.mlp")
    if kind == "fspad":
        return torch.cat([x, x]) + mlp("layers.0.mlp")
    experts, gate = (
        [mlp(f"layers.0.mlp_moe.experts.{i}") for i in (0, 1)],
        w["layers.0.mlp_moe.gate.weight"] @ y,
    )
    mixed, against = gate[:2].softmax(-1), gate[2:].softmax(-1)
    high, low = (0, 1) if gate[2] > gate[3] else (1, 0)
    return torch.cat(
        [
            x + mixed[0] * experts[0] + mixed[1] * experts[1],
            x + against[high] * experts[high] - against[low] * experts[low],
        ]
    )


def rows_of(w, kind, inputs, seen):
    """All rows, a head and a key at a time: inputs [(embedding, feature)], seen(row) -> the rows that it
    sees."""
    x = [entering(w, kind, e, f) for e, f in inputs]
    q, k, v = (
        [(w[f"layers.0.self_attn.{name}_proj.weight"] @ row).view(-1, HD) for row in x] for name in "qkv"
    )
    out = []
    for place, row in enumerate(x):
        mixed = []
        for h, query in enumerate(q[place]):
            group, sees = h // (HEADS // KV), seen(place)
            weights = torch.stack(
                [turned(query, place) @ turned(k[j][group], j) / math.sqrt(HD) for j in sees]
            ).softmax(0)
            mixed.append(sum(share * v[j][group] for share, j in zip(weights, sees)))
        out.append(leaving(w, kind, row + w["layers.0.self_attn.o_proj.weight"] @ torch.cat(mixed)))
    return torch.stack(out)


def material():
    return torch.randn(2, 9, D, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.mark.parametrize("kind", ["fspad", "jakiro"])
@torch.inference_mode()
def test_a_head_computes_its_authors_forward(tmp_path, kind):
    """Reading text in two parts and drafting three tokens on; the training forward too, whose rollout is
    the same chain."""
    w = published(tmp_path / "head", kind)
    head = KINDS[kind].load(tmp_path / "head", BODY)
    embeds, features = material()
    num_computed = slice(D, None) if kind == "fspad" else slice(0, D)
    inputs, want = list(zip(embeds[:5], features[:5])), None
    for step in range(4):
        want = rows_of(w, kind, inputs, lambda place: range(place + 1))
        inputs.append((embeds[5 + step], want[-1][num_computed]))
    rows = head.open()
    got = [rows.read(embeds[:2], features[:2]), rows.read(embeds[2:5], features[2:5])]
    for step in range(3):
        got.append(rows.branch(embeds[5 + step : 6 + step], got[-1][-1:], [step - 1], [step + 1]))
    got = torch.cat(got)
    assert float((got[:, : 2 * D] - want).abs().max()) < 1e-6
    assert torch.equal(head.logits(got, lambda x: x), got[:, :D])
    if kind == "jakiro":
        assert torch.equal(head.after_next(got), got[:, D : 2 * D]) and bool(
            ((got[:, -1] > 0) & (got[:, -1] < 1)).all()
        )
    rolled = head(
        embeds[None], features[None], 4
    )  # the true features behind the fifth are there, and the rollout must not see them
    for step in range(4):
        assert float((rolled[step][0, 4 + step, : 2 * D] - want[4 + step]).abs().max()) < 1e-6


@pytest.mark.parametrize("parts", [(5,), (2, 3), (4, 1), (1, 1, 3)])
@torch.inference_mode()
def test_falcon_drafts_blocks_below_the_text_and_below_each_other(tmp_path, parts):
    """However the text was read: its last two rows are a block; then two blocks below it, side by side, and
    one below the second."""
    w = published(tmp_path / "head", "falcon")
    head = falcon.load(tmp_path / "head", BODY)
    embeds, features = material()
    rows, at = head.open(), 0
    for count in parts:
        guesses = rows.read(embeds[at : at + count], features[at : at + count])
        at += count
    text = list(zip(embeds[:5], features[:5]))
    assert float((guesses - rows_of(w, "falcon", text, lambda place: range(5))[3:]).abs().max()) < 1e-6
    other = embeds[[7, 8]]
    two = rows.below(torch.cat([embeds[5:7], other]), guesses.repeat(2, 1), [-1] * 4, [1, 2, 1, 2])
    for tokens, found in ((embeds[5:7], two[:2]), (other, two[2:])):
        want = rows_of(
            w, "falcon", text + list(zip(tokens, guesses)), lambda place: range(place + 1 if place < 5 else 7)
        )
        assert float((found - want[5:]).abs().max()) < 1e-6
    last = rows.below(embeds[7:9], two[2:], [3, 3], [3, 4])
    chain = text + list(zip(other, guesses)) + list(zip(embeds[7:9], two[2:]))
    want = rows_of(w, "falcon", chain, lambda place: range(place + 1 if place < 5 else 7 if place < 7 else 9))
    assert float((last - want[7:]).abs().max()) < 1e-6
    again = rows.read(embeds[5:6], features[5:6])  # the draft left nothing behind
    assert (
        float(
            (again - rows_of(w, "falcon", list(zip(embeds[:6], features[:6])), lambda place: range(6))[4:])
            .abs()
            .max()
        )
        < 1e-6
    )
    for offset in (0, 1):
        taught = head(embeds[None], features[None], offset)[0]
        want = rows_of(
            w,
            "falcon",
            list(zip(embeds, features)),
            lambda place, o=offset: range(min(9, ((place - o) // 2 + 1) * 2 + o)),
        )
        assert float((taught - want).abs().max()) < 1e-6


@pytest.mark.parametrize(
    "kind, how, why",
    [
        ("fspad", dict(drop=("fc.mlp.up_proj.weight",)), "checkpoint.lacks_weight fc.mlp.up_proj.weight"),
        ("fspad", {"layers.1.self_attn.q_proj.weight": torch.zeros(2, 2)}, "head.layers 2"),
        ("jakiro", {"layers.0.mlp_moe.experts.0.fc.weight": torch.zeros(2, 2)}, "jakiro.star"),
        ("jakiro", {"layers.0.mlp_moe.experts.2.up_proj.weight": torch.zeros(2, 2)}, "jakiro.experts 3"),
        ("jakiro", {"lm_head.weight": torch.zeros(2, 2)}, "head.unknown_weights lm_head.weight"),
        ("falcon", dict(drop=("lstm.bias_hh_l1",)), "checkpoint.lacks_weight lstm.bias_hh_l1"),
        ("falcon", dict(config={"k_mask": 1}), "falcon.k_mask k_mask 1"),
        ("falcon", dict(config={"hidden_size": 8}), "head.states 8"),
    ],
)
def test_what_does_not_fit_is_refused_with_a_sentence(tmp_path, kind, how, why):
    published(tmp_path / "head", kind, **how)
    with refuses(ModelError, *why.split()):
        KINDS[kind].load(tmp_path / "head", BODY)
