"""Gumiho: the names of its authors' file are read, and the places after the second compute what their code
computes from the two serial rows; what does not fit is refused."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import save_file
from torch.nn.functional import silu

from specviz.checkpoints.weights import ModelError
from specviz.core import DraftTree
from specviz.methods.trained_heads.gumiho import gumiho_network as network
from specviz.methods.trained_heads.gumiho.gumiho_drafter import SerialThenParallel

from ..message_codes import refuses
from .test_eagle3 import BODY, CONFIG, HD, HEADS, INNER, KV, VOCAB, D

MLPS, BLOCKS = 2, 3


def published(folder, drop=()):
    """A file under the authors' names: two layers, of which the second has an input norm, and MLPs of
    several blocks."""
    source = torch.Generator().manual_seed(5)

    def draw(*shape):
        return torch.randn(*shape, generator=source, dtype=torch.float64) / shape[-1] ** 0.5

    found = {
        "fc.weight": draw(D, 2 * D),
        "fc.bias": draw(D),
        "embed_tokens.weight": draw(VOCAB, D),
        "layers.1.input_layernorm.weight": 1 + draw(D),
    }
    for layer in (0, 1):
        found |= {
            f"layers.{layer}.self_attn.{name}_proj.weight": draw(*shape)
            for name, shape in {
                "q": (HEADS * HD, D),
                "k": (KV * HD, D),
                "v": (KV * HD, D),
                "o": (D, HEADS * HD),
            }.items()
        }
        found |= {
            f"layers.{layer}.post_attention_layernorm.weight": 1 + draw(D),
            f"layers.{layer}.mlp.gate_proj.weight": draw(INNER, D),
            f"layers.{layer}.mlp.up_proj.weight": draw(INNER, D),
            f"layers.{layer}.mlp.down_proj.weight": draw(D, INNER),
        }
    for i in range(MLPS):
        for j in range(1 + BLOCKS):
            found |= {
                f"mlp.mlp.{i}.{j}.linear.weight": draw(D, D if j else 2 * D),
                f"mlp.mlp.{i}.{j}.linear.bias": draw(D),
            }
    found = {name: tensor for name, tensor in found.items() if name not in drop}
    folder.mkdir(parents=True, exist_ok=True)
    save_file(found, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(CONFIG | {"num_hidden_layers": 2}))
    return found


class Target:
    """Embeds tokens by the file's table; states are their own logits."""

    def __init__(self, table):
        self.table, self.vocab = table, VOCAB

    def embed(self, ids):
        return self.table[list(ids)]

    def head(self, states):
        return states


@torch.inference_mode()
def test_later_places_are_the_authors_mlps_of_the_last_two_serial_rows(tmp_path):
    w = published(tmp_path / "head")
    head = network.load(tmp_path / "head", BODY)
    assert len(head) == 2 + MLPS
    model = SerialThenParallel(head)
    model.target, model._kind = Target(w["embed_tokens.weight"]), torch.float64
    features = torch.randn(4, D, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    model._tip = tip = head.open().read(w["embed_tokens.weight"][[1, 2, 3, 4]], features)[-1:]
    model.rows.read(w["embed_tokens.weight"][[1, 2, 3, 4]], features)
    model.score(DraftTree())
    levels = [((5, 6), (-1, -1)), ((7, 8, 9), (0, 1, 1)), ((10, 11, 12), (2, 2, 4))]
    tokens = ()
    parents = ()
    outs = []
    for more, above in levels:
        start = len(tokens)
        tokens = tokens + more
        parents = parents + above
        outs.append(model.score(DraftTree(tokens, parents, (-1,) * len(tokens)), start).logits)

    def fc(token, state):
        return w["fc.weight"] @ torch.cat([w["embed_tokens.weight"][token], state]) + w["fc.bias"]

    def mlp(i, x):
        for j in range(1 + BLOCKS):
            y = silu(w[f"mlp.mlp.{i}.{j}.linear.weight"] @ x + w[f"mlp.mlp.{i}.{j}.linear.bias"])
            x = x + y if j else y
        return x

    for row, node in enumerate((2, 3, 4)):
        first = parents[node]
        pair = torch.cat([fc(tokens[first], tip[0]), fc(tokens[node], outs[0][first])])
        assert torch.allclose(outs[1][row], mlp(0, pair), atol=1e-9)
        for later in [n for n in (5, 6, 7) if parents[n] == node]:
            assert torch.allclose(outs[2][later - 5], mlp(1, pair), atol=1e-9), (
                "whatever token stands between"
            )


@pytest.mark.parametrize(
    "lost, code",
    [("mlp.mlp.0.1.linear.weight", "checkpoint.lacks_weight"), ("fc.weight", "checkpoint.lacks_weight")],
)
def test_a_file_without_a_part_is_refused(tmp_path, lost, code):
    published(tmp_path / "head", drop=(lost,))
    with refuses(ModelError, code):
        network.load(tmp_path / "head", BODY)
