"""M2R2's adapters: their arithmetic re-stated plainly, drafting row by row is the same network, what the
exit lends, files."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import save_file

from specviz.checkpoints.weights import ModelError
from specviz.core import Budget, DraftTree, Sampling, State, Verdict, open_run
from specviz.methods.trained_heads.m2r2 import METHOD
from specviz.methods.trained_heads.m2r2 import m2r2_network as m2r2
from specviz.methods.trained_heads.m2r2.m2r2_drafter import M2R2Chain
from specviz.targets.tiny import TinyNet, TinyTarget

from ..drafters.lookup.toys import layered
from ..exactness.toys import greedy
from ..message_codes import refuses
from .tiny import body, head

TEXT = [3, 7, 1, 0, 9, 4, 11, 2, 8, 5, 6, 10]
NUMBERS = {"exit_layer": 2, "rank": 3}


@pytest.fixture(scope="module")
def pair():
    target = TinyTarget(TinyNet(12, 3, layers=4, width=16, sharp=1.5))
    net = m2r2.build(body(target), NUMBERS).double()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        for weight in net.parameters():
            torch.nn.init.normal_(weight, std=weight.shape[-1] ** -0.5)
    return target, net.eval().requires_grad_(False)


def plain(net, embeds, target_kv):
    """Row by row and head by head: how far each row is moved, [n, hidden]."""
    width, eps = net.keys[1], net.config["rms_norm_eps"]

    def norm(x, weight):
        return x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt() * weight

    def turned(vector, at):
        angle = at * 10000.0 ** (-torch.arange(0, width, 2, dtype=vector.dtype) / width)
        a, b = vector[: width // 2], vector[width // 2 :]
        return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()])

    out = []
    for at, start in enumerate(embeds):
        x = start
        for layer, (keys, values) in zip(net.layers, target_kv):
            y, found = norm(x, layer.input_layernorm.weight), []
            for h, q in enumerate((layer.q_b_proj.weight @ (layer.q_a_proj.weight @ y)).split(width)):
                k, v = keys[h // layer.group, : at + 1], values[h // layer.group, : at + 1]
                w = (k @ turned(norm(q, layer.q_norm.weight), at)).div(width**0.5).softmax(0)
                found.append(w @ v)
            x = x + layer.o_b_proj.weight @ (layer.o_a_proj.weight @ torch.cat(found))
            y = norm(x, layer.post_attention_layernorm.weight)
            x = x + layer.down_proj.weight @ (
                torch.nn.functional.silu(layer.gate_proj.weight @ y) * (layer.up_proj.weight @ y)
            )
        out.append(x - start)
    return torch.stack(out)


def kv_of(target, text):
    target.sync([*text, 0])
    return [target.kv(layer) for layer in range(2)]


def test_the_network_is_what_it_says(pair):
    target, net = pair
    target_kv, embeds = kv_of(target, TEXT), target.embed(TEXT)
    found = net(embeds[None], [tuple(part[None] for part in one) for one in target_kv])[0]
    assert torch.allclose(
        found, plain(net, embeds, target_kv), atol=1e-6
    )  # rotary angles are in single precision
    assert not m2r2.build(body(target), NUMBERS)(
        embeds[None].float(), [tuple(part[None].float() for part in one) for one in target_kv]
    ).any()


def test_a_round_drafts_what_the_network_says_of_the_text(pair):
    """Each token from slow plus fast residual behind the text and what was drafted, keys of drafted tokens
    included."""
    target, net = pair
    drafter, state = M2R2Chain(net), State(TEXT[:7], Sampling(0.0))
    target.sync(state.tokens)
    drafter.start(state, target, None)
    for _ in range(2):  # a second one begins where the text goes on
        tree = drafter.propose(state, Budget(3))
        (_, told), (kind, moved) = state.notes[-2:]
        whole = [*state.tokens, *tree.tokens]
        target_kv, fresh = kv_of(TinyTarget(target.net), whole), TinyTarget(target.net)
        fresh.capture(frozenset({"layer:2"}))
        fast = plain(net, fresh.embed(whole), target_kv)
        slow = fresh.sync([*whole, 0]).hidden_states["layer:2"]
        logits = target.head(target.norm(slow + fast))
        at = len(state.tokens) - 1
        assert list(tree.tokens) == logits[at:-1].argmax(-1).tolist() and len(tree) == 3
        want = fast.norm(dim=-1) / slow.norm(dim=-1)
        assert (
            kind == "residuals"
            and moved["line"] == pytest.approx(want[at:-1].tolist(), abs=1e-4)
            and told["reused"] == 2
        )
        state.tokens += [tree.tokens[0], 5]
        target.score(tree)
        target.commit(Verdict((0,), 5, "correction"))


def test_the_engine_lends_the_same_and_runs_the_first_layers_once(tmp_path):
    """On the fast forward: keys of the scratch are those of the text; together one pass of all layers a
    round."""
    one = layered(tmp_path, 12, 6)
    net = head("m2r2", body(one.target))
    target = one.target
    rows = []
    view, other = target.early(2), one.target.model.open()
    target.sync(TEXT[:5])
    view.step(DraftTree(), 0)
    view.step(DraftTree.chain([8]), 0)
    other.sync([*TEXT[:5], 8, 0])
    for layer in range(2):
        assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(view.kv(layer), other.kv(layer)))
    parts, state = (
        METHOD.build(type("Kit", (), {"head": lambda self, kind: net})(), 3, 0.0),
        State([3, 7, 1, 4], limit=20),
    )
    open_run(parts, target, state)
    inner = target._layers

    def counted(given, x, first, end):
        rows.extend([first] * len(x))
        return inner(given, x, first, end)

    target._layers = counted
    tree = parts.drafter.propose(state, Budget(3))
    target.score(tree)
    assert len(tree) == 3 and rows.count(net.exit) == 4 and rows.count(0) <= 1 + 3 + 1
    assert greedy(one.net.logits, [3, 7, 1, 4], 1) == [3, 7, 1, 4, int(target.score(tree).logits[0].argmax())]


def test_files_are_read_back_and_what_does_not_fit_is_refused(pair, tmp_path):
    target, net = pair
    on = body(target)
    save_file(net.state_dict(), tmp_path / "model.safetensors")

    def say(**more):
        (tmp_path / "config.json").write_text(json.dumps({**net.config, **more}))

    say()
    again = m2r2.load(tmp_path, on)
    assert again.exit == 2 and all(
        torch.equal(a, b) for a, b in zip(net.state_dict().values(), again.state_dict().values())
    )
    for more, says in (
        ({"exit_layer": 4}, "head.exit_layer 4"),
        ({"rank": None}, "head.config_lacks"),
        ({"rank": 5}, "checkpoint.shape"),
        ({"target_head_dim": 4}, "m2r2.keys 2 4 8"),
        ({"target_key_heads": 3}, "head.sizes"),
        ({"exit_layer": 1}, "head.unknown_weights layers.1"),
        ({"exit_layer": 3}, "checkpoint.lacks_weight layers.2"),
        ({"hidden_size": 20}, "head.states 20"),
    ):
        say(**more)
        with refuses(ModelError, *says.split()):
            m2r2.load(tmp_path, on)
