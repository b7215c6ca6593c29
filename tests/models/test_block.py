"""Block drafters: the published layout is read and computes what a plain re-statement of the published
forward computes; what does not fit is refused with a sentence."""

from __future__ import annotations

import json
import math
import types

import pytest
import torch
from safetensors.torch import save_file

from specviz.checkpoints.weights import ModelError
from specviz.core import Budget, Sampling, State
from specviz.drafters.heads.masked_block import BlockChain, BlockPassDrafter
from specviz.models import masked_block as network
from specviz.models.heads import TargetInfo

from ..message_codes import refuses

D = 16
VOCAB = 40
HEADS = 4
KV = 2
HD = 6
INNER = 20
TAPS = (0, 2)
EPS = 1e-5
THETA = 300.0
BODY = TargetInfo("toy", D, VOCAB, 5, torch.device("cpu"), torch.float64)
CONFIG = {
    "hidden_size": D,
    "vocab_size": VOCAB,
    "num_hidden_layers": 2,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV,
    "head_dim": HD,
    "intermediate_size": INNER,
    "rms_norm_eps": EPS,
    "rope_theta": THETA,
    "max_position_embeddings": 64,
    "block_size": 4,
    "dflash_config": {"target_layer_ids": list(TAPS), "mask_token_id": 3},
}
SPARK = {
    "markov_rank": 5,
    "markov_head_type": "gated",
    "enable_confidence_head": True,
    "confidence_head_with_markov": True,
}


def published(folder, spark=False, drop=(), **more):
    """A drafter under its published names, of random numbers."""
    source = torch.Generator().manual_seed(5)

    def draw(*shape):
        return torch.randn(*shape, generator=source, dtype=torch.float64) / shape[-1] ** 0.5

    found = {
        "fc.weight": draw(D, len(TAPS) * D),
        "hidden_norm.weight": 1 + draw(D),
        "norm.weight": 1 + draw(D),
    }
    for i in range(2):
        at = f"layers.{i}."
        found |= {
            f"{at}{name}.weight": 1 + draw(D) for name in ("input_layernorm", "post_attention_layernorm")
        }
        found |= {f"{at}self_attn.{name}.weight": 1 + draw(HD) for name in ("q_norm", "k_norm")}
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
    if spark:
        found |= {
            "markov_head.markov_w1.weight": draw(VOCAB, 5),
            "markov_head.markov_w2.weight": draw(VOCAB, 5),
            "markov_head.gate_proj.weight": draw(5, D + 5),
            "markov_head.gate_proj.bias": draw(5),
            "confidence_head.proj.weight": draw(1, D + 5),
            "confidence_head.proj.bias": draw(1),
        }
    found = {name: tensor for name, tensor in {**found, **more}.items() if name not in drop}
    folder.mkdir(parents=True, exist_ok=True)
    save_file(found, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(CONFIG | (SPARK if spark else {})))
    return found


def norm(x, weight):
    return x / (x.pow(2).mean(-1, keepdim=True) + EPS).sqrt() * weight


def turned(x, place):
    """Rotary position on one head, halves rotating together."""
    half = HD // 2
    angle = torch.tensor([place * THETA ** (-i / half) for i in range(half)], dtype=torch.float64)
    a, b = x[:half], x[half:]
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()])


