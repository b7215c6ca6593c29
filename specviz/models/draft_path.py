"""A second path through a frozen target: low-rank changes of its matrices that apply to draft rows only.

A draft pass runs rows that are not text through the target's own layers, over the target's own KV cache. The rows' matrices are
W + scale * B A with trained A [rank, in] and B [out, rank] (LoRA, Hu et al. 2106.09685); text never sees them. Two methods train such a
path:

- Uno (2609.04010): all matrices are changed. The block's first row, the root, keeps the target's own weights (gated LoRA), so its
  prediction is the target's; the other rows hold uniformly drawn tokens and attend causally.
- Orthrus (2605.12825): the attention's matrices are changed. All rows of the block, the root included, take the second path, hold mask
  tokens after the root, and attend to each other in both directions.

Row j of a block predicts the token after its position. ``load`` reads this project's names, which are those of a LoRA adapter
(``layers.N.self_attn.q_proj.lora_A.weight``), with or without the prefixes that adapters have; ``r`` and ``lora_alpha`` of an
adapter_config.json give the scale.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from .heads import HeadWeights, TargetInfo, config_of, fill, key_shape
from .weights import ModelError

ATTENTION = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj")
FEED_FORWARD = ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
LAYER = re.compile(r"(?:base_model\.model\.)?(?:model\.)?layers\.(\d+)\.(.+)\.lora_([AB])(?:\.default)?\.weight")


class LowRank(nn.Module):
    """The change of one matrix [out, in]: B A, 0 at first."""

    def __init__(self, wide: int, out: int, rank: int):
        super().__init__()
        self.lora_A, self.lora_B = nn.Linear(wide, rank, bias=False), nn.Linear(rank, out, bias=False)
        nn.init.normal_(self.lora_A.weight, std=wide**-0.5)
        nn.init.zeros_(self.lora_B.weight)


class DraftPath(nn.Module):
    """Trained changes of a target's matrices for draft rows.

    config: ``hidden_size``, ``vocab_size``; ``sizes`` {matrix: [in, out]} of the changed matrices of a layer; ``num_layers``; ``rank``,
    ``scale``; ``block_size``: places that a block was trained with; ``mask_token_id``: the token of the rows after the root, None for
    tokens drawn uniformly.
    """

    first = 0  # first row of a block that takes the path
    both = False  # rows of a block attend to each other in both directions
    parts: tuple[str, ...] = ()

    def __init__(self, config: dict[str, Any], name: str = "the draft path"):
        super().__init__()
        self.config, self.name = config, name
        self.vocab, self.block, self.scale = config["vocab_size"], config["block_size"], float(config["scale"])
        self.mask_token: int | None = config.get("mask_token_id")
        self.layers = nn.ModuleList(_layer(config["sizes"], config["rank"]) for _ in range(config["num_layers"]))

    def change(self, layer: int, part: str) -> tuple[Tensor, Tensor]:
        """Return (A [rank, in], scale * B [out, rank]) of a matrix of a layer."""
        found = self._at(layer, part)
        return found.lora_A.weight, found.lora_B.weight * self.scale

    def fillers(self, uniforms: Sequence[float]) -> list[int]:
        """Return the tokens of the rows after the root: masks, or tokens drawn by these uniform random numbers in [0, 1)."""
        if self.mask_token is not None:
            return [self.mask_token] * len(uniforms)
        return [min(int(u * self.vocab), self.vocab - 1) for u in uniforms]

    def delta(self, layer: int, part: str, x: Tensor) -> Tensor:
        """Return the change of a matrix's output for inputs x [..., in], in the path's own data type."""
        a, b = self.change(layer, part)
        return F.linear(F.linear(x.to(a.dtype), a), b)

    @contextmanager
    def through(self, blocks: Sequence[nn.Module], rows: Callable[[Tensor], Tensor | None]) -> Iterator[None]:
        """Context manager in which the layers of a transformers model take the path. rows(x): for a matrix's input x [..., n, in], which
        of the n rows do, bool [n]; None: all."""
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

    def _at(self, layer: int, part: str) -> LowRank:
        found = self.layers[layer].get_submodule(part)
        assert isinstance(found, LowRank)
        return found


class NoisePath(DraftPath):
    """Uno's path: every matrix is changed, for the rows after the root, which hold noise and attend causally."""

    first, parts = 1, ATTENTION + FEED_FORWARD


