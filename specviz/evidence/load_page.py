"""The table of docs/load.md from what ``specviz load --out`` stored, with what is asked of SmartSpec and TETRIS judged load by load.

A judgement is of the whole run; beside it stand the same ratios in each quarter of the answers, which say how far such a run wavers.
"""
from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..methods import catalogue
from ..run.request import SessionError
from .bench_page import plain as unmarked

FLOOR = 0.95  # of the better of plain decoding and the fixed length, that SmartSpec is to reach at every load
PLAIN, FIXED, SMART, TETRIS = "autoregressive", "speculative", "smartspec", "tetris"
BEGIN, END = "<!-- figures -->", "<!-- /figures -->"
NONE = "Not measured yet: these figures want a machine on which nothing else runs."
COLUMNS = ("load", "method", "tokens/s", "times plain", "rows/s", "tokens a row", "first token, ms", "a token after it, ms", "latency, s",
           "requests in a round", "drafted", "accepted", "time on drafts", "time on prompts")

Row = dict[str, Any]
Loads = dict[str, dict[str, Row]]  # by load and method


def read(path: Path) -> dict[str, Any]:
    """A stored report. Raises SessionError."""
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
        report["environment"]["requests"], [(row["load"], row["method"]) for row in report["rows"]]
    except (OSError, ValueError, KeyError, TypeError):
        raise SessionError(f"{path} holds no report of `specviz load --out`.", "load_page.no_report") from None
    return report


def figures(report: dict[str, Any] | None) -> str:
    """Return the text between the marks of docs/load.md. report None: nothing was measured."""
    if report is None:
        return NONE
    env, rows = report["environment"], report["rows"]
    loads: Loads = {}
    for row in rows:
        if row["requests"] == env["requests"]:  # a load that was stopped is no figure
            loads.setdefault(row["load"], {})[row["method"]] = row
    lines = [unmarked(line) for line in report.get("said", ())]
    parts = [where(env), command(env), table(loads), "\n".join(f"- {line}" for line in lines), *judged(loads)]
    return "\n\n".join(part for part in parts if part)


def written(page: str, text: str) -> str:
    """The page with the figures between its marks. Raises SessionError for a page without them."""
    if page.count(BEGIN) != 1 or page.count(END) != 1 or page.index(BEGIN) > page.index(END):
        raise SessionError(f"The page has no place for figures: it lies between {BEGIN} and {END}.", "load_page.no_place")
    return f"{page.partition(BEGIN)[0]}{BEGIN}\n{text}\n{END}{page.partition(END)[2]}"


def where(env: Row) -> str:
    versions = ", ".join(f"{name} {env[name]}" for name in ("torch", "transformers", "python", "specviz") if name in env)
    models = " with ".join(str((env.get(role) or {}).get("name", "no draft")) for role in ("target", "draft"))
    before = f" Load average of the machine before: {env['busy']}." if env.get("busy") is not None else ""
    part = " The run was interrupted." if env.get("interrupted") else ""
    return unmarked(f"{env.get('machine')}, {env.get('device')}, {env.get('dtype')}, {env.get('threads')} threads, {versions}; {models}; "
                    f"{str(env.get('began', ''))[:10]}. {env['requests']} requests a load, answers of {env['max_new_tokens'] // 2} to "
                    f"{env['max_new_tokens']} tokens where they do not end before.{before}{part}")


def command(env: Row) -> str:
    """Return the command that was run, as code."""
    loads = ["--rate", joined(env["rates"])] if env.get("rates") else ["--users", joined(env.get("users") or [])]
    words = ["python", "-m", "specviz", "load", *loads, "--methods", joined(env.get("methods") or []),
             *(["--suite", Path(env["suite"]).name] if env.get("suite") else []),
             *(["--tasks", joined(env["tasks"])] if env.get("tasks") else []),
             "--requests", env["requests"], "--max-new-tokens", env["max_new_tokens"], "--slots", env["slots"],
             "--temperature", f"{env['temperature']:g}", "--seed", env["seed"], *(["--deterministic"] if env.get("deterministic") else []),
             "--target", (env.get("target") or {}).get("name", ""), "--draft", (env.get("draft") or {}).get("name", "none"),
             "--out", "load.json"]
    return "    " + unmarked(shlex.join(map(str, words)))


