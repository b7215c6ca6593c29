"""Try whether a visitor's response format compiles in time before its request waits for the engine: a format that
never compiles holds nobody else. One format is tried at a time, in a process of its own."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

_TRIALS = ThreadPoolExecutor(1, thread_name_prefix="specviz-format")


async def try_format(response_format: Any) -> None:
    """Wait until it is known whether a format compiles in time; what is wrong with it is reported where it is
    used."""
    from ..run.structured import compiles_in_time, trial_source

    source = trial_source(response_format)
    if source is not None:
        await asyncio.get_running_loop().run_in_executor(_TRIALS, compiles_in_time, source)
