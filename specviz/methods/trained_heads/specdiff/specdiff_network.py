"""SpecDiff's drafter: a small masked diffusion model that fills in a block of mask tokens (Christopher et
al. 2408.05636).

The text's tokens are read causally and cached. The block is the last token and mask tokens; its positions
attend to the text and to each other in both directions. As in SpecDiff-2 (2511.00606), position j predicts
the token after it, so that the network can be initialised with an ordinary draft model. It reads no hidden
states of the target, only its embedding, through ``in_proj``; its output matrix covers the tokens that it
may draft.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ....checkpoints.weights import ModelError
from ....models.eagle import config_like, layer_weights
from ....models.eagle_layers import FusedLayers, Layer, Sizes, angles_of
from ....models.heads import HeadWeights, TargetInfo, check_fit, config_of, fill
from ....models.reduced_vocabulary import expand_to_vocab
from ....models.rms_norm import Norm
from ....models.row_cache import RowCache

TOGETHER = 64  # most new text tokens that are read in the block's own pass


class DiffusionDrafter(nn.Module):
    """SpecDiff's masked diffusion model (Christopher et al. 2408.05636), an nn.Module: a small transformer
    that predicts the masked tokens of a block.

    config: a Llama-like config.json of the target's hidden size and vocabulary, with draft_hidden_size
    (width of the layers), draft_vocab_size (number of tokens that it may draft) and block_size (number of
    positions drafted after the last token)."""

    hidden_states: tuple[str, ...] = ()
    tokens: Tensor  # int64 [draft_vocab_size]

    def __init__(self, config: dict[str, Any], name: str = "the diffusion drafter"):
        super().__init__()
        try:
            inner = {**config, "hidden_size": config["draft_hidden_size"]}
            self.block = config["block_size"]
            wide = config["hidden_size"]
            count = config["draft_vocab_size"]
            self.vocab = config["vocab_size"]
        except KeyError as missing:
            raise ModelError(f"config.json of {name} does not say {missing}", "head.config_lacks") from None
        if (
            not all(type(size) is int and size > 0 for size in (self.block, wide, count))
            or count > self.vocab
        ):
            raise ModelError(
                f"config.json of {name} gives a block, a width or a vocabulary that make no sense",
                "specdiff.config",
            )
        self.config = config
        self.name = name
        self.sizes = Sizes.of(inner, name, causal=False)
        d = self.sizes.hidden
        self.in_proj, self.lm_head = nn.Linear(wide, d, bias=False), nn.Linear(d, count, bias=False)
        self.mask_embedding = nn.Parameter(torch.zeros(d))
        self.layers = nn.ModuleList(Layer(self.sizes, True, True) for _ in range(self.sizes.layers))
        self.norm = nn.RMSNorm(d, eps=self.sizes.eps)
        self.register_buffer("tokens", torch.arange(count))

    def rows(self, embeds: Tensor, masked: Tensor) -> Tensor:
        """Return the inputs [..., draft hidden] of the layers, given the target's token embeddings [...,
        hidden]. masked [...]: True where the mask's input is used instead."""
        return torch.where(masked[..., None], self.mask_embedding.to(embeds.dtype), self.in_proj(embeds))

    def forward(self, rows: Tensor, places: Tensor, mask: Tensor) -> Tensor:
        """Training: return hidden states [batch, n, draft hidden] for ``lm_head``. rows: inputs of the same
        shape; places [batch, n]: positions; mask [batch, 1, n, n]: True where a position may attend."""
        angles = angles_of(self.config, self.sizes.head_dim, int(places.max()) + 1, rows.device)[places][
            :, None
        ]
        for layer in self.layers:
            rows = layer(rows, angles, None, mask)[0]
        return self.norm(rows)

    @cached_property
    def fused(self) -> DiffusionNet:
        """The weights in inference layout (fused matrices); converted once and shared by all runs."""
        return DiffusionNet(self)

    def open(self) -> DiffusionRows:
        """Return a KV cache over these weights for one run."""
        return DiffusionRows(self)