class MaskPath(DraftPath):
    """Orthrus' path: the attention's matrices are changed, for all rows of a block, which attend in both directions."""

    both, parts = True, ATTENTION


KINDS: dict[str, type[DraftPath]] = {"uno": NoisePath, "orthrus": MaskPath}


def _layer(sizes: dict[str, Sequence[int]], rank: int) -> nn.Module:
    layer = nn.Module()
    for part, (wide, out) in sizes.items():
        owner, _, name = part.rpartition(".")
        if not hasattr(layer, owner):
            layer.add_module(owner, nn.Module())
        layer.get_submodule(owner).add_module(name, LowRank(wide, out, rank))
    return layer


def fits(block: nn.Module) -> bool:
    """Return whether a layer of a transformers model has all matrices that a path may change."""
    there = {name for name, part in block.named_modules() if isinstance(part, nn.Linear)}
    return there >= {*ATTENTION, *FEED_FORWARD}


def sizes_of(body: TargetInfo, parts: Sequence[str]) -> dict[str, list[int]]:
    """Return {matrix: [in, out]} of a target's layers."""
    whole, d = body.config.get("text_config") or body.config, body.hidden
    kv_heads, width = key_shape(body)
    heads = whole.get("num_attention_heads") or d // width
    inner, q, kv = whole.get("intermediate_size") or 2 * d, heads * width, kv_heads * width
    every = dict(zip(ATTENTION + FEED_FORWARD, ((d, q), (d, kv), (d, kv), (q, d), (d, inner), (d, inner), (inner, d))))
    return {part: list(every[part]) for part in parts}


def build(kind: str, body: TargetInfo, hparams: dict[str, Any]) -> DraftPath:
    """Return an untrained path. hparams: rank, scale, block; mask_token, for a path with masks."""
    made = KINDS[kind]
    config = {"hidden_size": body.hidden, "vocab_size": body.vocab, "num_layers": body.layers, "rank": hparams["rank"],
              "scale": hparams["scale"], "block_size": hparams["block"], "sizes": sizes_of(body, made.parts)}
    if made.both:
        config["mask_token_id"] = min(hparams["mask_token"], body.vocab - 1)
    return made(config, f"the {kind} path of {body.name}")


def load(kind: str, folder: Path, body: TargetInfo) -> DraftPath:
    """Load the path of a folder. Raises ModelError."""
    weights, given, made = HeadWeights(folder, body), config_of(folder), KINDS[kind]
    names: dict[str, str] = {}
    for name in weights.names:
        if found := LAYER.fullmatch(name):
            names[f"layers.{found[1]}.{found[2]}.lora_{found[3]}.weight"] = name
    ranks = {weights.shape(theirs)[0] for ours, theirs in names.items() if ours.endswith("lora_A.weight")}
    if len(ranks) != 1:
        raise ModelError(f"{folder.name} holds no low-rank path of one rank under any of the known names", "head.other_kind")
    rank = ranks.pop()
    scale = given["scale"] if "scale" in given else given.get("lora_alpha", rank) / rank
    block, mask = given.get("block_size", 8), given.get("mask_token_id")
    if not isinstance(scale, (int, float)) or type(block) is not int or block < 1 or made.both != (type(mask) is int):
        raise ModelError(f"config.json of {folder.name} gives a scale, a block or a mask token that makes no sense", "draft_path.config")
    path = made({"hidden_size": body.hidden, "vocab_size": body.vocab, "num_layers": body.layers, "rank": rank, "scale": scale,
                 "block_size": block, "mask_token_id": mask, "sizes": sizes_of(body, made.parts)}, folder.name)
    found = {ours: weights.get(names.get(ours, ours), *tensor.shape) for ours, tensor in path.state_dict().items()}
    weights.check_none_unread()
    return fill(path, found, body)
