"""Variants of the block drafter (DFlare, JetSpec, DFlash2's convolutions): each computes what a plain
re-statement of its authors' forward computes, reads a published file whole or what differs from another
head, and drafts from the distribution that it records."""

from __future__ import annotations

import json
import math
from functools import partial

import pytest
import torch
from safetensors.torch import load_file, save_file

from specviz.checkpoints.weights import ModelError
from specviz.core import IID, Parts, Sampling, TreeBuilder
from specviz.drafters.heads.masked_block import BlockChain, BlockTree
from specviz.models import masked_block
from specviz.models.heads import check_fit
from specviz.policies import Fixed
from specviz.verifiers import TokenRejection
from specviz.zoo.trained_heads import network_of

from ..exactness.enumeration import distance, joint, probs_of_engine
from ..exactness.toys import PROMPT, begin, toy
from ..message_codes import refuses
from .test_block import BODY, CONFIG, HD, HEADS, KV, TAPS, VOCAB, D, material, norm, published, turned

TAPS_OF_CONVOLUTION = 2
GROUP = 4
LAYERS = 2
KEYS = {
    "dflare": {},
    "jetspec": {"causal_head": True},
    "dflash2_conv": {"conv_kernel_size": TAPS_OF_CONVOLUTION, "conv_group_size": GROUP},
}


