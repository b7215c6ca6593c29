"""Rotary position embeddings whose frequencies depend on the length of a forward pass, and the length up to
which they are constant.

transformers chooses the frequencies of longrope (Phi-3, LongRoPE 2402.13753) and of dynamic NTK scaling by
the last position of a pass. Beyond a certain length a token's result then depends on the tokens scored
after it, so a draft could not be verified.
"""

from __future__ import annotations

from typing import Any

BY_LENGTH = {"longrope", "su", "dynamic"}


def fixed_rotary_length(config: dict[str, Any]) -> int | None:
    """Return the longest text for which the rotary frequencies of a config.json do not depend on its
    length; None if they never do."""
    given = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kinds = (
        [part for part in (given, *given.values()) if isinstance(part, dict)]
        if isinstance(given, dict)
        else []
    )
    found = []
    for rope in kinds:
        if (rope.get("rope_type") or rope.get("type")) in BY_LENGTH:
            old = rope.get("original_max_position_embeddings") or config.get(
                "original_max_position_embeddings"
            )
            found.append(old or config.get("max_position_embeddings"))
    return min((length for length in found if type(length) is int and length > 0), default=None)
