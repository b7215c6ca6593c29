"""The tables of docs/load.md from a report of ``specviz load --out``, with the acceptance criteria for
SmartSpec and TETRIS checked at each load.

A criterion is checked on the whole run; the same ratios for each quarter of the answers show how much they
vary.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..methods import catalogue
from ..run.request import SessionError
from .bench_page import escape_markdown as unmarked

FLOOR = 0.95  # of the better of plain decoding and the fixed length, that SmartSpec is to reach at every load
PLAIN = "autoregressive"  # methods of the criteria
FIXED = "speculative"
SMART = "smartspec"
TETRIS = "tetris"
BEGIN = "<!-- figures -->"  # marks the figures in the page
END = "<!-- /figures -->"
TEXTS = {  # sentences of the page, by identifier
    "none": "Not measured yet: these figures need an idle machine.",
    "smartspec": "{method}: its goodput divided by the higher goodput of plain decoding and of speculative decoding with a fixed draft "
    "length",
    "tetris.tokens": "{method}: its generated tokens per scored token divided by those of speculative decoding with a fixed draft length",
    "tetris.goodput": "{method}: its goodput divided by that of speculative decoding with a fixed draft length, at equal scored "
    "tokens per request and round",
    "criterion": "**Criterion** for {what}. The ratio must be at least {floor:.2f} at every load. ",
    "met": "**Met**: the lowest value is {ratio:.2f}, with {least}.",
    "not_met": "**Not met** with {loads}: the lowest value is {ratio:.2f}, with {least}.",
    "load": "- {load}: {ratio:.2f} times {other}",
    "quarters": " ({low:.2f} to {high:.2f} in the quarters of the run)",
    "why": "Why: it generated {mine}; {name} generated {other}.",
    "why.run": "{tokens:.2f} tokens per request in rounds of {ms:.1f} ms and {rows:.1f} scored tokens, {drafts} of the time on drafts and "
    "{prompts} on prompts",
    "times": "Times: median and 95th percentile. Drafted: tokens per request and round.",
}
NONE = TEXTS["none"]
COLUMNS = (
    "load",
    "method",
    "tokens/s",
    "times plain",
    "scored tokens/s",
    "tokens per scored token",
    "first token, ms",
    "per later token, ms",
    "latency, s",
    "requests per round",
    "drafted",
    "accepted",
    "time on drafts",
    "time on prompts",
)

Row = dict[str, Any]
Loads = dict[str, dict[str, Row]]  # by load and method


def read(path: Path) -> dict[str, Any]:
    """Return a stored load-test report. Raises SessionError."""
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
        report["environment"]["requests"], [(row["load"], row["method"]) for row in report["rows"]]
    except (OSError, ValueError, KeyError, TypeError):
        raise SessionError(
            f"{path} holds no report of `specviz load --out`.", "load_page.no_report"
        ) from None
    return report


def generated_text(report: dict[str, Any] | None) -> str:
    """Return the generated part of docs/load.md; without a report it says that nothing was measured."""
    if report is None:
        return NONE
    env, rows = report["environment"], report["rows"]
    loads: Loads = {}
    for row in rows:
        if row["requests"] == env["requests"]:  # a load that was stopped is no figure
            loads.setdefault(row["load"], {})[row["method"]] = row
    calm = {
        load: found for load, found in loads.items() if not any(row.get("busy") for row in found.values())
    }
    lines = [unmarked(line) for line in report.get("said", ())]
    parts = [
        setting_sentence(env),
        load_test_command(env),
        table(loads),
        "\n".join(f"- {line}" for line in lines),
        *criteria_text(calm),
    ]
    return "\n\n".join(part for part in parts if part)


def with_generated_text(page: str, text: str) -> str:
    """Return docs/load.md (``page``) with the text between its two markers replaced. Raises SessionError
    for a page without markers."""
    if page.count(BEGIN) != 1 or page.count(END) != 1 or page.index(BEGIN) > page.index(END):
        raise SessionError(
            f"The page has no place for figures: it lies between {BEGIN} and {END}.", "load_page.no_place"
        )
    return f"{page.partition(BEGIN)[0]}{BEGIN}\n{text}\n{END}{page.partition(END)[2]}"


def setting_sentence(env: Row) -> str:
    """Return a sentence on machine, versions, models and requests. env: the report's environment."""
    versions = ", ".join(
        f"{name} {env[name]}" for name in ("torch", "transformers", "python", "specviz") if name in env
    )
    models = " with ".join(str((env.get(role) or {}).get("name", "no draft")) for role in ("target", "draft"))
    before = f" Load average of the machine before: {env['busy']}." if env.get("busy") is not None else ""
    part = " The run was interrupted." if env.get("interrupted") else ""
    return unmarked(
        f"{env.get('machine')}, {env.get('device')}, {env.get('dtype')}, {env.get('threads')} threads, {versions}; {models}; "
        f"{str(env.get('began', ''))[:10]}. {env['requests']} requests per load, answers of {env['max_new_tokens'] // 2} to "
        f"{env['max_new_tokens']} tokens unless they end earlier.{before}{part}"
    )


