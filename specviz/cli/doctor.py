"""``specviz doctor``: report the machine, the implementation of the forward pass and its kernel, the
duration of a forward pass, and missing packages."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

from .messages import TEXTS, UsageError


def add(command: Callable[..., Any], models: Callable[[Any], None]) -> None:
    """Add the command to the parser. models(parser): adds the options that choose target and draft model."""
    sub = command(
        "doctor",
        doctor,
        "Report the machine, the libraries and how forward passes run, and measure their duration.",
    )
    sub.add_argument(
        "--seconds", default="2", metavar="N", help="duration of the measurement (2); 0: no measurement"
    )
    models(sub)


def doctor(args: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    try:
        seconds = float(args.seconds)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 600:
        raise UsageError("doctor.seconds", given=args.seconds)
    from ..evidence.doctor import report

    found = report(args.target, args.draft, args.device, seconds)
    print(json.dumps(found, ensure_ascii=False, indent=2) if args.json else text(found))
    return 1 if "problem" in found["target"] else 0


def text(found: dict[str, Any]) -> str:
    """Return the report (evidence.doctor) as text."""
    from ..zoo.registry import CLONE
    from .terminal import format_value, table

    machine = found["machine"]
    memory = found["memory"]
    libraries = found["libraries"]
    target = found["target"]
    rows = [
        ("processor", f"{machine['processor']}, {machine['cores']} cores, {machine['threads']} threads"),
        ("instructions", f"{' '.join(machine['instructions']) or '-'} (torch uses {machine['torch_uses']})"),
        (
            "load",
            f"{format_value(machine['load_average'])}"
            + (
                ", more than there are cores: times are unreliable"
                if (machine["load_average"] or 0) > machine["cores"]
                else ""
            ),
        ),
        ("memory", f"{memory['total_gb'] or '-'} GB, {memory['available_gb'] or '-'} GB available"),
        *[
            ("gpu", f"{gpu['name']}, {gpu['memory_gb']} GB, driver {gpu['driver'] or '-'}")
            for gpu in found["gpu"] or ()
        ],
        *([] if found["gpu"] else [("gpu", "none")]),
        (
            "libraries",
            ", ".join(
                f"{name} {libraries[name]}"
                for name in ("python", "torch", "transformers", "gradio", "specviz")
            ),
        ),
        (
            "kernels",
            TEXTS["doctor.cached" if found["kernels"]["cached"] else "doctor.not_cached"].format(
                folder=found["kernels"]["folder"] or "-"
            ),
        ),
        (
            "torch build",
            f"CUDA {libraries['cuda_build'] or 'no'}, quantised engines {' '.join(libraries['quantised_engines'])}",
        ),
    ]
    if "problem" in target:
        rows.append(("target", f"not loaded: {target['problem']}"))
    else:
        rows += [
            (
                "target",
                f"{target['name']}, {target['parameters'] / 1e6:.0f} M parameters; draft {target['draft'] or 'none'}",
            ),
            (
                "forward",
                f"{target['backend']} ({target['forward']}), {target['numbers']}, on {target['device']}",
            ),
        ]
        rows += [("note", note) for note in target["notes"]]
    width = max(len(name) for name, _ in rows)
    parts = ["\n".join(f"{name.ljust(width)}  {value}" for name, value in rows)]
    if target.get("passes"):
        parts.append(table(target["passes"], ["tokens", "ms", "relative"]))
        if target.get("draft_pass_ms"):
            parts.append(f"a pass of the draft model: {target['draft_pass_ms']} ms")
    if found["missing"]:
        parts.append("Not installed:\n" + table(found["missing"], ["name", "needed_for", "get"]))
    if found["to_fetch"]:
        parts.append("Models to fetch (specviz models --fetch NAME):\n" + ", ".join(found["to_fetch"]))
    if found["in_repository"]:
        how = TEXTS["doctor.repository"].format(how=CLONE)
        parts.append(f"{how}\n" + ", ".join(found["in_repository"]))
    return "\n\n".join(parts)
