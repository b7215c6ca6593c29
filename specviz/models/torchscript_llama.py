"""The forward pass of models/llama.py compiled with TorchScript, which removes the Python overhead of about
thirty small operations per layer (docs/log/2026-11/speed.md).

The operations and their order are the same, so the results are bit-identical. float32 on a CPU only.
"""

import logging
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .int8 import Int8Linear
from .linear import MANY, HalfLinear, PackedLinear, PlainLinear, TransposedLinear, TwoLayouts
from .reduced_vocabulary import ReducedOutput, ScriptedReducedOutput
from .rms_norm import UnitNorm
from .torchscript import HalfProducts, frozen, scripted, weight_bytes
from .whole_vectors import rotate_, silu


class ScriptedPlain(nn.Module):
    """Linear layer in TorchScript with weights as stored: x [rows, in] -> x W^T + b. Subclasses use other
    layouts."""

    bias: Tensor | None

    def __init__(self, layer: Any):
        super().__init__()
        self.weight, self.bias = layer.weight, layer.bias

    def forward(self, x: Tensor) -> Tensor:
        """Return x W^T + b, [rows, out]."""
        return F.linear(x, self.weight, self.bias)

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        """Return residual + x W^T + b."""
        return residual + F.linear(x, self.weight, self.bias)


