"""SpecDec++'s head and DISCO's classifier: what is read computes what a plain re-statement computes; what
does not fit is refused."""

from __future__ import annotations

import json
import math

import pytest
import torch
from safetensors.torch import save_file

from specviz.checkpoints.weights import ModelError
from specviz.models import draft_length
from specviz.models.heads import TargetInfo

from ..message_codes import refuses

BODY = TargetInfo(
    "toy", 24, 40, 2, torch.device("cpu"), torch.float64
)  # of the target; the draft's states have 6 numbers
HIDDEN = 6
LAYERS = 3
TOP = 4
INNER = 5


def saved(folder, config, shapes, drop=(), **more):
    source = torch.Generator().manual_seed(3)
    found = {
        name: torch.randn(*shape, generator=source, dtype=torch.float64) / shape[-1]
        for name, shape in shapes.items()
    }
    found = {name: tensor for name, tensor in {**found, **more}.items() if name not in drop}
    folder.mkdir(parents=True, exist_ok=True)
    save_file(found, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return found


def acceptance(folder, **how):
    """SpecDec++'s head under its published names."""
    shapes = {f"model.{LAYERS}.weight": (2, HIDDEN), f"model.{LAYERS}.bias": (2,)}
    for i in range(LAYERS):
        shapes |= {f"model.{i}.linear.weight": (HIDDEN, HIDDEN), f"model.{i}.linear.bias": (HIDDEN,)}
    return saved(folder, {"num_layers": LAYERS}, shapes, **how)


def classifier(folder, config=None, **how):
    shapes = {
        "first.weight": (INNER, TOP + 2),
        "first.bias": (INNER,),
        "second.weight": (1, INNER),
        "second.bias": (1,),
    }
    return saved(folder, {"model_type": "disco", "top": TOP} | (config or {}), shapes, **how)


def restated(w, state, blocks=range(LAYERS)):
    """The published head, a number at a time: x + silu(W x + b) for each block, then softmax over (refused,
    accepted)."""
    x = state.tolist()
    for i in blocks:
        rows, bias = w[f"model.{i}.linear.weight"].tolist(), w[f"model.{i}.linear.bias"].tolist()
        inner = [sum(a * b for a, b in zip(row, x)) + c for row, c in zip(rows, bias)]
        x = [a + z / (1 + math.exp(-z)) for a, z in zip(x, inner)]
    rows, bias = w[f"model.{LAYERS}.weight"].tolist(), w[f"model.{LAYERS}.bias"].tolist()
    refused, accepted = (sum(a * b for a, b in zip(row, x)) + c for row, c in zip(rows, bias))
    return math.exp(accepted) / (math.exp(refused) + math.exp(accepted))


def test_the_published_head_is_read_and_says_what_the_published_forward_says(tmp_path):
    w = acceptance(tmp_path)
    head = draft_length.load(tmp_path, BODY)
    states = 0.3 * torch.randn(5, HIDDEN, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert head.hidden == HIDDEN
    for state, prob in zip(states, head(states).tolist()):
        assert prob == pytest.approx(restated(w, state), abs=1e-9) and 0.001 < prob < 0.999


def test_copies_of_one_block_may_be_left_out(tmp_path):
    """The authors' blocks are one block applied again, and a file of safetensors holds it once."""
    w = acceptance(tmp_path, drop=[f"model.{i}.linear.{part}" for i in (0, 2) for part in ("weight", "bias")])
    state = torch.full((HIDDEN,), 0.1, dtype=torch.float64)
    assert float(draft_length.load(tmp_path, BODY)(state)) == pytest.approx(
        restated(w, state, (1, 1, 1)), abs=1e-9
    )


def test_the_classifier_reads_leaders_entropy_and_place(tmp_path):
    w = classifier(tmp_path)
    made = draft_length.load(tmp_path, BODY)
    distributions = (
        torch.randn(4, 40, generator=torch.Generator().manual_seed(2), dtype=torch.float64).mul(2).softmax(-1)
    )
    for place, probs in enumerate(distributions):
        told = sorted(probs.tolist(), reverse=True)[:TOP] + [
            -sum(p * math.log(p) for p in probs.tolist()),
            place / 20,
        ]
        inner = [
            max(0.0, sum(a * b for a, b in zip(row, told)) + c)
            for row, c in zip(w["first.weight"].tolist(), w["first.bias"].tolist())
        ]
        want = 1 / (
            1
            + math.exp(
                -(sum(a * b for a, b in zip(w["second.weight"][0].tolist(), inner)) + float(w["second.bias"]))
            )
        )
        assert float(made(probs, torch.tensor(place))) == pytest.approx(want, abs=1e-9)
    certain = torch.zeros(40, dtype=torch.float64)
    certain[3] = 1
    assert math.isfinite(float(made(certain, torch.tensor(0)))), "a token that is certain has no entropy"


@pytest.mark.parametrize(
    "make, how, says",
    [
        (acceptance, {"drop": ["model.3.bias"]}, "checkpoint.lacks_weight model.3.bias"),
        (
            acceptance,
            {"drop": [f"model.{i}.linear.weight" for i in range(3)]},
            "head.lacks_weight model.0.linear.weight",
        ),
        (acceptance, {"drop": ["model.3.weight"]}, "draft_length.other_kind"),
        (acceptance, {"extra.weight": torch.ones(2)}, "head.unknown_weights extra.weight"),
        (
            acceptance,
            {"model.1.linear.weight": torch.ones(HIDDEN, HIDDEN + 1)},
            "checkpoint.shape model.1.linear.weight",
        ),
        (classifier, {"config": {"top": 3}}, "draft_length.fields 6 3"),
        (classifier, {"drop": ["second.bias"]}, "checkpoint.lacks_weight second.bias"),
        (classifier, {"third.weight": torch.ones(2)}, "head.unknown_weights third.weight"),
    ],
)
def test_what_does_not_fit_is_refused_with_a_sentence(tmp_path, make, how, says):
    make(tmp_path, **how)
    with refuses(ModelError, *says.split()) as error:
        draft_length.load(tmp_path, BODY)
    assert "\n" not in str(error.value)
