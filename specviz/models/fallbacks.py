"""Log features that this machine or this torch version lacks, and what is used instead."""

from __future__ import annotations

import logging
from functools import lru_cache

log = logging.getLogger(__name__)


@lru_cache(maxsize=64)
def log_fallback(missing: str, instead: str) -> None:
    """Log a warning, once per process, that ``missing`` cannot be used and ``instead`` happens. Results are
    the same; a forward pass takes longer."""
    log.warning("%s cannot be used here; %s instead, which is slower.", missing, instead)
