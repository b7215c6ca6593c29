"""A second path through a frozen target: low-rank changes of its matrices that apply to draft rows only.

A draft pass runs rows that are not committed text (mask tokens or random tokens) through the target's own
layers, over the target's own KV cache. The rows' matrices are W + scale * B A with trained A [rank, in] and
B [out, rank] (LoRA, Hu et al. 2106.09685); the text is never run with them. Two methods train such a path:

- Uno (2609.04010): all matrices are changed. The block's first row, the root, keeps the target's own weights (gated
  LoRA), so its prediction is the target's; the other rows are uniformly sampled tokens and attend causally.
- Orthrus (2605.12825): the attention's matrices are changed. All rows of the block, the root included, take the second
  path, are mask tokens after the root, and attend to each other in both directions.

Row j of a block predicts the token after its position. ``load`` reads this project's names
(``changes.self_attn.q_proj.down`` for A of all layers, ``up`` for B transposed) and those of a LoRA adapter
(``layers.N.self_attn.q_proj.lora_A.weight``), whose adapter_config.json gives the scale by ``r`` and
``lora_alpha``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..checkpoints.weights import ModelError
from .heads import HeadWeights, TargetInfo, config_of, fill, key_shape

ATTENTION = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj")
FEED_FORWARD = ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
LAYER = re.compile(
    r"(?:base_model\.model\.)?(?:model\.)?layers\.(\d+)\.(.+)\.lora_([AB])(?:\.default)?\.weight"
)


class LowRank(nn.Module):
    """Low-rank change of one matrix [out, in] in every layer, an nn.Module: up^T down, initially 0. down
    [layers, rank, in], up [layers, rank, out]."""

    def __init__(self, wide: int, out: int, rank: int, layers: int):
        super().__init__()
        self.down = nn.Parameter(torch.randn(layers, rank, wide) * wide**-0.5)
        self.up = nn.Parameter(torch.zeros(layers, rank, out))


class DraftPath(nn.Module):
    """Trained low-rank changes of a target's matrices for draft rows, an nn.Module.

    config: ``hidden_size``, ``vocab_size``; ``sizes`` {matrix: [in, out]} of the changed matrices of a
    layer; ``num_layers``; ``rank``, ``scale``; ``block_size``: positions per block in training;
    ``mask_token_id``: token of the rows after the root, None for uniformly sampled tokens, which are then
    those from 1 to before ``noise_end``.
    """

    first = 0  # first row of a block that takes the path
    both = False  # rows of a block attend to each other in both directions
    parts: tuple[str, ...] = ()

    def __init__(self, config: dict[str, Any], name: str = "the draft path"):
        super().__init__()
        self.config, self.name = config, name
        self.noise_end = config["noise_end"]
        self.block = config["block_size"]
        self.scale = float(config["scale"])
        self.mask_token: int | None = config.get("mask_token_id")
        self.changes = nn.Module()
        for part, (wide, out) in config["sizes"].items():
            owner, _, last = part.rpartition(".")
            if not hasattr(self.changes, owner):
                self.changes.add_module(owner, nn.Module())
            self.changes.get_submodule(owner).add_module(
                last, LowRank(wide, out, config["rank"], config["num_layers"])
            )

    def change(self, layer: int, part: str) -> tuple[Tensor, Tensor]:
        """Return (A [rank, in], scale * B [out, rank]) for a matrix of a layer; part: its name, such as
        "self_attn.q_proj"."""
        found = self.changes.get_submodule(part)
        assert isinstance(found, LowRank)
        return found.down[layer], found.up[layer].t() * self.scale

    def fillers(self, uniforms: Sequence[float]) -> list[int]:
        """Return the tokens of the rows after the root: mask tokens, or tokens from 1 to before
        ``noise_end``, sampled uniformly by these random numbers in [0, 1)."""
        if self.mask_token is not None:
            return [self.mask_token] * len(uniforms)
        return [min(1 + int(u * (self.noise_end - 1)), self.noise_end - 1) for u in uniforms]

    def delta(self, layer: int, part: str, x: Tensor) -> Tensor:
        """Return the change [..., out] of a matrix's output for inputs x [..., in]."""
        a, b = self.change(layer, part)
        return F.linear(F.linear(x if torch.is_autocast_enabled(x.device.type) else x.to(a.dtype), a), b)

    @contextmanager
    def through(self, blocks: Sequence[nn.Module], rows: Callable[[Tensor], Tensor | None]) -> Iterator[None]:
        """Context manager in which the layers of a transformers model take the path. rows(x): for a
        matrix's input x [..., n, in], which of the n rows do, bool [n]; None: all."""

        def hook(layer: int, part: str):
            def changed(module, given, out):
                change, chosen = self.delta(layer, part, given[0]).to(out.dtype), rows(given[0])
                return out + (change if chosen is None else change * chosen[:, None])

            return changed

        with ExitStack() as stack:
            for layer, block in enumerate(blocks):
                for part in self.parts:
                    stack.callback(block.get_submodule(part).register_forward_hook(hook(layer, part)).remove)
            yield


class NoisePath(DraftPath):
    """Uno's path: every matrix is changed, for the rows after the root, which are random tokens and attend
    causally."""

    first, parts = 1, ATTENTION + FEED_FORWARD


