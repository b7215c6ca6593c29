"""Draft passes through a second path: equal to a plain restatement with the changed matrices, the same on
every forward, and without a trace in the target's cache."""

from __future__ import annotations

import json
import math

import pytest
import torch
from safetensors.torch import save_file

from specviz.checkpoints.weights import ModelError
from specviz.core import IID, DraftTree, Sampling, State, TreeBuilder
from specviz.core.errors import InvalidUse
from specviz.models import draft_path
from specviz.models.heads import ready
from specviz.targets.fast import FastModel
from specviz.targets.hf import HFModel
from specviz.targets.int8 import Int8Model
from specviz.targets.static_shapes import StaticModel
from specviz.targets.tiny import TinyNet, TinyTarget
from specviz.verifiers import TokenRejection

from ..message_codes import refuses
from ..models.tiny import body, head
from .tiny import CONFIGS, VOCAB, network

TEXT, NOISE = [7, 3, 21, 9, 40, 7], [5, 11, 2]
KINDS = ("uno", "orthrus")


def path_on(kind, target, scale=1.0):
    made = head(kind, body(target))
    made.scale = scale
    return made


def passed(target, path, text=TEXT, tokens=NOISE):
    target.sync(text)
    return target.draft_path(path).logits(tokens)


def norm(x):
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()


def by_hand(net: TinyNet, path, text, tokens):
    """The pass as the authors write it: keys and values of the text by the target's matrices; those of the
    block, and its queries, by matrices W + B A of their own."""

    def matrices(layer, changed):
        w, d = net.layers[layer], net.width
        parts = dict(
            zip(
                draft_path.ATTENTION + draft_path.FEED_FORWARD,
                (*w["qkv"].split(d), w["o"], *w["up"].chunk(2), w["down"]),
            )
        )
        return {
            name: matrix
            + (
                path.change(layer, name)[1] @ path.change(layer, name)[0]
                if changed and name in path.parts
                else 0
            )
            for name, matrix in parts.items()
        }

    past, ids = len(text) - 1, [*text, *tokens]
    x, rotation = net.embed(ids), net.rotations(list(range(len(ids))))
    for layer in range(len(net.layers)):
        ways = [matrices(layer, place >= past + path.first) for place in range(len(ids))]

        def rows(name, states, ways=ways):
            return torch.stack([way[f"{name}_proj"] @ state for way, state in zip(ways, states)])

        q, k, v = (rows(f"self_attn.{name}", norm(x)).view(len(ids), net.heads, -1) for name in "qkv")
        q, k = (
            torch.cat([turned.real, turned.imag], -1)
            for part in (q, k)
            for turned in [torch.complex(*part.chunk(2, -1)) * rotation[:, None]]
        )
        mixed = []
        for place in range(len(ids)):
            seen = len(ids) if path.both and place >= past else place + 1
            weights = (torch.einsum("hd,shd->hs", q[place], k[:seen]) / math.sqrt(q.shape[-1])).softmax(-1)
            mixed.append(torch.einsum("hs,shd->hd", weights, v[:seen]).flatten())
        x = x + rows("self_attn.o", torch.stack(mixed))
        inner = torch.nn.functional.silu(rows("mlp.gate", norm(x))) * rows("mlp.up", norm(x))
        x = x + rows("mlp.down", inner)
    return net.head(norm(x))[past:]


@pytest.mark.parametrize("kind", KINDS)
@torch.inference_mode()
def test_a_pass_is_the_authors_pass(kind):
    net = TinyNet(12, 3)
    target = TinyTarget(net)
    path = path_on(kind, target)
    got = passed(target, path, [3, 1, 4, 1, 5], [9, 2])
    assert torch.allclose(got, by_hand(net, path, [3, 1, 4, 1, 5], [9, 2]), atol=1e-9)
    path.both = not path.both
    assert not torch.allclose(got, by_hand(net, path, [3, 1, 4, 1, 5], [9, 2]), atol=1e-3), (
        "the mask has a say"
    )


@pytest.fixture(scope="module", params=["llama", "qwen3"])
def folder(request, tmp_path_factory):
    place = tmp_path_factory.mktemp(request.param)
    config = CONFIGS[request.param]()
    config.tie_word_embeddings = False
    network(config, seed=2).save_pretrained(place)
    return place


@pytest.mark.parametrize("kind", KINDS)
def test_every_forward_takes_the_same_path(folder, kind):
    found = {}
    for made in (FastModel, HFModel, StaticModel, Int8Model):
        target = made(folder).open()
        path = path_on(kind, target)
        found[made] = passed(target, path).float()
        plain = target.score(DraftTree.chain(tuple(NOISE))).logits.float()
        assert not torch.allclose(found[made][1:], plain[1:], atol=1e-3)
        if (
            path.first
        ):  # the root's row is the target's, to the last bit where rows are computed independently
            assert (
                torch.equal(found[made][0], plain[0])
                or made is not Int8Model
                and torch.allclose(found[made][0], plain[0], atol=1e-5)
            )
    for made in (HFModel, StaticModel):
        assert torch.allclose(found[made], found[FastModel], atol=2e-4)
    error = (found[Int8Model] - found[FastModel]).square().mean().sqrt() / found[FastModel].std()
    assert error < 0.2, f"eight bits lie {error:.2f} standard deviations away"


