"""Falcon's draft head: EAGLE's idea with several tokens per pass (Gao et al. 2412.12639).

A small LSTM joins the embedding of token t + 1 and the hidden state of token t; one decoder layer without
an input norm follows. Positions form blocks of ``k_mask``, and each attends to its whole block. Position t
predicts the hidden state of token t + k, so the last k positions of a text predict the next k tokens at
once, and k positions with predictions as inputs the following k.

``load`` reads the names of the authors' code, which this project also writes: ``lstm.*`` of two levels and
``layers.0.*``. Like the authors' code, it runs the LSTM on each position separately. With one layer, keys
and values of a position do not depend on its block.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ....checkpoints.weights import ModelError
from ....models.eagle import Eagle, EagleRows, config_like, load_variant
from ....models.eagle_layers import FusedLayers, Layer, angles_of
from ....models.heads import TargetInfo, check_fit

LEVELS = 2  # of the recurrent network


def lstm_step(cells: list[tuple[Tensor, Tensor]], x: Tensor) -> Tensor:
    """Run one step of a stack of LSTM cells from a zero state: x [..., 2 * hidden] -> [..., hidden]. From a
    zero state the recurrent weights and the forget gate have no effect. cells: (matrix, sum of the biases)
    of each layer of the stack."""
    for weight, bias in cells:
        enter, _, new, leave = F.linear(x, weight, bias).chunk(4, -1)
        x = leave.sigmoid() * (enter.sigmoid() * new.tanh()).tanh()
    return x


class LstmCells(nn.Module):
    """The parameters of an LSTM, an nn.Module with torch's parameter names, without the recurrent matrices
    (weight_hh): they have no effect, because every position starts from a zero state."""

    def __init__(self, wide: int, hidden: int):
        super().__init__()
        for level in range(LEVELS):
            rows = 4 * hidden
            for name, shape in (
                ("weight_ih", (rows, hidden if level else wide)),
                ("bias_ih", (rows,)),
                ("bias_hh", (rows,)),
            ):
                drawn = torch.empty(shape).uniform_(-(hidden**-0.5), hidden**-0.5)  # as torch does
                self.register_parameter(f"{name}_l{level}", nn.Parameter(drawn))


class Falcon(Eagle):
    """Falcon's draft head (Gao et al. 2412.12639), an nn.Module: EAGLE's, with k tokens per pass.

    config: a Llama-like config.json; ``k_mask``: k, the positions of a block and the tokens per pass."""

    def __init__(self, config: dict[str, Any], name: str = "the Falcon head"):
        super().__init__({**config, "num_hidden_layers": 1}, name)
        self.size, d = config.get("k_mask", 2), self.sizes.hidden
        if type(self.size) is not int or not 1 < self.size < 64:
            raise ModelError(
                f"config.json of {name} says k_mask is {str(self.size)[:40]}, where a number of tokens must stand",
                "falcon.k_mask",
            )
        self.fc = None
        self.lstm = LstmCells(2 * d, d)
        self.layers = nn.ModuleList([Layer(self.sizes, False, True, bool(config.get("qkv_bias", False)))])

    @property
    def cells(self) -> list[tuple[Tensor, Tensor]]:
        """The LSTM's matrices and summed biases, for ``lstm_step``."""
        at = self.lstm
        return [
            (getattr(at, f"weight_ih_l{i}"), getattr(at, f"bias_ih_l{i}") + getattr(at, f"bias_hh_l{i}"))
            for i in range(LEVELS)
        ]

    def joined(self, embeds: Tensor, features: Tensor) -> Tensor:
        return lstm_step(self.cells, torch.cat([embeds, features], -1))

    def forward(self, embeds: Tensor, features: Tensor, offset: int = 0) -> Tensor:
        """Training: return predictions [batch, n, hidden] from token embeddings and the target's hidden
        states (features), both [batch, n, hidden]; position t predicts feature t + k. Blocks end before
        positions ``offset``, ``offset`` + k, ..."""
        n, place = embeds.shape[1], torch.arange(embeds.shape[1], device=embeds.device)
        block = (place - offset) // self.size  # the first one may be short
        angles = angles_of(self.config, self.sizes.head_dim, n, embeds.device)
        return self.layers[0](
            self.joined(embeds, features).to(features.dtype), angles, None, block <= block[:, None]
        )[0]

    @cached_property
    def fused(self) -> FalconNet:
        """The weights in inference layout (fused matrices); converted once and shared by all runs."""
        return FalconNet(self)

    def open(self) -> BlockwiseRows:
        """Return a KV cache over these weights for one run."""
        return BlockwiseRows(self)


