"""The KV-borrowing assistant: its step against an independent computation, what it keeps and does not keep,
the published file layout, and its output over clusters."""

from __future__ import annotations

import json
import math

import pytest
import torch
from safetensors.torch import save_file

from specviz.checkpoints.weights import ModelError
from specviz.core import DraftTree, Parts, Sampling, State, open_run, play
from specviz.drafters.heads.own_tables import read_own_tables
from specviz.drafters.model.chain import DraftChain
from specviz.methods.trained_heads.kv_assistant import kv_assistant_network as network
from specviz.methods.trained_heads.kv_assistant.kv_assistant_drafter import (
    AssistantModel,
    BorrowingDrafter,
    ClusterOutput,
)
from specviz.models.heads import HeadWeights, TargetInfo
from specviz.policies import Fixed
from specviz.verifiers import TokenRejection

from ..exactness.toys import toy
from ..message_codes import refuses
from .tiny import body, head

TEXT = [3, 1, 4, 1, 5, 9, 2, 6]


@pytest.fixture
def pair():
    kit = toy(12, layers=4, seed=2)
    return kit, head("kv_assistant", body(kit.target))


def synced(kit, net, text=TEXT):
    """A drafter at the end of a text, and the target's final state before its last token."""
    kit.target.capture(frozenset({"final"}))
    rows = kit.target.sync(text).hidden_states["final"]
    model = AssistantModel(net)
    model.start(kit.target)
    model.before = rows[-1:]
    assert model.sync(text)
    return model, rows


def rms(x, weight, eps=1e-6):
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * weight


def by_hand(net, kit, embed, state, at):
    """One step of one query, in plain loops: the published forward pass without its kernels."""
    x = net.pre_projection.weight @ torch.cat([embed, state])
    for layer, read in zip(net.model.layers, net.reads):
        keys, values = (part[:, : at + 1] for part in kit.target.kv(read))
        attn, heads, wide = layer.self_attn, [], net.keys[1]
        q = (attn.q_proj.weight @ rms(x, layer.input_layernorm.weight)).view(-1, wide)
        for i, one in enumerate(q):
            one = rms(one, attn.q_norm.weight)
            half = wide // 2
            turned = torch.empty_like(one)
            for j in range(half):
                angle = at * float(net.inverse[j])
                turned[j] = one[j] * math.cos(angle) - one[j + half] * math.sin(angle)
                turned[j + half] = one[j + half] * math.cos(angle) + one[j] * math.sin(angle)
            group = i // (len(q) // net.keys[0])
            weights = (keys[group] @ turned).softmax(-1)  # the scale is in the norm
            heads.append(weights @ values[group])
        x = x + rms(attn.o_proj.weight @ torch.cat(heads), layer.post_attention_layernorm.weight)
        y, mlp = rms(x, layer.pre_feedforward_layernorm.weight), layer.mlp
        gate = mlp.gate_proj.weight @ y
        y = mlp.down_proj.weight @ (gate * torch.sigmoid(gate) * (mlp.up_proj.weight @ y))
        x = (x + rms(y, layer.post_feedforward_layernorm.weight)) * layer.layer_scalar
    own = rms(x, net.model.norm.weight)
    return own, net.post_projection.weight @ own


def test_two_steps_are_those_of_an_independent_computation(pair):
    """The second step looks from the same position at the same keys."""
    kit, net = pair
    model, rows = synced(kit, net)
    first = model.score(DraftTree())
    second = model.score(DraftTree.chain([7]))
    at, state = len(TEXT) - 2, rows[-1]
    for token, scores in ((TEXT[-1], first), (7, second)):
        own, state = by_hand(net, kit, kit.target.embed([token])[0], state, at)
        best = (net.masked_embedding.centroids.weight @ own).topk(net.top).indices
        chosen = set(net.masked_embedding.tokens[best].flatten().tolist())
        want = kit.target.head(state[None])[0]
        found = scores.logits[-1]
        assert {i for i in range(12) if found[i] > -math.inf} == chosen and 0 < len(chosen) < 12
        assert all(float(found[i]) == pytest.approx(float(want[i]), abs=1e-5) for i in chosen)


