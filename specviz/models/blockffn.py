"""BlockFFN (Song et al. 2507.08771): a Llama whose feed-forward layers are many small experts, routed by
ReLU and RMSNorm.

For a row x and E experts of width d_e:

    a = relu(W_r x);  r = a / rms(a) * w;  y = W_out (silu(W_in x) * r),  r repeated d_e times

An expert with r = 0 contributes exactly nothing, so a forward pass reads the weights of the union of its
rows' active experts only. Each expert's product has the same shape whatever the union is, and products are
added in the order of the experts; therefore the pass over the union and the pass over all experts are
bit-identical for the same rows.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..checkpoints.weights import ModelError, Weights
from .llama import Block, Llama
from .llama import unsupported_reason as llama_unsupported_reason

KIND = "blockffn"  # model_type in config.json


def unsupported_reason(config: dict[str, Any]) -> str | None:
    """Return why this forward pass cannot run a checkpoint with that config.json, as the end of a message;
    None if it can."""
    if config.get("model_type") != KIND:
        return f"the forward of sparse experts runs {KIND}, not {str(config.get('model_type'))[:40]}"
    sizes = [config.get(name) for name in ("num_experts", "expert_size")]
    if not all(type(size) is int and 0 < size < 2**16 for size in sizes):
        return "its config.json gives no num_experts and expert_size"
    return llama_unsupported_reason(config | {"model_type": "llama"})


def routed(scores: Tensor, scale: Tensor, eps: float) -> Tensor:
    """Return the routing weights r [..., experts] from router outputs: ReLU, then RMSNorm with the learned
    ``scale`` [experts]."""
    active = F.relu(scores)
    return active * torch.rsqrt(active.square().mean(-1, keepdim=True) + eps) * scale


class ExpertLayer(nn.Module):
    """One feed-forward layer with sparse experts as an nn.Module for training: x [..., hidden] -> [...,
    hidden], all experts as two matrices. scores: router outputs [..., experts] of the last call."""

    scores: Tensor

    def __init__(self, hidden: int, experts: int, size: int, eps: float):
        super().__init__()
        self.experts = experts
        self.size = size
        self.eps = eps
        self.router = nn.Linear(hidden, experts, bias=False)
        self.scale = nn.Parameter(torch.ones(experts))
        self.w_in, self.w_out = (
            nn.Linear(hidden, experts * size, bias=False),
            nn.Linear(experts * size, hidden, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the feed-forward's output [..., hidden] for normalised x [..., hidden]."""
        self.scores = self.router(x)
        r = routed(self.scores, self.scale, self.eps)
        inner = F.silu(self.w_in(x)).unflatten(-1, (self.experts, self.size)) * r[..., None]
        return self.w_out(inner.flatten(-2))


class Experts(nn.Module):
    """The sparse experts of one layer as an nn.Module for decoding: only experts that some row uses are read.

    router [experts, hidden]; scale [experts]; w_in [experts, hidden, size]; w_out [experts, size, hidden];
    read_all: read all experts in every pass, for comparison.
    """

    def __init__(
        self, router: Tensor, scale: Tensor, w_in: Tensor, w_out: Tensor, eps: float, read_all: bool = False
    ):
        super().__init__()
        self.router = router
        self.scale = scale
        self.eps = eps
        self.read_all = read_all
        experts, size = router.shape[0], w_in.shape[0] // router.shape[0]
        self.w_in = w_in.view(experts, size, -1).transpose(1, 2).contiguous()
        self.w_out = w_out.t().reshape(experts, size, -1).contiguous()

    def forward(self, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        """Return (residual [rows, hidden] plus the experts' outputs for normalised rows x [rows, hidden];
        which experts each row uses, bool [rows, experts]). A row uses an expert if its r is not 0: a
        learned scale may be negative."""
        active = F.relu(F.linear(x, self.router))
        r = active * torch.rsqrt(active.square().mean(-1, keepdim=True) + self.eps) * self.scale
        used = r != 0
        union: list[int] = (
            torch.nonzero(torch.ones_like(self.scale) if self.read_all else used.any(0)).flatten().tolist()
        )
        y = residual.clone()
        for e in union:
            inner = F.silu(torch.mm(x, self.w_in[e])) * r.narrow(1, e, 1)
            torch.addmm(y, inner, self.w_out[e], out=y)
        return y, used


class BlockFFN(Llama):
    """Weights and forward pass of a Llama with sparse experts. In each Block, ``down`` is an Experts module
    and ``gate_up`` is None."""

    refuses = staticmethod(unsupported_reason)
    matrices = ("qkv", "out")

    def _measure(self, config: dict[str, Any]) -> None:
        super()._measure(config)
        self.experts, self.expert_size = config["num_experts"], config["expert_size"]
        if self.experts * self.expert_size != self.inner:
            raise ModelError(
                f"config.json of {self.name} has an intermediate_size other than num_experts times expert_size",
                "config.sizes",
            )

    def _feed_forward(self, weights: Weights, at: str) -> dict[str, Any]:
        d, inner = self.hidden, self.inner
        router, scale = (
            weights.get(f"{at}mlp.router.weight", self.experts, d),
            weights.get(f"{at}mlp.scale", self.experts),
        )
        w_in, w_out = (
            weights.get(f"{at}mlp.w_in.weight", inner, d),
            weights.get(f"{at}mlp.w_out.weight", d, inner),
        )
        return dict(gate_up=None, down=Experts(router, scale, w_in, w_out, self.eps))

    def transform(self, block: Block, x: Tensor) -> Tensor:
        """Return x [rows, hidden] plus the feed-forward of a layer."""
        return self.transform_and_route(block, x)[0]

    def transform_and_route(self, block: Block, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return (x [rows, hidden] plus the feed-forward of a layer; which experts each row uses, bool
        [rows, experts])."""
        return block.down(block.norm_mlp(x), x)

    def read_all_experts(self, enabled: bool = True) -> None:
        """Make every pass read all experts, for comparison; the results are bit-identical."""
        for block in self.blocks:
            block.down.read_all = enabled

    @property
    def expert_bytes(self) -> int:
        """Bytes of one expert's weights."""
        return 2 * self.hidden * self.expert_size * self.dtype.itemsize

    @property
    def other_bytes(self) -> int:
        """Bytes of the weights that every pass reads, independently of its experts."""
        return (
            self.parameters - self.layers * self.experts * 2 * self.hidden * self.expert_size
        ) * self.dtype.itemsize