class FalconNet(FusedLayers):
    """Falcon's decoder layer in inference layout, with the LSTM's cells."""

    def __init__(self, head: Falcon):
        super().__init__(head.layers, head.config)
        with torch.inference_mode():
            self.cells = [(weight.detach(), bias.detach()) for weight, bias in head.cells]


class BlockwiseRows(EagleRows):
    """KV cache of Falcon's head for one run: pairs (embedding of token t + 1, feature t) -> prediction of
    feature t + k."""

    net: FalconNet

    def __init__(self, head: Falcon):
        super().__init__(head.fused)
        self.size = head.size
        self._tail: Tensor | None = None  # what entered the layer in the last rows of the text

    def _joined(self, embeds: Tensor, features: Tensor) -> Tensor:
        kind = self.net.dtype
        return lstm_step(self.net.cells, torch.cat([embeds.to(kind), features.to(kind)], -1))

    def restart(self, first: int) -> None:
        super().restart(first)
        self._tail = None

    def crop(self, count: int) -> None:
        """Keep the first ``count`` positions of the text, and the inputs of the positions just before,
        because the next block computes them again."""
        gone = self.count - min(self.count, count)
        if gone and self._tail is not None:
            self._tail = self._tail[: max(0, len(self._tail) - gone)]
        super().crop(count)

    def read(self, embeds: Tensor, features: Tensor) -> Tensor:
        """Append positions of the text: embeddings and the target's features, [n, hidden] each. Return the
        predictions [k, hidden] of the next k features, nearest first, fewer if the text has fewer
        positions. The last k positions form a block, so some of them are computed again."""
        new = self._joined(embeds, features)
        held = [] if self._tail is None else [self._tail[max(0, len(self._tail) - self.size) :]]
        again = sum(map(len, held))
        x = torch.cat([*held, new])
        super(EagleRows, self).crop(self.count - again)
        if len(x) > self.size:
            super(EagleRows, self).read(x[: -self.size])
        last = x[-self.size :]
        out = self._run(last, list(range(len(last))), torch.ones(len(last), len(last), dtype=torch.bool))
        self.count, self._tail = self.count + len(last), last
        return out

    def below(self, embeds: Tensor, guesses: Tensor, parents: list[int], depths: list[int]) -> Tensor:
        """Run blocks of k draft nodes each, whose nodes attend to each other; return their outputs [blocks
        * k, hidden]. They are dropped from the cache after the round.

        embeds, guesses [blocks * k, hidden]: the nodes' token embeddings and the predicted features before
        them; parents: for each node, the index among this round's nodes of the last node of its parent
        block, -1 for the text; depths: of the nodes, from 1."""
        return super(EagleRows, self).branch(self._joined(embeds, guesses), parents, depths, self.size)


def build(target: TargetInfo, hparams: dict[str, Any]) -> Falcon:
    """Return an untrained head for a target. hparams, all optional: block (tokens per pass), intermediate,
    heads, kv_heads, head_dim."""
    return Falcon(
        {**config_like(target, hparams), "k_mask": hparams.get("block", 2)},
        f"the Falcon head of {target.name}",
    )


def load(folder: str | Path, target: TargetInfo) -> Falcon:
    """Load the head of a checkpoint folder, in this project's or a published layout. Raises ModelError."""
    folder = Path(folder)
    check_fit(folder, target.name, target.hidden, target.vocab, "falcon")
    return load_variant(folder, target, Falcon, r"lstm\.weight_hh_l\d+")
