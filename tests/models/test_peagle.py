"""P-EAGLE heads: the published layout is read, and a draft of one pass is what a plain re-statement of the
published forward drafts; what does not fit is refused with a sentence."""

from __future__ import annotations

import json
import math

import pytest
import torch
from safetensors.torch import load_file, save_file

from specviz.checkpoints.weights import ModelError
from specviz.core import Budget, DraftTree, Outcome, Sampling, Scores, State, Verdict
from specviz.methods.trained_heads.peagle import peagle_network as peagle
from specviz.methods.trained_heads.peagle.peagle_drafter import OnePassFeatures

from ..message_codes import refuses
from . import test_eagle3 as third
from .test_eagle3 import BODY, CONFIG, HD, HEADS, KV, VOCAB, D, norm, turned

MASK, GAMMA = 4, 4


def published(folder, drop=(), **said):
    """A head of two layers as "speculators" stores it, of random numbers."""
    third.published(folder, "speculators")
    source = torch.Generator().manual_seed(8)

    def draw(*shape):
        return torch.randn(*shape, generator=source, dtype=torch.float64) / shape[-1] ** 0.5

    found = load_file(folder / "model.safetensors")
    found |= {
        name.replace("layers.0.", "layers.1."): draw(*tensor.shape) + (tensor.dim() == 1)
        for name, tensor in list(found.items())
        if name.startswith("layers.0.") and "hidden_norm" not in name
    }
    for name in "qkv":
        found[f"layers.1.self_attn.{name}_proj.weight"] = draw(
            found[f"layers.0.self_attn.{name}_proj.weight"].shape[0], D
        )
    found["mask_hidden"] = draw(1, 1, 3 * D)
    found = {name: tensor.contiguous() for name, tensor in found.items() if name not in drop}
    save_file(found, folder / "model.safetensors")
    told = (
        json.loads((folder / "config.json").read_text())
        | {"speculators_model_type": "peagle", "mask_token_id": MASK}
        | said
    )
    told["transformer_layer_config"] = CONFIG | {"num_hidden_layers": 2}
    (folder / "config.json").write_text(
        json.dumps({name: value for name, value in told.items() if value is not None})
    )
    return found


def restated(w, ids, states, masks):
    """The published forward over pairs of the text and mask rows behind them, a row and a head at a time ->
    logits [1 + masks, VOCAB]."""
    x, text = [], []
    for place in range(len(ids) + masks):
        known = place < len(ids)
        state = w["fc.weight"] @ (states[place] if known else w["mask_hidden"][0, 0])
        x.append(state)
        text.append(w["embed_tokens.weight"][ids[place] if known else MASK])
    for i in range(2):
        m = {
            name.removeprefix(f"layers.{i}.").removesuffix(".weight"): tensor
            for name, tensor in w.items()
            if name.startswith(f"layers.{i}.")
        }
        if i == 0:
            start = [norm(row, m["hidden_norm"]) for row in x]  # norm_before_residual
            num_computed = [torch.cat([norm(e, m["input_layernorm"]), h]) for e, h in zip(text, start)]
        else:
            start, num_computed = x, [norm(row, m["input_layernorm"]) for row in x]
        keys = [
            [turned(k, place) for k in (m["self_attn.k_proj"] @ row).view(KV, HD)]
            for place, row in enumerate(num_computed)
        ]
        values = [(m["self_attn.v_proj"] @ row).view(KV, HD) for row in num_computed]
        out = []
        for place, row in enumerate(num_computed):
            mixed = []
            for h, query in enumerate((m["self_attn.q_proj"] @ row).view(HEADS, HD)):
                group = h // (HEADS // KV)
                weights = torch.stack(
                    [turned(query, place) @ key[group] / math.sqrt(HD) for key in keys[: place + 1]]
                ).softmax(0)
                mixed.append(sum(share * value[group] for share, value in zip(weights, values)))
            y = start[place] + m["self_attn.o_proj"] @ torch.cat(mixed)
            z = norm(y, m["post_attention_layernorm"])
            gate = m["mlp.gate_proj"] @ z
            out.append(y + m["mlp.down_proj"] @ (gate * torch.sigmoid(gate) * (m["mlp.up_proj"] @ z)))
        x = out
    said = torch.stack([w["lm_head.weight"] @ norm(row, w["norm.weight"]) for row in x[-1 - masks :]])
    logits = torch.full((1 + masks, VOCAB), -torch.inf, dtype=torch.float64)
    logits[:, torch.arange(len(w["d2t"])) + w["d2t"]] = said
    return logits


