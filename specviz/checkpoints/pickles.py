"""`python -m specviz.checkpoints.pickles FOLDER`: write the weights of a published head as safetensors next to
the pickled files.

A pickle can call any function. torch reads one with ``weights_only``, which allows tensors and plain
containers and refuses everything else; that runs in a separate process that gets only the two file names.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from .weights import ModelError

READER = """
import sys
import torch
from safetensors.torch import save_file
found = torch.load(sys.argv[1], map_location="cpu", weights_only=True)
found = found.get("state_dict", found)
tensors = {str(name): tensor for name, tensor in found.items() if isinstance(tensor, torch.Tensor)}
save_file({name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()}, sys.argv[2])
"""
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
LONGEST = 600  # seconds


def convert(folder: Path) -> list[Path]:
    """Convert every pickled weight file of a folder to safetensors; return the new paths. Raises ModelError
    if there is none, or if one contains other objects than tensors."""
    found = sorted(path for kind in PICKLES for path in folder.glob(kind))
    if not found:
        raise ModelError(f"{folder.name} has no pickled weights", "convert.no_pickle")
    made = []
    for path in found:
        to, part = path.with_suffix(".safetensors"), path.with_suffix(".part")
        if to.exists():
            raise ModelError(f"{to.name} is in {folder.name} already", "convert.exists")
        command = [sys.executable, "-I", "-c", READER, str(path.resolve()), str(part.resolve())]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST)
        if done.returncode:
            part.unlink(missing_ok=True)
            words = [line for line in done.stderr.splitlines() if line.strip()] or ["it ended"]
            raise ModelError(
                f"{path.name} of {folder.name} holds more than tensors, or is broken, and was not converted ({words[-1]})",
                "convert.not_tensors",
            )
        made.append(part.replace(to))
    return made


def main(arguments: list[str]) -> int:
    """Run the command line; return the exit code: 2 for a wrong call, 1 for an error, else 0."""
    if len(arguments) != 1:
        print("python -m specviz.checkpoints.pickles FOLDER", file=sys.stderr)
        return 2
    try:
        print(*convert(Path(arguments[0])), sep="\n")
    except (ModelError, OSError, subprocess.TimeoutExpired) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
