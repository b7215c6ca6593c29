"""Grow a network without changing its function, to continue training from there.

Width (after bert2BERT, Chen et al. 2110.07143, and LEMON, Wang et al. 2310.07999; the derivation for Llama
blocks is this project's): the residual stream gets new channels that stay zero, because the rows of the
embedding, ``o_proj`` and ``down_proj`` that write them are zero. Matrices that read the residual stream may
have any values for these channels. Zero channels lower the mean square, so each norm's weight and epsilon
are rescaled. New heads and neurons have zero columns in ``o_proj`` and ``down_proj``. Depth: a new block
has zero ``o_proj`` and ``down_proj``, so it adds nothing.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM


@torch.no_grad()
def grow_model(old: LlamaForCausalLM, shape: dict[str, int], seed: int = 0) -> LlamaForCausalLM:
    """Return a model of ``shape`` (hidden, layers, heads, kv_heads, intermediate) with the same logits as
    the old one, up to rounding.

    Raises ValueError if a size is smaller than before, or if the old heads cannot be mapped to the new KV
    heads."""
    config: Any = old.config
    mine = dict(
        hidden=config.hidden_size,
        layers=config.num_hidden_layers,
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        intermediate=config.intermediate_size,
    )
    smaller = [name for name, size in mine.items() if shape[name] < size]
    if smaller:
        raise ValueError(f"a grown network cannot be smaller: {', '.join(smaller)}")
    if shape["heads"] * mine["kv_heads"] != shape["kv_heads"] * mine["heads"]:
        raise ValueError("query heads must share keys as before: heads / kv_heads has to stay the same")
    state = torch.random.get_rng_state()
    torch.manual_seed(seed)
    settings: dict[str, Any] = config.to_dict() | dict(
        hidden_size=shape["hidden"],
        num_hidden_layers=shape["layers"],
        num_attention_heads=shape["heads"],
        num_key_value_heads=shape["kv_heads"],
        intermediate_size=shape["intermediate"],
        head_dim=config.head_dim,
        rms_norm_eps=config.rms_norm_eps * mine["hidden"] / shape["hidden"],
    )
    new = LlamaForCausalLM(LlamaConfig(**settings))
    torch.random.set_rng_state(state)
    spread = (mine["hidden"] / shape["hidden"]) ** 0.5  # what the norms shrink by
    given = {
        name: weight
        for name, weight in old.state_dict().items()
        if name != "lm_head.weight" or not config.tie_word_embeddings
    }
    written = ("o_proj.weight", "down_proj.weight")
    for name, weight in new.state_dict().items():
        if name not in given:
            if name.endswith(written):
                weight.zero_()  # a block that the old network has not
            continue
        if weight.ndim == 1:  # a norm over the stream
            weight.fill_(spread)
            weight[: len(given[name])] = given[name] * spread
            continue
        rows, columns = given[name].shape
        if name.endswith(written):
            weight.zero_()
        elif name.endswith(("embed_tokens.weight", "lm_head.weight")):
            weight[:, columns:] = 0
        else:
            _like(weight, given[name])
        weight[:rows, :columns] = given[name]
    return new


def _like(weight: Tensor, old: Tensor) -> None:
    """Return random numbers at the scale of the old matrix, corrected for the wider sum."""
    nn.init.normal_(weight, std=float(old.std()) * (old.shape[1] / weight.shape[1]) ** 0.5)
