"""A trace as a pandas DataFrame or a plotly figure: ``Trace.frame()``, ``Trace.plot()``. Both packages are
imported on use."""

from __future__ import annotations

import base64
from typing import Any

COLUMNS = (
    "lane",
    "method",
    "round",
    "kind",
    "rows",
    "drafted",
    "accepted",
    "tokens",
    "tail",
    "seconds",
    "draft_ms",
    "verify_ms",
    "judge_ms",
    "cache_ms",
    "other_ms",
    "text",
)


def round_rows(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each round of each lane.

    rows: tokens in the forward pass; drafted: draft nodes; accepted: length of the accepted path; tokens:
    committed; tail: kind of the last token; seconds: engine clock at the commit."""
    methods = {record["lane"]: record["method"]["key"] for record in records if record["type"] == "header"}
    rows: dict[tuple[int, int], dict[str, Any]] = {}
    for record in records:
        if "round" not in record:
            continue
        row = rows.setdefault(
            (record["lane"], record["round"]),
            dict.fromkeys(COLUMNS)
            | {
                "lane": record["lane"],
                "method": methods.get(record["lane"]),
                "round": record["round"],
                "rows": 0,
            },
        )
        _fold(row, record)
    return [rows[key] for key in sorted(rows)]


def _fold(row: dict[str, Any], record: dict[str, Any]) -> None:
    kind = record["type"]
    if kind == "draft":
        row |= {"kind": record["kind"], "drafted": sum(not node.get("probe") for node in record["nodes"])}
    elif kind == "verify":
        row["rows"] += record["n_in"]
    elif kind == "commit":
        row |= {
            "accepted": len(record["path"]),
            "tokens": record["n_new"],
            "tail": record["tail"]["why"],
            "seconds": record["t"],
        }
    elif kind == "timing":
        row |= {
            f"{name}_ms": record[f"{name}_ns"] / 1e6
            for name in ("draft", "verify", "judge", "cache", "other")
        }
    elif kind == "text":
        data = b"".join(base64.b64decode(piece["b"]) for piece in record["pieces"])
        row["text"] = data.decode("utf-8", "replace")


def frame(records: list[dict[str, Any]]) -> Any:
    """Return ``round_rows`` as a pandas DataFrame."""
    import pandas

    return pandas.DataFrame(round_rows(records), columns=list(COLUMNS))


def plot(records: list[dict[str, Any]]) -> Any:
    """Return a plotly figure: generated tokens over engine seconds, a line per lane."""
    import plotly.graph_objects as go

    titles = {record["lane"]: record["method"]["title"] for record in records if record["type"] == "header"}
    starts = {record["lane"]: record["t1"] for record in records if record["type"] == "prefill"}
    figure = go.Figure()
    for lane in sorted(titles):
        mine = [row for row in round_rows(records) if row["lane"] == lane and row["seconds"] is not None]
        begin = starts.get(lane, 0.0)
        total = 0
        seconds = [0.0]
        written = [0]
        for row in mine:
            total += row["tokens"]
            seconds.append(row["seconds"] - begin)
            written.append(total)
        figure.add_scatter(x=seconds, y=written, name=titles[lane], mode="lines", line_shape="hv")
    return figure.update_layout(
        xaxis_title="engine seconds after the prefill",
        yaxis_title="tokens",
        template="plotly_white",
        margin={"t": 24, "b": 40, "l": 48, "r": 16},
        height=360,
    )