def weights_of(kind):
    """What a published file of the kind has beside DFlash's weights, and the names that it lacks."""
    source = torch.Generator().manual_seed(8)

    def draw(*shape):
        return torch.randn(*shape, generator=source, dtype=torch.float64) / shape[-1] ** 0.5

    at = [f"layers.{i}." for i in range(LAYERS)]
    if kind == "dflare":
        more = {"layer_fusion_weights": draw(LAYERS, len(TAPS))}
        return more | {
            f"{i}self_attn.{name}_proj_target.weight": draw(KV * HD, D) for i in at for name in "kv"
        }, ("fc.weight",)
    if kind == "dflash2_conv":
        more = {
            f"{i}{part}_conv.base_kernel": draw(2, TAPS_OF_CONVOLUTION, D)
            for i in at
            for part in ("attention", "mlp")
        }
        return more | {
            f"{i}{part}_conv.kernel_projection.weight": draw(2 * TAPS_OF_CONVOLUTION * D // GROUP, D)
            for i in at
            for part in ("attention", "mlp")
        }, ()
    return {}, ()


def written(folder, kind):
    more, drop = weights_of(kind)
    weights = published(folder, drop=drop, **more)
    config = CONFIG | {"dflash_config": CONFIG["dflash_config"] | KEYS[kind]}
    (folder / "config.json").write_text(json.dumps(config))
    return weights


def rows_convolved(w, rows, part, inputs, side):
    """A row of the output at a time: channel c sums the taps' rows with a constant and its group's dynamic
    weight."""
    out = []
    for r in range(len(rows)):
        dynamic = (w[f"{part}_conv.kernel_projection.weight"] @ inputs[r]).view(
            2, TAPS_OF_CONVOLUTION, D // GROUP
        )[side]
        row = torch.zeros(D, dtype=torch.float64)
        for tap in range(TAPS_OF_CONVOLUTION):
            if r >= tap:
                kernel = torch.stack(
                    [w[f"{part}_conv.base_kernel"][side, tap, c] + dynamic[tap, c // GROUP] for c in range(D)]
                )
                row = row + kernel * rows[r - tap]
        out.append(row)
    return out


def restated(kind, w, states, embeds, causal=None):
    """The published forward, a row, a head and a key at a time: states [c, taps * d] at places 0..c, embeds
    [block, d] from place c."""
    x = list(embeds)
    c = len(states)
    causal = kind == "jetspec" if causal is None else causal
    for i in range(LAYERS):
        m = {
            name.removeprefix(f"layers.{i}."): tensor
            for name, tensor in w.items()
            if name.startswith(f"layers.{i}.")
        }
        same = (lambda rows, *_: rows) if kind != "dflash2_conv" else partial(rows_convolved, m)
        if kind == "dflare":
            shares = w["layer_fusion_weights"][i].exp() / w["layer_fusion_weights"][i].exp().sum()
            mixed = [
                sum(share * part for share, part in zip(shares, row.view(len(TAPS), D))) for row in states
            ]
            text = [norm(row, w["hidden_norm.weight"]) for row in mixed]
        else:
            text = [norm(w["fc.weight"] @ row, w["hidden_norm.weight"]) for row in states]
        of_text = "_proj_target" if kind == "dflare" else "_proj"
        normed = [norm(row, m["input_layernorm.weight"]) for row in x]
        rows = same(normed, "attention", normed, 0)
        projected = [
            (m[f"self_attn.k{of_text}.weight"] @ row, m[f"self_attn.v{of_text}.weight"] @ row) for row in text
        ]
        projected += [
            (m["self_attn.k_proj.weight"] @ row, m["self_attn.v_proj.weight"] @ row) for row in rows
        ]
        keys = [
            [turned(norm(k, m["self_attn.k_norm.weight"]), place) for k in key.view(KV, HD)]
            for place, (key, _) in enumerate(projected)
        ]
        attended = []
        for r, row in enumerate(rows):
            seen = c + r + 1 if causal else len(keys)
            mixed = []
            for h, query in enumerate((m["self_attn.q_proj.weight"] @ row).view(HEADS, HD)):
                q, group = turned(norm(query, m["self_attn.q_norm.weight"]), c + r), h // (HEADS // KV)
                weights = torch.stack([q @ key[group] / math.sqrt(HD) for key in keys[:seen]]).softmax(0)
                mixed.append(
                    sum(share * value.view(KV, HD)[group] for share, (_, value) in zip(weights, projected))
                )
            attended.append(m["self_attn.o_proj.weight"] @ torch.cat(mixed))
        x = [row + more for row, more in zip(x, same(attended, "attention", normed, 1))]
        normed, fed = [norm(row, m["post_attention_layernorm.weight"]) for row in x], []
        for y in same(normed, "mlp", normed, 0):
            gate = m["mlp.gate_proj.weight"] @ y
            fed.append(
                m["mlp.down_proj.weight"] @ (gate * torch.sigmoid(gate) * (m["mlp.up_proj.weight"] @ y))
            )
        x = [row + more for row, more in zip(x, same(fed, "mlp", normed, 1))]
    return torch.stack([norm(row, w["norm.weight"]) for row in x])


@torch.inference_mode()
@pytest.mark.parametrize("kind", KEYS)
def test_a_published_drafter_computes_the_published_forward(tmp_path, kind):
    """Against restatements of AngelSlim's DFlare, hao-ai-lab/JetSpec 61434d3 and DFlash2 as ported to
    SGLang (35371) and NeMo."""
    weights = written(tmp_path / "head", kind)
    head = network_of(kind).load(tmp_path / "head", BODY)
    states, embeds = material()
    want, rows = restated(kind, weights, states, embeds), head.open()
    rows.read(states[:4])
    rows.draft(embeds)  # a block leaves nothing behind
    rows.read(states[4:])
    assert float((rows.draft(embeds) - want).abs().max()) < 1e-6
    assert (
        float((head(states[None], embeds[None, None], torch.tensor([[7]]))[0, 0] - want).abs().max()) < 1e-6
    )


@torch.inference_mode()
def test_causal_rows_do_not_change_with_the_rows_after_them(tmp_path):
    """What looks both ways is caught; so is a drafter that ignores ``causal_head`` of a published config."""
    weights, (states, embeds) = written(tmp_path / "head", "jetspec"), material()
    for kind in ("jetspec", "dflash"):
        rows = network_of(kind).load(tmp_path / "head", BODY).open()
        rows.read(states)
        whole, short = rows.draft(embeds), rows.draft(embeds[:2])
        assert torch.allclose(whole[:2], short)
    wrong = restated("jetspec", weights, states, embeds, causal=False)
    assert float((whole - wrong).abs().max()) > 1e-3


@pytest.mark.parametrize("kind", KEYS)
def test_a_folder_may_hold_only_what_differs_from_the_head_next_to_it(tmp_path, kind):
    written(tmp_path / "whole", kind)
    weights = load_file(tmp_path / "whole" / "model.safetensors")
    for name, config, kept in (
        ("toy-dflash", {}, lambda own: not own),
        (f"toy-{kind}", {"base_head": "dflash", "specviz": {"kind": kind}}, lambda own: own),
    ):
        (tmp_path / name).mkdir()
        part = {
            key: tensor
            for key, tensor in weights.items()
            if kept("self_attn.k_" in key or "_conv" in key or "fusion" in key)
        }
        save_file(part, tmp_path / name / "model.safetensors")
        told = json.loads((tmp_path / "whole" / "config.json").read_text()) | config
        (tmp_path / name / "config.json").write_text(json.dumps(told))
    whole, parts = (
        network_of(kind).load(tmp_path / name, BODY).state_dict() for name in ("whole", f"toy-{kind}")
    )
    assert whole.keys() == parts.keys() and all(torch.equal(whole[key], parts[key]) for key in whole)
    (tmp_path / "toy-dflash").rename(tmp_path / "gone")
    with refuses(ModelError, "head.base_missing"):
        check_fit(tmp_path / f"toy-{kind}", "toy", D, VOCAB, kind)
    (tmp_path / f"toy-{kind}" / "config.json").write_text(
        json.dumps(CONFIG | {"base_head": "../gone", "specviz": {"kind": kind}})
    )
    with refuses(ModelError, "head.base"):
        network_of(kind).load(tmp_path / f"toy-{kind}", BODY)


@pytest.mark.parametrize(
    "more, code",
    [
        ({"conv_kernel_size": 2}, "head.config_lacks"),
        ({"conv_kernel_size": 2, "conv_group_size": 5}, "masked_block.config"),
    ],
)
def test_convolutions_that_make_no_sense_are_refused(tmp_path, more, code):
    written(tmp_path / "head", "dflash2_conv")
    (tmp_path / "head" / "config.json").write_text(json.dumps(CONFIG | more))
    with refuses(ModelError, code):
        network_of("dflash2_conv").load(tmp_path / "head", BODY)


class RecordsAnotherTemperature(BlockChain):
    """Wrong: tokens are drawn at the run's temperature; the block's distributions at half of it are
    recorded."""

    def propose(self, state, budget):
        tree, build = super().propose(state, budget), TreeBuilder()
        if not len(tree):
            return tree
        for place, (token, probs) in enumerate(
            zip(tree.tokens, state.sampling.probs(2 * self.scores(state, len(tree)).block.logits))
        ):
            build.add(token, place - 1, build.begin(probs, IID))
        return build.tree()


class RecordsDraws(BlockTree):
    """Wrong: the nodes of the tree are chosen, but recorded as if they were drawn from the block's
    distributions."""

    def propose(self, state, budget):
        tree, build = super().propose(state, budget), TreeBuilder()
        if not len(tree):
            return tree
        probs = state.sampling.probs(self.scores(state, self.net.length).block.logits)
        draws = {}
        for token, parent, depth in zip(tree.tokens, tree.parents, tree.depths):
            if parent not in draws:
                draws[parent] = build.begin(probs[depth - 1], IID)
            build.add(token, parent, draws[parent])
        return build.tree()


@pytest.mark.parametrize(
    "make, wrong",
    [
        (lambda kit: BlockChain(kit.head("dflare")), False),
        (lambda kit: RecordsAnotherTemperature(kit.head("dflare")), True),
        (lambda kit: BlockTree(kit.head("jetspec"), 2, 3), False),
        (lambda kit: RecordsDraws(kit.head("jetspec"), 2, 3), True),
        (lambda kit: BlockChain(kit.head("dflash2_conv"), correction=kit.head("dflash2")), False),
        (
            lambda kit: RecordsAnotherTemperature(kit.head("dflash2_conv"), correction=kit.head("dflash2")),
            True,
        ),
    ],
    ids=["dflare", "dflare wrong", "jetspec", "jetspec wrong", "dflash2", "dflash2 wrong"],
)
def test_a_wrong_record_of_what_was_drawn_changes_the_distribution(make, wrong):
    """The joint distribution of three tokens, over every way the engine can go."""
    kit = toy(3, share=0.5, sharp=0.8)
    parts = Parts(make(kit), Fixed(2, 2, 8), TokenRejection())
    state = begin(parts, kit, Sampling(1.0), 3, prompt=[token % 3 for token in PROMPT])
    want = joint(kit.net.logits, state.tokens, 3, Sampling(1.0), 3)
    probs, _ = probs_of_engine(parts, kit.target, state, 3, shared=(kit.net, kit.small))
    assert (distance(probs, want) > 1e-3) == wrong and (wrong or distance(probs, want) < 1e-12)


def test_convolutions_start_as_the_plain_block(tmp_path):
    """An untrained convolution changes nothing, so training begins with DFlash's predictions."""
    weights = {
        name: tensor
        for name, tensor in written(tmp_path / "head", "dflash2_conv").items()
        if "_conv" not in name
    }
    plain = masked_block.BlockDrafter(CONFIG).double()
    made = network_of("dflash2_conv").DFlash2(CONFIG | KEYS["dflash2_conv"]).double()
    for head in (plain, made):
        head.load_state_dict(weights, strict=False)
    states, embeds = material()
    with torch.inference_mode():
        found = [head(states[None], embeds[None, None], torch.tensor([[7]])) for head in (plain, made)]
    assert torch.equal(*found) or float((found[0] - found[1]).abs().max()) < 1e-12