def load_test_command(env: Row) -> str:
    """Return the load-test command that was run, as Markdown code."""
    loads = (
        ["--rate", joined(env["rates"])] if env.get("rates") else ["--users", joined(env.get("users") or [])]
    )
    words = [
        "python",
        "-m",
        "specviz",
        "load",
        *loads,
        "--methods",
        joined(env.get("methods") or []),
        *(["--suite", Path(env["suite"]).name] if env.get("suite") else []),
        *(["--tasks", joined(env["tasks"])] if env.get("tasks") else []),
        "--requests",
        env["requests"],
        "--max-new-tokens",
        env["max_new_tokens"],
        "--slots",
        env["slots"],
        "--temperature",
        f"{env['temperature']:g}",
        "--seed",
        env["seed"],
        *(["--deterministic"] if env.get("deterministic") else []),
        "--target",
        (env.get("target") or {}).get("name", ""),
        "--draft",
        (env.get("draft") or {}).get("name", "none"),
        "--out",
        "load.json",
    ]
    return "    " + unmarked(shlex.join(map(str, words)))


def joined(values: list[Any]) -> str:
    """Return values as text, separated by commas, as on the command line."""
    return ",".join(f"{one:g}" if isinstance(one, (int, float)) else str(one) for one in values)


def table(loads: Loads) -> str:
    """Return the Markdown table of all loads and methods."""
    lines = [f"| {' | '.join(COLUMNS)} |", "|---|---|" + "---:|" * (len(COLUMNS) - 2)]
    for load, methods in loads.items():
        for key, row in methods.items():
            cells = [
                load,
                method_name(key),
                f"{row['goodput']:.1f}",
                format_number(row["against_plain"]),
                f"{row['throughput']:.1f}",
                f"{row['tokens'] / row['rows']:.2f}",
                format_interval(row["first_token"], 1000, 0),
                format_interval(row["token_time"], 1000, 1),
                format_interval(row["latency"], 1, 2),
                f"{row['batch']:.1f}",
                f"{row['drafted']:.2f}",
                percent(row["accepted"]),
                percent(row["drafting"]),
                percent(row["reading"]),
            ]
            lines.append(f"| {' | '.join(unmarked(cell) for cell in cells)} |")
    return "\n".join(lines) + "\n\n" + TEXTS["times"]


def criteria_text(loads: Loads) -> list[str]:
    """Return the acceptance criteria with their results as Markdown lines. Criteria whose methods were not
    measured are left out."""
    pairs, out = {}, []
    for load, of in loads.items():
        if {PLAIN, FIXED, SMART} <= set(of):
            pairs[load] = of[SMART], max(of[PLAIN], of[FIXED], key=speed)
    if pairs:
        out += [criterion_result("smartspec", SMART, pairs, speed, FLOOR)]
    pairs = {load: (of[TETRIS], of[FIXED]) for load, of in loads.items() if {TETRIS, FIXED} <= set(of)}
    if pairs:
        out += [
            criterion_result(
                "tetris.tokens", TETRIS, pairs, lambda row: row["tokens"] / row["rows"], 1.0, quarters=False
            ),
            criterion_result("tetris.goodput", TETRIS, pairs, speed, 1.0),
        ]
    return out


def criterion_result(
    criterion: str,
    method: str,
    pairs: dict[str, tuple[Row, Row]],
    figure: Callable[[Row], float],
    floor: float,
    quarters: bool = True,
) -> str:
    """Return one criterion of TEXTS, its result, and one line per load. figure(row): the figure whose ratio
    is compared; floor: the smallest ratio that meets the criterion, at two decimals; quarters: also list
    the ratio in each quarter of the answers."""
    ratios = {load: figure(mine) / figure(other) for load, (mine, other) in pairs.items()}
    short = [load for load, ratio in ratios.items() if round(ratio, 2) < floor]
    least = min(ratios, key=lambda load: ratios[load])
    what = unmarked(TEXTS[criterion].format(method=method_name(method)))
    verdict = TEXTS["not_met" if short else "met"].format(
        loads=", ".join(short), ratio=ratios[least], least=least
    )
    lines = [TEXTS["criterion"].format(what=what, floor=floor) + verdict, ""]
    for load, (mine, other) in pairs.items():
        apart = [a / b for a, b in zip(mine["parts"], other["parts"])] if quarters else []
        varies = TEXTS["quarters"].format(low=min(apart), high=max(apart)) if apart else ""
        why = f" {unmarked(reason(mine, other))}" if load in short else ""
        line = TEXTS["load"].format(
            load=unmarked(load), ratio=ratios[load], other=unmarked(method_name(other["method"]))
        )
        lines.append(f"{line}{varies}.{why}")
    return "\n".join(lines)


def reason(mine: Row, other: Row) -> str:
    """Return a sentence on why one method is slower than another: tokens, times and scored tokens of both."""

    def summary(row: Row) -> str:
        each, count = row["tokens"] / (row["rounds"] * row["batch"]), row["rounds"]
        return TEXTS["why.run"].format(
            tokens=each,
            ms=1000 * row["seconds"] / count,
            rows=row["rows"] / count,
            drafts=percent(row["drafting"]),
            prompts=percent(row["reading"]),
        )

    return TEXTS["why"].format(mine=summary(mine), name=method_name(other["method"]), other=summary(other))


def speed(row: Row) -> float:
    """Return generated tokens per second (goodput)."""
    return row["goodput"]


def method_name(key: str) -> str:
    """Return a method's title; its key if it is not in the catalogue."""
    return catalogue()[key].title if key in catalogue() else key


def format_number(value: float | None) -> str:
    """Return a number as text; empty for None."""
    return "" if value is None else f"{value:.2f}"


def percent(value: float | None) -> str:
    """Return a share as a percentage; empty for None."""
    return "" if value is None else f"{value:.0%}"


def format_interval(pair: list[float] | None, times: float, digits: int) -> str:
    """Return two values, multiplied by ``times``, as "low to high"; empty for None."""
    return "" if pair is None else " to ".join(f"{value * times:.{digits}f}" for value in pair)
