"""Speed and energy over the draft length on a modelled chip (HADES, 2412.19925), and from this machine's
measured passes.

Pure arithmetic on the numbers of the question (core/chip_model.py); nothing is measured here.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..core.chip_model import Chip, Model, round_cost, tokens_per_round
from . import LabError

# field -> (default, lowest, highest, factor to SI units)
NUMBERS = {
    "bandwidth": (100.0, 0.1, 1e6, 1e9),  # GB/s
    "arithmetic": (1.0, 0.001, 1e6, 1e12),  # TFLOP/s
    "sram_bandwidth": (1000.0, 0.1, 1e7, 1e9),  # GB/s
    "dram_energy": (60.0, 0.0, 1e5, 1e-12),  # pJ per byte
    "sram_energy": (5.0, 0.0, 1e5, 1e-12),  # pJ per byte
    "operation_energy": (1.0, 0.0, 1e5, 1e-12),  # pJ per operation
    "sync": (50.0, 0.0, 1e6, 1e-6),  # microseconds per round
    "acceptance": (0.7, 0.0, 1.0, 1.0),
    "target_size": (135.0, 0.001, 1e7, 1e6),  # millions of parameters
    "draft_size": (5.0, 0.0, 1e7, 1e6),  # millions of parameters
    "bytes": (2.0, 0.1, 8.0, 1.0),  # per weight
    "cache": (0.0, 0.0, 1e6, 1e6),  # megabytes of keys and values read per pass
}
LONGEST = 32  # draft length
MOST_ROWS = 64  # measured passes of a question


def chip_model(**asked: Any) -> dict[str, Any]:
    """Model speed and energy over the draft length.

    Return {asked, lengths, plain: {tokens_per_second, joules_per_token}, designs: {host, on_chip:
    {tokens_per_second, joules_per_token, seconds}}, measured: {tokens_per_second, plain} or None,
    sram_bytes}; lists have one value per draft length 0..longest.

    asked: parameters of the chip, named and with units as in NUMBERS; longest: 1 to LONGEST; measured:
    {rows, seconds, draft_seconds} of this machine (lab.pass_costs). Speeds of draft lengths beyond the
    measured passes are None. Raises LabError.
    """
    unknown = sorted(set(asked) - {*NUMBERS, "longest", "measured"})
    if unknown:
        raise LabError(f"There is no field {unknown[0]!r:.40}.", "lab.chip_field")
    values = {
        name: _number(name, asked.get(name, default), low, high)
        for name, (default, low, high, _) in NUMBERS.items()
    }
    longest = _number("longest", asked.get("longest", 16), 1, LONGEST)
    if longest != int(longest):
        raise LabError("longest must be a whole number.", "lab.chip_number")
    si = {name: value * NUMBERS[name][3] for name, value in values.items()}
    lengths = list(range(int(longest) + 1))
    chip = Chip(
        si["bandwidth"],
        si["arithmetic"],
        si["sram_bandwidth"],
        si["dram_energy"],
        si["sram_energy"],
        si["operation_energy"],
        si["sync"],
    )
    target = Model(si["target_size"], si["target_size"] * si["bytes"], si["cache"])
    draft = Model(si["draft_size"], si["draft_size"] * si["bytes"])
    expected = [tokens_per_round(si["acceptance"], n) for n in lengths]
    designs = {
        name: _design(one, target, draft, lengths, expected)
        for name, one in (("host", chip.host_variant), ("on_chip", chip))
    }
    plain = {name: designs["host"][name][0] for name in ("tokens_per_second", "joules_per_token")}
    return {
        "asked": values,
        "lengths": lengths,
        "plain": plain,
        "designs": designs,
        "measured": _measured(asked.get("measured"), lengths, expected),
        "sram_bytes": draft.bytes,
    }


def _design(
    chip: Chip, target: Model, draft: Model, lengths: list[int], expected: list[float]
) -> dict[str, list[float]]:
    rounds = [round_cost(chip, target, draft, n) for n in lengths]
    return {
        "tokens_per_second": [e / r.seconds for e, r in zip(expected, rounds)],
        "joules_per_token": [r.joules / e for e, r in zip(expected, rounds)],
        "seconds": [r.seconds for r in rounds],
    }


def _measured(given: Any, lengths: list[int], expected: list[float]) -> dict[str, Any] | None:
    """Return the speeds that measured passes give with the same acceptance, None without any."""
    if given is None:
        return None
    rows, seconds = (given.get(name) if isinstance(given, dict) else None for name in ("rows", "seconds"))
    if (
        not isinstance(rows, list)
        or not isinstance(seconds, list)
        or not 1 < len(rows) == len(seconds) <= MOST_ROWS
    ):
        raise LabError(
            f"The measured passes must be 2 to {MOST_ROWS} rows with their seconds.", "lab.chip_curve"
        )
    counts = [_number("rows", row, 1, 1e4) for row in rows]
    times = [_number("seconds", one, 1e-9, 1e4) for one in seconds]
    step = _number("draft_seconds", given.get("draft_seconds") or 0.0, 0.0, 1e4)
    if counts != sorted(set(counts)) or counts[0] != 1:
        raise LabError("The rows of the measured passes must rise from 1.", "lab.chip_curve")
    speeds = [
        e / (n * step + float(np.interp(n + 1, counts, times))) if n + 1 <= counts[-1] else None
        for n, e in zip(lengths, expected)
    ]
    return {"tokens_per_second": speeds, "plain": speeds[0]}


def _number(name: str, value: Any, low: float, high: float) -> float:
    """Return a finite number within bounds. Raises LabError."""
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not math.isfinite(value)
        or not low <= value <= high
    ):
        raise LabError(f"{name} must be a number from {low:g} to {high:g}.", "lab.chip_number")
    return float(value)
