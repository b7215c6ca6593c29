"""A target that paints scales: cached passes equal one uncached pass, a text that changes is followed,
guidance is the formula's."""

from __future__ import annotations

import json

import pytest
import torch

from specviz.core import DraftTree
from specviz.core.errors import InvalidUse
from specviz.models.scales import ModelError, Scales
from specviz.targets.next_scale import NextScaleModel

from ..models.scale_nets import WORDS, model, write

PROMPT = [1, 3, 2]
PAINTED = [WORDS + entry for entry in (2, 3, 4, 6, 5, *(7, 8, 9, 10, 11, 7, 9, 8, 11))]


@pytest.fixture(scope="module")
def net(tmp_path_factory):
    return model(tmp_path_factory.mktemp("scales") / "large")


def reference(found, painted, scale, prompt=PROMPT):
    """Logits of a scale from one pass over all rows, without a cache."""
    net, scales = found.net, found.scales
    picture, inputs = scales.blank_pictures(), []
    for one in range(scale + 1):
        inputs.append(net.inputs(picture, one))
        lo, hi = scales.ends[one : one + 2]
        if one < scale:
            picture = net.add_scale(picture, torch.tensor([painted[lo:hi]]) - WORDS)
    counts = torch.bincount(torch.tensor(prompt), minlength=WORDS).float()[None]
    rows = scales.ends[scale + 1]
    states = net(net.condition(counts), torch.cat(inputs, 1), scales.mask()[:rows, :rows])
    return net.logits(states[0, scales.ends[scale] : rows], scale)


def of_scale(found, logits, scale):
    lo, hi = (WORDS + start for start in found.scales.starts[scale : scale + 2])
    assert (logits[:, :lo] == -torch.inf).all() and (logits[:, hi:] == -torch.inf).all()
    return logits[:, lo:hi]


def test_token_maps_sum_to_the_picture(net):
    scales = net.scales
    picture = net.net.add_scale(
        net.net.add_scale(scales.blank_pictures(), torch.tensor([[2]])), torch.tensor([[3, 4, 6, 5]])
    )
    codes = net.net.codes
    assert torch.allclose(
        picture, scales.upsample(codes[[2]][None]) + scales.upsample(codes[[3, 4, 6, 5]][None])
    )
    maps = torch.randn(2, 3, 6, 6)
    assert torch.equal(scales.from_patches(scales.to_patches(maps)), maps) and Scales((3,), 2, (5,)).upsample(
        scales.to_patches(maps)
    ).equal(maps)
    assert torch.equal(scales.to_patches(maps)[0, 1].view(2, 2, 3), maps[0, :, :2, 2:4].permute(1, 2, 0)), (
        "patches in raster order, colour last"
    )


def test_scale_by_scale_equals_one_pass_and_a_late_start(net):
    target, ends = net.open(), net.scales.ends
    for scale in range(3):
        target.sync(PROMPT + PAINTED[: ends[scale]])
        wanted = reference(net, PAINTED, scale)
        assert torch.allclose(of_scale(net, target.next_scale(), scale), wanted, atol=1e-5)
        late = net.open()  # a refiner reads all scales before in its first pass
        late.sync(PROMPT + PAINTED[: ends[scale]])
        assert torch.allclose(of_scale(net, late.next_scale(), scale), wanted, atol=1e-5) and late.passes == 1
    assert target.passes == 3
    target.sync(PROMPT + PAINTED)
    with pytest.raises(InvalidUse) as error:
        target.next_scale()
    assert error.value.code == "target.complete"


def test_rows_do_not_see_later_scales_nor_forget_the_words(net):
    other = PAINTED[:1] + [WORDS + 4] * 4 + PAINTED[5:]
    assert torch.equal(reference(net, PAINTED, 1), reference(net, other, 1))
    assert not torch.allclose(reference(net, PAINTED, 2), reference(net, other, 2))
    assert not torch.allclose(reference(net, PAINTED, 1), reference(net, PAINTED, 1, [1, 4, 2]))


def test_a_changed_text_is_followed(net):
    target = net.open()
    for painted, scale in (
        (PAINTED[:5], 2),
        ([WORDS, *PAINTED[1:5]], 2),
        ([WORDS], 1),
        ([], 0),
        (PAINTED[:5], 2),
        (PAINTED[:1], 1),
        (PAINTED[:1], 1),
    ):
        target.sync(PROMPT + painted)
        before = target.passes
        assert torch.allclose(
            of_scale(net, target.next_scale(), scale), reference(net, painted, scale), atol=1e-5
        )
    assert target.passes == before, "the same scale is not run twice"
    target.sync([1, 4, *PAINTED[:1]])
    assert torch.allclose(
        of_scale(net, target.next_scale(), 1), reference(net, PAINTED, 1, [1, 4]), atol=1e-5
    )
    target.sync(PROMPT + PAINTED[:3])  # in the middle of a scale
    assert torch.allclose(of_scale(net, target.next_scale(), 1), reference(net, PAINTED, 1)[2:], atol=1e-5)
    with pytest.raises(InvalidUse):
        target.sync([*PROMPT, *PAINTED[:1], 2, *PAINTED[1:2]])


def test_the_next_patch_alone_is_scored_by_a_new_pass_and_no_draft_is(net):
    target = net.open()
    target.sync(PROMPT + PAINTED[:1])
    rows = target.next_scale()
    assert torch.allclose(target.score(DraftTree()).logits, rows[:1], atol=1e-5) and target.passes == 2
    with pytest.raises(InvalidUse) as error:
        target.score(DraftTree.chain((PAINTED[1],)))
    assert error.value.code == "target.scales"


def test_guidance_grows_with_the_scale(net):
    guided = net.open()
    guided.guide(3.0, [0, 1, 0, 0, *range(4, 17)])
    for scale, strength in enumerate((1.0, 2.0, 3.0)):
        guided.sync(PROMPT + PAINTED[: net.scales.ends[scale]])
        with_words, without = (reference(net, PAINTED, scale, prompt) for prompt in (PROMPT, [1, 0, 0]))
        wanted = without + strength * (with_words - without)
        assert torch.allclose(of_scale(net, guided.next_scale(), scale), wanted, atol=1e-4)
    assert guided.passes == 3


def test_damaged_folders_are_refused(tmp_path):
    for name, config in (
        ("order", {"grids": [2, 1, 3]}),
        ("count", {"entries": [3, 4]}),
        ("heads", {"num_attention_heads": 3}),
        ("side", {"patch": 1000}),
        ("text", {"grids": "123"}),
    ):
        folder = write(tmp_path / name)
        (folder / "config.json").write_text(
            json.dumps(json.loads((folder / "config.json").read_text()) | config)
        )
        with pytest.raises(ModelError):
            NextScaleModel(folder)
