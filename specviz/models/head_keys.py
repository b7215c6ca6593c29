"""Check the keys of a head's config.json that change what its layers compute, according to the newest public readers.

The layers here have SiLU, full attention, rotary embedding of whole heads in halves, and no multipliers. A key that
asks for something else is refused by name, because a head that ignores it would silently draft worse. Sources: vLLM
036a00d (qwen3_dflash.py: layer_types, dflash_config, is_causal, is_neox_style, logit_scale), speculators c05b95b
(dflash/core.py).
"""
from __future__ import annotations

from typing import Any

from .errors import ModelError, shown

NEUTRAL: dict[str, tuple[Any, ...]] = {  # values that these layers compute; a missing key and null are neutral, too
    "hidden_act": ("silu", "swish"), "hidden_activation": ("silu", "swish"), "is_neox_style": (True,), "partial_rotary_factor": (1,),
    "logit_scale": (1,), "logits_scaling": (1,), "embedding_multiplier": (1,), "residual_multiplier": (1,), "scale_emb": (1,),
    "input_embedding_scale": (1,), "output_multiplier": (1,), "final_logit_softcapping": (), "attn_logit_softcapping": (),
    "attention_sink_bias": (False,), "add_swa_attention_sink_bias": (False,), "clip_qkv": (), "use_swa": (False,),
}
WINDOWED_FROM = 28  # layers of Qwen's class from here on have a window where ``use_sliding_window`` is set


def check_keys(config: dict[str, Any], name: str, head_dim: int, layers: int, causal: bool = True) -> None:
    """Raise ModelError for a key that asks for something that the layers of a head do not compute. causal: whether a
    row attends only to rows before it."""
    rotary, inner = config.get("rope_parameters") or config.get("rope_scaling"), config.get("dflash_config")
    fine = NEUTRAL | {"query_pre_attn_scalar": (head_dim,), "attention_multiplier": (head_dim**-0.5,), "is_causal": (causal,),
                      "causal": (causal,)}
    for part in (one for one in (rotary, config, inner) if isinstance(one, dict)):
        for key, values in fine.items():
            if part.get(key) is not None and part[key] not in values:
                raise _refusal(key, part[key], name)
    kinds = config.get("layer_types")
    odd = [kind for kind in kinds[:layers] if kind != "full_attention"] if isinstance(kinds, list) else []
    if odd:
        raise _refusal("layer_types", odd[0], name)
    windowed_from = WINDOWED_FROM if config.get("max_window_layers") is None else config["max_window_layers"]
    if kinds is None and config.get("use_sliding_window") and (type(windowed_from) is not int or windowed_from < layers):
        raise _refusal("use_sliding_window", config["use_sliding_window"], name)


def _refusal(key: str, value: Any, name: str) -> ModelError:
    return ModelError(f"config.json of {name} says {key} is {shown(value)}, which the layers of heads here do not compute", "head.key")