class MaskPath(DraftPath):
    """Orthrus' path: the attention's matrices are changed, for all rows of a block, which attend in both
    directions."""

    both, parts = True, ATTENTION


KINDS: dict[str, type[DraftPath]] = {"uno": NoisePath, "orthrus": MaskPath}


def fits(block: nn.Module) -> bool:
    """Return whether a layer of a transformers model has all matrices that a path may change, under the
    expected names."""
    there = {name for name, part in block.named_modules() if isinstance(part, nn.Linear)}
    return there >= {*ATTENTION, *FEED_FORWARD}


def sizes_of(target: TargetInfo, parts: Sequence[str]) -> dict[str, list[int]]:
    """Return {matrix: [in, out]} of the matrices ``parts`` in a target's layers."""
    whole, d = target.config.get("text_config") or target.config, target.hidden
    kv_heads, width = key_shape(target)
    heads = whole.get("num_attention_heads") or d // width
    inner = whole.get("intermediate_size") or 2 * d
    q = heads * width
    kv = kv_heads * width
    shapes = ((d, q), (d, kv), (d, kv), (q, d), (d, inner), (d, inner), (inner, d))
    every: dict[str, tuple[int, int]] = dict(zip(ATTENTION + FEED_FORWARD, shapes))
    return {part: list(every[part]) for part in parts}


def noise_end(target: TargetInfo) -> int:
    """Return the end of the token ids that are sampled as noise: the target's mask token, if its config
    names one, or its vocabulary size (Uno's code, ifm-ai/uno 9018a5d, engine/noise.py)."""
    mask = target.config.get("mask_token_id")
    return min(mask, target.vocab) if isinstance(mask, int) and mask > 1 else target.vocab


def build(kind: str, target: TargetInfo, hparams: dict[str, Any]) -> DraftPath:
    """Return an untrained path of a kind ("uno", "orthrus"). hparams: rank, scale, block; mask_token, for a
    path with mask tokens."""
    made = KINDS[kind]
    config = {
        "hidden_size": target.hidden,
        "vocab_size": target.vocab,
        "num_layers": target.layers,
        "rank": hparams["rank"],
        "scale": hparams["scale"],
        "block_size": hparams["block"],
        "noise_end": noise_end(target),
        "sizes": sizes_of(target, made.parts),
    }
    if made.both:
        config["mask_token_id"] = min(hparams["mask_token"], target.vocab - 1)
    return made(config, f"the {kind} path of {target.name}")


def load(kind: str, folder: Path, target: TargetInfo) -> DraftPath:
    """Load the path of a checkpoint folder, in this project's layout or as a LoRA adapter. Raises
    ModelError."""
    weights = HeadWeights(folder, target)
    given = config_of(folder)
    made = KINDS[kind]
    adapter: dict[str, dict[int, str]] = {}  # of a LoRA adapter: this project's name -> {layer: name}
    for name in weights.names:
        if found := LAYER.fullmatch(name):
            adapter.setdefault(f"changes.{found[2]}.{'down' if found[3] == 'A' else 'up'}", {})[
                int(found[1])
            ] = name
    downs = [name for name in weights.names if name.endswith(".down")]
    ranks = {weights.shape(name)[1] for name in downs} | {
        weights.shape(name)[0]
        for ours, named in adapter.items()
        if ours.endswith(".down")
        for name in named.values()
    }
    if len(ranks) != 1:
        raise ModelError(
            f"{folder.name} holds no low-rank path of one rank under any of the known names",
            "head.other_kind",
        )
    rank = ranks.pop()
    scale = given["scale"] if "scale" in given else given.get("lora_alpha", rank) / rank
    block, mask = given.get("block_size", 8), given.get("mask_token_id")
    if (
        not isinstance(scale, (int, float))
        or type(block) is not int
        or block < 1
        or made.both != (type(mask) is int)
    ):
        raise ModelError(
            f"config.json of {folder.name} gives a scale, a block or a mask token that makes no sense",
            "draft_path.config",
        )
    path = made(
        {
            "hidden_size": target.hidden,
            "vocab_size": target.vocab,
            "num_layers": target.layers,
            "rank": rank,
            "scale": scale,
            "block_size": block,
            "mask_token_id": mask,
            "noise_end": noise_end(target),
            "sizes": sizes_of(target, made.parts),
        },
        folder.name,
    )
    tensors = {
        name: _stacked(weights, adapter.get(name), name, like) for name, like in path.state_dict().items()
    }
    weights.check_none_unread()
    return fill(path, tensors, target)


def _stacked(weights: HeadWeights, adapter: dict[int, str] | None, name: str, like: Tensor) -> Tensor:
    """Return a parameter of all layers [layers, rank, n]; adapter: names of its parts in a LoRA adapter, by
    layer."""
    layers, rank, wide = like.shape
    if adapter is None:
        return weights.get(name, layers, rank, wide)
    if name.endswith(".down"):
        return torch.stack([weights.get(adapter.get(layer, name), rank, wide) for layer in range(layers)])
    return torch.stack([weights.get(adapter.get(layer, name), wide, rank).t() for layer in range(layers)])
