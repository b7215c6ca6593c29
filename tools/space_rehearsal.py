"""Check that this checkout would run as a Hugging Face Space: what the Space's builder installs and what
visitors get, in a folder with only the shipped files.

Requirements are parsed, not installed, and the hub's hardware is not simulated. A ZeroGPU Space gets its
GPU per call, in a short-lived process, so CUDA graphs cannot be kept, and passes run eagerly.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

from specviz import ROOT
from specviz.checkpoints.split import LARGEST
from specviz.core.errors import CodedError

COLOURS = {"red", "yellow", "green", "blue", "indigo", "purple", "pink", "gray"}
NEEDED = ("title", "emoji", "colorFrom", "colorTo", "sdk", "sdk_version", "app_file", "license")
MOST_FILES = 10_000  # in a folder
LONGEST = 60  # characters of the short description
PATIENCE = 240.0  # seconds until the page must answer
LEFT_OUT = {".git", ".venv", "__pycache__", ".pytest_cache", ".ruff_cache", ".gradio", ".hypothesis"}


def check_space(root: Path, app: bool = True) -> list[dict[str, Any]]:
    """Return rows {check, ok, detail} for the checkout at ``root``. app: also start the app as a Space
    would, and request its page."""
    checks: list[tuple[str, Callable[[Path], str]]] = [
        ("front matter", check_front_matter),
        ("requirements", check_requirements),
        ("file sizes", check_file_sizes),
        ("spaces package", check_spaces_package),
    ]
    if app:
        checks.append(("app", check_app_answers))
    rows = []
    for name, look in checks:
        try:
            rows.append({"check": name, "ok": True, "detail": look(root)})
        except Problem as problem:
            rows.append({"check": name, "ok": False, "detail": str(problem)})
    return rows


class Problem(CodedError, ValueError):
    """A reason why the Space would not work."""


def check_front_matter(root: Path) -> str:
    """Check the fields at the top of README.md that a Space reads; return a description. Raises Problem."""
    fields = _fields(root)
    if fields["sdk"] != "gradio" or not (root / str(fields["app_file"])).is_file():
        raise Problem(
            f"sdk must be gradio and app_file a file that is there, not {fields['sdk']!r} and {fields['app_file']!r}.",
            "space.sdk",
        )
    if {fields["colorFrom"], fields["colorTo"]} - COLOURS:
        raise Problem(f"Colours are {', '.join(sorted(COLOURS))}.", "space.colours")
    if len(str(fields.get("short_description", ""))) > LONGEST:
        raise Problem(f"short_description has more than {LONGEST} characters.", "space.description")
    if not isinstance(fields.get("python_version", ""), str):
        raise Problem("python_version must be in quotes: 3.10 unquoted is 3.1.", "space.python_version")
    return f"sdk {fields['sdk']} {fields['sdk_version']}, {fields['app_file']}."


def _fields(root: Path) -> dict[str, Any]:
    """Return the fields of the front matter."""
    text = _read(root / "README.md")
    head = text.split("\n---", 1)[0].removeprefix("---\n") if text.startswith("---\n") else ""
    try:
        fields = yaml.safe_load(head)
    except yaml.YAMLError as error:
        raise Problem(
            f"The front matter of README.md is no YAML: {str(error).splitlines()[0]}.", "space.front_matter"
        ) from None
    if not isinstance(fields, dict):
        raise Problem("README.md has no front matter.", "space.no_front_matter")
    missing = [key for key in NEEDED if not fields.get(key)]
    if missing:
        raise Problem(f"The front matter lacks {', '.join(missing)}.", "space.front_matter_lacks")
    return fields


def check_requirements(root: Path) -> str:
    """Check that requirements.txt can be installed on a Space; return a description. Raises Problem."""
    from packaging.requirements import InvalidRequirement, Requirement

    lines = [line.split("#")[0].strip() for line in _read(root / "requirements.txt").splitlines()]
    found = {}
    for line in filter(None, lines):
        try:
            found[Requirement(line).name.lower()] = Requirement(line)
        except InvalidRequirement:
            raise Problem(
                f"requirements.txt has a line that no installer reads: {line[:80]}.", "space.requirements"
            ) from None
    version = str(_fields(root)["sdk_version"])
    if "gradio" in found and not found["gradio"].specifier.contains(version):
        raise Problem(
            f"The Space installs gradio {version}, which requirements.txt refuses ({found['gradio'].specifier}).",
            "space.gradio",
        )
    return f"{len(found)} packages, gradio {version} among what they allow."


def check_file_sizes(root: Path) -> str:
    """Check the sizes and the number of the shipped files; return a description. Raises Problem."""
    files = _shipped(root)
    large = [f for f in files if (root / f).stat().st_size > LARGEST]
    if large:
        raise Problem(
            f"{large[0]} is larger than {LARGEST // 2**20} MB: it must go through LFS, or be split.",
            "space.large_file",
        )
    folders: dict[Path, int] = {}
    for file in files:
        folders[file.parent] = folders.get(file.parent, 0) + 1
    fullest = max(folders, key=folders.__getitem__)
    if folders[fullest] > MOST_FILES:
        raise Problem(
            f"{fullest} holds {folders[fullest]} files; {MOST_FILES} are the most.", "space.full_folder"
        )
    return f"{len(files)} files, {sum((root / f).stat().st_size for f in files) / 1e6:.0f} MB, none above {LARGEST // 2**20} MB."


def check_spaces_package(root: Path) -> str:
    """Check that the ``spaces`` decorator changes nothing outside ZeroGPU; return a description. Raises
    Problem."""
    if not find_spec("spaces"):
        return "The package spaces is not installed here (a ZeroGPU Space brings it); its decorator was not rehearsed."
    code = "import spaces\n@spaces.GPU(duration=5)\ndef f(n):\n    yield from range(n)\nassert list(f(3)) == [0, 1, 2]"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, env=_environment()
    )
    if done.returncode:
        raise Problem(
            f"The decorator of spaces has an effect outside ZeroGPU: {(done.stderr.strip().splitlines() or ['?'])[-1]}.",
            "space.decorator",
        )
    return "Its decorator changes nothing outside ZeroGPU."


def check_app_answers(root: Path) -> str:
    """Start a copy of the shipped files with SPACE_ID set, on a free port, and check that the page is
    served; return a description. Raises Problem."""
    with tempfile.TemporaryDirectory(prefix="specviz-space-") as temporary:
        home = Path(temporary) / "app"
        for file in _shipped(root):
            (home / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / file, home / file)
        port, began = _free_port(), time.monotonic()
        with (Path(temporary) / "log").open("w+") as log:
            process = subprocess.Popen(
                [sys.executable, "app.py"],
                cwd=home,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=_environment()
                | {
                    "SPACE_ID": "somebody/specviz",
                    "GRADIO_SERVER_PORT": str(port),
                    "HF_HUB_OFFLINE": "1",
                    "PYTHONPATH": str(home),
                },
            )
            try:
                while not _answers(port):
                    if process.poll() is not None or time.monotonic() - began > PATIENCE:
                        log.seek(0)
                        raise Problem(
                            f"The app did not answer: {(log.read().strip().splitlines() or ['it said nothing'])[-1][:200]}.",
                            "space.no_answer",
                        )
                    time.sleep(0.2)
            finally:
                process.terminate()
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
        return f"The page came {time.monotonic() - began:.1f} s after the start, on every interface, with SPACE_ID set."


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=2) as page:
            return page.status == 200 and b"gradio" in page.read()
    except (OSError, urllib.error.URLError):
        return False


def _environment() -> dict[str, str]:
    """Return this process's environment without the variables that a Space would not have."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SPECVIZ_", "SPACE", "GRADIO_SERVER"))
    }


