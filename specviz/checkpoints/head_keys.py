"""Check the keys of a trained head's config.json that change what its layers compute, according to the
newest public readers.

The layers here have SiLU, full attention, rotary embedding of whole heads in halves, and no multipliers. A
key that asks for something else is refused by name, because a head that ignores it would silently draft
worse. Sources: vLLM 036a00d (qwen3_dflash.py: layer_types, dflash_config, is_causal, is_neox_style,
logit_scale), speculators c05b95b (dflash/core.py).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from .errors import ModelError, shown

NEUTRAL: dict[
    str, tuple[Any, ...]
] = {  # values that these layers compute; a missing key and null are neutral, too
    "hidden_act": ("silu", "swish"),
    "hidden_activation": ("silu", "swish"),
    "is_neox_style": (True,),
    "partial_rotary_factor": (1,),
    "logit_scale": (1,),
    "logits_scaling": (1,),
    "embedding_multiplier": (1,),
    "residual_multiplier": (1,),
    "scale_emb": (1,),
    "input_embedding_scale": (1,),
    "output_multiplier": (1,),
    "final_logit_softcapping": (),
    "attn_logit_softcapping": (),
    "attention_sink_bias": (False,),
    "add_swa_attention_sink_bias": (False,),
    "clip_qkv": (),
}
FULL = "full_attention"  # a layer type of a config: all positions are attended to
SLIDING = "sliding_attention"  # a layer type of a config: only the positions of a window are attended to
WINDOWED_FROM = 28  # layers of Qwen's class from here on have a window where ``use_sliding_window`` is set


class LayerAttention(NamedTuple):
    """How the rows of a block attend in one layer. window: only to rows less than so many positions away,
    None: to all; causal: to no later row of the block."""

    window: int | None = None
    causal: bool = False


def check_keys(
    config: dict[str, Any], name: str, head_dim: int, layers: int, causal: bool | None = True
) -> None:
    """Raise ModelError for a config.json key that asks for something that the layers of trained heads do
    not compute. causal: whether a row attends only to rows before it."""
    rotary, inner = config.get("rope_parameters") or config.get("rope_scaling"), config.get("dflash_config")
    fine = NEUTRAL | {"query_pre_attn_scalar": (head_dim,), "attention_multiplier": (head_dim**-0.5,)}
    fine |= {} if causal is None else {"use_swa": (False,), "is_causal": (causal,), "causal": (causal,)}
    for part in (one for one in (rotary, config, inner) if isinstance(one, dict)):
        for key, values in fine.items():
            if part.get(key) is not None and part[key] not in values:
                raise _refusal(key, part[key], name)
    if causal is None:
        return
    sliding = [i for i, kind in enumerate(_kinds(config, name, layers)) if kind != FULL]
    if sliding:
        key = "use_sliding_window" if config.get("layer_types") is None else "layer_types"
        raise _refusal(key, config[key] if key == "use_sliding_window" else SLIDING, name)


def block_attention(config: dict[str, Any], name: str, layers: int) -> list[LayerAttention]:
    """Return how each layer of a block drafter attends. Raises ModelError.

    A layer slides by ``layer_types``, or all do by ``dflash_config.use_swa``. Sliding layers are causal
    within the block, unless the config says otherwise: ``is_causal`` or ``dflash_config.causal`` for all
    layers (vLLM 036a00d), ``sliding_window_non_causal`` for the sliding ones (speculators 021e21b),
    ``causal_head`` (JetSpec)."""
    inner = config["dflash_config"] if isinstance(config.get("dflash_config"), dict) else {}
    kinds = _kinds(config, name, layers)
    if inner.get("use_swa") and SLIDING not in kinds:
        kinds = [SLIDING] * layers
    width = inner.get(
        "swa_window_size",
        config.get("sliding_window") if config.get("use_sliding_window") is not False else None,
    )
    if SLIDING in kinds and (type(width) is not int or width < 1):
        raise _refusal("swa_window_size" if "swa_window_size" in inner else "sliding_window", width, name)
    said = next(
        (
            bool(part[key])
            for part, key in ((config, "is_causal"), (config, "causal"), (inner, "causal"))
            if part.get(key) is not None
        ),
        None,
    )
    if config.get("causal_head") or inner.get("causal_head"):
        said = True
    slides_causal = not config.get("sliding_window_non_causal")
    return [
        LayerAttention(
            width if kind == SLIDING else None, (kind == SLIDING and slides_causal) if said is None else said
        )
        for kind in kinds
    ]


def _kinds(config: dict[str, Any], name: str, layers: int) -> list[str]:
    """Return the kind of each layer's attention; without ``layer_types`` as Qwen's class in transformers
    fills them in."""
    kinds = config.get("layer_types")
    if kinds is None:
        first = WINDOWED_FROM if config.get("max_window_layers") is None else config["max_window_layers"]
        first = first if type(first) is int else 0
        return [SLIDING if config.get("use_sliding_window") and i >= first else FULL for i in range(layers)]
    odd = (
        [kind for kind in kinds[:layers] if kind not in (FULL, SLIDING)]
        if isinstance(kinds, list)
        else [kinds]
    )
    if odd or len(kinds) < layers:
        raise _refusal("layer_types", odd[0] if odd else kinds, name)
    return kinds[:layers]


def _refusal(key: str, value: Any, name: str) -> ModelError:
    return ModelError(
        f"config.json of {name} says {key} is {shown(value)}, which the layers of heads here do not compute",
        "head.key",
    )
