"""Heads that begin with another head's weights: what fits is copied, the rest stays as it was made, and
nothing fitting is refused."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from specviz.training.job import Job, TrainingError
from specviz.training.runner import Runner
from specviz.training.warm_start import copy_head_weights

from ..message_codes import refuses


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
