"""Large matrices of heads are read as the 16-bit floats that they are, and say the same; what changes or
learns is multiplied plainly."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from specviz.models.heads import StreamedLinear, TargetInfo, ready


def head(bias: bool = True):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(256, 512, bias), nn.Linear(512, 8))
    with torch.no_grad():
        for part in module:
            part.weight.copy_(part.weight.half().float())
    return ready(module, TargetInfo("toy", 256, 8, 1))


def test_large_matrices_say_what_they_said():
    for bias in (True, False):
        module, rng = head(bias), torch.Generator().manual_seed(1)
        assert type(module[0].forward) is StreamedLinear and type(module[1].forward) is not StreamedLinear
        for x in (
            torch.randn(256, generator=rng),
            torch.randn(1, 256, generator=rng),
            torch.randn(7, 256, generator=rng),
            torch.randn(2, 3, 256, generator=rng),
        ):
            want = F.linear(x, module[0].weight, module[0].bias)
            with torch.inference_mode():
                found = module[0](x)
            assert found.shape == want.shape and (found - want).abs().max() < 1e-5
        with torch.inference_mode():
            module[0](torch.zeros(1, 256))
        assert module[0].forward._run is not None


def test_weights_that_change_are_read_anew():
    module, x = head(), torch.ones(2, 256)
    with torch.inference_mode():
        before = module[0](x)
    with torch.no_grad():
        module[0].weight.zero_()
    with torch.inference_mode():
        assert before.abs().max() > 0.1 and torch.equal(module[0](x), module[0].bias.expand(2, -1))


def test_what_learns_or_is_no_sixteen_bits_is_multiplied_plainly():
    module, x = head(), torch.ones(2, 256, requires_grad=True)
    module[0](x).sum().backward()
    assert x.grad is not None and module[0].forward._of is None
    with torch.no_grad():
        module[0].weight.add_(1e-5 * torch.randn_like(module[0].weight))
    with torch.inference_mode():
        assert torch.equal(module[0](x), F.linear(x, module[0].weight, module[0].bias))
    assert module[0].forward._run is None


def test_where_torch_has_no_such_product_it_is_multiplied_plainly(monkeypatch):
    def none(*_):
        raise RuntimeError("quantized engine FBGEMM is not supported")

    monkeypatch.setattr("specviz.models.linear.torch.ops.quantized.linear_prepack_fp16", none)
    module, x = head(), torch.ones(2, 256)
    with torch.inference_mode():
        assert (
            torch.equal(module[0](x), F.linear(x, module[0].weight, module[0].bias))
            and module[0].forward._run is None
        )