def _addmm(more: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """torch.addmm with an explicit output; without it the compiler decomposes the call and rounds
    differently."""
    return torch.addmm(more, x, weight, out=x.new_empty([x.shape[0], weight.shape[1]]))


class ScriptedTransposed(ScriptedPlain):
    """Linear layer in TorchScript with W stored as [in, out]."""

    def forward(self, x: Tensor) -> Tensor:
        """Return x W^T + b, [rows, out]."""
        bias = self.bias
        return (
            torch.mm(x, self.weight) if bias is None else _addmm(bias.expand(x.shape[0], -1), x, self.weight)
        )

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        """Return residual + x W^T + b."""
        y, bias = _addmm(residual, x, self.weight), self.bias
        return y if bias is None else y.add_(bias)


class ScriptedPacked(ScriptedPlain):
    """Linear layer in TorchScript in the blocked layout of oneDNN."""

    def forward(self, x: Tensor) -> Tensor:
        """Return x W^T + b, [rows, out]."""
        return torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        """Return residual + x W^T + b."""
        return torch.ops.mkldnn._linear_pointwise(x, residual, self.weight, self.bias, "add")


class ScriptedTwoLayouts(nn.Module):
    """Linear layer in TorchScript with one layout for few rows and another for many
    (``linear.TwoLayouts``)."""

    def __init__(self, layer: TwoLayouts):
        super().__init__()
        self.few = scripted_linear(layer.few)
        self.many = scripted_linear(layer.many)
        self.limit = MANY

    def forward(self, x: Tensor) -> Tensor:
        """Return x W^T + b, [rows, out], by the layout for this number of rows."""
        return self.few(x) if x.shape[0] < self.limit else self.many(x)

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        """Return residual + x W^T + b, by the layout for this number of rows."""
        return self.few.add(x, residual) if x.shape[0] < self.limit else self.many.add(x, residual)


MADE = {
    PlainLinear: ScriptedPlain,
    TransposedLinear: ScriptedTransposed,
    PackedLinear: ScriptedPacked,
    TwoLayouts: ScriptedTwoLayouts,
    HalfLinear: lambda layer: HalfProducts(layer.packed, layer.packed_bytes),
    Int8Linear: lambda layer: layer.module,
    ReducedOutput: lambda layer: ScriptedReducedOutput(
        scripted_linear(layer.layer), layer.tokens, layer.vocab
    ),
}


def scripted_linear(layer: Any) -> Any:
    """Return a linear layer of models/linear.py as a TorchScript module, which also has ``add``."""
    return MADE[type(layer)](layer)


class ScriptedNorm(nn.Module):
    """RMSNorm in TorchScript, as in models/rms_norm.py on a CPU."""

    def __init__(self, norm: Any):
        super().__init__()
        self.floor, self.scaled = norm._floor, norm._scaled

    def forward(self, x: Tensor) -> Tensor:
        """Return the RMSNorm of x over its last axis."""
        return x.div(torch.linalg.vector_norm(x, dim=[-1], keepdim=True).hypot_(self.floor)).mul_(self.scaled)


class ScriptedUnitNorm(nn.Module):
    """UnitNorm of models/rms_norm.py in TorchScript."""

    def __init__(self, norm: UnitNorm):
        super().__init__()
        self.floor = norm._floor

    def forward(self, x: Tensor) -> Tensor:
        """Return x [rows, width] divided by sqrt(|x|^2 + width eps)."""
        return x.div(torch.linalg.vector_norm(x, dim=[-1], keepdim=True).hypot_(self.floor))


def scripted_norm(norm: Any) -> nn.Module:
    """Return a norm of models/rms_norm.py as a TorchScript module; the identity for a layer without a
    norm."""
    if isinstance(norm, UnitNorm):
        return ScriptedUnitNorm(norm)
    return ScriptedNorm(norm) if hasattr(norm, "_floor") else nn.Identity()


class ScriptedAttention(nn.Module):
    """The attention of one block in TorchScript, with the interface of ``Llama.attend`` for an integer
    ``at``."""

    def __init__(self, model: Any, block: Any):
        super().__init__()
        self.heads = model.heads
        self.kv = model.kv_heads
        self.width = model.head_dim
        self.group = model.group
        self.norm = scripted_norm(block.norm_in)
        self.qkv = scripted_linear(block.qkv)
        self.out = scripted_linear(block.out)
        self.normed = block.norm_q is not None
        self.norm_q, self.norm_k = scripted_norm(block.norm_q), scripted_norm(block.norm_k)

    def forward(
        self,
        x: Tensor,
        rotation: Tensor,
        slots: Tensor,
        at: int,
        mask: Tensor | None,
        reads: Tensor | None = None,
    ) -> Tensor:
        """Return x [n, hidden] plus its attention; arguments as in ``Llama.attend``."""
        n = x.shape[0]
        heads = self.heads
        kv = self.kv
        width = self.width
        qkv = self.qkv(self.norm(x) if reads is None else reads).view(n, heads + 2 * kv, width)
        if self.normed:
            qkv[:, :heads] = self.norm_q(qkv[:, :heads])
            qkv[:, heads : heads + kv] = self.norm_k(qkv[:, heads : heads + kv])
        rotate_(qkv.narrow(1, 0, heads + kv), rotation)
        q, new = (
            qkv.narrow(1, 0, heads).view(n, kv, self.group, width),
            qkv.narrow(1, heads, 2 * kv).view(n, 2, kv, width),
        )
        q = q if n == 1 else q.permute(1, 2, 0, 3).reshape(1, kv, self.group * n, width)
        slots.narrow(2, at, n).copy_(new.permute(1, 2, 0, 3))
        slots_seen = slots.narrow(2, 0, at + n)
        y = F.scaled_dot_product_attention(q, slots_seen[0].unsqueeze(0), slots_seen[1].unsqueeze(0), mask)
        if n > 1:
            y = y.view(kv, self.group, n, width).permute(2, 0, 1, 3)
        return self.out.add(y.reshape(n, heads * width), x)


class ScriptedFeedForward(nn.Module):
    """The feed-forward of one block in TorchScript: x [rows, hidden] -> x plus its feed-forward, as
    ``Llama.transform``."""

    def __init__(self, model: Any, block: Any):
        super().__init__()
        self.norm = scripted_norm(block.norm_mlp)
        self.gate_up = scripted_linear(block.gate_up)
        self.down = scripted_linear(block.down)

    def forward(self, x: Tensor) -> Tensor:
        """Return x [rows, hidden] plus its feed-forward."""
        gate, up = self.gate_up(self.norm(x)).chunk(2, 1)
        return self.down.add(silu(gate).mul_(up), x)


class Layers(nn.Module):
    """All blocks in TorchScript, with the interface of ``Llama.run_blocks``: runs blocks first..end and
    returns the states that enter those of ``wanted``, in order."""

    def __init__(self, blocks: list[Any]):
        super().__init__()
        self.attend = nn.ModuleList([block.attend for block in blocks])
        self.transform = nn.ModuleList(
            [nn.Identity() if block.down is None else block.transform for block in blocks]
        )

    def forward(
        self,
        x: Tensor,
        rotation: Tensor,
        slots: Tensor,
        at: int,
        mask: Tensor | None,
        first: int,
        end: int,
        wanted: list[int],
    ) -> tuple[Tensor, list[Tensor]]:
        """Run blocks first..end over x [n, hidden]; arguments and result as in ``Llama.run_blocks``."""
        found: list[Tensor] = []
        for i, (attend, transform) in enumerate(zip(self.attend, self.transform)):
            if first <= i and i < end:
                if i in wanted:
                    found.append(x)
                x = transform(attend(x, rotation, slots[i], at, mask, None))
        return x, found


class ScriptedDraftLoop(nn.Module):
    """A loop in TorchScript that generates a chain of tokens autoregressively in one call, as a draft model
    does."""

    def __init__(self, model: Any):
        super().__init__()
        self.embedding, norm, head, self.final_states = model.input_output_modules()
        self.layers, self.norm, self.head, self.depth = (
            Layers(model.blocks),
            scripted_norm(norm),
            scripted_linear(head),
            model.layers,
        )

    def forward(
        self,
        ids: Tensor,
        rotation: Tensor,
        slots: Tensor,
        at: int,
        mask: Tensor | None,
        count: int,
        temperature: float,
        uniforms: Tensor,
        min_prob: float | None,
    ) -> tuple[Tensor, Tensor, Tensor | None, Tensor, list[float]]:
        """Generate tokens after the rows ``ids`` [n], whose slots are at..at+n. Return (tokens [count];
        logits [count, vocab]; distributions [count, vocab], above temperature 0 only; final hidden states
        [count, hidden]; probabilities of the tokens, only with ``min_prob``).

        mask: of the rows ids; rotation: rotations of every position; uniforms [count]: float64 random
        numbers; min_prob: stop after the first token with a probability below it.
        """
        tokens: list[Tensor] = []
        logits: list[Tensor] = []
        distributions: list[Tensor] = []
        states: list[Tensor] = []
        token_probs: list[float] = []
        none: list[int] = []
        n = ids.shape[0]
        for i in range(count):
            x = F.embedding(ids, self.embedding).to(torch.float32)
            x, _ = self.layers(x, rotation.narrow(0, at, n), slots, at, mask, 0, self.depth, none)
            state = self.norm(x.narrow(0, n - 1, 1))
            row = self.head(state)
            if temperature > 0.0:
                probs = torch.softmax(row if temperature == 1.0 else row / temperature, -1)
                total = probs.cumsum(-1)
                drawn = (uniforms[i] * total[:, -1:].to(torch.float64)).to(total.dtype)
                found = torch.searchsorted(total, drawn, right=True)
                inside = found.clamp(max=probs.shape[1] - 1)
                good = found.less(probs.shape[1]).logical_and_(probs.gather(1, inside).greater(0.0))
                token = inside[0] if bool(good.item()) else probs.argmax(-1, True)[0]
                distributions.append(probs)
            else:
                probs = row
                token = row[0].max(-1, True)[1]  # the first of equal maxima, and faster than argmax
            tokens.append(token)
            logits.append(row)
            states.append(state)
            if min_prob is not None:
                probs = probs if temperature > 0.0 else torch.softmax(row, -1)
                token_probs.append(float(probs[0].index_select(0, token).item()))
                if token_probs[-1] < min_prob:
                    break
            at = at + n
            n = 1
            ids = token
            mask = None
        final = self.final_states(torch.cat(states))
        return (
            torch.cat(tokens),
            torch.cat(logits),
            torch.cat(distributions) if temperature > 0.0 else None,
            final,
            token_probs,
        )


# of another torch, or of another kind of layer
FAILURES = (RuntimeError, ValueError, AttributeError, KeyError, NotImplementedError)


def compile_blocks(model: Any, width: int) -> None:
    """Compile attention and feed-forward of each block with TorchScript, then all blocks as one function. A
    compiled part is used only if its results are bit-identical to eager code. width: input features of the
    projection to queries, keys and values. If something is not used, ``model.uncompiled`` and the log say
    why."""
    if model.device.type != "cpu" or model.dtype != torch.float32:
        return
    try:
        parts = [
            (
                ScriptedAttention(model, block),
                None if block.down is None else ScriptedFeedForward(model, block),
            )
            for block in model.blocks
        ]
        model.block_bytes = sum(weight_bytes(half) for halves in parts for half in halves if half is not None)
        made = [
            (scripted(attend), None if transform is None else scripted(transform))
            for attend, transform in parts
        ]
        if not _agrees(model, width, *made[0]):
            return _fall_back(model, "a compiled block gives other bits")
        for block, halves in zip(model.blocks, made):
            block.attend, block.transform = halves
        whole = frozen(scripted(Layers(model.blocks)), model.block_bytes)  # looks up no weight any more
        if width == model.hidden and _agrees_with_single_blocks(model, whole):
            model.scripted = whole
    except FAILURES as error:
        _fall_back(model, f"{type(error).__name__}: {str(error).strip()[:200]}")


def compiled_writer(model: Any) -> Any:
    """Return the compiled draft loop of a model whose blocks are compiled; None if it cannot be compiled,
    and the log and ``model.uncompiled`` say why."""
    if model.scripted is None:
        return None
    try:
        with torch.inference_mode():
            loop = ScriptedDraftLoop(model)
            writer = frozen(scripted(loop), model.block_bytes + weight_bytes(loop))
            if _agrees_with_single_passes(model, writer):
                return writer
        _fall_back(model, "the compiled token loop gives other bits")
    except FAILURES as error:
        _fall_back(model, f"{type(error).__name__}: {str(error).strip()[:200]}")
    return None


def _fall_back(model: Any, reason: str) -> None:
    """Record why a part of the model runs without TorchScript."""
    model.uncompiled = reason
    logging.getLogger(__name__).info(
        "%s runs in part without TorchScript: %s", getattr(model, "name", "a model"), reason
    )


@torch.inference_mode()
def _agrees(model: Any, width: int, attend: Any, transform: Any) -> bool:
    block, rng = model.blocks[0], torch.Generator().manual_seed(0)
    x = torch.randn(2, model.hidden, generator=rng)
    reads = None if width == model.hidden else torch.randn(2, width, generator=rng)
    buffers = [torch.zeros(2, model.kv_heads, 2, model.head_dim) for _ in range(2)]
    rotation = model.rotations(2)[:2]
    ours, theirs = (
        attend(x, rotation, buffers[0], 0, None, reads),
        model.attend(block, x, rotation, buffers[1], 0, None, reads),
    )
    if transform is not None:
        ours, theirs = transform(ours), model.transform(block, theirs)
    return torch.equal(ours, theirs) and torch.equal(*buffers)


@torch.inference_mode()
def _agrees_with_single_blocks(model: Any, whole: Any) -> bool:
    """Return whether all blocks in sequence give the results of one block at a time. This also makes the
    first, slow calls, in which TorchScript specialises."""
    x = torch.randn(2, model.hidden, generator=torch.Generator().manual_seed(0))
    for _ in range(2):
        buffers = [torch.zeros(model.layers, 2, model.kv_heads, 2, model.head_dim) for _ in range(2)]
        ours = whole(x, model.rotations(2)[:2], buffers[0], 0, None, 0, model.layers, [0])
        theirs = model.run_blocks(x, model.rotations(2)[:2], buffers[1], 0, None, wanted=[0])
        if not all(map(torch.equal, (ours[0], *ours[1], buffers[0]), (theirs[0], *theirs[1], buffers[1]))):
            return False
    return True


@torch.inference_mode()
def _agrees_with_single_passes(model: Any, writer: Any) -> bool:
    """Return whether tokens generated in one call equal those of single passes; also makes the first, slow
    calls."""
    count = 3
    ids = torch.tensor([0])
    rotation = model.rotations(3)[:3]
    none, buffers = torch.zeros(1, dtype=torch.float64), [model.new_slots(count).zero_() for _ in range(3)]
    for temperature in (0.0, 1.0):
        for buffer in buffers[:2]:
            for min_prob in (0.0, None):
                tokens, logits, _, _, _ = writer(
                    ids, rotation, buffer, 0, None, count, temperature, none.expand(count), min_prob
                )
        for i in range(count):
            x = model.enter(ids if i == 0 else tokens[i - 1 : i])
            row = model.output(
                model.norm_output(model.run_blocks(x, rotation[i : i + 1], buffers[2], i, None)[0])
            )
            if not torch.equal(row[0], logits[i]) or not temperature and int(row.argmax()) != int(tokens[i]):
                return False
    return True
