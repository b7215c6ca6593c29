"""Fidelity of the int8 forward to the floats of the embedded model, on fixed sampled answers, and that
spoiled weights are noticed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from specviz import ROOT
from specviz.targets.fast import FastModel
from specviz.targets.int8 import Int8Model

from ..message_codes import refuses
from .quantisation_error import quantisation_error
from .tiny import VOCAB, checkpoint

FOLDER = ROOT / "assets" / "models" / "SmolLM2-135M-Instruct"
ANSWERS = (
    Path(__file__).parent / "sampled_answers.json"
)  # [prompt length, token ids of chat prompt and answer], temperature 0, 0.7 and 1
KL, AGREEMENT = 0.011, 0.95


@pytest.fixture(scope="module")
def floats():
    if not FOLDER.is_dir():
        pytest.skip("the weights of SmolLM2-135M-Instruct are not in assets/models")
    return FastModel(FOLDER)


@pytest.mark.thorough  # the tests below compare both forward passes on a tiny checkpoint
def test_int8_is_faithful_to_the_embedded_model(floats):
    texts = [(ids, start) for start, ids in json.loads(ANSWERS.read_text())]
    error = quantisation_error(floats, Int8Model(FOLDER), texts)
    assert error.positions == 1184 and error.kl <= KL and error.agreement >= AGREEMENT


def test_error_is_zero_for_the_same_model_and_large_for_a_spoiled_one(tmp_path):
    path, texts = checkpoint(tmp_path, "llama"), [(torch.arange(1, 40).remainder(VOCAB).tolist(), 5)]
    same = quantisation_error(FastModel(path), FastModel(path), texts)
    assert same.kl < 1e-9 and same.agreement == 1 and same.positions == 34
    spoiled = Int8Model(path)
    spoiled.blocks[0].down.matrix.scales *= 3  # the compiled pass reads this array
    honest = quantisation_error(FastModel(path), Int8Model(path), texts)
    assert 0 < honest.kl < 0.2 * quantisation_error(FastModel(path), spoiled, texts).kl
    with refuses(ValueError, "quantisation.no_position"):
        quantisation_error(FastModel(path), FastModel(path), [])


def test_drafters_get_states_in_the_checkpoints_basis(tmp_path):
    path = checkpoint(tmp_path, "llama")
    found = []
    for model in (FastModel(path), Int8Model(path)):
        target = model.open()
        target.capture(frozenset({"final", "layer:0", "layer:1"}))
        states = target.sync([5, 9, 2, 7, 11, 3]).hidden_states
        states["logits"] = target.head(states["final"])
        states["embedding"] = target.embed([4, 8])
        exit = target.early(1).step(target._tree)
        found.append(states | {"exit": exit})
    for name in found[0]:
        a, b = found[0][name], found[1][name]
        assert (a - b).norm() < 0.1 * a.norm(), name
