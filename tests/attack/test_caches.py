"""Caches and temporary files: no other user's file is read or shown as ours, what is damaged is made anew, and
two processes share them."""

from __future__ import annotations

import os
import resource
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from specviz import ROOT
from specviz.checkpoints import split
from specviz.kernels import cache
from specviz.serve.stored_runs import OWNERS, StoredRuns
from specviz.trace.file_writer import replacing

from .real_server import RealServer
from .test_stored_runs import code, run


# --- stored runs -------------------------------------------------------------------------------------------
def test_a_link_among_the_stored_runs_shows_nothing_and_is_not_written_through(tmp_path):
    runs, secret = StoredRuns(tmp_path / "runs"), tmp_path / "secret"
    name = runs.put(run())
    secret.write_text("mine")
    for file in (runs.folder / f"{name}.jsonl.gz", runs.folder / OWNERS):
        file.unlink()
        file.symlink_to(secret)
    assert code(lambda: runs.find(name)) == "stored.gone"
    assert runs.put(run()) == name and runs.find(name)[0].read_bytes()[:2] == b"\x1f\x8b"
    assert secret.read_text() == "mine" and not any(file.is_symlink() for file in runs.folder.iterdir())


# --- temporary files -----------------------------------------------------------------------------------------
def test_a_file_that_only_its_owner_reads_is_so_while_it_is_written_anew(tmp_path):
    path = tmp_path / "private.jsonl"
    path.write_text("old")
    path.chmod(0o600)
    with replacing(path) as temporary:
        assert stat.S_IMODE(temporary.stat().st_mode) == 0o600
        temporary.write_text("new")
    assert path.read_text() == "new" and stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("planted", ["nothing", "open folder", "link", "file"])
def test_weights_are_never_read_from_a_folder_that_others_may_write(tmp_path, monkeypatch, planted):
    """Where the home cannot be written, the cache lies below the temporary folder, which all users share."""
    shared, theirs = tmp_path / "tmp", tmp_path / "theirs"
    shared.mkdir()
    theirs.mkdir()
    own = shared / f"specviz-{os.getuid()}"
    if planted == "open folder":
        own.mkdir()
        own.chmod(0o777)
    elif planted == "link":
        own.symlink_to(theirs)
    elif planted == "file":
        own.write_text("")
    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.setattr(tempfile, "tempdir", str(shared))
    split._folder_of_this_process.cache_clear()
    try:
        folder = split.cache_folder().parents[1]
        assert (folder == own) == (planted == "nothing")
        found = folder.lstat()
        assert stat.S_ISDIR(found.st_mode) and stat.S_IMODE(found.st_mode) == 0o700
        assert split.cache_folder().parents[1] == folder  # the same one the next time
    finally:
        split._folder_of_this_process.cache_clear()


# --- compiled kernels ----------------------------------------------------------------------------------------
def three_times(x):
    return x * 3


def compiled(monkeypatch, folder):
    """A function that was compiled with the kernels' cache in a folder, and whether it came from there."""
    from numba import njit

    monkeypatch.setattr(cache, "kernel_cache", lambda: folder)
    function = cache.in_cache_folder(lambda on: njit(cache=on)(three_times))
    assert function(14) == 42
    return sum(function.stats.cache_hits.values()) > 0


@pytest.mark.parametrize("ending", ["nbi", "nbc"])
@pytest.mark.parametrize("left", [0, 5, 100])
def test_a_kernel_that_was_cut_short_on_disk_is_compiled_anew(tmp_path, monkeypatch, ending, left):
    assert not compiled(monkeypatch, tmp_path) and compiled(monkeypatch, tmp_path)
    (file,) = tmp_path.rglob(f"*.{ending}")
    os.truncate(file, left)
    assert not compiled(monkeypatch, tmp_path) and compiled(monkeypatch, tmp_path)


def test_a_full_disk_does_not_stop_a_kernel(tmp_path, monkeypatch):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
        assert not compiled(monkeypatch, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.parametrize("mode, used", [(0o755, True), (0o700, True), (0o775, False), (0o777, False)])
def test_kernels_are_read_from_a_folder_of_ones_own(tmp_path, monkeypatch, mode, used):
    """numba's cache holds pickles: whoever writes there runs code here."""
    monkeypatch.setenv("SPECVIZ_CACHE", str(tmp_path))
    cache.kernel_cache.cache_clear()
    try:
        folder = cache.kernel_cache()
        assert folder is not None
        folder.chmod(mode)
        cache.kernel_cache.cache_clear()
        assert (cache.kernel_cache() == folder) == used
    finally:
        cache.kernel_cache.cache_clear()


TWO = """
import sys
from numba import njit
from specviz.kernels.cache import in_cache_folder, kernel_cache
sys.path.insert(0, sys.argv[1])
from kernel_of_two import three_times
function = in_cache_folder(lambda on: njit(cache=on)(three_times))
print(function(14), kernel_cache() is not None, sum(function.stats.cache_hits.values()))
"""


@pytest.mark.thorough
def test_two_processes_share_an_empty_cache_and_one_that_cannot_write_goes_without(tmp_path):
    (tmp_path / "kernel_of_two.py").write_text("def three_times(x):\n    return x * 3\n")
    (tmp_path / "file").write_text("")  # root may write in any folder, but not below a file

    def start(where):
        return subprocess.Popen(
            [sys.executable, "-c", TWO, str(tmp_path)],
            cwd=ROOT,
            env={**os.environ, "SPECVIZ_CACHE": str(tmp_path / where)},
            stdout=subprocess.PIPE,
            text=True,
        )

    both = [start("cache"), start("cache"), start("file/below")]
    said = [one.communicate(timeout=300)[0].split() for one in both]
    assert [words[:2] for words in said] == [["42", "True"], ["42", "True"], ["42", "False"]]
    assert start("cache").communicate(timeout=300)[0].split() == ["42", "True", "1"]


# --- many starts ---------------------------------------------------------------------------------------------
@pytest.mark.soak
def test_a_hundred_starts_leave_what_one_leaves(tmp_path):
    """SPECVIZ_ATTACK_PART=0.1: ten starts."""
    (tmp_path / "tmp").mkdir()
    places = {"TMPDIR": str(tmp_path / "tmp"), "SPECVIZ_CACHE": str(tmp_path / "cache")}
    left = []
    for _ in range(max(3, round(100 * float(os.environ.get("SPECVIZ_ATTACK_PART", "1"))))):
        with RealServer(**places) as server:
            assert server.chat()[0] == 200
        files = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*"))
        left.append(files)
        Path(server.log).unlink()
    assert left[-1] == left[1], set(left[-1]) ^ set(left[1])
