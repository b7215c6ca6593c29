"""Trace files: records of one or several lanes, written atomically and validated on import."""

from __future__ import annotations

import base64
import codecs
import gzip
import io
import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..core.errors import code_of
from .file_writer import WriteError, check_place, write_file
from .output import describe
from .schema import NODES, SCHEMA, TraceError

BIGGEST = 20 * 2**20  # bytes of a file
LANES = 64  # lanes of a file
RECORDS = 100_000  # records of a lane
TEXT = 2 * 2**20  # bytes of text of a lane
Record = dict[str, Any]


class Trace:
    """The records of a run, read from a file or to be written to one. ``records``: JSON-ready dicts as in
    docs/TRACE.md, in order; several lanes may be mixed."""

    def __init__(self, records: list[Record]):
        if not isinstance(records, (list, tuple)) or not all(isinstance(record, dict) for record in records):
            raise TraceError("A trace is a list of records.", "trace.list")
        self.records = list(records)

    @property
    def lanes(self) -> list[int]:
        """The numbers of the lanes."""
        return sorted({record["lane"] for record in self.records})

    def of(self, kind: str, lane: int = 0) -> list[Record]:
        """Return the records of one type in one lane."""
        return [r for r in self.records if r["type"] == kind and r["lane"] == lane]

    def header(self, lane: int = 0) -> Record:
        """Return the header of a lane. Raises TraceError if there is no such lane."""
        found = self.of("header", lane)
        if not found:
            raise TraceError(f"The trace has no lane {lane}.", "trace.lane")
        return found[0]

    def text(self, lane: int = 0) -> str:
        """Return the text of the run, without the stop string that ended it."""
        pieces = (piece for record in self.of("text", lane) for piece in record["pieces"])
        data = b"".join(base64.b64decode(piece["b"]) for piece in pieces)
        header = next(iter(self.of("header", lane)), {})
        return describe(header.get("output"), data[: self.totals(lane).get("text_bytes", len(data))])

    def totals(self, lane: int = 0) -> dict[str, Any]:
        """Return the raw counts in the last record of a lane; empty if the run has not ended."""
        return next((record["totals"] for record in self.of("done", lane)), {})

    def frame(self) -> Any:
        """Return a pandas DataFrame with a row per round and lane."""
        from .frame import frame

        return frame(self.records)

    def plot(self) -> Any:
        """Return a plotly figure: tokens over engine seconds, a line per lane."""
        from .frame import plot

        return plot(self.records)

    def lines(self) -> str:
        """Return the records as JSON Lines."""
        return "".join(
            json.dumps(r, ensure_ascii=False, separators=(",", ":"), allow_nan=False) + "\n"
            for r in self.records
        )

    def save(self, path: str | Path) -> None:
        """Write the records to ``.jsonl`` or ``.jsonl.gz``, atomically. Raises TraceError; the old file is
        then unchanged."""
        place = writable_path(path)
        data = self.lines().encode("utf-8", "replace")
        if place.suffix == ".gz":
            data = gzip.compress(data, mtime=0)
        try:
            write_file(place, data)
        except WriteError as error:
            raise TraceError(
                f"The trace cannot be written to {path}: {error.strerror}.", "trace.write"
            ) from None

    @classmethod
    def load(cls, source: str | bytes | Path, most: int = BIGGEST) -> Trace:
        """Return the trace in a file, or in its lines (text or bytes, possibly gzipped). most: bytes,
        unpacked. Raises TraceError."""
        data = _bytes(source, most)
        records: list[Record] = []

        def read() -> Iterator[Record]:
            lines = io.BytesIO(
                data.removeprefix(codecs.BOM_UTF8)
            )  # not all of them at once: they may be millions
            for count, line in enumerate(lines, 1):
                if line.strip():
                    records.append(_parse(line, count))
                    yield records[-1]

        try:
            check(read())  # as they are read: the first that is wrong ends it, before millions are parsed
        except TraceError as error:
            if not isinstance(source, Path):
                raise
            raise TraceError(f"{source.name[:200]}: {error}", code_of(error)) from None
        return cls(records)


def writable_path(path: str | Path) -> Path:
    """Check that a trace can be written to this path; return it with links followed. Raises TraceError for
    a device, a pipe, a folder, a dangling link, or a missing folder."""
    try:
        return check_place(path)
    except WriteError as error:
        raise TraceError(
            f"The trace cannot be written to {str(path)[:200]}: {error.strerror}.", "trace.write"
        ) from None


def _bytes(source: str | bytes | Path, most: int) -> bytes:
    if not isinstance(source, (str, bytes, Path)):
        raise TraceError(
            f"A trace is read from a path, or from its lines, not from {type(source).__name__}.",
            "trace.source",
        )
    if isinstance(source, str) and (source.lstrip()[:1] == "{" or "\n" in source):
        source = source.encode("utf-8", "replace")
    if isinstance(source, bytes):
        return _unpacked(io.BytesIO(source), "The trace", most)
    try:
        with Path(source).open("rb") as file:
            return _unpacked(file, str(source), most)
    except (OSError, ValueError) as error:
        if isinstance(error, TraceError):
            raise
        raise TraceError(
            f"{str(source)[:200]} cannot be read: {getattr(error, 'strerror', None) or error}.", "trace.read"
        ) from None


