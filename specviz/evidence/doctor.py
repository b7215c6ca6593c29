"""Report on this machine: processor, memory, GPU, libraries, the forward pass and kernel in use, the
duration of a forward pass, and missing packages with the commands that install them. This is the data of
``specviz doctor``."""

from __future__ import annotations

import importlib.util
import os
import platform
import statistics
import time
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from packaging.requirements import Requirement

from ..core import DraftTree
from ..core.threads import thread_count

if TYPE_CHECKING:
    from ..zoo.pair import Loaded

CPU_FLAGS = (
    "avx2",
    "avx512f",
    "avx_vnni",
    "avx512_vnni",
    "avx512_bf16",
    "amx_int8",
    "amx_bf16",
    "asimd",
    "asimddp",
    "i8mm",
    "bf16",
)
PASS_TOKENS = (1, 2, 4, 8, 16)  # tokens of the forward passes that are timed
CONTEXT = 64  # cached tokens before each of them
SECONDS = 2.0
OPTIONAL = {  # import name: (what needs it, how to get it)
    "rich": ("specviz chat", "pip install rich"),
    "pandas": ("compare() and Trace.frame() in a notebook, bench --csv", "pip install 'specviz[notebook]'"),
    "pyarrow": ("bench --parquet", "pip install 'specviz[notebook]'"),
    "llama_cpp": ("the llama.cpp row of bench --reference", "pip install 'specviz[engines]'"),
    "faiss": ("approximate search of hidden-state datastores", "pip install 'specviz[train]'"),
    "bitsandbytes": ("quantise: bnb-8bit, bnb-4bit", "pip install 'specviz[gpu]'"),
    "torchao": ("quantise: ao-int8, ao-int4", "pip install 'specviz[gpu]'"),
}


def report(
    target: str | None = None, draft: str | None = None, device: str = "auto", seconds: float = SECONDS
) -> dict[str, Any]:
    """Return the report as plain data for JSON. If the target cannot be loaded, ``target.problem`` is the
    reason, and everything else is reported.

    seconds: time budget of the measurement of forward passes, 0 for none."""
    return _with_machine(_target(target, draft, device, seconds))


def report_loaded(loaded: Loaded, seconds: float = SECONDS) -> dict[str, Any]:
    """Return the same report for models that are already loaded."""
    return _with_machine(target_facts(loaded, seconds))


def _with_machine(target: dict[str, Any]) -> dict[str, Any]:
    return {
        "machine": machine(),
        "memory": memory(),
        "gpu": gpus(),
        "kernels": kernels(),
        "libraries": libraries(),
        "target": target,
        "missing": missing_packages(),
        **missing_targets(),
    }


