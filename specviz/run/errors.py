"""Errors of a session."""

from __future__ import annotations

import re

import torch

from ..core import BrokenModel, InvalidDistribution, Method
from ..core.errors import CodedError

FOLDERS = re.compile(r"(?<![\w.])(?:/[\w.+@-]+)+/(?=[\w.])")  # of an absolute path


class SessionError(CodedError, ValueError):
    """Error: a request that cannot be run. The message is a sentence for the user."""


def sentence(error: BaseException | str) -> str:
    """Return the first line of an error's message as a sentence, with a full stop, and with a capital letter
    unless the name of a field begins it."""
    words = (str(error).strip().splitlines() or [type(error).__name__])[0].strip()[:300]
    words = words if "_" in words.partition(" ")[0] else words[:1].upper() + words[1:]
    return words + ("" if words.endswith((".", "!", "?")) else ".")


def explain(method: Method, error: BaseException) -> str:
    """Return why a run failed, in one sentence, without paths of this machine."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return "The device ran out of memory; try a smaller model, fewer lanes or a shorter run."
    if isinstance(error, (BrokenModel, InvalidDistribution)):
        return sentence(error)
    if isinstance(error, SystemExit):
        return sentence(f"{method.title} stopped: one of its parts tried to end the program")
    return sentence(
        f"{method.title} stopped: {sentence(FOLDERS.sub('', str(error)) or type(error).__name__)}"
    )
