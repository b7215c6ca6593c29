"""The steps of the Dockerfiles, performed in an empty folder: COPY, RUN, the entry point and the health
check. No container engine is needed. With SPECVIZ_TEST_INDEX the requirements come from pip's index, else
from this environment."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import sysconfig
import tarfile
import time
from pathlib import Path

import pytest

from specviz import ROOT

FILES = ["Dockerfile", "Dockerfile.cuda"]
SKIPPED = ("useradd",)  # what needs another root than this machine's
INDEX = bool(os.environ.get("SPECVIZ_TEST_INDEX"))


def steps(name: str) -> list[tuple[str, str]]:
    """(instruction, arguments) of each step, continuation lines joined."""
    lines = [
        line
        for line in (ROOT / name).read_text(encoding="utf-8").splitlines()
        if line.strip() and not line.lstrip().startswith("#")
    ]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [
        (word.upper(), rest.strip())
        for word, _, rest in (line.partition(" ") for line in joined.splitlines())
    ]


def context(folder: Path) -> Path:
    """The committed tree without what .dockerignore names."""
    packed = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True).stdout
    (folder / "tree.tar").write_bytes(packed)
    ignored = [line.removeprefix("**/") for line in (ROOT / ".dockerignore").read_text().split()]
    with tarfile.open(folder / "tree.tar") as tar:
        wanted = [
            member
            for member in tar.getmembers()
            if not any(
                fnmatch.fnmatch("/".join(member.name.split("/")[:n]), pattern)
                for pattern in ignored
                for n in range(1, 9)
            )
        ]
        tar.extractall(folder / "context", wanted, filter="data")
    (folder / "tree.tar").unlink()
    return folder / "context"


class Image:
    """A folder that stands for the file system of an image; absolute paths of a step are below it."""

    def __init__(self, folder: Path):
        self.root = folder / "root"
        self.env = {}
        self.here = "/"
        self.source = context(folder)

    def inside(self, path: str) -> Path:
        return self.root / str(Path(self.here) / path).lstrip("/")

    def translated(self, command: str) -> str:
        return re.sub(
            r"(?<=[\s=:])/(opt|home|source)|^/(opt|home|source)",
            lambda match: f"{self.root}/{match[1] or match[2]}",
            command,
        )

    def copy(self, words: list[str]) -> None:
        if words[0].startswith("--from="):  # another stage: the same folder here
            assert words[1] == words[2] and self.inside(words[1]).is_dir()
            return
        *froms, to = words
        for name in froms:
            source, goal = self.source / name, self.inside(to)
            assert source.exists(), f"{name} is not in the context"
            goal.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, goal, dirs_exist_ok=True)
            else:
                shutil.copy(source, goal)

    def run(self, command: str) -> None:
        for part in command.split("&&"):
            words = shlex.split(self.translated(part))
            if words[0] in SKIPPED:
                continue
            if words[0] == "python":
                words = [sys.executable, *words[1:3], *([] if INDEX else ["--without-pip"]), *words[3:]]
            if not INDEX and words[0].endswith("/pip"):
                site = next(self.root.glob("opt/specviz/lib/python*/site-packages"))
                (site / "requirements.pth").write_text(sysconfig.get_path("purelib") + "\n")
                if words[-1] != ".":  # requirements: those of this environment
                    continue
                words = [
                    sys.executable,
                    "-m",
                    "pip",
                    "--python",
                    words[0].replace("/pip", "/python"),
                    *words[1:-1],
                    "--no-build-isolation",
                    ".",
                ]
            done = subprocess.run(words, cwd=self.inside("."), capture_output=True, text=True, timeout=3000)
            assert done.returncode == 0, (part, done.stderr[-2000:])

    def perform(self, name: str) -> None:
        for word, rest in steps(name):
            if word == "WORKDIR":
                self.here = rest
                self.inside(".").mkdir(parents=True, exist_ok=True)
            elif word == "FROM":
                self.here = "/"
            elif word == "COPY":
                self.copy(rest.split())
            elif word == "RUN":
                self.run(rest)
            elif word == "ENV":
                self.env |= dict(pair.split("=", 1) for pair in shlex.split(rest))


@pytest.mark.parametrize("name", FILES)
def test_an_image_is_unprivileged_and_its_health_is_asked(name):
    found = dict(steps(name))
    assert (
        found["USER"] == "1000"
        and json.loads(found["ENTRYPOINT"]) == ["specviz"]
        and "CMD" in found["HEALTHCHECK"]
    )
    assert [word for word, _ in steps(name)].count("FROM") == 2  # what builds is left out
    assert "requirements.txt" in next(
        rest for word, rest in steps(name) if word == "COPY"
    )  # one layer until the requirements change
    for word, rest in steps(name):
        if word == "COPY" and not rest.startswith("--from"):
            assert all((ROOT / path).exists() for path in rest.split()[:-1])


@pytest.mark.thorough
@pytest.mark.parametrize("name", FILES)
def test_the_steps_work_in_an_empty_folder(name, tmp_path):
    if name == "Dockerfile.cuda" and INDEX:
        pytest.skip(
            "torch for CUDA is a download of gigabytes; its steps run with this environment's requirements"
        )
    image = Image(tmp_path)
    image.perform(name)
    found, home = dict(steps(name)), tmp_path / "home"
    home.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = {"HOME": str(home), "OMP_NUM_THREADS": "1"} | {
        key: image.translated(value.replace("$PATH", os.environ["PATH"])) for key, value in image.env.items()
    }
    env |= {"GRADIO_SERVER_NAME": "127.0.0.1", "GRADIO_SERVER_PORT": str(port)}
    entry = [str(image.root / "opt/specviz/bin" / json.loads(found["ENTRYPOINT"])[0])]
    health = json.loads(found["HEALTHCHECK"].partition("CMD ")[2])
    assert ":7860/" in health[-1] and found["EXPOSE"] == "7860"
    ask = [
        str(image.root / "opt/specviz/bin/python"),
        *health[1:-1],
        health[-1].replace(":7860/", f":{port}/"),
    ]
    page = subprocess.Popen(
        entry, cwd=home, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        until = time.monotonic() + 300
        while subprocess.run(ask, env=env, capture_output=True).returncode:
            assert page.poll() is None, page.stderr.read()[-2000:]
            assert time.monotonic() < until, "never healthy"
            time.sleep(1)
    finally:
        page.terminate()
        page.wait(60)
    ran = subprocess.run(
        [*entry, "run", "--method", "sam_decoding", "--prompt", "Tell me a story.", "--max-new-tokens", "8"],
        cwd=home,
        env=env,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ran.returncode == 0 and ran.stdout.strip(), ran.stderr[-2000:]
