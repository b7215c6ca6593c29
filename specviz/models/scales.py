"""Next-scale prediction: a picture grows from one patch to a grid of many, and one forward pass predicts
all patches of a scale (VAR, 2404.02905; here over pixels, with a codebook of patches per scale instead of a
VQ-VAE).

The tokens of a scale are patches of the residual at that scale's resolution; the picture is the sum of all
scales, each enlarged to full size. The input of a token is the sum of the picture so far at its position, a
position embedding, and the embeddings of the prompt's words. A row attends to all rows of its own scale and
of earlier scales.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..checkpoints.sizes import check_config, check_weights
from ..checkpoints.weights import ModelError, Weights, read_json

KIND = "specviz_scales"  # model_type
HALF = 128.0  # a picture begins as middle grey; values are differences from it
MOST_SIDE = 256  # pixels of a picture's side, of a model that is read
MOST_SCALES = 16  # scales of a model that is read
KV = tuple[Tensor, Tensor]  # keys and values, each [batch, heads, rows, head_dim]


def unsupported_reason(config: dict[str, Any]) -> str | None:
    """Return why a config.json is not that of a next-scale model, as the end of a message; None if it is."""
    return None if config.get("model_type") == KIND else "it does not predict scales of a picture"


@dataclass(frozen=True)
class Scales:
    """The scales of a picture, coarse to fine. grids: patches per side of each scale; patch: pixels of a
    patch's side; entries: size of each scale's codebook."""

    grids: tuple[int, ...]
    patch: int
    entries: tuple[int, ...]

    @property
    def side(self) -> int:
        """Pixels of the picture's side."""
        return self.grids[-1] * self.patch

    @property
    def ends(self) -> tuple[int, ...]:
        """Cumulative number of tokens at the end of each scale, beginning with 0: len(grids) + 1 integers."""
        return (0, *accumulate(grid * grid for grid in self.grids))

    @property
    def starts(self) -> tuple[int, ...]:
        """Index of the first codebook entry of each scale, and the number of all entries: len(grids) + 1
        integers."""
        return (0, *accumulate(self.entries))

    @property
    def tokens(self) -> int:
        """Number of tokens of a whole picture."""
        return self.ends[-1]

    def num_complete(self, tokens: int) -> int:
        """Return how many scales are complete after the first ``tokens`` tokens."""
        return sum(end <= tokens for end in self.ends[1:])

    def mask(self) -> Tensor:
        """Return which rows a row may attend to, bool [tokens, tokens]: those of its own and of earlier
        scales."""
        scale = torch.cat([torch.full((grid * grid,), i) for i, grid in enumerate(self.grids)])
        return scale[:, None] >= scale[None]

    def to_patches(self, maps: Tensor) -> Tensor:
        """Cut maps [n, 3, grid * patch, grid * patch] into patches [n, grid * grid, patch * patch * 3], in
        raster order."""
        p, grid = self.patch, maps.shape[-1] // self.patch
        return (
            maps.unflatten(2, (grid, p))
            .unflatten(4, (grid, p))
            .permute(0, 2, 4, 3, 5, 1)
            .flatten(3)
            .flatten(1, 2)
        )

    def from_patches(self, patches: Tensor) -> Tensor:
        """Join patches to maps; the inverse of ``to_patches``."""
        grid, p = round(patches.shape[1] ** 0.5), self.patch
        return (
            patches.unflatten(1, (grid, grid))
            .unflatten(3, (p, p, 3))
            .permute(0, 5, 1, 3, 2, 4)
            .flatten(4, 5)
            .flatten(2, 3)
        )

    def downsample(self, picture: Tensor, scale: int) -> Tensor:
        """Return pictures [n, 3, side, side] at a scale's resolution (area interpolation), cut into
        patches."""
        size = self.grids[scale] * self.patch
        return self.to_patches(
            picture if size == self.side else F.interpolate(picture, size=(size, size), mode="area")
        )

    def upsample(self, patches: Tensor) -> Tensor:
        """Return a scale's patches joined and enlarged to the picture's size (bilinear), [n, 3, side,
        side]."""
        maps = self.from_patches(patches)
        return (
            maps
            if maps.shape[-1] == self.side
            else F.interpolate(maps, size=(self.side,) * 2, mode="bilinear", align_corners=False)
        )

    def blank_pictures(self, count: int = 1) -> Tensor:
        """Return middle-grey pictures, to which no scale was added yet: zeros [count, 3, side, side]."""
        return torch.zeros(count, 3, self.side, self.side)


