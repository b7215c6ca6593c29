"""Heads that begin with another head's weights: what fits is copied, the rest stays as it was made, and
nothing fitting is refused."""

from __future__ import annotations

import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from specviz.checkpoints import mx
from specviz.training.job import Job, TrainingError
from specviz.training.recipes import run_of
from specviz.training.runner import Runner
from specviz.training.warm_start import copy_head_weights

from ..message_codes import refuses
from .test_features import job as of_pair


class Head(nn.Module):
    def __init__(self, wide: int = 3):
        super().__init__()
        self.fc, self.out = nn.Linear(3, wide, bias=False), nn.Linear(3, 2, bias=False)


@pytest.fixture
def job(tmp_path):
    """A work folder that holds an EAGLE head whose weights are all seven."""
    folder = tmp_path / "models" / "Llama-specviz-eagle"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    save_file(
        {"fc.weight": torch.full((3, 3), 7.0), "out.weight": torch.full((4, 3), 7.0)},
        folder / "model.safetensors",
    )
    return Job(work=tmp_path, shipped=tmp_path, quiet=True, device="cpu", steps=1)


def test_what_has_its_name_and_shape_is_copied_and_the_rest_is_not(job):
    head = Head()
    before = head.out.weight.clone()
    assert copy_head_weights(job, head, "eagle") == 9 / 15
    assert (head.fc.weight == 7).all() and torch.equal(head.out.weight, before)


def test_another_name_can_be_given(job):
    head = Head()
    head.join = nn.Sequential(head.fc)
    del head.fc
    assert copy_head_weights(job, head, "eagle", {"fc.": "join.0."}) == 9 / 15
    assert (head.join[0].weight == 7).all()


def test_where_nothing_fits_it_is_said(job):
    head = Head(wide=5)
    with refuses(TrainingError, "training.nothing_fits", "Llama-specviz-eagle"):
        copy_head_weights(job, head, "eagle")


def test_a_run_begins_so_once_and_goes_on_from_its_checkpoint(job, tmp_path):
    hparams = dict(
        begin="eagle",
        minutes=1,
        muon_lr=0.1,
        adamw_lr=0.1,
        weight_decay=0.0,
        clip=1.0,
        warmup_steps=1,
        decay=0.5,
    )
    first = Head()
    runner = Runner(job, "twice", first, hparams, tmp_path)
    assert (first.fc.weight == 7).all()
    runner.train(
        lambda step: (first.fc(torch.ones(1, 3)).square().mean() + first.out.weight.square().mean(), 1)
    )
    moved = first.fc.weight.clone()
    assert not (moved == 7).any()
    again = Head()
    Runner(job, "twice", again, hparams, tmp_path)
    assert torch.equal(again.fc.weight, moved)


@pytest.mark.parametrize(
    "recipe",
    [
        "eagle",
        "eagle3",
        "medusa",
        "hydra",
        "dflash",
        "peagle",
        "mtp",
        "clover",
        "redrafter",
        "mlp_speculator",
        "fspad",
        "jakiro",
        "glide",
        "kangaroo",
        "falcon",
        "dspark",
        "hidden_transfer",
        "gumiho",
        "blockwise",
        "chimera",
        "ppd",
        "specdiff",
    ],
)
def test_a_head_that_goes_on_from_itself_begins_as_the_same_head(recipe, pair, tmp_path, monkeypatch):
    """What training changes for its own sake, such as a scale, is undone in exported weights and done again."""
    work = of_pair(pair, tmp_path)
    first = exported(run_of(recipe)(work))
    shutil.rmtree(work.folder() / recipe)
    hparams = Job.hparams
    monkeypatch.setattr(Job, "hparams", lambda self, name: hparams(self, name) | {"begin": name})
    monkeypatch.setattr(Runner, "train", lambda *given: None)
    second = exported(run_of(recipe)(work))
    assert second.keys() == first.keys()
    for name, weight in first.items():
        assert torch.allclose(second[name], weight, rtol=0.02, atol=0.02 * float(weight.abs().max())), name


def exported(folder):
    """The weights of a written head, as floats."""
    found = {}
    for path in sorted(folder.glob("*.safetensors")):
        found |= load_file(path)
    return {name: weight.float() for name, weight in mx.from_file_tensors(found).items()}
