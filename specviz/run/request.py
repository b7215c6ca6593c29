"""What was asked for, read from whatever a person or a program sent: every value checked, refused with one sentence."""
from __future__ import annotations

import math
import threading
from typing import Any

import torch

from ..core import InvalidDistribution, BrokenModel, Method, Sampling
from ..indexes.earlier_answers import Memory

ROLES = ("system", "user", "assistant")
MOST_STOPS, LONGEST_STOP = 16, 200


class SessionError(ValueError):
    """What was asked for cannot be run; the message is one sentence for a person."""


def read_sampling(temperature: Any = 0.0, top_k: Any = 0, top_p: Any = 1.0, seed: Any = 0) -> Sampling:
    """Sampling from numbers or text. Raises SessionError with one sentence."""
    try:
        return Sampling(read_number("temperature", temperature), read_whole("top_k", top_k), read_number("top_p", top_p),
                        read_whole("seed", seed, -(2**53), 2**53))
    except ValueError as error:
        raise SessionError(sentence(error)) from None


def sentence(error: BaseException | str) -> str:
    """The first line of what went wrong, as a sentence."""
    words = (str(error).strip().splitlines() or [type(error).__name__])[0].strip()[:300]
    return words[:1].upper() + words[1:] + ("" if words.endswith((".", "!", "?")) else ".")


def explain(method: Method, error: Exception) -> str:
    """Why a run broke, for a person."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return "The device ran out of memory; try a smaller model, fewer lanes or a shorter run."
    if isinstance(error, (BrokenModel, InvalidDistribution)):
        return sentence(error)
    return sentence(f"{method.title} stopped: {sentence(error)}")


def read_messages(prompt: Any) -> list[dict[str, str]]:
    if isinstance(prompt, str):
        prompt = [{"role": "user", "content": prompt}]
    if not isinstance(prompt, (list, tuple)) or not prompt:
        raise SessionError("The prompt is empty: write something first.")
    for m in prompt:
        if not isinstance(m, dict) or m.get("role") not in ROLES or not isinstance(m.get("content"), str):
            raise SessionError(f"A prompt is text, or a list of messages with a role ({', '.join(ROLES)}) and a content.")
    if prompt[-1]["role"] != "user":
        raise SessionError("The last message of a conversation must be the user's.")
    if not prompt[-1]["content"].strip():
        raise SessionError("The prompt is empty: write something first.")
    return [{"role": m["role"], "content": m["content"]} for m in prompt]


def read_number(name: str, value: Any) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise SessionError(f"{name} must be a number, not {str(value)[:40]!r}.")
    return number


def read_whole(name: str, value: Any, low: float = 0, high: float = math.inf) -> int:
    number = value if isinstance(value, int) and not isinstance(value, bool) else read_number(name, value)
    if number != int(number) or not low <= number <= high:
        most = f" to {high}" if high < math.inf else " or more"
        raise SessionError(f"{name} must be a whole number{f', {low}{most}' if low > -math.inf else ''}, not {str(value)[:40]}.")
    return int(number)


def read_given(loaded: Any, method: Any, knobs: Any, sampling: Any, memory: Any) -> None:
    """What a Session was made with. Raises SessionError for what is of another kind."""
    if not hasattr(loaded, "why_not") or not hasattr(loaded, "kit"):
        raise SessionError(f"A session needs loaded models, as load() gives them, not {type(loaded).__name__}.")
    if not isinstance(method, (str, Method)):
        raise SessionError(f"A method is a Method or its key, not {type(method).__name__}.")
    if knobs is not None and not (isinstance(knobs, dict) and all(isinstance(name, str) for name in knobs)):
        raise SessionError("Knobs are values by name.")
    if not isinstance(sampling, Sampling):
        raise SessionError(f"sampling must be a Sampling, not {type(sampling).__name__}.")
    if memory is not None and not isinstance(memory, Memory):
        raise SessionError(f"memory must be a Memory or None, not {type(memory).__name__}.")


def read_cancel(cancel: Any) -> threading.Event:
    if cancel is not None and not isinstance(cancel, threading.Event):
        raise SessionError(f"cancel must be a threading.Event, not {type(cancel).__name__}.")
    return cancel or threading.Event()


def read_predicted(text: Any, longest: int) -> str:
    """A text that the answer is expected to be like, of at most ``longest`` characters; empty for none."""
    if not isinstance(text or "", str):
        raise SessionError("The predicted text must be text.")
    if len(text or "") > longest:
        raise SessionError(f"The predicted text has {len(text)} characters; at most {longest} are read.")
    return text or ""


def read_stops(stop: Any) -> tuple[str, ...]:
    if not isinstance(stop, (str, list, tuple, type(None))):
        raise SessionError(f"Stop strings are a list of texts, not {type(stop).__name__}.")
    stops = (stop,) if isinstance(stop, str) else tuple(stop or ())
    if len(stops) > MOST_STOPS or not all(isinstance(s, str) and s and len(s) <= LONGEST_STOP for s in stops):
        raise SessionError(f"Stop strings are at most {MOST_STOPS} texts of 1 to {LONGEST_STOP} characters.")
    return stops


def read_seconds(deadline: Any) -> float | None:
    if deadline is not None and read_number("deadline", deadline) < 0:
        raise SessionError("The deadline must be 0 seconds or more.")
    return None if deadline is None else float(deadline)


def largest(knobs: dict[str, Any]) -> int:
    """Rows of the largest tree that these knobs are likely to ask for, its root among them. A guess: a target of fixed shapes that
    meets a larger one takes a larger bucket from then on."""
    sizes = [knobs.get(name) for name in ("nodes", "gamma", "depth", "window", "block", "most", "length")]
    return 1 + max((size for size in sizes if type(size) is int), default=0)