def scales_of(config: dict[str, Any], name: str) -> Scales:
    """Read the scales from a config.json. Raises ModelError."""
    grids, patch, entries = (config.get(key) for key in ("grids", "patch", "entries"))
    if (
        not isinstance(grids, list)
        or not grids
        or not isinstance(entries, list)
        or not isinstance(patch, int)
        or not all(type(n) is int and n > 0 for n in (*grids, *entries, patch))
        or len(grids) != len(entries)
        or len(grids) > MOST_SCALES
        or grids != sorted(set(grids))
        or grids[-1] * patch > MOST_SIDE
    ):
        raise ModelError(f"config.json of {name} gives scales that do not fit together", "config.sizes")
    return Scales(tuple(grids), patch, tuple(entries))


class ScaleLayer(nn.Module):
    """A transformer layer, an nn.Module: attention with normalised queries and keys, then a gated MLP."""

    def __init__(self, hidden: int, heads: int, inner: int):
        super().__init__()
        self.heads = heads
        self.attention_norm, self.mlp_norm = (nn.LayerNorm(hidden, bias=False) for _ in range(2))
        self.q_norm, self.k_norm = (nn.LayerNorm(hidden // heads, bias=False) for _ in range(2))
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden, bias=False), nn.Linear(hidden, hidden, bias=False)
        self.gate_up, self.down = (
            nn.Linear(hidden, 2 * inner, bias=False),
            nn.Linear(inner, hidden, bias=False),
        )

    def forward(self, x: Tensor, past: KV | None, mask: Tensor | None) -> tuple[Tensor, KV]:
        """Return (output [batch, rows, hidden]; keys and values of past and these rows). mask: bool [rows,
        past + rows], True where a row may attend; None: everywhere."""
        q, k, v = self.qkv(self.attention_norm(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        q, k = self.q_norm(q.float()).type_as(v), self.k_norm(k.float()).type_as(v)
        kv = (k, v) if past is None else (torch.cat([past[0], k], 2), torch.cat([past[1], v], 2))
        # written out: on a CPU the gradient of torch's fused attention takes half of a training step
        scores = (q * q.shape[-1] ** -0.5 @ kv[0].mT).float()
        weights = (scores if mask is None else scores.masked_fill(~mask, -torch.inf)).softmax(-1).type_as(v)
        x = x + self.out((weights @ kv[1]).transpose(1, 2).flatten(2))
        gate, up = self.gate_up(self.mlp_norm(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up), kv


class ScaleNet(nn.Module):
    """The next-scale network, an nn.Module. words: token ids below this are words of the prompt, whose
    embeddings are summed regardless of their order; the ids above are codebook entries of all scales. codes
    [entries, patch values]: the codebook."""

    def __init__(self, config: dict[str, Any], name: str = "the model"):
        super().__init__()
        self.scales, hidden = scales_of(config, name), config["hidden_size"]
        self.words, entries = config["vocab_size"] - sum(self.scales.entries), sum(self.scales.entries)
        if self.words < 1 or hidden % config["num_attention_heads"]:
            raise ModelError(f"config.json of {name} gives sizes that do not fit together", "config.sizes")
        width = 3 * self.scales.patch**2
        self.embed_words, self.embed_places = (
            nn.Embedding(self.words, hidden),
            nn.Embedding(self.scales.tokens, hidden),
        )
        self.patch_in = nn.Linear(width, hidden, bias=False)
        layers = (
            ScaleLayer(hidden, config["num_attention_heads"], config["intermediate_size"])
            for _ in range(config["num_hidden_layers"])
        )
        self.layers, self.norm = nn.ModuleList(layers), nn.LayerNorm(hidden, bias=False)
        self.lm_head = nn.Linear(hidden, entries, bias=False)
        self.register_buffer("codes", torch.zeros(entries, width))
        self.codes: Tensor

    def rows(self, condition: Tensor, inputs: Tensor, first: int = 0) -> Tensor:
        """Return the input rows of the first layer, [batch, rows, hidden]. condition [batch, hidden]: from
        the prompt; inputs [batch, rows, patch values] for positions from ``first`` on."""
        places = self.embed_places.weight[first : first + inputs.shape[1]]
        return self.patch_in(inputs / HALF) + places + condition[:, None]

    def condition(self, words: Tensor) -> Tensor:
        """Return the sum of the prompt's word embeddings, [batch, hidden]. words [batch, number of words]:
        how often each word occurs."""
        return words @ self.embed_words.weight

    def forward(self, condition: Tensor, inputs: Tensor, mask: Tensor) -> Tensor:
        """Training: return the final hidden states [batch, tokens, hidden] of all rows. inputs [batch,
        tokens, patch values]."""
        x = self.rows(condition, inputs)
        for layer in self.layers:
            x, _ = layer(x, None, mask)
        return self.norm(x)

    def logits(self, states: Tensor, scale: int) -> Tensor:
        """Return the logits [..., entries of the scale] over a scale's codebook."""
        lo, hi = self.scales.starts[scale : scale + 2]
        return F.linear(states, self.lm_head.weight[lo:hi])

    def inputs(self, picture: Tensor, scale: int) -> Tensor:
        """Return the inputs of a scale's rows, [n, rows, patch values], given the picture so far [n, 3,
        side, side]."""
        return self.scales.downsample(picture, scale)

    def add_scale(self, picture: Tensor, entries: Tensor) -> Tensor:
        """Return the picture with one more scale added. entries [n, grid * grid]: rows of ``codes``."""
        return picture + self.scales.upsample(self.codes[entries])


class ScaleModel:
    """Weights of a folder with a next-scale network, for any number of runs, in float32. Raises ModelError
    for a checkpoint that cannot be used."""

    forward = "scale by scale"

    def __init__(self, folder: str | Path, device: str | torch.device = "cpu"):
        folder = Path(folder)
        config = read_json(folder, "config.json")
        check_config(config, folder.name)
        missing = [
            key
            for key in (
                "hidden_size",
                "num_hidden_layers",
                "num_attention_heads",
                "intermediate_size",
                "vocab_size",
            )
            if key not in config
        ]
        if unsupported_reason(config) or missing:
            raise ModelError(
                f"{folder.name}: {unsupported_reason(config) or f'config.json gives no {missing[0]}'}",
                "config.lacks",
            )
        self.folder = folder
        self.name = folder.name
        self.device = torch.device(device)
        self.dtype = torch.float32
        weights = Weights(folder, self.device, self.dtype)
        check_weights(config, weights, folder.name, self.dtype.itemsize, self.device)
        self.net = ScaleNet(config, folder.name)
        self.net.load_state_dict(
            {name: weights.get(name, *tensor.shape) for name, tensor in self.net.state_dict().items()}
        )
        weights.check_all_read()
        self.net.requires_grad_(False).eval().to(self.device)
        self.scales, self.words = self.net.scales, self.net.words
        self.hidden = config["hidden_size"]
        self.layers = config["num_hidden_layers"]
        self.vocab = config["vocab_size"]
        self.context = config.get("max_position_embeddings", 64) + self.scales.tokens
        self.parameters = weights.count - self.net.codes.numel()
