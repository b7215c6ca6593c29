"""Read and check the fields of a question's payload."""

from __future__ import annotations

from typing import Any

from ..core import Method, Sampling
from ..run.request import SessionError, read_sampling
from ..run.session import find_method

LONGEST_PROMPT = 4000


def method_of(payload: dict[str, Any]) -> Method:
    """Return the method that ``method`` names. Raises SessionError."""
    key = payload.get("method")
    if not isinstance(key, str):
        raise SessionError("Name a method.", "lab.method")
    return find_method(key)


def prompt_of(payload: dict[str, Any], otherwise: str = "") -> str:
    """Return the field ``prompt``, or ``otherwise`` if it is missing. Raises SessionError."""
    prompt = payload.get("prompt") or otherwise
    if not isinstance(prompt, str) or not prompt.strip() or len(prompt) > LONGEST_PROMPT:
        raise SessionError(f"A prompt is text of at most {LONGEST_PROMPT:,} characters.", "lab.prompt")
    return prompt.encode("utf-8", "replace").decode("utf-8")


def knobs_of(payload: dict[str, Any], method: Method) -> dict[str, Any]:
    """Return the field ``knobs`` as checked by the method. Raises SessionError."""
    given = payload.get("knobs") or {}
    if not isinstance(given, dict):
        raise SessionError("The knobs must be given as {knob: value}.", "lab.knobs")
    try:
        return method.read_knobs(given)
    except ValueError as error:
        raise SessionError(f"{error}.", "lab.value") from None


def sampling_of(payload: dict[str, Any], temperature: float) -> Sampling:
    """Return the sampling settings. temperature: used if the field is missing. Raises SessionError."""
    probs = read_sampling(
        payload.get("temperature", temperature), 0, payload.get("top_p", 1.0), payload.get("seed", 0)
    )
    if probs.temperature > 2:
        raise SessionError("The temperature must lie between 0 and 2.", "lab.temperature_range")
    return probs
