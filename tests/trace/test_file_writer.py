"""The one writer of files: a whole new file or the old one, whatever happens."""

from __future__ import annotations

import errno
import os

import pytest

from specviz.trace import file_writer
from specviz.trace.file_writer import WriteError, check_place, replacing, write_file


@pytest.fixture
def old(tmp_path):
    path = tmp_path / "f"
    path.write_text("old")
    path.chmod(0o640)
    return path


def test_a_file_is_replaced_whole_and_keeps_its_mode(old):
    write_file(old, "new")
    assert (
        old.read_text() == "new"
        and old.stat().st_mode & 0o777 == 0o640
        and len(list(old.parent.iterdir())) == 1
    )


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_disc_that_is_full_leaves_the_old_file(old, monkeypatch, step):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(file_writer.os, step, full)
    with pytest.raises(WriteError) as failed:
        write_file(old, "new")
    monkeypatch.undo()
    assert (
        failed.value.code == "write.system"
        and old.read_text() == "old"
        and len(list(old.parent.iterdir())) == 1
    )


@pytest.mark.parametrize("error", [RuntimeError(), KeyboardInterrupt(), SystemExit()])
def test_a_block_that_fails_leaves_the_old_file(old, error):
    with pytest.raises(type(error)), replacing(old) as temporary:
        temporary.write_text("half")
        raise error
    assert old.read_text() == "old" and len(list(old.parent.iterdir())) == 1


def test_special_files_and_the_input_are_refused(old, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "dead").symlink_to(tmp_path / "nowhere")
    (tmp_path / "link").symlink_to(old)
    for path, code in (
        (tmp_path / "pipe", "write.special"),
        (tmp_path, "write.special"),
        ("/dev/null", "write.special"),
        (tmp_path / "dead", "write.dead_link"),
        (tmp_path / "no" / "f", "write.folder"),
        ("a\0b", "write.system"),
    ):
        with pytest.raises(WriteError) as refused:
            check_place(path)
        assert refused.value.code == code
    for name in (old, tmp_path / "link", str(tmp_path / "." / "f")):
        with pytest.raises(WriteError) as refused:
            write_file(name, "x", read=old)
        assert refused.value.code == "write.same" and old.read_text() == "old"
