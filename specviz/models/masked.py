"""A draft model with mask tokens: each mask after the text stands for an unknown token, and its row
predicts the token after it, so that one pass drafts a whole block (PARD, An et al. 2504.18583). It reads no
hidden states, so one draft model serves a whole family of targets.

``load`` reads the published layout, which this project also writes: a causal language model of the Llama
family (config.json, ``model.*``, optionally ``lm_head.weight``) whose config has ``pard_token``, the id of
the mask. Beginning as a draft model with a reduced vocabulary (reduced_vocabulary.py), it has that one's
layout.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..checkpoints.weights import ModelError
from ..core import token_tensor
from . import causal
from .eagle import config_like
from .eagle_layers import Sizes
from .heads import HeadWeights, TargetInfo, check_fit, config_of, fill
from .llama import FAMILY
from .reduced_vocabulary import ProjectedTable, expand_to_vocab, projected_table, read_tokens
from .row_cache import RowCache


class MaskedModel(causal.CausalModel):
    """PARD's draft model, an nn.Module: predicts several tokens in one pass from mask tokens.

    config: as CausalModel's, with pard_token (id of the mask token). width: of its logits, the target's
    vocabulary size; tokens beyond its own vocabulary are never predicted. table: the target's embedding
    [vocab, wide], for a draft with a reduced vocabulary (draft_vocab_size in the config): ``draft_tokens``
    are the ids that its output matrix has rows for.
    """

    draft_tokens: Tensor | None

    def __init__(
        self,
        config: dict[str, Any],
        name: str = "the masked draft model",
        width: int = 0,
        table: Tensor | None = None,
    ):
        super().__init__(config, name)
        if table is None:
            self.draft_tokens = None
        else:
            hidden, count = self.sizes.hidden, config["draft_vocab_size"]
            projection: Any = nn.Linear(table.shape[1], hidden, bias=False)
            embedding: Any = ProjectedTable(table, projection)
            self.model.embed_projection, self.model.embed_tokens = projection, embedding
            self.lm_head = nn.Linear(hidden, count, bias=False)
            self.register_buffer("draft_tokens", torch.zeros(count, dtype=torch.int32))
        self.width, self.mask_token = width or self.vocab, config["pard_token"]
        if type(self.mask_token) is not int or not 0 <= self.mask_token < self.vocab:
            raise ModelError(
                f"config.json of {name} says pard_token is {str(self.mask_token)[:40]}, which is none of "
                f"{self.vocab} tokens",
                "pard.token",
            )

    def expand(self, logits: Tensor) -> Tensor:
        """Return logits [n, width] over the target's vocabulary for those over the rows of the output
        matrix."""
        if self.draft_tokens is not None:
            return expand_to_vocab(logits, self.draft_tokens.long(), self.width)
        return F.pad(
            logits[:, : self.width], (0, self.width - min(self.width, logits.shape[1])), value=-torch.inf
        )

    def open(self) -> MaskedRows:
        """Return a KV cache over these weights for one run."""
        return MaskedRows(self)


class MaskedRows(RowCache):
    """KV cache of a MaskedModel for one run: it keeps the rows of the text and drops those of the appended
    mask tokens after each pass."""

    def __init__(self, model: MaskedModel):
        super().__init__(model.fused)
        self.mask_token, self.expand = model.mask_token, model.expand

    def draft(self, ids: list[int], masks: int, added: Tensor | None = None) -> Tensor:
        """Append the tokens ``ids`` of the text, run them and ``masks`` mask tokens in one pass, and return
        logits [1 + masks, width]: after the last token and after each mask. added [ids, hidden]: added to the
        embeddings of the tokens."""
        net = self.net
        rows = net.embed(token_tensor(net.device, [*ids, *[self.mask_token] * masks]))
        if added is not None:
            rows = torch.cat([rows[: len(ids)] + added.to(rows), rows[len(ids) :]])
        return self.expand(net.head(net.norm_final(self.read(rows, passing=masks)[-1 - masks :])))


def build(target: TargetInfo, hparams: dict[str, Any]) -> MaskedModel:
    """Return an untrained draft model for a target. hparams, all optional: hidden, layers, heads, kv_heads,
    head_dim, intermediate, mask_token."""
    settings = {"pard_token": hparams.get("mask_token", 0), "spd_type": "pard", "tie_word_embeddings": True}
    config = config_like(target, hparams) | {"hidden_size": hparams.get("hidden") or target.hidden} | settings
    return MaskedModel(config, f"the masked draft model of {target.name}")


def load(folder: str | Path, target: TargetInfo) -> MaskedModel:
    """Load the draft model of a checkpoint folder, this project's or a published one. Raises ModelError."""
    folder = Path(folder)
    check_fit(folder, target.name, target.hidden, target.vocab, "pard")
    config = config_of(folder)
    if "pard_token" not in config:
        raise ModelError(
            f"{folder.name} was not taught to read masks: its config.json names no pard_token",
            "pard.no_token",
        )
    if config.get("model_type") not in FAMILY:
        raise ModelError(
            f"{folder.name} is of type {config.get('model_type')}; those of {', '.join(FAMILY)} are read",
            "pard.family",
        )
    return read(folder, config, target)


def read(folder: Path, config: dict[str, Any], target: TargetInfo) -> MaskedModel:
    """Load a causal language model as a draft model with mask tokens; config: its config.json with
    pard_token. Raises ModelError."""
    weights = HeadWeights(folder, target)
    if "draft_vocab_size" not in config:
        config, found = causal.read(weights, config)
        return fill(MaskedModel(config, folder.name, target.vocab), found, target)
    sizes = Sizes.of(config, folder.name)
    vocab = config["vocab_size"]
    count = config["draft_vocab_size"]
    if vocab != target.vocab:
        raise ModelError(
            f"{folder.name} projects the embedding of {vocab} tokens, and {target.name} has {target.vocab}",
            "pard.vocabulary",
        )
    table = projected_table(config, folder, target.device, target.dtype, target.folder)
    found = {
        "draft_tokens": read_tokens(weights, count, vocab, folder.name).int(),
        "model.embed_projection.weight": weights.get(
            "model.embed_projection.weight", sizes.hidden, table.shape[1]
        ),
        "model.norm.weight": weights.get("model.norm.weight", sizes.hidden),
        "lm_head.weight": weights.get("lm_head.weight", count, sizes.hidden),
    }
    config |= {"attention_bias": False, "qk_norm": False, "tie_word_embeddings": False}
    found |= {
        name: tensor
        for name, tensor in causal.read_layers(weights, config, sizes).items()
        if tensor is not None
    }
    weights.check_none_unread()
    return fill(MaskedModel(config, folder.name, vocab, table), found, target)