class DiffusionNet(FusedLayers):
    """The diffusion model's layers in inference layout; ``lead`` is in_proj."""

    def __init__(self, head: DiffusionDrafter):
        super().__init__(head.layers, head.config, head.in_proj)
        self.norm_final = Norm(head.norm.weight.detach(), self.eps)


class DiffusionRows(RowCache):
    """KV cache of the diffusion model for one run, over the text's tokens; the keys and values of a block
    are dropped after each pass."""

    def __init__(self, head: DiffusionDrafter):
        super().__init__(head.fused)
        self.head = head

    def text(self, embeds: Tensor) -> None:
        """Append text tokens, given the target's embeddings [n, hidden] of them."""
        self.read(self.net.lead(embeds.to(self.net.dtype)))

    def block(self, text: Tensor, embeds: Tensor, masked: Tensor) -> Tensor:
        """Return logits [block, vocab] of a block after the text; only the new text tokens are kept in the
        cache.

        text [n, hidden]: the target's embeddings of text tokens that are not cached yet; embeds [block,
        hidden]: of the block's tokens; masked [block]: True where the token is masked and its embedding
        ignored."""
        if len(text) > TOGETHER:
            self.text(text)
            text = text[:0]
        n, size = len(text), len(embeds)
        rows = self.net.lead(torch.cat([text, embeds]).to(self.net.dtype))
        rows[n:] = torch.where(masked[:, None], self.head.mask_embedding.to(rows.dtype), rows[n:])
        out = self._run(rows, list(range(n + size)), _sees(n, size))[n:]
        self.count, self._scratch = self.count + n, 0
        assert isinstance(self.net, DiffusionNet)  # as it was made
        return expand_to_vocab(self.head.lm_head(self.net.norm_final(out)), self.head.tokens, self.head.vocab)


@lru_cache(maxsize=64)
def _sees(text: int, block: int) -> Tensor:
    """Return the mask of text rows, which are causal, and a block after them, whose rows see everything."""
    sees = torch.ones(text + block, text + block, dtype=torch.bool)
    sees[:text] = sees[:text].tril()
    return sees


def build(target: TargetInfo, numbers: dict[str, Any]) -> DiffusionDrafter:
    """Return an untrained diffusion model for a target. numbers: block; draft_vocab, hidden, layers, heads,
    kv_heads, head_dim, intermediate."""
    more = {
        "draft_vocab_size": numbers.get("draft_vocab") or target.vocab,
        "draft_hidden_size": numbers.get("hidden") or target.hidden,
        "block_size": numbers["block"],
    }
    return DiffusionDrafter(config_like(target, numbers) | more, f"the diffusion drafter of {target.name}")


def load(folder: str | Path, target: TargetInfo) -> DiffusionDrafter:
    """Load the diffusion model of a checkpoint folder. Raises ModelError."""
    folder = Path(folder)
    check_fit(folder, target.name, target.hidden, target.vocab, "specdiff")
    weights = HeadWeights(folder, target)
    made = DiffusionDrafter(
        {"hidden_size": target.hidden, "vocab_size": target.vocab, **config_of(folder)}, folder.name
    )
    sizes = made.sizes
    d = made.sizes.hidden
    count = len(made.tokens)
    found: dict[str, Tensor | None] = {
        "in_proj.weight": weights.get("in_proj.weight", d, target.hidden),
        "norm.weight": weights.get("norm.weight", d),
        "lm_head.weight": weights.get("lm_head.weight", count, d),
        "mask_embedding": weights.get("mask_embedding", d),
        "tokens": weights.ids("tokens", target.vocab),
    }
    if weights.shape("tokens") != (count,) or len(set(weights.ids("tokens", target.vocab).tolist())) < count:
        raise ModelError(f"the tokens of {folder.name} must be {count} different ones", "specdiff.tokens")
    for i in range(sizes.layers):
        found |= layer_weights(weights, sizes, f"layers.{i}.", True, True)
    weights.check_none_unread()
    return fill(made, {name: tensor for name, tensor in found.items() if tensor is not None}, target)
