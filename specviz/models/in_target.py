"""Trained rows inside the target's forward pass that predict later tokens; their inputs are not tokens.

A row enters some layer of the frozen target in place of a hidden state. It attends to the text up to the
token it follows (its "owner"), and to earlier rows of its chain. Each row of a chain predicts one token
further ahead than the row before. Only the input of the rows is trained:

- Prompts: learned embeddings that enter at the first layer: PaSS (Monea et al. 2311.13581), one per step; PPD (Chen et
al. 2405.18628), several per step, each on a chain of its own, with averaged logits. - Transfer: the token's
own hidden state times a matrix, at a higher layer for each step (Hidden Transfer, Wu et al. 2404.12022). -
Streams: the token's own hidden state plus a learned vector (Speculative Streaming, Bhendawade et al.
2402.11131), with a low-rank matrix by which the layers below estimate which drafts are improbable.

PPD's published prompts (``prompt_embeddings`` next to an adapter_config.json) are read in their authors'
layout.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..checkpoints.weights import ModelError
from .heads import HeadWeights, TargetInfo, calibration, config_of, fill


class InTargetRows(nn.Module):
    """Base class (nn.Module) of trained rows that predict later tokens inside the target's forward pass.

    layers: for each step, the layer at whose input its rows enter (0: the embeddings); chains: number of
    rows per step; accuracy, nodes: see ``heads.calibration``.
    """

    kind = ""

    def __init__(self, hidden: int, vocab: int, layers: tuple[int, ...], chains: int = 1):
        super().__init__()
        self.hidden = hidden
        self.vocab = vocab
        self.layers = tuple(layers)
        self.chains = chains
        self.accuracy: list[list[float]] = []
        self.nodes = 0

    def __len__(self) -> int:
        return len(self.layers)

    def input_states(self, step: int, chains: Tensor, owners: Tensor) -> Tensor:
        """Return the input states [n, hidden] of a step's rows. chains [n]: index of each row among the
        step's rows; owners [n, hidden]: hidden states of the tokens that the rows follow."""
        raise NotImplementedError(f"{type(self).__name__} makes no rows")

    def matrix(self, index: int, targets: Tensor) -> Tensor:
        """Return the output matrix of a step for training: the target's."""
        return targets

    @property
    def config(self) -> dict[str, Any]:
        """The config.json of these rows."""
        return {
            "model_type": self.kind,
            "hidden_size": self.hidden,
            "vocab_size": self.vocab,
            "layers": list(self.layers),
            "chains": self.chains,
            "accuracy": self.accuracy,
            "nodes": self.nodes,
        }


class PromptRows(InTargetRows):
    """Rows whose input is a trained embedding (PaSS, PPD).

    ``prompt_embeddings`` [steps * chains, hidden], the rows of a step side by side.
    """

    kind = "prompts"

    def __init__(self, hidden: int, vocab: int, layers: tuple[int, ...], chains: int = 1):
        super().__init__(hidden, vocab, (0,) * len(layers), chains)
        self.prompt_embeddings = nn.Parameter(torch.randn(len(layers) * chains, hidden) * hidden**-0.5)

    @torch.no_grad()
    def add_to_embeddings(self, mean: Tensor) -> None:
        """Add the mean embedding [hidden] of a text's tokens to every trained embedding, so that before
        training a row looks like any token to the target."""
        self.prompt_embeddings += mean

    def input_states(self, step: int, chains: Tensor, owners: Tensor) -> Tensor:
        """Return the trained embeddings of these rows; owners are not used."""
        return self.prompt_embeddings[step * self.chains + chains]


class HiddenTransferRows(InTargetRows):
    """Rows whose input is the owner's hidden state times a trained matrix, one per step, initialised to the
    identity (Hidden Transfer)."""

    kind = "transfer"

    def __init__(self, hidden: int, vocab: int, layers: tuple[int, ...], chains: int = 1):
        super().__init__(hidden, vocab, layers)
        matrices = [nn.Linear(hidden, hidden) for _ in layers]
        self.transfer = nn.ModuleList(matrices)
        for matrix in matrices:
            nn.init.eye_(matrix.weight)
            nn.init.zeros_(matrix.bias)

    def input_states(self, step: int, chains: Tensor, owners: Tensor) -> Tensor:
        """Return the owners' hidden states times the step's matrix."""
        return self.transfer[step](owners)


