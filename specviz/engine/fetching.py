"""Fetch a hub model for a visitor, in a process of its own that can be ended: when it is too slow, when nobody
waits for it any more, or when the disc is full. The owner may switch it off (SPECVIZ_FETCH=0); on a Space it
is off unless SPECVIZ_FETCH=1."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from .choices import bytes_fetched
from .log_lines import LINE
from .messages import Refused, shorten

SECONDS = 3600.0  # of one model
STALL_SECONDS = 60.0  # in which less than STALL_BYTES arrive
STALL_BYTES = 2**20
SPARE_BYTES = 2 * 2**30  # of the disc that are left free
LOOK = 0.2  # seconds between two looks at the process
FETCH = """
import json, sys
from specviz.zoo.registry import ZooError, register
try:
    book = register()
    for name in sys.argv[1:]:
        (book.entries.get(name) or book.find(name)).folder()
except ZooError as error:
    sys.exit(json.dumps([str(error), error.code]))
"""


def may_fetch() -> bool:
    """Return whether visitors may have the weights of hub models fetched."""
    asked = os.environ.get("SPECVIZ_FETCH", "")
    return asked == "1" or (asked != "0" and not os.environ.get("SPACE_ID"))


def to_fetch(book: Any, target: str | None, draft: str | None) -> list[Any]:
    """Return the hub entries of a target, its draft model and what is trained for it that are not on this
    machine yet."""
    from ..zoo.registry import ZooError, local_files

    try:
        entry = book.find(target)
        chosen = None if draft == "none" else book.entries.get(draft or entry.draft)
    except ZooError:  # loading reports it
        return []
    parts = [entry, chosen, *(e for e in book.entries.values() if e.target == entry.name)]
    return [e for e in parts if e is not None and e.hub and local_files(e) is None]


def fetch(entries: list[Any], stop: threading.Event) -> None:
    """Fetch hub entries one after another, until ``stop`` is set. Raises Refused if they do not fit on the
    disc, or take too long."""
    from ..zoo.registry import register

    _check_disc(entries)
    known = register().entries.__contains__
    names = [e.name if known(e.name) else f"{e.hub}@{e.revision}" for e in entries]
    said = tempfile.TemporaryFile()  # noqa: SIM115 - a pipe that nobody reads would hold the process
    process = subprocess.Popen([sys.executable, "-c", FETCH, *names], stdout=subprocess.DEVNULL, stderr=said)
    try:
        _watch(process, entries, stop)
    finally:
        process.kill()
        process.wait()
    said.seek(0)
    if process.returncode:
        raise _failure(said.read().decode("utf-8", "replace").strip().splitlines())


def _failure(lines: list[str]) -> Refused:
    """Return the refusal of a process that failed: the error of the zoo that it wrote last, with its code."""
    from ..zoo.registry import ZooError

    last = lines[-1] if lines else "it ended"
    try:
        sentence, code = json.loads(last)
        return Refused.of(ZooError(sentence, code))
    except (TypeError, ValueError):  # it crashed
        return Refused("models.fetch_failed", why=shorten(last, LINE).rstrip("."))


def _watch(process: subprocess.Popen, entries: list[Any], stop: threading.Event) -> None:
    began = moved = time.monotonic()
    before = 0
    while process.poll() is None:
        if stop.wait(LOOK):
            raise Refused("models.fetch_left")
        here, now = sum(bytes_fetched(e.hub) for e in entries), time.monotonic()
        if here - before >= STALL_BYTES:
            before, moved = here, now
        if now - began > SECONDS or now - moved > STALL_SECONDS:
            raise Refused("models.fetch_slow")


def _check_disc(entries: list[Any]) -> None:
    """Raise Refused if the disc has no room for the entries, as far as models.yaml gives their size."""
    from huggingface_hub.constants import HF_HUB_CACHE

    place = Path(HF_HUB_CACHE)
    while not place.exists():
        place = place.parent
    need, free = sum(float(e.memory or 0) for e in entries) * 1e9, shutil.disk_usage(place).free
    if free < need + SPARE_BYTES:
        raise Refused("models.disc", need=need / 1e9, free=free / 1e9)