def restated(w, states, embeds, sees=lambda layer, row, key: True):
    """The published forward, a row, a head and a key at a time: states [c, taps * d] at places 0..c, embeds
    [block, d] from place c. sees: whether a row at a place attends to the row at another in a layer."""
    text = [norm(w["fc.weight"] @ row, w["hidden_norm.weight"]) for row in states]
    x, c = list(embeds), len(states)
    for i in range(2):
        m = {
            name.removeprefix(f"layers.{i}."): tensor
            for name, tensor in w.items()
            if name.startswith(f"layers.{i}.")
        }
        num_computed = [norm(row, m["input_layernorm.weight"]) for row in x]
        rows = text + num_computed
        keys = [
            [
                turned(norm(k, m["self_attn.k_norm.weight"]), place)
                for k in (m["self_attn.k_proj.weight"] @ row).view(KV, HD)
            ]
            for place, row in enumerate(rows)
        ]
        values = [(m["self_attn.v_proj.weight"] @ row).view(KV, HD) for row in rows]
        for r, row in enumerate(num_computed):
            queries = (m["self_attn.q_proj.weight"] @ row).view(HEADS, HD)
            mixed = []
            for h, query in enumerate(queries):
                q, group = turned(norm(query, m["self_attn.q_norm.weight"]), c + r), h // (HEADS // KV)
                weights = torch.stack(
                    [
                        q @ key[group] / math.sqrt(HD)
                        if sees(i, c + r, place)
                        else torch.tensor(-math.inf, dtype=q.dtype)
                        for place, key in enumerate(keys)
                    ]
                ).softmax(0)
                mixed.append(sum(share * value[group] for share, value in zip(weights, values)))
            x[r] = x[r] + m["self_attn.o_proj.weight"] @ torch.cat(mixed)
        for r, row in enumerate(x):
            y = norm(row, m["post_attention_layernorm.weight"])
            gate = m["mlp.gate_proj.weight"] @ y
            x[r] = row + m["mlp.down_proj.weight"] @ (
                gate * torch.sigmoid(gate) * (m["mlp.up_proj.weight"] @ y)
            )
    return torch.stack([norm(row, w["norm.weight"]) for row in x])


def material(count=7):
    source = torch.Generator().manual_seed(1)
    return (
        torch.randn(count, len(TAPS) * D, generator=source, dtype=torch.float64),
        torch.randn(4, D, generator=source, dtype=torch.float64),
    )


@pytest.mark.parametrize("spark", [False, True])
def test_a_published_drafter_computes_the_published_forward(tmp_path, spark):
    weights = published(tmp_path / "head", spark)
    head = network.load(tmp_path / "head", BODY)
    states, embeds = material()
    want, rows = restated(weights, states, embeds), head.open()
    with torch.inference_mode():
        rows.read(states[:4])
        rows.draft(embeds)  # a block leaves nothing behind
        rows.read(states[4:])
        assert float((rows.draft(embeds) - want).abs().max()) < 1e-6
        assert (
            float((head(states[None], embeds[None, None], torch.tensor([[7]]))[0, 0] - want).abs().max())
            < 1e-6
        )
    assert head.hidden_states == ("layer:1", "layer:3") and head.mask_token == 3
    assert head.length == (4 if spark else 3), "a plain block's first row stands for a token that is known"


@pytest.mark.parametrize("ours", [False, True])
def test_the_markov_head_adds_what_follows_from_the_token_before(tmp_path, ours):
    """The authors' confidence head reads the token's embedding as it is (DeepSpec afdfa7c); one trained
    here earlier reads it gated."""
    w = published(tmp_path / "head", True)
    if ours:
        (tmp_path / "head" / "config.json").write_text(
            json.dumps(CONFIG | SPARK | {"specviz": {"kind": "dspark"}})
        )
    head = network.load(tmp_path / "head", BODY)
    state = material()[1][:1]
    latent = head.markov_head.latent(torch.tensor([9]), state)
    before = w["markov_head.markov_w1.weight"][9]
    gate = torch.sigmoid(
        w["markov_head.gate_proj.weight"] @ torch.cat([state[0], before]) + w["markov_head.gate_proj.bias"]
    )
    assert torch.allclose(latent[0], gate * before)
    want = (
        w["confidence_head.proj.weight"] @ torch.cat([state[0], gate * before if ours else before])
        + w["confidence_head.proj.bias"]
    )
    assert torch.allclose(head.confidence(state, torch.tensor([9])), want)


@pytest.mark.parametrize(
    "config, anchored",
    [
        ({"architectures": ["Qwen3DSparkModel"], "markov_rank": 0, "num_anchors": 512}, True),
        ({"architectures": ["DFlashDraftModel"]}, False),
        ({"architectures": ["DSparkSpeculator"], "speculators_model_type": "dspark"}, True),
        ({"speculators_model_type": "dflash"}, False),
        ({"architectures": ["Qwen3DSparkModel"], "sample_from_anchor": False}, False),
        ({"architectures": None}, False),
    ],
)
def test_which_row_guesses_which_place_is_read_from_the_config(tmp_path, config, anchored):
    """DeepSpec's DFlash is DSpark's trainer without a Markov head (afdfa7c): its row j predicts j + 1
    tokens ahead."""
    weights = published(tmp_path / "head")
    (tmp_path / "head" / "config.json").write_text(json.dumps(CONFIG | config))
    head = network.load(tmp_path / "head", BODY)
    assert head.anchored == anchored and head.length == (4 if anchored else 3)
    states, embeds = material()
    drafter, net = (
        BlockPassDrafter(head),
        types.SimpleNamespace(embed=lambda ids: embeds[: len(ids)], head=lambda states: states),
    )
    drafter.target, drafter._waiting = net, [states]
    drafter.read = []
    got = drafter.scores(types.SimpleNamespace(tokens=[1] * 8), 3).block.states
    want = restated(weights, states, embeds[: len(got) + (not anchored)])
    assert float((got - want[0 if anchored else 1 :]).abs().max()) < 1e-6, "place k against row k, or k + 1"


