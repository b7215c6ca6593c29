"""Files that are written and read: nothing is replaced that is no ordinary file, nothing recorded is lost,
nothing read two ways."""

from __future__ import annotations

import gzip
import os
import random
import stat
import sys
from pathlib import Path

import pytest

from specviz.cli import commands as cli
from specviz.run import Session
from specviz.trace import page
from specviz.trace.files import Trace
from specviz.trace.recorder import Recorder
from specviz.trace.schema import TraceError

from ..message_codes import command_codes, refuses
from ..run.fakes import FakeLoaded


@pytest.fixture(scope="module")
def trace():
    loaded = FakeLoaded()
    recorder = Recorder(0, loaded.token_bytes)
    return Trace(
        [
            record
            for event in Session(loaded, "autoregressive").run("the cat", 4)
            for record in recorder.take(event)
        ]
    )


def test_what_is_no_ordinary_file_is_refused_and_stays(trace, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "dead").symlink_to(tmp_path / "nowhere")
    (tmp_path / "round").symlink_to(tmp_path / "round")
    (tmp_path / "null").symlink_to("/dev/null")
    before = {path: path.lstat().st_mode for path in tmp_path.iterdir()}
    for bad in (
        *before,
        "/dev/null",
        "/dev/full",
        "/dev/stdout",
        "/proc/self/mem",
        tmp_path / ("x" * 300),
        "a\0b",
        tmp_path / "no" / "t",
    ):
        with refuses(TraceError, "trace.write"):
            trace.save(bad)
    assert {path: path.lstat().st_mode for path in tmp_path.iterdir()} == before and stat.S_ISCHR(
        Path("/dev/null").stat().st_mode
    )


def test_a_link_stays_a_link_and_a_file_keeps_its_mode(trace, tmp_path):
    real, link = tmp_path / "real.jsonl", tmp_path / "link.jsonl"
    real.write_text("old")
    real.chmod(0o640)
    link.symlink_to(real)
    trace.save(link)
    assert (
        link.is_symlink()
        and Trace.load(real).records == trace.records
        and stat.S_IMODE(real.stat().st_mode) == 0o640
    )
    longest = tmp_path / ("x" * 249 + ".jsonl")
    trace.save(longest)
    assert Trace.load(longest).records == trace.records and len(list(tmp_path.iterdir())) == 3


def test_a_link_beside_it_is_not_followed(trace, tmp_path, monkeypatch):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    for name in (f".t.jsonl.{os.getpid()}", ".aa.tmp"):
        (tmp_path / name).symlink_to(victim)
    monkeypatch.setattr("secrets.token_hex", lambda n: "aa")
    with pytest.raises(TraceError):
        trace.save(tmp_path / "t.jsonl")
    assert victim.read_text() == "mine" and not (tmp_path / "t.jsonl").exists()


def test_a_disc_that_is_full_leaves_the_old_file(trace, tmp_path, monkeypatch):
    path = tmp_path / "t.jsonl"
    path.write_text("old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with refuses(TraceError, "trace.write"):
        trace.save(path)
    assert [p.name for p in tmp_path.iterdir()] == ["t.jsonl"] and path.read_text() == "old"


@pytest.mark.thorough
def test_a_place_that_cannot_be_written_is_reported_before_the_run(at_home, capsys, monkeypatch):
    monkeypatch.setattr("specviz.zoo.load", lambda *_: pytest.fail("models were loaded"))
    for place in ("/dev/full", "/no/such/place/t.jsonl", "/dev"):
        assert cli.main(["run", "--method", "autoregressive", "--prompt", "x", "--trace", place]) == 2
        assert command_codes(capsys.readouterr().err) & {"file.write", "trace.write", "file.place"}


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("out", ["reader gone", "/dev/full"])
def test_the_trace_is_saved_when_standard_output_breaks(at_home, tmp_path, monkeypatch, capsys, out, ending):
    path = tmp_path / f"t.jsonl{ending}"
    if out == "reader gone":
        reader, writer = os.pipe()
        os.close(reader)
    else:
        writer = os.open(out, os.O_WRONLY)
    with os.fdopen(writer, "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        status = cli.main(
            [
                "run",
                "--method",
                "autoregressive",
                "--prompt",
                "the cat",
                "--max-new-tokens",
                "40",
                "--trace",
                str(path),
            ]
        )
        stream.flush()  # as Python does at its end: it goes nowhere, and nobody complains
    monkeypatch.undo()
    assert status == 1 and capsys.readouterr().err.count("\n") <= 1
    assert Trace.load(path).header()["prompt"]["text"] == "the cat"


# --- reading -------------------------------------------------------------------------------------------------------------------
def test_one_gzip_member_is_read_and_no_more(trace):
    lines = trace.lines().encode()
    half = lines.index(b"\n", len(lines) // 2) + 1
    assert Trace.load(gzip.compress(lines)).records == trace.records
    whole = gzip.compress(lines)
    for bad in (
        gzip.compress(lines[:half]) + gzip.compress(lines[half:]),
        whole + b"x",
        whole + whole,
        whole + b"\0" * 9,
    ):
        with refuses(TraceError, "trace.after_gzip"):
            Trace.load(bad)
    for bad in (whole[:-1], whole[:20], b"\x1f\x8b", whole[:-8] + b"\0" * 8):
        with refuses(TraceError, "trace.damaged"):
            Trace.load(bad)
    with refuses(TraceError, "trace.large", "20 MB"):
        Trace.load(gzip.compress(b" " * (21 * 2**20)))


@pytest.mark.parametrize("source", [5, None, [], {}, object(), 1.5])
def test_a_trace_is_read_from_a_path_or_its_lines(source):
    with pytest.raises(TraceError):
        Trace.load(source)
    if source != []:
        with pytest.raises(TraceError):
            Trace(source)


def spoiled(data: bytes, rng: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(rng.randrange(1, 5)):
        at = rng.randrange(len(out))
        out[at : at + rng.randrange(4)] = bytes(
            rng.choices(b'0123456789"{}[],:-e.\\ntf\xff\0', k=rng.randrange(4))
        )
    return bytes(out)


def read_or_refused(data: bytes, seed: int) -> None:
    try:
        Trace.load(data)
    except TraceError as error:
        assert "\n" not in str(error) and len(str(error)) < 400, seed
    except Exception as error:
        raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}") from error


def test_a_spoiled_file_is_a_trace_or_a_sentence(trace):
    for seed in range(150):
        rng = random.Random(seed)
        data = spoiled(trace.lines().encode(), rng)
        read_or_refused(gzip.compress(data) if seed % 3 else data, seed)
        read_or_refused(spoiled(gzip.compress(trace.lines().encode()), rng), seed)


@pytest.mark.soak
def test_fifty_thousand_spoiled_files(trace):
    for seed in range(10_000, 60_000):
        read_or_refused(spoiled(trace.lines().encode(), random.Random(seed)), seed)


def test_a_viewer_that_is_not_there_is_one_sentence(trace, tmp_path, monkeypatch, capsys):
    trace.save(tmp_path / "t.jsonl")
    monkeypatch.setattr(page, "VIEWER", tmp_path / "viewer")
    page.viewer_assets.cache_clear()
    try:
        assert cli.main(["replay", str(tmp_path / "t.jsonl"), "--html", str(tmp_path / "t.html")]) == 1
    finally:
        monkeypatch.undo()
        page.viewer_assets.cache_clear()
    said = capsys.readouterr().err
    assert "viewer.missing" in command_codes(said) and str(tmp_path) not in said