class Lender:
    """A target's ends, of which a published head needs none: its embedding and output matrix are its own."""

    vocab = VOCAB

    def embed(self, ids):
        raise AssertionError("its own embedding was trained")

    head = embed


def test_a_published_head_drafts_in_one_pass_what_the_published_forward_drafts(tmp_path):
    """A round, the same asked again, and a second round that stands on what the first left."""
    w = published(tmp_path / "head")
    head = peagle.load(tmp_path / "head", BODY)
    source = torch.Generator().manual_seed(2)
    states = torch.randn(9, 3 * D, generator=source, dtype=torch.float64)
    text = torch.randint(0, VOCAB, (10,), generator=source).tolist()
    drafter = OnePassFeatures(head)

    def hidden_states(rows):
        return dict(zip(head.hidden_states, rows.split(D, 1)))

    drafter.start(State(text[:6]), Lender(), Scores(torch.zeros(0, VOCAB), hidden_states(states[:5])))
    for end in (6, 6, 10):
        if end == 10:
            scores = Scores(torch.zeros(4, VOCAB), hidden_states(states[5:]))
            drafter.observe(
                State(text),
                Outcome(
                    DraftTree(), scores, Verdict((), 0, "plain"), Budget(), tuple(text[6:]), (0, 1, 2, 3), {}
                ),
            )
        want = restated(w, text[1:end], states[: end - 1], GAMMA - 1)
        state = State(text[:end], Sampling(1.0))
        distributions = drafter.propose(state, Budget(GAMMA)).probs
        assert (
            distributions.shape == (GAMMA, VOCAB)
            and float((distributions - want.softmax(-1)).abs().max()) < 1e-6
        )
        tree = drafter.propose(State(text[:end], Sampling(0.0)), Budget(GAMMA))
        assert list(tree.tokens) == want.argmax(-1).tolist()
    assert not len(drafter.propose(State(text[:7]), Budget(GAMMA))), "a text whose states are not known"


@pytest.mark.parametrize(
    "how, why",
    [
        (dict(drop=("mask_hidden",)), "peagle.mask_hidden eagle3"),
        (dict(mask_token_id=None), "peagle.mask_token_id mask_token_id"),
        (dict(mask_token_id=VOCAB), "peagle.mask_token_id 40"),
        (dict(drop=("layers.1.mlp.up_proj.weight",)), "checkpoint.lacks_weight layers.1.mlp.up_proj"),
    ],
)
def test_what_does_not_fit_is_refused_with_a_sentence(tmp_path, how, why):
    published(tmp_path / "head", **how)
    with refuses(ModelError, *why.split()):
        peagle.load(tmp_path / "head", BODY)


@pytest.mark.parametrize("name", ["ptd_token_id", "pard_token"])
def test_other_publishers_call_the_mask_token_otherwise(tmp_path, name):
    published(tmp_path / "head", mask_token_id=None, **{name: 7})
    assert peagle.load(tmp_path / "head", BODY).mask_token == 7


def test_a_state_of_another_size_or_an_unknown_norm_is_refused(tmp_path):
    for extra, why in (
        ({"mask_hidden": torch.zeros(1, D)}, "peagle.mask_hidden_size 16 48"),
        ({"output_norm.weight": torch.zeros(D)}, "head.unknown_weights output_norm"),
    ):
        found = published(tmp_path / "head") | extra
        save_file(found, tmp_path / "head" / "model.safetensors")
        with refuses(ModelError, *why.split()):
            peagle.load(tmp_path / "head", BODY)