def _shipped(root: Path) -> list[Path]:
    """Return the files that are pushed: git's if there is a repository, else all but caches."""
    listed = (
        subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True)
        if (root / ".git").exists()
        else None
    )
    if listed and listed.returncode == 0:
        return [Path(name) for name in listed.stdout.decode().split("\0") if name and (root / name).is_file()]
    return [
        p.relative_to(root)
        for p in root.rglob("*")
        if p.is_file() and not LEFT_OUT.intersection(p.relative_to(root).parts)
    ]


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise Problem(f"{path.name} cannot be read: {error.strerror}.", "space.read") from None


def main(arguments: list[str] | None = None) -> int:
    """Check this checkout and print a row for each check; return the exit status."""
    from specviz.cli.terminal import table

    p = argparse.ArgumentParser(
        prog="python -m tools.space_rehearsal", description=(__doc__ or "").splitlines()[0]
    )
    p.add_argument("--no-app", action="store_true", help="do not start the app")
    p.add_argument("--json", action="store_true", help="the rows as JSON")
    options = p.parse_args(arguments)
    rows = check_space(ROOT, app=not options.no_app)
    print(
        json.dumps(rows, ensure_ascii=False, indent=2)
        if options.json
        else table(rows, ["check", "ok", "detail"])
    )
    return 0 if all(row["ok"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
