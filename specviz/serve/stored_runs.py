"""Runs that the server keeps for links. A run that is too large to travel inside its link is posted to
``/runs``, checked as a trace, and written to a folder of the owner's under the SHA-256 of its records;
``/runs/HASH`` returns it until it expires, and ``/runs/HASH.png`` the picture for previews of its link."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import os
import re
import secrets
import stat
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response

from ..core.errors import code_of
from ..engine.messages import Refused, shorten
from ..trace.file_writer import write_file
from ..trace.files import BIGGEST, Trace
from ..trace.schema import TraceError
from .address_budget import AddressBudget
from .link_preview import preview, words_of

ROUTE = re.compile(r"/runs(?:/([0-9a-f]{64})(\.png)?)?")
FILE = re.compile(r"[0-9a-f]{64}\.jsonl\.gz")
PICTURE = re.compile(r"[0-9a-f]{64}\.png")
TYPES = (
    "application/gzip",
    "application/jsonl",
)  # of a posted run; other web pages cannot send these without asking first
TEMPORARY = re.compile(r"\.[0-9a-f]{16}\.tmp")  # as trace/file_writer.py names them
LEFT_OVER = 3600.0  # seconds after which nobody writes one any more
OWNERS = "owners.json"
OWNER = 12  # characters of an address's digest
FOLDER = "~/.cache/specviz/runs"
MOST_BYTES = 8 * 2**20  # of one run, unpacked
MOST_RUNS = 200
DAYS = 30
STORED = 6  # runs that an address may post in a minute
WAITING = (
    8  # posted runs of all addresses; they are checked one at a time, which takes seconds for the largest
)
SWEEP = 3600.0  # seconds between two searches for expired runs
DAY = 86_400.0


class StoredRuns:
    """A folder of runs. most_bytes: of one run, unpacked, at most what a trace may have; most_runs: beyond it
    the oldest of the address that stored the most are removed; days: after which a run expires. Files of
    other names are neither read nor removed."""

    def __init__(
        self, folder: Path, most_bytes: int = MOST_BYTES, most_runs: int = MOST_RUNS, days: int = DAYS
    ):
        self.folder = folder
        self.most_bytes = min(most_bytes, BIGGEST)
        self.most_runs = most_runs
        self.days = days
        self._budget = AddressBudget(requests=STORED)
        self._checking = asyncio.Lock()
        self._waiting = 0
        self._swept = 0.0

    def put(self, data: bytes, address: str = "") -> str:
        """Store a trace, given as its lines, possibly gzipped; return its name: the SHA-256 of its records
        as ``Trace.lines`` writes them. address: of the client that stores it. Raises Refused."""
        try:
            trace = Trace.load(data, self.most_bytes)
            content = trace.lines().encode("utf-8", "replace")
        except (ValueError, RecursionError) as why:
            if code_of(why) == "trace.large":
                raise Refused("size.stored", most=self.most_bytes >> 10) from None
            raise Refused(
                "stored.trace",
                why=shorten(str(why)) if isinstance(why, TraceError) else "a number is not finite.",
            ) from None
        if len(content) > self.most_bytes:
            raise Refused("size.stored", most=self.most_bytes >> 10)
        name = hashlib.sha256(content).hexdigest()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            for file in (self._file(name), self.folder / OWNERS):
                if file.is_symlink():  # it would be written where it leads
                    file.unlink()
            write_file(self._file(name), gzip.compress(content, mtime=0))
            if (picture := preview(trace)) is not None:
                write_file(self._picture(name), picture)
            owners = self._owners()
            owners["runs"].setdefault(name, _digest(owners["salt"], address))
            self._remove_old(self._file(name), owners)
            write_file(self.folder / OWNERS, json.dumps(owners).encode())
        except OSError:
            raise Refused("stored.folder") from None
        return name

    def _owners(self) -> dict[str, Any]:
        """Return {"salt", "runs": {name of a run: digest of the address that stored it}}, as kept in the
        folder."""
        try:
            found = json.loads((self.folder / OWNERS).read_bytes())
            runs = {str(name): str(owner)[:OWNER] for name, owner in found["runs"].items()}
            return {"salt": str(found["salt"]), "runs": runs}
        except (OSError, ValueError, LookupError, TypeError, AttributeError):  # none yet, or damaged
            return {"salt": secrets.token_hex(16), "runs": {}}

    def find(self, name: str) -> tuple[Path, os.stat_result]:
        """Return the file of a stored run, gzipped JSON Lines, and its state. Raises Refused if there is none
        of this name, or it has expired."""
        try:
            file = self._file(name)
            found = file.lstat()
            if not stat.S_ISREG(found.st_mode):  # a link that was laid here could show any file
                raise Refused("stored.gone")
            if self._expired(found.st_mtime):
                self._remove(file)
                raise Refused("stored.gone")
            return file, found
        except OSError:
            raise Refused("stored.gone") from None

    def words(self, name: str) -> tuple[str, str] | None:
        """Return title and sentence of a stored run, None without a picture or a run."""
        try:
            self.find(name)
        except Refused:
            return None
        return words_of(self._picture(name))

    def sweep(self) -> None:
        """Remove expired runs, at most once in SWEEP seconds."""
        if time.time() - self._swept >= SWEEP:
            self._swept = time.time()
            self._remove_old()

    async def answer(
        self, request: Request, name: str | None, picture: bool, body: Callable[[], Awaitable[bytes]]
    ) -> Response:
        """Return the answer to a request to ROUTE. name: the hash in its path; picture: whether the path names
        its picture; body: reads the request's body. Raises Refused."""
        if name is not None and request.method in ("GET", "HEAD"):
            if picture and await asyncio.to_thread(self.words, name):
                return FileResponse(self._picture(name), media_type="image/png")
            if picture:
                raise Refused("stored.gone")
            file, state = await asyncio.to_thread(self.find, name)
            return FileResponse(  # sent in parts, so that a reader that takes nothing costs nothing
                file, media_type="application/gzip", stat_result=state, headers={"cache-control": "no-cache"}
            )
        if name is not None or request.method != "POST" or request.headers.get("content-type") not in TYPES:
            raise Refused("stored.route")
        address = request.client.host if request.client else ""
        self._budget.request(address)
        if self._waiting >= WAITING:
            raise Refused("stored.busy")
        self._waiting += 1
        try:
            data = await body()
            async with self._checking:
                return JSONResponse({"hash": await asyncio.to_thread(self.put, data, address)})
        finally:
            self._waiting -= 1

    def _file(self, name: str) -> Path:
        if not re.fullmatch("[0-9a-f]{64}", name):
            raise Refused("stored.gone")
        return self.folder / f"{name}.jsonl.gz"

    def _picture(self, name: str) -> Path:
        return self._file(name).with_name(f"{name}.png")

    def _remove(self, file: Path) -> None:
        """Remove a run and its picture."""
        file.unlink(missing_ok=True)
        self._picture(file.name.partition(".")[0]).unlink(missing_ok=True)

    def _expired(self, written: float) -> bool:
        return time.time() - written > self.days * DAY

    def _remove_old(self, newest: Path | None = None, owners: dict[str, Any] | None = None) -> None:
        """Remove expired runs and, beyond the number, the oldest of the address that stored the most;
        ``newest`` counts as the newest, whatever the clock says. owners: as ``_owners`` returns them; runs
        that are gone are removed from it."""
        try:
            self._remove_left_over()
            files = [
                (file != newest, -file.stat().st_mtime, file)
                for file in self.folder.iterdir()
                if FILE.fullmatch(file.name)
            ]
        except OSError:  # no folder yet, or another process removed a file
            return
        of = (owners or self._owners())["runs"]
        kept: dict[str, list[Path]] = {}  # owner -> its runs, newest first
        for old, written, file in sorted(files):
            if old and self._expired(-written):
                self._remove(file)
            else:
                kept.setdefault(of.get(file.name.partition(".")[0], ""), []).append(file)
        for _ in range(sum(map(len, kept.values())) - self.most_runs):
            most = max(kept.values(), key=lambda runs: (len(runs), -runs[-1].stat().st_mtime))
            self._remove(most.pop())
        names = {file.name.partition(".")[0] for runs in kept.values() for file in runs}
        for name in [name for name in of if name not in names]:
            del of[name]

    def _remove_left_over(self) -> None:
        """Remove what a process left that was killed while it wrote: temporary files, pictures without a run."""
        for file in self.folder.iterdir():
            alone = PICTURE.fullmatch(file.name) and not self._file(file.stem).exists()
            if (alone or TEMPORARY.fullmatch(file.name)) and time.time() - file.stat().st_mtime > LEFT_OVER:
                file.unlink(missing_ok=True)


def _digest(salt: str, address: str) -> str:
    """Return a name for an address that does not tell it."""
    return hashlib.sha256(f"{salt}\n{address}".encode()).hexdigest()[:OWNER]


def configured_runs() -> StoredRuns | None:
    """Return the runs that the owner lets the server keep, or None: by default in FOLDER, on a Space only
    where SPECVIZ_RUNS names a folder, and nowhere if it is 0."""
    folder = os.environ.get("SPECVIZ_RUNS") or ("0" if os.environ.get("SPACE_ID") else FOLDER)
    if folder == "0":
        return None
    return StoredRuns(
        Path(folder).expanduser(),
        _limit("SPECVIZ_RUNS_BYTES", MOST_BYTES),
        _limit("SPECVIZ_RUNS_NUMBER", MOST_RUNS),
        _limit("SPECVIZ_RUNS_DAYS", DAYS),
    )


def _limit(variable: str, default: int) -> int:
    asked = os.environ.get(variable, "")
    return max(1, int(asked)) if asked.isdecimal() else default
