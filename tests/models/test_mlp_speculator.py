"""MLPSpeculator: the published layout is read and drafts what a plain re-statement of the published forward
drafts; what does not fit is refused."""

from __future__ import annotations

import json
import math

import pytest
import torch
from safetensors.torch import save_file

from specviz.checkpoints.weights import ModelError
from specviz.core import Budget, Sampling, Scores, State
from specviz.drafters.heads.recurrent import MlpSpeculatorTree
from specviz.methods.trained_heads.mlp_speculator import mlp_speculator_network as mlp_speculator
from specviz.models.heads import TargetInfo

from ..message_codes import refuses

D = 8
VOCAB = 20
INNER = 6
LEVELS = 3
TOP = (3, 2, 2)
BODY = TargetInfo("toy", D, VOCAB, 2, torch.device("cpu"), torch.float64)


def published(folder, tied=False, at="speculator.", drop=(), config=None, **more):
    source = torch.Generator().manual_seed(6)

    def draw(*shape):
        return torch.randn(*shape, generator=source, dtype=torch.float64) / shape[-1] ** 0.5

    found = {}
    for i in range(LEVELS):
        one = {
            f"emb.{i}.weight": draw(VOCAB, INNER),
            f"proj.{i}.weight": draw(INNER, INNER if i else D),
            f"ln.{i}.weight": 1 + draw(INNER),
            f"ln.{i}.bias": draw(INNER),
            f"head.{i}.weight": 4 * draw(VOCAB, INNER),
        }
        if tied and i:  # twins of the first level's, and of the second's projection
            one = {
                name: found[name.replace(f".{i}.", ".1." if "proj" in name else ".0.")].clone()
                if i > 1 or "proj" not in name
                else tensor
                for name, tensor in one.items()
            }
        found |= one
    found = {name: tensor for name, tensor in {**found, **more}.items() if name not in drop}
    folder.mkdir(parents=True, exist_ok=True)
    save_file({at + name: tensor for name, tensor in found.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(
        json.dumps(
            {
                "model_type": "mlp_speculator",
                "emb_dim": D,
                "inner_dim": INNER,
                "n_predict": LEVELS,
                "vocab_size": VOCAB,
                "tie_weights": tied,
                "scale_input": tied,
                "top_k_tokens_per_head": list(TOP),
                "n_candidates": 5,
            }
            | (config or {})
        )
    )
    return found


def restated(w, state, tokens, scaled):
    """Logits behind ``tokens``, by the published forward, a number at a time."""
    share = 0.5 ** (0.5 / LEVELS)
    weight = math.sqrt((1 - share**2) * INNER / 2) / share
    x = state.tolist()
    if scaled:
        size = math.sqrt(sum(a * a for a in x) / D + 1e-6)
        x = [a / size / math.sqrt(2) for a in x]
    for i, token in enumerate(tokens):
        z = [sum(a * b for a, b in zip(row, x)) for row in w[f"proj.{i}.weight"].tolist()]
        z = [a + weight * b for a, b in zip(z, w[f"emb.{i}.weight"][token].tolist())]
        size = math.sqrt(sum(a * a for a in z) / INNER + 1e-6)
        z = [a / size * b + c for a, b, c in zip(z, w[f"ln.{i}.weight"].tolist(), w[f"ln.{i}.bias"].tolist())]
        x = [a * (1 + math.erf(a / math.sqrt(2))) / 2 for a in z]
    return w[f"head.{len(tokens) - 1}.weight"] @ torch.tensor(x, dtype=torch.float64)


@pytest.mark.parametrize("tied, at", [(False, "speculator."), (False, ""), (True, "speculator.")])
def test_the_published_layout_drafts_the_published_tree(tmp_path, tied, at):
    w = published(tmp_path, tied, at)
    made = mlp_speculator.load(tmp_path, BODY)
    state = torch.randn(D, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    x = state[None]
    for level, token in enumerate((4, 11, 7)):
        x = made.step(level, x, torch.tensor([token]))
        assert torch.allclose(
            made.logits(level, x)[0], restated(w, state, (4, 11, 7)[: level + 1], tied), atol=1e-9
        )

    paths = [(0.0, ())]
    for count in TOP:
        grown = []
        for value, path in paths:
            probs = restated(w, state, (4, *path), tied).log_softmax(-1)
            grown += [
                (value + float(probs[token]), (*path, token))
                for token in probs.argsort(descending=True)[:count].tolist()
            ]
        paths = grown
    want = {path for _, path in sorted(paths, reverse=True)[:5]}

    drafter = MlpSpeculatorTree(made, 5)
    drafter.start(State([2, 4]), None, Scores(torch.zeros(1, VOCAB), {"final": state[None]}))
    tree = drafter.propose(State([2, 4], Sampling(1.0), limit=9), Budget(8, 16))
    ends = [i for i in range(len(tree)) if not tree.children(i)]
    assert {tuple(tree.tokens[j] for j in tree.path(i)) for i in ends} == want
    assert len({tuple(tree.tokens[j] for j in tree.path(i)) for i in range(len(tree))}) == len(tree), (
        "no node is there twice"
    )
    assert len(drafter.propose(State([2, 4], Sampling(1.0), limit=9), Budget(8, 1))) == LEVELS, (
        "a target without trees gets a chain"
    )


def test_copies_of_tied_weights_may_be_left_out(tmp_path):
    twins = [f"{name}.{i}.weight" for i in (1, 2) for name in ("emb", "ln", "head")] + [
        "proj.2.weight",
        "ln.1.bias",
        "ln.2.bias",
    ]
    w = published(tmp_path / "whole", True)
    published(tmp_path / "bare", True, drop=twins)
    whole, bare = (mlp_speculator.load(tmp_path / name, BODY) for name in ("whole", "bare"))
    assert all(torch.equal(a, b) for a, b in zip(whole.state_dict().values(), bare.state_dict().values()))
    assert not torch.equal(w["proj.1.weight"], w["proj.0.weight"][:, :INNER])


@pytest.mark.parametrize(
    "how, says",
    [
        ({"drop": ["head.2.weight"]}, "checkpoint.lacks_weight speculator.head.2.weight"),
        ({"drop": ["ln.0.bias"], "tied": True}, "checkpoint.lacks_weight speculator.ln.0.bias"),
        ({"gate.weight": torch.ones(2)}, "head.unknown_weights gate.weight"),
        ({"emb.3.weight": torch.ones(2)}, "head.unknown_weights emb.3.weight"),
        ({"config": {"n_predict": None}}, "mlp_speculator.config n_predict"),
        ({"config": {"top_k_tokens_per_head": [0, 2]}}, "mlp_speculator.config top_k_tokens_per_head"),
        ({"config": {"emb_dim": 16}}, "head.states 16 8"),
        ({"config": {"inner_dim": 5}}, "checkpoint.shape speculator.emb.0.weight"),
    ],
)
def test_what_does_not_fit_is_refused_with_a_sentence(tmp_path, how, says):
    published(tmp_path, **how)
    with refuses(ModelError, *says.split()) as error:
        mlp_speculator.load(tmp_path, BODY)
    assert "\n" not in str(error.value)
