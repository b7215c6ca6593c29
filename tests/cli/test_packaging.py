"""What the project says about itself agrees with itself."""
from __future__ import annotations

import re
import subprocess

import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from specviz import ROOT as HERE
from specviz.zoo.registry import register


def front_matter():
    head, front, body = (HERE / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    assert head == ""
    return yaml.safe_load(front), body


def requirements(name="requirements.txt"):
    lines = [line.strip() for line in (HERE / name).read_text().splitlines()]
    return {Requirement(line).name.lower(): Requirement(line) for line in lines if line and not line.startswith(("#", "-r"))}


def test_the_front_matter_agrees_with_the_requirements():
    front, _ = front_matter()
    needs = requirements()
    assert front["sdk"] == "gradio" and front["sdk_version"] in needs["gradio"].specifier
    assert front["license"] == "apache-2.0" and front["app_file"] == "app.py"
    project = (HERE / "pyproject.toml").read_text()
    python = re.search(r'requires-python = "(.+)"', project)[1]
    assert isinstance(front["python_version"], str) and front["python_version"] in SpecifierSet(python)
    assert len(front["short_description"]) <= 60 and front["tags"] and front["colorFrom"] and front["colorTo"]


def test_the_models_it_names_are_those_it_offers():
    front, _ = front_matter()
    assert set(front["models"]) == {entry.hub for entry in register(HERE / "models.yaml").entries.values() if entry.hub}


def test_the_ranges():
    needs = requirements()
    assert {"gradio", "torch", "transformers", "accelerate", "plotly", "safetensors", "pyyaml"} <= needs.keys()
    for version, ok in {"2.7.1": False, "2.8.0": True, "2.13.0": True, "2.14.0": False}.items():
        assert (version in needs["torch"].specifier) == ok
    assert "5.23.0" in needs["transformers"].specifier and "4.57.0" not in needs["transformers"].specifier
    assert "6.31.0" in needs["gradio"].specifier and "7.0.0" not in needs["gradio"].specifier
    assert {"pytest", "playwright", "hypothesis", "ruff", "import-linter"} <= requirements("requirements-dev.txt").keys()


def test_the_readme_says_the_two_commands_early():
    _, body = front_matter()
    top = body[:1200]
    assert "make run" in top and "make test" in top and "python app.py" in top
    for command in ("list", "run", "bench", "verify", "replay"):
        assert f"python -m specviz {command}" in body


def test_the_licence_and_the_binaries():
    licence = (HERE / "LICENSE").read_text()
    assert "Apache License" in licence and "Version 2.0, January 2004" in licence
    marks = (HERE / ".gitattributes").read_text()
    for ending in ("safetensors", "png", "gz"):
        assert f"*.{ending} binary" in marks


def test_ci_runs_the_tests():
    assert "make test" in (HERE / ".ci" / "run").read_text()
    said = subprocess.run(["make", "-n", "-B", "test", "PYTHON=python3"], cwd=HERE, capture_output=True, text=True, timeout=60).stdout
    assert "requirements-dev.txt" in said and "-m pytest" in said and "torch==2.13.0" in said
