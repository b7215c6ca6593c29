"""models.yaml is parsed once for each time of change, however often the register is asked for."""

from __future__ import annotations

import os

import pytest
import yaml

from specviz.zoo.registry import ZooError, register


def test_the_file_is_parsed_once_until_it_changes(tiny, tmp_path, monkeypatch):
    path = tmp_path / "models.yaml"
    parsed = []
    compose = yaml.compose
    path.write_text((tiny / "models.yaml").read_text())
    monkeypatch.setattr(
        yaml, "compose", lambda *args, **options: parsed.append(1) or compose(*args, **options)
    )
    first = [register(path) for _ in range(5)][0]
    assert len(parsed) == 1 and register(path) == first
    path.write_text(path.read_text() + "\n# a comment\n")
    os.utime(path, ns=(1, 1))
    assert register(path).default == first.default and len(parsed) == 2
    path.write_text("models: [")
    for _ in range(2):
        with pytest.raises(ZooError):
            register(path)
