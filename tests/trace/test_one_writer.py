"""Whatever this program writes over goes through trace.file_writer: a full disc or a kill leaves the old
file."""

from __future__ import annotations

import ast

import pytest

from specviz import ROOT
from specviz.trace import file_writer
from specviz.training.files import write_bytes, write_text
from specviz.training.job import TrainingError

WRITES = {
    "write_text",
    "write_bytes",
    "save_file",
    "save_pretrained",
    "copyfile",
    "copy2",
    "savefig",
    "to_parquet",
    "to_csv",
}
OWN = {"trace/file_writer.py", "training/files.py"}  # the writer, and its use for tensors and tokenizers
NEW = {  # folders under a temporary name that are renamed when they are whole, files that did not exist, and pages of a rehearsal
    "zoo/gguf_folder.py",
    "zoo/gguf_tokenizer.py",
    "checkpoints/split.py",
    "tools/space_rehearsal.py",
    "tools/gpu_profile.py",
    "zoo/index_package.py",
    "training/state_cache.py",
}


def test_no_other_module_writes_a_file():
    odd = []
    for file in sorted([*(ROOT / "specviz").rglob("*.py"), *(ROOT / "tools").glob("*.py")]):
        name = file.relative_to(ROOT).as_posix().removeprefix("specviz/")
        if name in OWN | NEW:
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called == "open":
                modes = [
                    one.value
                    for one in [*node.args, *(key.value for key in node.keywords if key.arg == "mode")]
                    if isinstance(one, ast.Constant) and isinstance(one.value, str) and len(one.value) <= 3
                ]
                odd += [
                    f"{name}: open {mode}" for mode in modes if "w" in mode
                ]  # what is appended to a log destroys nothing
            elif (
                called in ("to_csv", "to_parquet") and not node.args
            ):  # without a place they return what would be written
                continue
            elif called in WRITES and isinstance(node.func, ast.Attribute) or called == "save_file":
                odd.append(f"{name}: {called}")
    assert not odd


@pytest.mark.parametrize("fails", ["fsync", "replace"])
def test_training_leaves_the_old_file_on_a_full_disc(tmp_path, monkeypatch, fails):
    def full(*_):
        raise OSError(28, "No space left on device")

    place = tmp_path / "weights"
    write_text(place, "old")
    with monkeypatch.context() as broken:
        broken.setattr(file_writer.os, "fsync", full) if fails == "fsync" else broken.setattr(
            type(place), "replace", full
        )
        with pytest.raises(TrainingError):
            write_bytes(place, b"new")
    assert place.read_text() == "old" and [file.name for file in tmp_path.iterdir()] == ["weights"]
