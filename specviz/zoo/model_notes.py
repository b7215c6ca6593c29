"""Notes that are shown next to a model's name, from its files only: a truncated context, recommended
sampling settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..checkpoints.errors import shown
from ..models.rotary_limits import fixed_rotary_length
from .gguf_tokenizer import NOTES_FILE
from .registry import ZooError
from .tokenizer import read_json

# settings of generation_config.json that change what ``generate`` returns, each with the value that changes
# nothing
NEUTRAL: dict[str, Any] = {
    "temperature": 1.0,
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
    "typical_p": 1.0,
    "epsilon_cutoff": 0.0,
    "eta_cutoff": 0.0,
    "repetition_penalty": 1.0,
    "no_repeat_ngram_size": 0,
    "length_penalty": 1.0,
    "num_beams": 1,
    "suppress_tokens": None,
    "begin_suppress_tokens": None,
    "bad_words_ids": None,
    "forced_bos_token_id": None,
    "forced_eos_token_id": None,
    "sequence_bias": None,
    "min_length": 0,
    "min_new_tokens": None,
    "guidance_scale": None,
    "exponential_decay_length_penalty": None,
    "stop_strings": None,
    "penalty_alpha": None,
    "num_beam_groups": 1,
    "diversity_penalty": 0.0,
    "encoder_repetition_penalty": 1.0,
    "dola_layers": None,
    "watermarking_config": None,
    "forced_decoder_ids": None,
    "max_new_tokens": None,
    "max_time": None,
    "top_h": None,
}
SETTINGS = 6  # most settings that are named


def model_notes(folder: Path) -> list[str]:
    """Return the notes on a checkpoint folder, each the end of a sentence; empty if its files cannot be
    read."""
    try:
        config, settings = read_json(folder, "config.json"), read_json(folder, "generation_config.json")
        own = read_json(folder, NOTES_FILE).get("notes", [])
    except ZooError:  # loading reports it
        return []
    return [*own, *_cut_context(config), *_unstretched(config), *_recommended(settings)]


def _cut_context(config: dict[str, Any]) -> list[str]:
    text = config.get("text_config")
    inner = text if isinstance(text, dict) else config
    fixed, stated = fixed_rotary_length(inner), inner.get("max_position_embeddings")
    if fixed is None or type(stated) is not int or stated <= fixed:
        return []
    return [f"texts of up to {fixed:,} tokens, not {stated:,}: its rotary angles change beyond that"]


def _unstretched(config: dict[str, Any]) -> list[str]:
    """Return the note on a config.json with yarn scaling that gives the length before it as the context."""
    text = config.get("text_config")
    inner = text if isinstance(text, dict) else config
    rope = inner.get("rope_scaling") or inner.get("rope_parameters") or {}
    if not isinstance(rope, dict) or (rope.get("rope_type") or rope.get("type")) != "yarn":
        return []
    stated, factor = inner.get("max_position_embeddings"), rope.get("factor")
    old = rope.get("original_max_position_embeddings") or stated
    if not (isinstance(stated, int) and isinstance(old, int) and isinstance(factor, int | float)):
        return []
    reach = int(old * factor)
    if stated > old or reach <= stated:
        return []
    return [
        f"texts of up to {stated:,} tokens, as max_position_embeddings says; yarn scaling reaches {reach:,}"
    ]


def _recommended(settings: dict[str, Any]) -> list[str]:
    """Return the authors' recommended settings that change the output; a run uses those of its request."""
    found = (
        {"temperature": 0}
        if settings.get("do_sample") is False and settings.get("temperature") not in (None, 1.0)
        else {}
    )
    found = {
        key: settings[key]
        for key, neutral in NEUTRAL.items()
        if settings.get(key) is not None and settings[key] != neutral
    } | found
    words = [f"{key} {shown(value, 20)}" for key, value in found.items()]
    more = f" and {len(words) - SETTINGS} more" if len(words) > SETTINGS else ""
    return [f"recommended: {', '.join(words[:SETTINGS])}{more}"] if words else []