class StreamRows(InTargetRows):
    """Rows whose input is f(the owner's hidden state) plus a trained vector, one per step (Speculative
    Streaming); all enter at the same layer. f is the identity plus a product of two matrices of rank
    ``rank``, shared by all steps; rank 0: the identity, as in the paper's experiments. down, up: low-rank
    matrices that predict the next token from the hidden state at that layer."""

    kind = "streams"
    RANK = 8

    def __init__(self, hidden: int, vocab: int, layers: tuple[int, ...], chains: int = 1, rank: int = 0):
        super().__init__(hidden, vocab, layers)
        self.rank = rank
        self.stream_embeddings = nn.Parameter(0.02 * torch.randn(len(layers), hidden))
        self.stream = low_rank(hidden, rank) if rank else None
        self.down, self.up = low_rank(hidden, min(self.RANK, hidden))

    def input_states(self, step: int, chains: Tensor, owners: Tensor) -> Tensor:
        """Return f(the owners' hidden states) plus the step's vector."""
        changed = owners if self.stream is None else owners + self.stream(owners)
        return changed + self.stream_embeddings[step]

    @property
    def config(self) -> dict[str, Any]:
        """The config.json of these rows."""
        return super().config | {"rank": self.rank}

    def early(self, states: Tensor) -> Tensor:
        """Return hidden states [n, hidden] at the input of the streams' layer, changed by the low-rank
        matrices so that the final norm and the output matrix can be applied to them."""
        return states + self.up(self.down(states))


def low_rank(hidden: int, rank: int) -> nn.Sequential:
    """Return two linear layers whose product has rank ``rank`` at most, 0 at first."""
    down, up = nn.Linear(hidden, rank, False), nn.Linear(rank, hidden, False)
    nn.init.zeros_(up.weight)
    return nn.Sequential(down, up)


HOW = {how.kind: how for how in (PromptRows, HiddenTransferRows, StreamRows)}


def build(target: TargetInfo, hparams: dict[str, Any]) -> InTargetRows:
    """Return untrained rows for a target. hparams: how ("prompts", "transfer" or "streams"); from_end: for
    each step, the number of target layers that its rows go through; chains: rows per step, default 1; rank:
    of the streams' f, default 0."""
    layers = tuple(max(0, target.layers - count) for count in hparams["from_end"])
    options = {"rank": hparams["rank"]} if hparams.get("rank") else {}
    return HOW[hparams["how"]](target.hidden, target.vocab, layers, hparams.get("chains", 1), **options)


def load(folder: Path, target: TargetInfo) -> InTargetRows:
    """Load trained rows from a checkpoint folder, in this project's layout or PPD's. Raises ModelError."""
    config, weights = config_of(folder), HeadWeights(folder, target)
    how = next(
        (
            how
            for how, name in (
                ("prompts", "prompt_embeddings"),
                ("transfer", "transfer.0.weight"),
                ("streams", "stream_embeddings"),
            )
            if name in weights
        ),
        None,
    )
    if how is None:
        raise ModelError(
            f"{folder.name} holds nothing that guesses inside a target, under any of the known names",
            "head.other_kind",
        )
    if how == "prompts" and "num_special_tokens" in config:
        steps, chains = (
            _whole(config, name, folder)
            for name in ("num_special_tokens", "virtual_tokens_per_special_token")
        )
        config = {"layers": [0] * steps, "chains": chains}
    layers, chains = config.get("layers"), config.get("chains", 1)
    if (
        not isinstance(layers, list)
        or not layers
        or not all(type(x) is int and 0 <= x < target.layers for x in layers)
    ):
        raise ModelError(
            f"config.json of {folder.name} must name a layer of {target.name}, from 0 to {target.layers - 1}, for each step",
            "in_target.layer",
        )
    rank = config.get("rank", 0) if how == "streams" else 0
    if type(rank) is not int or not 0 <= rank <= target.hidden:
        raise ModelError(
            f"the config of {folder.name} gives a rank of {rank!r}; it is from 0 to {target.hidden}",
            "in_target.config",
        )
    made = HOW[how](target.hidden, target.vocab, tuple(layers), chains, **({"rank": rank} if rank else {}))
    found = {
        name: weights.get_target_wide(name, target, *tensor.shape)
        if tensor.dim() > 1
        else weights.get(name, *tensor.shape)
        for name, tensor in made.state_dict().items()
    }
    weights.check_none_unread()
    made.accuracy, made.nodes = calibration(config, folder.name)
    return fill(made, found, target)


def _whole(config: dict[str, Any], name: str, folder: Path) -> int:
    if type(config.get(name)) is not int or config[name] < 1:
        raise ModelError(
            f"the config of {folder.name} must say {name}, a whole number above 0", "in_target.config"
        )
    return config[name]
