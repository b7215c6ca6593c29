"""What ships has a limit: a clone, a Space and a push have one."""

import subprocess

from specviz import ROOT
from specviz.zoo.registry import register
from tools import large_files


def test_all_weights_together_and_each_file_stay_within_what_the_repository_may_hold():
    sizes = {path: path.stat().st_size for path in large_files.weight_files()}
    assert sum(sizes.values()) < large_files.MOST_WEIGHTS * 1e6 <= 300e6, (
        f"{sum(sizes.values()) / 1e6:.0f} MB of weights"
    )
    assert not [path.name for path, size in sizes.items() if size > 10e6]
    kinds = {"heads": lambda path: "heads" in path.parts, "parts": lambda path: ".part-" in path.name}
    assert all(any(map(kind, sizes)) for kind in kinds.values()), "not all kinds of weight files are counted"


def test_weights_are_counted_without_git_too(monkeypatch):
    listed = set(large_files.weight_files())

    def no_git(*_, **__):
        raise FileNotFoundError("git")

    monkeypatch.setattr(subprocess, "run", no_git)
    assert listed <= set(large_files.weight_files())


def test_every_file_of_a_model_is_in_a_part_of_the_table_and_no_part_is_empty():
    files = [
        path
        for path in large_files.tracked_files("assets/models")
        if path.parent != ROOT / "assets" / "models"
    ]
    parts = large_files.sorted_into_parts(files)
    assert sorted(path for found in parts.values() for path in found) == files
    assert not [
        part.title
        for part in large_files.PARTS
        if part.pattern.startswith("assets/models/") and not parts[part]
    ]


def test_the_heads_of_a_target_stay_within_theirs():
    of: dict[str, float] = {}
    for entry in register().entries.values():
        if entry.role == "head" and entry.path and entry.path.is_dir():
            of[entry.target] = of.get(entry.target, 0.0) + sum(
                path.stat().st_size for path in entry.path.glob("*.safetensors")
            )
    assert of and all(size < 120e6 for size in of.values()), {
        name: f"{size / 1e6:.0f} MB" for name, size in of.items()
    }
