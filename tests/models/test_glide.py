"""GliDe's drafter: its arithmetic re-stated plainly, what it may see, files, and that drafting row by row
is the same network."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file

from specviz.checkpoints.weights import ModelError
from specviz.core import Budget, DraftTree, State
from specviz.methods.trained_heads.glide import glide_network as glide
from specviz.methods.trained_heads.glide.glide_drafter import WIDTHS, CapeChain, GlideModel
from specviz.models.heads import TargetInfo, key_shape
from specviz.targets.tiny import TinyNet, TinyTarget

from ..message_codes import refuses
from .tiny import body, head

TEXT = [3, 7, 1, 0, 9, 4, 11, 2, 8, 5, 6, 10]


@pytest.fixture(scope="module")
def pair():
    target = TinyTarget(TinyNet(12, 3, layers=3, width=16, sharp=1.5))
    return target, head("glide", body(target))


def plain(net, embeds, target_kv, horizons):
    """One layer as the paper has it, row by row and head by head: [n, hidden] before the target's head."""
    layer, (hd, keys) = net.layers[0], (net.sizes.head_dim, net.keys[1])

    def norm(x, weight):
        return x / (x.pow(2).mean(-1, keepdim=True) + net.sizes.eps).sqrt() * weight

    def turned(vector, at, width):
        angle = at * 10000.0 ** (-torch.arange(0, width, 2, dtype=vector.dtype) / width)
        a, b = vector[: width // 2], vector[width // 2 :]
        return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()])

    out = []
    ks = []
    vs = []
    for at, x in enumerate(embeds):
        y = norm(x, layer.input_layernorm.weight)
        own = layer.self_attn
        ks.append([turned(part, at, hd) for part in (own.k_proj.weight @ y).split(hd)])
        vs.append((own.v_proj.weight @ y).split(hd))
        found, group = [], net.sizes.heads // net.sizes.kv_heads
        for h, q in enumerate((own.q_proj.weight @ y).split(hd)):
            w = torch.stack([turned(q, at, hd) @ k[h // group] for k in ks]).div(hd**0.5).softmax(0)
            found.append(sum(a * v[h // group] for a, v in zip(w, vs)))
        x = x + own.o_proj.weight @ torch.cat(found)
        found = []
        group = net.sizes.heads // net.keys[0]
        cross = layer.cross_attn
        for h, q in enumerate((cross.q_proj.weight @ x).split(keys)):
            k, v = (part[h // group, : horizons[at]] for part in target_kv)
            w = (k @ turned(q, at, keys)).div(keys**0.5).softmax(0)
            found.append(w @ v)
        x = x + cross.o_proj.weight @ torch.cat(found) if horizons[at] else x
        y = norm(x, layer.post_attention_layernorm.weight)
        x = x + layer.mlp.down_proj.weight @ (
            torch.nn.functional.silu(layer.mlp.gate_proj.weight @ y) * (layer.mlp.up_proj.weight @ y)
        )
        out.append(norm(x, net.norm.weight))
    return torch.stack(out)


def test_the_network_is_the_papers_and_a_row_sees_what_its_block_allows(pair):
    target, net = pair
    target.sync([*TEXT, 0])
    target_kv, embeds = target.kv(2), target.embed(TEXT)
    horizons = [net.horizon(at) for at in range(len(TEXT))]
    assert horizons == [1, 2, 3, 3, 3, 3, 6, 6, 6, 9, 9, 9] and list(net.reads) == [2]
    found = net(embeds[None], [tuple(part[None] for part in target_kv)], torch.tensor(horizons))[0]
    assert torch.allclose(found, plain(net, embeds, target_kv, horizons), atol=1e-9)
    blind = net(embeds[None], [tuple(part[None] for part in target_kv)], torch.zeros(12, dtype=torch.long))[0]
    assert torch.allclose(blind, plain(net, embeds, target_kv, [0] * 12), atol=1e-9)


def test_drafting_in_rounds_is_the_same_network(pair):
    """The prompt in blocks; the root with all keys; accepted tokens with those there were when they were
    drafted; branches as well."""
    target, net = pair
    model = GlideModel(net)
    model.start(target)
    horizons: list[int] = []
    for known, text in ((0, TEXT[:6]), (6, TEXT[:9]), (9, TEXT[:10])):
        target.sync(text)
        model.sync(text)
        last = len(text) - 1
        horizons = (
            horizons[:known] + [known - 1] * (last - known) + [last]
            if known
            else [net.horizon(at) for at in range(last)] + [last]
        )
        first, second, other = (
            model.score(tree, max(0, len(tree) - 2)).logits
            for tree in (
                DraftTree(),
                DraftTree((5, 6), (-1, -1), (-1, -1)),
                DraftTree((5, 6, 7, 2), (-1, -1, 0, 1), (-1,) * 4),
            )
        )
        target_kv = target.kv(2)
        for row, path in (
            (first[0], []),
            (second[0], [5]),
            (second[1], [6]),
            (other[0], [5, 7]),
            (other[1], [6, 2]),
        ):
            whole = [*text, *path]
            want = plain(net, target.embed(whole), target_kv, [*horizons, *[last] * len(path)])[-1]
            assert torch.allclose(row, target.head(want[None])[0], atol=1e-9)


def test_candidates_in_proportion_to_doubt():
    """One logit row a place, as sure as said; the likeliest goes on, the others are leaves."""

    class Sure:
        token_probs = (0.95, 0.7, 0.45, 0.2)

        def sync(self, tokens):
            self.at = 0

        def score(self, tree, start=0):
            p = self.token_probs[self.at]
            self.at += 1
            probs = torch.full((12,), (1 - p) / 11) + torch.linspace(0, 1e-4, 12)
            probs[7] = p
            return type("S", (), {"logits": probs.log()[None]})

    state = State([1, 2])
    tree = CapeChain(Sure()).propose(state, Budget(4, 16, 64))
    ((_, told),) = state.notes
    assert told["wide"] == [1, 3, 5, 7] == [count for _, count in WIDTHS][::-1] and tree.depths == (
        1,
        *[2] * 3,
        *[3] * 5,
        *[4] * 7,
    )
    chain = [tree.tokens[i] for i in tree.path(9)]
    assert (
        chain == [7, 7, 7, 7] and all(not tree.children(i) for i in (2, 3, 5, 6)) and set(tree.draw) == {-1}
    )
    assert len(CapeChain(Sure()).propose(State([1, 2]), Budget(4, 2, 6))) == 6


def test_files_are_read_back_and_what_does_not_fit_is_refused(pair, tmp_path):
    target, net = pair
    on = body(target)
    save_file(net.state_dict(), tmp_path / "model.safetensors")

    def say(**more):
        import json

        (tmp_path / "config.json").write_text(json.dumps({**net.config, **more}))

    say()
    again = glide.load(tmp_path, on)
    assert all(torch.equal(a, b) for a, b in zip(net.state_dict().values(), again.state_dict().values()))
    for more, says in (
        ({"target_layers": 4}, "glide.keys 4 2 8 3"),
        ({"block_size": None}, "head.config_lacks"),
        ({"target_key_heads": 3}, "head.sizes"),
        ({"hidden_size": 20}, "head.states 20"),
    ):
        say(**more)
        with refuses(ModelError, *says.split()):
            glide.load(tmp_path, on)
    assert key_shape(
        TargetInfo("b", 32, 48, 3, config={"num_attention_heads": 4, "num_key_value_heads": 2})
    ) == (2, 8)
