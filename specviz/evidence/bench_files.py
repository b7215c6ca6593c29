"""Write benchmark rows as CSV or Parquet: ``specviz bench --csv FILE --parquet FILE``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..run.request import SessionError
from ..trace.file_writer import write_file

Row = dict[str, Any]


def flatten_intervals(row: Row) -> Row:
    """Return a row in which each interval [low, high] is replaced by the fields NAME_low and NAME_high, and
    each object by NAME_KEY."""
    out: Row = {}
    for name, value in row.items():
        if isinstance(value, (list, tuple)) and len(value) == 2:
            out |= {f"{name}_low": value[0], f"{name}_high": value[1]}
        elif isinstance(value, dict):
            out |= {f"{name}_{key}": inner for key, inner in value.items()}
        else:
            out[name] = value
    return out


def ledger_rows(path: str | Path) -> list[Row]:
    """Return a row for each run in a ledger file (``specviz bench --into``), runs of plain decoding
    included. Raises SessionError."""
    from .bench_ledger import Ledger

    return [
        {
            "session": number,
            "began": session.began,
            "prompt": group.prompt,
            "task": group.task,
            "repeat": group.repeat,
            **asdict(run),
        }
        for number, session in enumerate(Ledger(path, there=True).sessions)
        for group in session.run_groups
        for run in (group.plain, *group.runs)
    ]


def write_rows(rows: list[Row], csv: str | None = None, parquet: str | None = None) -> None:
    """Write rows to a CSV file, a Parquet file, or both. Raises SessionError if a package is missing or a
    file cannot be written."""
    if not (csv or parquet):
        return
    try:
        import pandas
    except ImportError:
        raise SessionError(
            "--csv and --parquet need pandas: pip install 'specviz[notebook]'.", "bench.needs_pandas"
        ) from None
    frame = pandas.DataFrame([flatten_intervals(row) for row in rows])
    try:
        if csv:
            write_file(csv, frame.to_csv(index=False))
        if parquet:
            write_file(parquet, frame.to_parquet(index=False))
    except ImportError:
        raise SessionError(
            "--parquet needs pyarrow: pip install 'specviz[notebook]'.", "bench.needs_pyarrow"
        ) from None
    except OSError as error:
        raise SessionError(
            f"{csv or parquet} cannot be written: {error.strerror or error}.", "bench.write"
        ) from None