def test_siblings_do_not_see_each_other_and_nothing_is_kept(pair):
    kit, net = pair
    model, _ = synced(kit, net)
    model.score(DraftTree())
    model.score(DraftTree((7, 4), (-1, -1), (-1,) * 2))
    both = model.score(DraftTree((7, 4, 5), (-1, -1, 0), (-1,) * 3), 2)
    model.score(DraftTree())
    model.score(DraftTree.chain([7]))
    alone = model.score(DraftTree.chain([7, 5]), 1)
    assert torch.allclose(both.logits[-1], alone.logits[-1])
    assert kit.target.cached_tokens == TEXT[:-1] and not any("cache" in name for name in vars(model))


def test_the_note_says_what_is_borrowed(pair):
    kit, net = pair
    parts = Parts(BorrowingDrafter(net, DraftChain), Fixed(3), TokenRejection())
    state = State(list(TEXT), Sampling(0.0), limit=12)
    open_run(parts, kit.target, state)
    play(parts, kit.target, state)
    (note,) = [data for kind, data in state.notes if kind == "borrowed"]
    assert note["cache_bytes"] == 0 and note["cached"] == len(TEXT) - 1
    assert note["position"] == len(TEXT) - 2 and note["layers"] == net.reads == [2, 3]
    assert sum(note["shares"]) <= 1.001 and max(note["places"]) < len(TEXT) - 1


def published(net, target: TargetInfo, folder, **more):
    """A checkpoint of the published layout with a token table of the drafter's own, of random numbers."""
    torch.manual_seed(4)
    table = torch.randn(target.vocab, net.width)
    tensors = {**net.state_dict(), "lm_head.weight": table, "model.embed_tokens.weight": table.clone()}
    text = net.config["text_config"] | {"layer_types": ["sliding_attention", "full_attention"]}
    config = {key: value for key, value in net.config.items() if key != "target_reads"}
    folder.mkdir(exist_ok=True)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config | {"text_config": text} | more))
    return table


KINDS = ["sliding_attention", "full_attention", "sliding_attention", "full_attention"]


def test_a_published_file_is_read_with_its_own_table_and_the_layers_of_its_kinds(pair, tmp_path):
    """The last layer of each kind that has keys of its own; the target's last one shares keys here."""
    kit, net = pair
    target = body(kit.target, {"layer_types": KINDS, "num_kv_shared_layers": 1, "num_hidden_layers": 4})
    table = published(net, target, tmp_path / "assistant")
    again = network.load(tmp_path / "assistant", target)
    assert again.reads == [2, 1] and again.own_table
    weights = HeadWeights(tmp_path / "assistant", target)
    assert read_own_tables(weights, again, kit.target, 12) == (None, None)  # no tables of the target's width
    own = torch.randn(2, net.width, dtype=torch.float64)
    logits = ClusterOutput(again, kit.target)(own, own)
    best = again.masked_embedding.centroids(own).topk(again.top).indices
    for row, chosen in zip(logits, again.masked_embedding.tokens[best].flatten(1)):
        assert torch.isfinite(row).sum() == len(chosen)
    assert torch.allclose(
        logits.masked_fill(logits == -torch.inf, 0.0),
        (own @ table.double().T).masked_fill(logits == -torch.inf, 0.0),
    )


def test_our_own_file_is_read_back(pair, tmp_path):
    kit, net = pair
    save_file(net.state_dict(), tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(net.config))
    again = network.load(tmp_path, body(kit.target))
    assert again.reads == net.reads and not again.own_table
    assert all(torch.equal(a, b) for a, b in zip(net.state_dict().values(), again.state_dict().values()))


@pytest.mark.parametrize(
    "more, says",
    [
        ({"backbone_hidden_size": 20}, "head.states"),
        ({"backbone_hidden_size": None}, "head.config_lacks"),
        ({"num_centroids": 5}, "kv_assistant.clusters"),
        ({"target_reads": [9, 1]}, "kv_assistant.layers"),
        ({"text_config": {}}, "head.config_lacks"),
    ],
)
def test_what_does_not_fit_is_refused(pair, tmp_path, more, says):
    kit, net = pair
    save_file(net.state_dict(), tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({**net.config, **more}))
    with refuses(ModelError, *says.split()):
        network.load(tmp_path, body(kit.target))


def test_an_order_that_lists_a_token_twice_is_refused(pair, tmp_path):
    kit, net = pair
    tensors = dict(net.state_dict())
    tensors["masked_embedding.token_ordering"] = torch.zeros(12, dtype=torch.long)
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(net.config))
    with refuses(ModelError, "head.tokens"):
        network.load(tmp_path, body(kit.target))