def test_the_embedding_output_is_layer_minus_one(tmp_path):
    published(tmp_path / "head")
    layers = {"target_layer_ids": [-1, 2], "mask_token_id": 3}
    (tmp_path / "head" / "config.json").write_text(json.dumps(CONFIG | {"dflash_config": layers}))
    assert network.load(tmp_path / "head", BODY).hidden_states == ("layer:0", "layer:3")


@pytest.mark.parametrize(
    "how, why",
    [
        (
            dict(drop=("layers.1.self_attn.k_norm.weight",)),
            "checkpoint.lacks_weight layers.1.self_attn.k_norm.weight",
        ),
        (
            dict(**{"prefix_gru.weight_hh_l0": torch.zeros(2, 2)}),
            "head.unknown_weights prefix_gru.weight_hh_l0",
        ),
        (dict(**{"d2t": torch.zeros(4, dtype=torch.long)}), "head.lacks_weight lm_head.weight"),
    ],
)
def test_what_does_not_fit_is_refused_with_a_sentence(tmp_path, how, why):
    published(tmp_path / "head", **how)
    with refuses(ModelError, *why.split()):
        network.load(tmp_path / "head", BODY)


@pytest.mark.parametrize(
    "more, why",
    [
        ({"dflash_config": {"mask_token_id": 3}}, "head.config_lacks target_layer_ids"),
        ({"dflash_config": {"target_layer_ids": [0, 4], "mask_token_id": 3}}, "head.read_layers 4"),
        ({"block_size": 1}, "masked_block.config"),
        ({"dflash_config": {"target_layer_ids": [-2, 0], "mask_token_id": 3}}, "masked_block.config"),
        ({"hidden_size": 8}, "head.states 8"),
        ({"markov_rank": 2, "markov_head_type": "rnn"}, "masked_block.markov rnn"),
    ],
)
def test_a_config_that_does_not_fit_is_refused_with_a_sentence(tmp_path, more, why):
    published(tmp_path / "head")
    (tmp_path / "head" / "config.json").write_text(json.dumps(CONFIG | more))
    with refuses(ModelError, *why.split()):
        network.load(tmp_path / "head", BODY)


@pytest.mark.parametrize(
    "confidences, least, drafted",
    [
        ((0.2, 0.9, 0.9, 0.9), 0.5, 0),
        ((0.9, 0.6, 0.4, 0.9), 0.5, 2),
        ((0.6, 0.6, 0.6, 0.6), 0.5, 4),
        ((0.1, 0.1, 0.1, 0.1), 0.0, 4),
    ],
)
def test_a_draft_ends_before_the_first_place_below_the_threshold(
    monkeypatch, tmp_path, confidences, least, drafted
):
    """Each place's own confidence decides, not the product; maybe nothing is drafted (DeepSpec afdfa7c,
    draft_ops.py)."""
    published(tmp_path / "head", True)
    head = network.load(tmp_path / "head", BODY)
    states, embeds = material()
    chain = BlockChain(head, least)
    rows = [torch.logit(torch.tensor([share])) for share in confidences]
    monkeypatch.setattr(type(head), "confidence", lambda self, row, before: rows.pop(0))
    chain.target = types.SimpleNamespace(
        embed=lambda ids: embeds[: len(ids)], head=lambda x: torch.randn(len(x), VOCAB, dtype=x.dtype)
    )
    chain._waiting, chain.read = [states], []
    state = State([1] * 8, Sampling(1.0, seed=0), limit=20)
    tree = chain.propose(state, Budget(4))
    assert len(tree) == drafted and state.notes[-1][1]["drafted"] == drafted
    assert state.notes[-1][1]["confidence"] == pytest.approx(confidences[: drafted + 1])
