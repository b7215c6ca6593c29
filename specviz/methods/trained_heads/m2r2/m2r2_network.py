"""M2R2 (Bhendawade et al. 2502.02040): a fast residual stream parallel to the target's hidden states (the
slow residual), so that an early exit predicts well.

The paper's formulas were not available; this follows secondary descriptions. The fast residual starts as
the token's embedding. At each of the first layers a low-rank adapter updates it: its queries attend to the
keys and values of the layer's own attention, for the text and the position itself, followed by a small
feed-forward. Positions are independent, so there is no cache. At the exit, the change of the fast residual
is added to the slow one, and the target's final norm and output matrix give the logits. Untrained adapters
change nothing, which is the target's plain early exit. No weights were published; parameter names are this
project's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ....checkpoints.weights import ModelError
from ....core import to_device
from ....models.eagle import config_like
from ....models.eagle_layers import Sizes, _rotated
from ....models.heads import HeadWeights, TargetInfo, check_fit, config_of, fill, key_shape
from ....models.llama import inverse_frequencies, rope_of

KV = tuple[Tensor, Tensor]


class Adapter(nn.Module):
    """A low-rank attention to the target's keys and values, an nn.Module. heads: number of query heads;
    keys: (number, width) of the target's key heads; rank: of every matrix."""

    def __init__(self, hidden: int, heads: int, keys: tuple[int, int], rank: int, eps: float):
        super().__init__()
        self.group, self.head_dim = heads // keys[0], keys[1]
        wide = heads * keys[1]
        self.input_layernorm, self.post_attention_layernorm = (nn.RMSNorm(hidden, eps=eps) for _ in range(2))
        self.q_norm = nn.RMSNorm(keys[1], eps=eps)  # bounds the scores: the keys are given
        self.q_a_proj, self.q_b_proj = nn.Linear(hidden, rank, bias=False), nn.Linear(rank, wide, bias=False)
        self.o_a_proj, self.o_b_proj = nn.Linear(wide, rank, bias=False), nn.Linear(rank, hidden, bias=False)
        self.gate_proj, self.up_proj = (nn.Linear(hidden, rank, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(rank, hidden, bias=False)
        for last in (self.o_b_proj, self.down_proj):
            nn.init.zeros_(last.weight)

    def forward(self, x: Tensor, angles: Tensor, target_kv: KV, causal: bool) -> Tensor:
        """Return the attention's output [batch, n, hidden].

        x [batch, n, hidden]; angles [n, head_dim / 2]: rotary angles of the positions; target_kv: keys
        (rotated) and values [batch, kv_heads, c, head_dim]. causal: position i attends to the first i + 1
        of them, else to all."""
        q = self.q_norm(
            self.q_b_proj(self.q_a_proj(self.input_layernorm(x))).unflatten(-1, (-1, self.head_dim))
        ).transpose(1, 2)
        keys, values = (part.to(x).repeat_interleave(self.group, 1) for part in target_kv)
        y = F.scaled_dot_product_attention(_rotated(q, angles).to(x), keys, values, is_causal=causal)
        x = x + self.o_b_proj(self.o_a_proj(y.transpose(1, 2).flatten(2)))
        y = self.post_attention_layernorm(x)
        return x + self.down_proj(F.silu(self.gate_proj(y)) * self.up_proj(y))


class FastResidual(nn.Module):
    """M2R2's network (Bhendawade et al. 2502.02040), an nn.Module: low-rank adapters that compute a second
    residual stream up to an early exit of the target.

    config: sizes as in a Llama's, with exit_layer (number of the target's layers before the exit), rank,
    target_key_heads, target_head_dim."""

    def __init__(self, config: dict[str, Any], name: str = "the fast residual"):
        super().__init__()
        self.config = config
        self.name = name
        sizes = Sizes.of(config, name)
        try:
            self.exit, self.rank = int(config["exit_layer"]), int(config["rank"])
            self.keys = int(config["target_key_heads"]), int(config["target_head_dim"])
        except (KeyError, TypeError, ValueError) as missing:
            raise ModelError(f"config.json of {name} does not say {missing}", "head.config_lacks") from None
        if min(self.exit, self.rank, *self.keys) < 1 or sizes.heads % self.keys[0] or self.keys[1] % 2:
            raise ModelError(f"config.json of {name} gives sizes that do not fit together", "head.sizes")
        self.layers = nn.ModuleList(
            Adapter(sizes.hidden, sizes.heads, self.keys, self.rank, sizes.eps) for _ in range(self.exit)
        )

    def forward(self, embeds: Tensor, target_kv: list[KV], at: int | None = None) -> Tensor:
        """Return the adapters' change of the residual, [batch, n, hidden], to be added to the target's
        hidden states at the input of the exit layer.

        embeds [batch, n, hidden]: token embeddings; target_kv: keys and values [batch, kv_heads, c,
        head_dim] of each layer before the exit. at: the position of a single token, which attends to all of
        them; None: tokens of a text, each attends to those up to itself."""
        places = torch.arange(embeds.shape[1]) if at is None else torch.tensor([at])
        angles = to_device(
            places[:, None].float() * inverse_frequencies(rope_of(self.config), self.keys[1]), embeds.device
        )
        x = embeds
        for layer, pair in zip(self.layers, target_kv):
            x = layer(x, angles, pair, at is None)
        return x - embeds


def build(target: TargetInfo, hparams: dict[str, Any]) -> FastResidual:
    """Return untrained adapters for a target. hparams: exit_layer and rank; heads is optional."""
    kv_heads, width = key_shape(target)
    config = config_like(target, {"heads": hparams.get("heads")})
    config["num_attention_heads"] = (
        config["num_attention_heads"] if config["num_attention_heads"] % kv_heads == 0 else kv_heads
    )
    config |= {
        "num_key_value_heads": kv_heads,
        "head_dim": width,
        "model_type": "m2r2",
        "num_hidden_layers": hparams["exit_layer"],
    }
    return FastResidual(
        {
            **config,
            "exit_layer": hparams["exit_layer"],
            "rank": hparams["rank"],
            "target_key_heads": kv_heads,
            "target_head_dim": width,
        },
        f"the fast residual of {target.name}",
    )


def load(folder: str | Path, target: TargetInfo) -> FastResidual:
    """Load the adapters of a checkpoint folder. Raises ModelError."""
    folder = Path(folder)
    check_fit(folder, target.name, target.hidden, target.vocab)
    weights = HeadWeights(folder, target)
    made = FastResidual({"hidden_size": target.hidden, **config_of(folder)}, folder.name)
    if not made.exit < target.layers:
        raise ModelError(
            f"{folder.name} exits after layer {made.exit}; {target.name} has {target.layers} layers",
            "head.exit_layer",
        )
    if made.keys != key_shape(target):
        heads, width = key_shape(target)
        raise ModelError(
            f"{folder.name} reads {made.keys[0]} heads of keys of {made.keys[1]} numbers; {target.name} has "
            f"{heads} of {width}",
            "m2r2.keys",
        )
    found = {name: weights.get(name, *tensor.shape) for name, tensor in made.state_dict().items()}
    weights.check_none_unread()
    return fill(made, found, target)
