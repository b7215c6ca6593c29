"""MLPSpeculator: levels of a small recurrent network on the target's last hidden state (Wertheimer et al.
2404.19124).

Level i combines its input state with the token just drafted: state = GELU(norm(P state + w E token)), where
w balances the two terms; an output matrix gives the next token's logits. With tied weights all levels share
one embedding, norm and output matrix, and all but the first share P.

``load`` reads the published layout, which this project also writes: config.json with n_predict, inner_dim,
tie_weights, scale_input and top_k_tokens_per_head, and ``emb.0.weight``, ``proj.0.weight``,
``ln.0.weight``, ``ln.0.bias``, ``head.0.weight`` and so on, with or without the prefix ``speculator.``;
copies of tied weights may be left out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ....checkpoints.weights import ModelError
from ....models.heads import HeadWeights, TargetInfo, config_of, fill

EPS = 1e-6


class BiasedRMSNorm(nn.Module):
    """RMS normalisation with weight and bias, an nn.Module: x [..., width] -> [..., width]."""

    def __init__(self, width: int):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        return unit(x) * self.weight + self.bias


def unit(x: Tensor) -> Tensor:
    """Return x divided by the root mean square of its last dimension."""
    return x * (x.pow(2).mean(-1, keepdim=True) + EPS).rsqrt()


class MLPSpeculator(nn.Module):
    """MLPSpeculator's draft heads (Wertheimer et al. 2404.19124), an nn.Module: levels of a small recurrent
    network, each predicting one token further ahead.

    levels: tokens predicted ahead; inner: width of the recurrent states; tied: all levels share their
    weights; scaled: the target's hidden state is normalised first; top: for each level, the number of top
    tokens by which a path is extended."""

    def __init__(
        self,
        hidden: int,
        vocab: int,
        levels: int = 3,
        inner: int = 0,
        tied: bool = True,
        scaled: bool = True,
        top: tuple[int, ...] = (),
    ):
        super().__init__()
        self.hidden = hidden
        self.vocab = vocab
        self.levels = levels
        self.inner = inner or hidden
        self.tied = tied
        self.scaled = scaled
        self.top = tuple(top)[:levels] + (1,) * (levels - len(top))
        inner, own = self.inner, 1 if tied else levels
        tables = [nn.Embedding(vocab, inner) for _ in range(own)]
        self.emb = nn.ModuleList(tables)
        self.proj = nn.ModuleList(
            nn.Linear(inner if i else hidden, inner, False) for i in range(min(levels, 2) if tied else levels)
        )
        self.ln = nn.ModuleList(BiasedRMSNorm(inner) for _ in range(own))
        self.head = nn.ModuleList(nn.Linear(inner, vocab, False) for _ in range(own))
        for table in tables:
            nn.init.normal_(table.weight, std=inner**-0.5)
        share = 0.5 ** (0.5 / levels)  # of the state; the token has the rest
        self.token_weight = ((1 - share**2) * inner / 2) ** 0.5 / share

    def __len__(self) -> int:
        return self.levels

    def step(self, level: int, states: Tensor, tokens: Tensor) -> Tensor:
        """Return the recurrent states [n, inner] of level ``level`` after the tokens [n]. states: those of
        the level before [n, inner]; at level 0 the target's final hidden states [n, hidden]."""
        if level == 0 and self.scaled:
            states = unit(states) / 2**0.5
        own = 0 if self.tied else level
        mixed = self.proj[min(level, len(self.proj) - 1)](states) + self.token_weight * self.emb[own](tokens)
        return F.gelu(self.ln[own](mixed))

    def logits(self, level: int, states: Tensor) -> Tensor:
        """Return logits [n, vocab] of the token after the one that level ``level`` has read, for its states
        [n, inner]."""
        return self.head[0 if self.tied else level](states)

    def matrix(self, index: int, targets: Tensor) -> Tensor:
        """Return the output matrix [vocab, inner] of level ``index`` for training."""
        return cast(nn.Linear, self.head[0 if self.tied else index]).weight

    @property
    def config(self) -> dict[str, Any]:
        """The config.json of the speculator in the published layout."""
        return {
            "model_type": "mlp_speculator",
            "emb_dim": self.hidden,
            "inner_dim": self.inner,
            "n_predict": self.levels,
            "vocab_size": self.vocab,
            "tie_weights": self.tied,
            "scale_input": self.scaled,
            "top_k_tokens_per_head": list(self.top),
        }


def build(target: TargetInfo, hparams: dict[str, Any]) -> MLPSpeculator:
    """Return an untrained speculator for a target."""
    return MLPSpeculator(
        target.hidden,
        target.vocab,
        hparams["levels"],
        hparams["inner"],
        hparams["tied"],
        hparams["scaled"],
        tuple(hparams["top"]),
    )


def load(folder: str | Path, target: TargetInfo) -> MLPSpeculator:
    """Load the speculator of a checkpoint folder, this project's or a published one. Raises ModelError."""
    folder = Path(folder)
    weights, config = HeadWeights(folder, target), config_of(folder)
    levels: Any = config.get("n_predict")
    top = config.get("top_k_tokens_per_head") or []
    whole = [levels, config.get("inner_dim", 0), *top]
    if not all(type(value) is int for value in whole) or levels < 1 or not all(value > 0 for value in top):
        raise ModelError(
            f"config.json of {folder.name} must say n_predict, the number of levels, and in whole numbers inner_dim and "
            "top_k_tokens_per_head",
            "mlp_speculator.config",
        )
    if config.get("emb_dim", target.hidden) != target.hidden:
        raise ModelError(
            f"{folder.name} does not fit {target.name}: it reads states of {config['emb_dim']} numbers, and {target.name} has "
            f"{target.hidden}",
            "head.states",
        )
    made = MLPSpeculator(
        target.hidden,
        target.vocab,
        levels,
        config.get("inner_dim", 0),
        bool(config.get("tie_weights", False)),
        bool(config.get("scale_input", False)),
        tuple(top),
    )
    at = "speculator." if any(name.startswith("speculator.") for name in weights.names) else ""
    found = {name: weights.get(at + name, *tensor.shape) for name, tensor in made.state_dict().items()}
    weights.check_none_unread(*([rf"{at}(emb|head|proj|ln)\.\d+\.(weight|bias)"] if made.tied else []))
    return fill(made, found, target)