def machine() -> dict[str, Any]:
    """Return the facts about the processor and the operating system."""
    from ..zoo.device import physical_cores, use_cores

    use_cores()
    text = _text("/proc/cpuinfo")
    name = next(
        (line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")),
        platform.machine(),
    )
    words = set(text.replace("\n", " ").split())
    return {
        "processor": name,
        "cores": physical_cores(),
        "threads": thread_count(),
        "system": platform.platform(),
        "instructions": [flag for flag in CPU_FLAGS if flag in words],
        "torch_uses": torch.backends.cpu.get_cpu_capability(),
        "load_average": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
    }


def memory() -> dict[str, float | None]:
    """Return total and available memory in GB; None where the system does not report it."""
    found = {
        line.split(":")[0]: line.split()[1]
        for line in _text("/proc/meminfo").splitlines()
        if len(line.split()) > 1
    }
    return {
        name: round(int(found[key]) * 1024 / 1e9, 2) if key in found else None
        for name, key in (("total_gb", "MemTotal"), ("available_gb", "MemAvailable"))
    }


def kernels() -> dict[str, Any]:
    """Return where the machine code of the compiled kernels is kept, and whether it is there; the first start
    without it compiles for half a minute. Without numba, or a folder that can be written: None."""
    if importlib.util.find_spec("numba") is None:
        return {"folder": None, "cached": False}
    from ..kernels.cache import is_cached, kernel_cache

    folder = kernel_cache()
    return {"folder": None if folder is None else str(folder), "cached": is_cached()}


def gpus() -> list[dict[str, Any]]:
    """Return the name, memory, capability and driver of each CUDA GPU."""
    rows = []
    for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        found = torch.cuda.get_device_properties(index)
        rows.append(
            {
                "name": found.name,
                "memory_gb": round(found.total_memory / 1e9, 1),
                "capability": f"{found.major}.{found.minor}",
                "driver": _text("/sys/module/nvidia/version").strip() or None,
            }
        )
    return rows


def libraries() -> dict[str, Any]:
    """Return the versions of the libraries that matter for results and speed."""
    versions = {
        name: _version(name)
        for name in ("specviz", "torch", "transformers", "gradio", "numpy", "safetensors", "huggingface_hub")
    }
    from .. import VERSION

    versions["specviz"] = VERSION
    return {
        "python": platform.python_version(),
        **versions,
        "cuda_build": torch.version.cuda,
        "quantised_engines": list(torch.backends.quantized.supported_engines),
        "mkldnn": torch.backends.mkldnn.is_available(),
    }


def missing_packages() -> list[dict[str, str]]:
    """Return the optional packages that are not installed, with what needs them and the command that
    installs them."""
    rows = [
        {"name": name, "needed_for": why, "get": how}
        for name, (why, how) in OPTIONAL.items()
        if importlib.util.find_spec(name) is None
    ]
    rows += [
        {"name": need.name, "needed_for": "specviz", "get": f"pip install '{need}'"}
        for need in _requirements()
        if _version(need.name) is None
    ]
    return rows


def _requirements() -> list[Requirement]:
    try:
        found = [Requirement(line) for line in metadata.requires("specviz") or ()]
    except metadata.PackageNotFoundError:  # a checkout
        from .. import ROOT

        lines = (line.strip() for line in _text(ROOT / "requirements.txt").splitlines())
        found = [Requirement(line) for line in lines if line and not line.startswith(("#", "-"))]
    return [need for need in found if not need.marker or need.marker.evaluate({"extra": ""})]


def missing_targets() -> dict[str, list[str]]:
    """Return the targets in models.yaml whose weights are not on this machine: those that ``specviz models
    --fetch NAME`` fetches, and those that come with the repository."""
    from ..zoo.registry import ZooError, register

    try:
        entries = [entry for entry in register().entries.values() if entry.role == "target"]
    except ZooError:
        entries = []
    places = {entry.name: entry.availability() for entry in entries}
    return {
        field: [name for name, place in places.items() if place == where]
        for field, where in (("to_fetch", "fetch"), ("in_repository", "repository"))
    }


def _target(target: str | None, draft: str | None, device: str, seconds: float) -> dict[str, Any]:
    from ..zoo import load
    from ..zoo.registry import ZooError

    try:
        loaded = load(target, draft, device)
        return target_facts(loaded, seconds)
    except (ZooError, OSError, RuntimeError) as error:
        return {"problem": str(error)}


def target_facts(loaded: Loaded, seconds: float) -> dict[str, Any]:
    """Return the target's forward pass, kernel and settings, and, unless ``seconds`` is 0, measured
    durations of forward passes."""
    env = loaded.facts["env"]
    facts = {
        "name": loaded.name,
        "parameters": loaded.model.parameters,
        "backend": loaded.backend.name,
        "forward": loaded.forward,
        "numbers": env["dtype"],
        "device": env["device"],
        "threads": env["threads"],
        "draft": loaded.draft_name,
        "notes": loaded.notes,
    }
    if seconds > 0:
        facts["passes"] = pass_durations(loaded, seconds * (0.75 if loaded.draft is not None else 1.0))
        if loaded.draft is not None:
            facts["draft_pass_ms"] = _milliseconds(loaded.draft, 1, seconds * 0.25)
    return facts


def pass_durations(loaded: Loaded, seconds: float) -> list[dict[str, float]]:
    """Return the median milliseconds of forward passes of 1, 2, ... tokens after 64 cached ones, measured
    in about ``seconds``."""
    rows = [
        {"tokens": count, "ms": _milliseconds(loaded.model, count, seconds / len(PASS_TOKENS))}
        for count in PASS_TOKENS
    ]
    return [row | {"relative": round(row["ms"] / rows[0]["ms"], 2)} for row in rows]


def _milliseconds(model: Any, tokens: int, seconds: float) -> float:
    target, took = model.open(), []
    try:
        with torch.inference_mode():
            target.sync([0] * min(CONTEXT, model.context // 2))
            tree = DraftTree.chain([0] * (tokens - 1)) if tokens > 1 else DraftTree()
            target.score(tree).logits[0, 0].item()
            until = time.perf_counter() + seconds
            while len(took) < 3 or time.perf_counter() < until:
                began = time.perf_counter()
                target.score(tree).logits[0, 0].item()
                took.append(time.perf_counter() - began)
    finally:
        getattr(target, "close", lambda: None)()
    return round(1000 * statistics.median(took), 3)


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _text(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