def test_a_pass_leaves_the_cache_and_what_is_scored_next_as_they_were(folder):
    target, other = (FastModel(folder).open() for _ in range(2))
    path = path_on("orthrus", target)
    for tokens in (TEXT, [*TEXT, 5, 8]):
        passed(target, path, tokens)
        other.sync(tokens)
        tree = DraftTree((1, 2, 3), (-1, -1, 0), (-1,) * 3)
        assert torch.allclose(target.score(tree).logits, other.score(tree).logits, atol=1e-5)
    fresh = FastModel(folder).open()
    with refuses(InvalidUse, "target.not_synced"):
        fresh.draft_path(ready(path, body(fresh))).logits(NOISE)


def authors_noise_bounds(mask_token_id, vocab_size):
    """Facts of ifm-ai/uno 9018a5d, engine/noise.py, and ed2ee36, utils/model_tokens.py: noise is drawn from
    [1, mask), and without a mask token the vocabulary size takes its place."""
    return 1, min(vocab_size if mask_token_id is None else mask_token_id, vocab_size)


@pytest.mark.parametrize("mask", [None, 30, VOCAB + 9])
def test_noise_is_drawn_from_the_authors_range(mask):
    path = head("uno", body(TinyTarget(TinyNet(VOCAB, 0)), {"mask_token_id": mask}))
    low, high = authors_noise_bounds(mask, VOCAB)
    assert path.fillers([0.0, 0.5, 1 - 1e-12]) == [low, low + (high - low) // 2, high - 1]
    count = 100 * (high - low)
    drawn = path.fillers([(i + 0.5) / count for i in range(count)])
    assert [drawn.count(token) for token in range(low, high)] == [100] * (high - low)


@torch.inference_mode()
def test_the_low_rank_change_is_the_authors_gated_one():
    """Facts of ifm-ai/uno 9018a5d, layers/linear.py and utils/lora.py: the A factors of fused matrices are
    multiplied at once, their outputs are masked by row (the seed's row 0), and each slice of the output
    grows by alpha / r times its own B."""
    net, alpha = TinyTarget(TinyNet(12, 3)), 32
    path = path_on("uno", net, alpha / 2)
    x, names = torch.randn(4, net.hidden, dtype=torch.float64), draft_path.ATTENTION[:3]
    row_mask = torch.tensor([0.0, 1, 1, 1], dtype=torch.float64)
    slices = [path.changes.get_submodule(name) for name in names]
    rank = slices[0].down.shape[1]
    hidden = (x @ torch.cat([one.down[1] for one in slices]).T) * row_mask[:, None]
    for place, (name, one) in enumerate(zip(names, slices)):
        want = alpha / 2 * hidden[:, place * rank : (place + 1) * rank] @ one.up[1]
        got = path.delta(1, name, x) * (torch.arange(4) >= path.first)[:, None]
        assert torch.allclose(got, want, atol=1e-9) and float(want.abs().max()) > 1e-3 and not want[0].any()


def test_a_drafted_row_is_verified_as_the_authors_do():
    """Facts of ifm-ai/uno 9018a5d, engine/two_pass_decoding.py: accept below min(p / q, 1); what is left is
    the positive part of p - q, divided by its sum."""
    state = State([1, 2], Sampling(1.0), limit=9)
    p, q = torch.randn(2, VOCAB, dtype=torch.float64).softmax(-1)
    for token in range(VOCAB):
        builder = TreeBuilder()
        builder.add(token, -1, builder.begin(q, IID))
        decision = TokenRejection().test(builder.tree(), 0, p, state)
        assert decision.accept == pytest.approx(min(float(p[token] / q[token]), 1.0))
        left = (p - q).clamp(min=0)
        if decision.verdict == "rejected":
            assert torch.allclose(decision.remaining, left / left.sum())


def test_a_lora_adapter_under_its_published_names_is_read(folder, tmp_path):
    target = FastModel(folder).open()
    rank, source = 3, torch.Generator().manual_seed(0)
    tensors = {}
    for layer in range(target.layers):
        for part, (wide, out) in draft_path.sizes_of(body(target), draft_path.NoisePath.parts).items():
            name = f"base_model.model.model.layers.{layer}.{part}"
            tensors[f"{name}.lora_A.weight"] = torch.randn(rank, wide, generator=source)
            tensors[f"{name}.lora_B.weight"] = torch.randn(out, rank, generator=source)
    save_file(tensors, tmp_path / "adapter_model.safetensors")
    (tmp_path / "adapter_config.json").write_text(json.dumps({"r": rank, "lora_alpha": 6}))
    path = draft_path.load("uno", tmp_path, body(target))
    down, up = path.change(1, "mlp.up_proj")
    assert torch.equal(down, tensors["base_model.model.model.layers.1.mlp.up_proj.lora_A.weight"])
    assert torch.allclose(up, 2 * tensors["base_model.model.model.layers.1.mlp.up_proj.lora_B.weight"])
    with refuses(ModelError, "draft_path.config"):
        draft_path.load("orthrus", tmp_path, body(target))