def joined(values: list[Any]) -> str:
    return ",".join(f"{one:g}" if isinstance(one, (int, float)) else str(one) for one in values)


def table(loads: Loads) -> str:
    lines = [f"| {' | '.join(COLUMNS)} |", "|---|---|" + "---:|" * (len(COLUMNS) - 2)]
    for load, methods in loads.items():
        for key, row in methods.items():
            cells = [load, named(key), f"{row['goodput']:.1f}", number(row["against_plain"]), f"{row['throughput']:.1f}",
                     f"{row['tokens'] / row['rows']:.2f}", span(row["first_token"], 1000, 0), span(row["token_time"], 1000, 1),
                     span(row["latency"], 1, 2), f"{row['batch']:.1f}", f"{row['drafted']:.2f}", percent(row["accepted"]),
                     percent(row["drafting"]), percent(row["reading"])]
            lines.append(f"| {' | '.join(unmarked(cell) for cell in cells)} |")
    return "\n".join(lines) + "\n\nTimes are median and 95th percentile; tokens drafted are a request and round."


def judged(loads: Loads) -> list[str]:
    """Return the questions asked of the figures, with their answers. A question whose methods were not measured is left out."""
    beside, out = {}, []
    for load, of in loads.items():
        if {PLAIN, FIXED, SMART} <= set(of):
            beside[load] = of[SMART], max(of[PLAIN], of[FIXED], key=speed)
    if beside:
        out += [judgement(f"{named(SMART)}'s goodput over that of the better of plain decoding and the fixed length", beside, speed, FLOOR)]
    beside = {load: (of[TETRIS], of[FIXED]) for load, of in loads.items() if {TETRIS, FIXED} <= set(of)}
    if beside:
        out += [judgement(f"{named(TETRIS)}: tokens written for each row that was scored, over the fixed length's", beside,
                          lambda row: row["tokens"] / row["rows"], 1.0, quarters=False),
                judgement(f"{named(TETRIS)}'s goodput over the fixed length's, with as many rows a request and round", beside, speed, 1.0)]
    return out


def judgement(what: str, beside: dict[str, tuple[Row, Row]], figure: Callable[[Row], float], floor: float, quarters: bool = True) -> str:
    """A question, its answer, and a line a load. floor: what the ratio is to reach, to two places."""
    ratios = {load: figure(mine) / figure(other) for load, (mine, other) in beside.items()}
    short = [load for load, ratio in ratios.items() if round(ratio, 2) < floor]
    least = min(ratios, key=lambda load: ratios[load])
    verdict = (f"**met**: {ratios[least]:.2f} at the least, with {least}" if not short else
               f"**not met** with {', '.join(short)}: {ratios[least]:.2f} at the least, with {least}")
    lines = [f"**Asked**: {unmarked(what)}, at least {floor:.2f} at every load. {verdict}.", ""]
    for load, (mine, other) in beside.items():
        apart = [a / b for a, b in zip(mine["parts"], other["parts"])] if quarters else []
        wavers = f" ({min(apart):.2f} to {max(apart):.2f} in the quarters of the run)" if apart else ""
        why = f" {unmarked(reason(mine, other))}" if load in short else ""
        lines.append(f"- {unmarked(load)}: {ratios[load]:.2f} times {unmarked(named(other['method']))}{wavers}.{why}")
    return "\n".join(lines)


def reason(mine: Row, other: Row) -> str:
    """Return a sentence on why the first fell short: tokens, time and rows of both."""
    def summary(row: Row) -> str:
        each, count = row["tokens"] / (row["rounds"] * row["batch"]), row["rounds"]
        return (f"{each:.2f} tokens a request in rounds of {1000 * row['seconds'] / count:.1f} ms and {row['rows'] / count:.1f} rows, "
                f"{percent(row['drafting'])} of the time on drafts and {percent(row['reading'])} on prompts")
    return f"Why: it wrote {summary(mine)}; {named(other['method'])} wrote {summary(other)}."


def speed(row: Row) -> float:
    return row["goodput"]


def named(key: str) -> str:
    return catalogue()[key].title if key in catalogue() else key


def number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def percent(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"


def span(pair: list[float] | None, times: float, digits: int) -> str:
    return "" if pair is None else " to ".join(f"{value * times:.{digits}f}" for value in pair)