def _unpacked(file: Any, name: str, most: int) -> bytes:
    """Return at most ``most`` bytes, decompressed if gzipped, and never decompress more. Only one gzip
    member, as in browsers: other readers would see data after the first."""
    data = file.read(most + 1)
    if data[:2] == b"\x1f\x8b" and len(data) <= most:
        unpack = zlib.decompressobj(wbits=31)
        try:
            data = unpack.decompress(data, most + 1)
        except zlib.error:
            raise TraceError(f"{name} is damaged or cut short.", "trace.damaged") from None
        if len(data) <= most and not unpack.eof:
            raise TraceError(f"{name} is damaged or cut short.", "trace.damaged")
        if unpack.unused_data:
            raise TraceError(f"{name} has data after the end of its gzip stream.", "trace.after_gzip")
    if len(data) > most:
        raise TraceError(f"{name} is larger than {most / 2**20:g} MB.", "trace.large")
    return data


def _refuse(word: str) -> None:
    raise TraceError(f"{word} is not a finite number.", "trace.finite")


def _parse(line: bytes, count: int) -> Record:
    try:
        return json.loads(line, parse_constant=_refuse)
    except TraceError as error:
        raise TraceError(f"Line {count}: {error}", code_of(error)) from None
    except (ValueError, RecursionError):
        raise TraceError(f"Line {count} is not JSON.", "trace.json") from None


def check(records: Iterable[Any]) -> None:
    """Check types, finiteness, limits and order of all records of a trace. Raises TraceError."""
    lanes: dict[int, _Lane] = {}
    for count, record in enumerate(records, 1):
        if (
            not isinstance(record, dict)
            or not isinstance(record.get("type"), str)
            or record["type"] not in SCHEMA
        ):
            raise TraceError(f"Record {count} is of no known type.", "trace.record")
        kind, lane = record["type"], record.get("lane")
        if type(lane) is not int or not 0 <= lane < LANES:
            raise TraceError(
                f"Record {count}: lane must be a whole number below {LANES}.", "trace.lane_number"
            )
        where = f"Record {count} ({kind})"
        SCHEMA[kind](record, where)
        lanes.setdefault(lane, _Lane()).take(kind, record, where)
    if not lanes:
        raise TraceError("The trace holds no records.", "trace.empty")


@dataclass
class _Lane:
    """State of one lane while its records are validated in order."""

    seq: int = -1
    count: int = 0
    started: bool = False
    ended: bool = False
    rounds: int = 0  # rounds begun
    nodes: dict[int, list[Record]] = field(default_factory=dict)  # of the last two rounds
    text_bytes: int = 0  # bytes
    committed: int = -1

    def take(self, kind: str, record: Record, where: str) -> None:
        seq: Any = record.get("seq")
        _hold(type(seq) is int and 0 <= seq < 2**53, f"{where}: seq must be a whole number.")
        _hold(seq > self.seq, f"{where}: seq must rise within a lane.")
        self.seq, self.count = seq, self.count + 1
        _hold(self.count <= RECORDS, f"{where}: a lane has more than {RECORDS} records.")
        _hold(self.started != (kind == "header"), f"{where}: a lane begins with its header and has one.")
        _hold(not self.ended or kind == "check", f"{where}: the lane has ended.")
        self.started, self.ended = True, self.ended or kind == "done"
        if "round" in record:
            known = type(record["round"]) is int and 0 <= record["round"] <= self.rounds
            _hold(known, f"{where}: rounds must follow each other.")
            self.rounds = max(self.rounds, record["round"] + 1)
        refer = {"draft": self._draft, "judge": self._judge, "commit": self._commit, "text": self._text}.get(
            kind
        )
        if refer:
            refer(record, where)

    def _draft(self, record: Record, where: str) -> None:
        depth: list[int] = []
        for i, node in enumerate(record["nodes"]):
            _hold(
                node["id"] == i and node["parent"] < i,
                f"{where}: nodes must be numbered, and refer to earlier ones.",
            )
            depth.append(1 if node["parent"] < 0 else depth[node["parent"]] + 1)
            _hold(node["depth"] == depth[i], f"{where}: depth of node {i} must be {depth[i]}.")
        _hold(record["round"] not in self.nodes, f"{where}: round {record['round']} is drafted twice.")
        self.nodes[record["round"]] = record["nodes"]
        self.nodes.pop(record["round"] - 8, None)
        _hold(len(record["nodes"]) <= NODES, f"{where}: more than {NODES} nodes.")

    def _judge(self, record: Record, where: str) -> None:
        _hold(
            record["node"] < len(self.nodes.get(record["round"], ())),
            f"{where}: there is no node {record['node']}.",
        )

    def _commit(self, record: Record, where: str) -> None:
        _hold(record["round"] > self.committed, f"{where}: rounds must be committed in order and once.")
        self.committed = record["round"]
        nodes, above = self.nodes.get(record["round"], []), -1
        for node in record["path"]:
            _hold(
                node < len(nodes) and nodes[node]["parent"] == above,
                f"{where}: the path must go down the tree.",
            )
            above = node

    def _text(self, record: Record, where: str) -> None:
        for piece in record["pieces"]:
            start, end = piece["span"]
            follows = start == self.text_bytes and end - start == len(base64.b64decode(piece["b"]))
            _hold(follows, f"{where}: spans must follow each other.")
            self.text_bytes = end
        _hold(self.text_bytes <= TEXT, f"{where}: a lane writes at most {TEXT >> 20} MB of text.")


def _hold(true: bool, otherwise: str) -> None:
    if not true:
        raise TraceError(otherwise, "trace.content")
