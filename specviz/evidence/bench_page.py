"""The benchmark tables (docs/bench.md) from a ledger file: median speed-ups with quartiles, and the fastest
method of each family on each task.

A pair is a method's run and the run of plain decoding in the same group; its ratio is
``trace.metrics.walltime_speedup``. A method's figure is the median over all its pairs, over every prompt
and repeat. The fastest method of a family on a task is called clear only if its interquartile range is
separate from the others'."""

from __future__ import annotations

import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from statistics import fmean, median
from typing import Any

from ..core import Method
from ..methods import catalogue
from ..run.request import SessionError
from ..trace.metrics import walltime_speedup
from .bench_ledger import BenchSession, Ledger, Requested, Run, progress_of
from .benchmark import nonempty_quartiles, quartiles
from .looping import GRAM, TIMES
from .prompt_suites import SUITE

FEWEST = 4  # pairs; quartiles of fewer are meaningless
EXACT = ("exact", "greedy only")
ABSENT = "not measured"
TITLE = "# Every method against plain decoding"
TEXTS = {  # sentences of the page, by identifier
    "how": """Speed-up: plain decoding's seconds per token divided by the method's, after the prefill (draft models' prefill included),
for the same prompt and seed. Both are measured within a few runs of each other. The table has the median over all prompts and
repeats, with quartiles in brackets. Tokens per pass: mean accepted length, the generated tokens
divided by verification passes; methods that draft with the target itself, such as Uno, also run it for drafting. Of the oracle:
the method's speed-up as a share of that of drafts that are always accepted, measured at draft length {length} only. It is the upper
bound for drafters of this length on this machine; a method that drafts more tokens or a tree may be bounded elsewhere.
[The log](log/2026-11/speed.md) explains the results.""",
    "clear": f"""For each family and task, the exact method with the highest median speed-up (a lossy one if the family has no exact one).
It is a clear winner if its lower quartile is above the runner-up's median and both have at least {FEWEST} pairs of runs.""",
    "loops": f"An answer loops if some {GRAM} consecutive tokens occur {TIMES} times. Methods that copy gain most on such answers.",
    "relatives": """Each method with default knobs, and the method nearest to it. Nodes: most tokens drafted a round, the knob for the
nodes of a tree or the draft length; where they are not equal, the row compares lengths, too.""",
    "excluded": "Excluded, because settings, versions or machine differ: {runs}.",
    "excluded.runs": "{count} runs of {target} with {draft} on {machine}, {threads} threads, {tokens} tokens",
    "progress": "{when}: {methods} methods on {prompts} prompts of {tasks} tasks; runs per prompt: {repeats}. {progress}.",
    "sessions": " They ran in {count} sessions, each with plain decoding in every turn; {methods} were measured apart from the others.",
    "noise": "Two runs of plain decoding on the same prompt, measured shortly after one another, differ by {apart:.1%} (median of "
    "{count}). Smaller differences between methods are noise.",
    "same": "Of {runs} greedy runs of exact methods, {same} equal plain decoding token for token.",
    "not_measured": "Not measured: {methods}.",
    "winner.alone": "alone: {first}",
    "winner.unclear": "no clear winner: {first}, {second}",
}


@dataclass
class MethodRow:
    """The figures of one method at one temperature. ratios: {task: speed-ups}; same: runs with the same
    tokens as plain decoding; checked, looping: runs that were checked for endless repetition, and those
    that have it; non_looping...: figures without these."""

    ratios: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    pairs: int = 0
    tokens: int = 0
    rounds: int = 0
    same: int = 0
    looping: int = 0
    checked: int = 0  # runs with a record of whether they loop
    non_looping: list[float] = field(default_factory=list)  # speed-ups of answers that do not loop
    non_looping_tokens: int = 0
    non_looping_rounds: int = 0

    def add(self, task: str, run: Run, plain: Run) -> None:
        """Add a run and the run of plain decoding that it is paired with."""
        self.pairs = self.pairs + 1
        self.tokens = self.tokens + run.tokens
        self.rounds = self.rounds + run.rounds
        self.same = self.same + bool(run.same)
        ratio = walltime_speedup(plain, run)
        if ratio is not None:
            self.ratios[task].append(ratio)
        if run.loops is None:
            return
        self.checked, self.looping = self.checked + 1, self.looping + run.loops
        if not run.loops:
            self.non_looping_tokens, self.non_looping_rounds = (
                self.non_looping_tokens + run.tokens,
                self.non_looping_rounds + run.rounds,
            )
            self.non_looping += [] if ratio is None else [ratio]

    def speeds(self, task: str | None = None) -> list[float]:
        """Return the speed-ups of one task, or of all tasks."""
        return (
            self.ratios.get(task, []) if task else [ratio for mine in self.ratios.values() for ratio in mine]
        )


MethodFigures = dict[str, MethodRow]  # by method, plain decoding first


def page(ledger: Ledger, target: str | None = None, draft: str | None = None) -> str:
    """Return docs/bench.md as Markdown from a ledger (bench_ledger.py). It shows the settings and the
    machine with the most runs, of this target and draft model if they are given, and mentions what else the
    ledger holds. Raises SessionError if no session matches."""
    sessions, others = select_sessions(ledger, target, draft)
    by_temperature: dict[float, list[BenchSession]] = defaultdict(list, {0.0: []})
    for one in sessions:
        by_temperature[float(one.settings["temperature"])].append(one)
    by_temperature_figures = {
        temperature: figures_by_method(by_temperature[temperature]) for temperature in sorted(by_temperature)
    }
    methods = catalogue()
    tasks = list(dict.fromkeys(task for one in sessions for _, task in one.asked.prompts))
    parts = [
        TITLE,
        setting_sentence(sessions),
        "\n".join(
            bench_command(ledger, by_temperature[temperature])
            for temperature in by_temperature_figures
            if by_temperature[temperature]
        ),
        *(
            progress_sentence(temperature, by_temperature[temperature])
            for temperature in by_temperature_figures
        ),
        TEXTS["how"].format(length=bound_length(methods)),
        noise_sentence(sessions),
        equality_sentence(by_temperature_figures[0.0], methods),
        others,
        "\n".join(main_table(by_temperature_figures, methods)),
        without_timing(by_temperature_figures, sessions, methods),
    ]
    titles = [temperature for temperature in by_temperature_figures if by_temperature_figures[temperature]]
    for temperature in titles:
        table = "\n".join(speedups_by_task(by_temperature_figures[temperature], methods, tasks))
        parts += [f"## Speed-up by task, {temperature_name(temperature)}", table]
    for temperature in titles:
        parts += [
            f"## Winners of each family by task, {temperature_name(temperature)}",
            TEXTS["clear"] if temperature == titles[0] else "",
            "\n".join(winners_table(by_temperature_figures[temperature], methods, tasks)),
        ]
    for temperature in titles:
        if rows := relatives_table(by_temperature_figures[temperature], methods):
            parts += [
                f"## Beside its nearest relative, {temperature_name(temperature)}",
                TEXTS["relatives"],
                "\n".join(rows),
            ]
    parts += looping_sections(by_temperature_figures, methods)
    references = {key: None for of in by_temperature_figures.values() for key in of if key not in methods}
    if references:
        parts += [
            "## Other engines on the same weights",
            "\n".join(
                [
                    *table_header("decoding", by_temperature_figures),
                    *(
                        f"| {' | '.join([escape_markdown(key), *speedup_cells(by_temperature_figures, key)])} |"
                        for key in references
                    ),
                ]
            ),
        ]
    return "\n\n".join(part for part in parts if part) + "\n"


def select_sessions(ledger: Ledger, target: str | None, draft: str | None) -> tuple[list[BenchSession], str]:
    """Return the sessions of one table, and a sentence on the sessions that are left out. The sessions of a
    table may differ in temperature, and between temperatures in the number of threads."""
    groups: dict[str, list[BenchSession]] = defaultdict(list)
    for one in ledger.sessions:
        groups[
            repr(
                [
                    sorted(
                        (name, value) for name, value in of.items() if name not in ("temperature", "threads")
                    )
                    for of in (one.settings, one.machine)
                ]
            )
        ].append(one)
    fitting = [
        group
        for group in groups.values()
        if count_runs(group)
        and target in (None, name_of(group[0], "target"))
        and draft in (None, name_of(group[0], "draft"))
    ]
    if not fitting:
        raise SessionError(
            f"{ledger.path} holds no runs" + (" of these models." if target or draft else "."),
            "ledger.no_runs",
        )
    best: dict[
        Any, list[BenchSession]
    ] = {}  # by temperature: those of as many threads as most of its runs have
    for same in group_sessions(max(fitting, key=count_runs)):
        temperature = same[0].settings["temperature"]
        best[temperature] = max(best.get(temperature, same), same, key=count_runs)
    found = [one for group in best.values() for one in group]
    rest = [
        TEXTS["excluded.runs"].format(
            count=count_runs(same),
            target=name_of(same[0], "target"),
            draft=name_of(same[0], "draft"),
            machine=same[0].machine.get("machine"),
            threads=same[0].machine.get("threads"),
            tokens=same[0].settings.get("max_new_tokens"),
        )
        for group in groups.values()
        for same in group_sessions(group)
        if count_runs(same) and same[0] not in found
    ]
    aside = escape_markdown(TEXTS["excluded"].format(runs="; ".join(rest))) if rest else ""
    return found, aside


def count_runs(sessions: list[BenchSession]) -> int:
    """Return the number of runs in some sessions, plain decoding included."""
    return sum(len(run_group.runs) + 1 for one in sessions for run_group in one.run_groups)


def group_sessions(sessions: list[BenchSession]) -> list[list[BenchSession]]:
    """Split sessions into groups of one temperature and one number of threads."""
    groups: dict[Any, list[BenchSession]] = defaultdict(list)
    for one in sessions:
        groups[one.settings["temperature"], one.machine.get("threads")].append(one)
    return list(groups.values())


def figures_by_method(sessions: list[BenchSession]) -> MethodFigures:
    """Return {method key: figures}. If a run was repeated in several sessions, the first one counts."""
    found: MethodFigures = {}
    seen = set()
    for run_group in (run_group for one in sessions for run_group in one.run_groups):
        found.setdefault(run_group.plain.method, MethodRow()).add(
            run_group.task, run_group.plain, run_group.plain
        )
        for run in run_group.runs:
            if not run.failed and (run_group.prompt, run_group.repeat, run.method) not in seen:
                seen.add((run_group.prompt, run_group.repeat, run.method))
                found.setdefault(run.method, MethodRow()).add(run_group.task, run, run_group.plain)
    return found


def main_table(
    by_temperature_figures: dict[float, MethodFigures], methods: dict[str, Method]
) -> Iterable[str]:
    """Yield the lines of the main table, fastest method first."""

    def speed(key: str) -> list[float]:
        return [
            -(quartiles(of[key].speeds())[1] or 0) if key in of else 0
            for of in by_temperature_figures.values()
        ]

    yield from table_header("method | exactness", by_temperature_figures)
    for key in sorted(
        (key for key in methods if any(key in of for of in by_temperature_figures.values())), key=speed
    ):
        row = [
            escape_markdown(methods[key].title),
            methods[key].exactness,
            *speedup_cells(by_temperature_figures, key),
        ]
        yield f"| {' | '.join(row)} |"


def table_header(first: str, by_temperature_figures: dict[float, MethodFigures]) -> list[str]:
    """Return the two header lines of a table. first: title of the first column."""
    columns = [
        first,
        *(
            f"{temperature_name(temperature)}: tokens per pass | speed-up"
            + (f" | of the oracle at draft length {bound_length(catalogue())}" if bound_of(of) else "")
            for temperature, of in by_temperature_figures.items()
        ),
        "pairs",
    ]
    line = f"| {' | '.join(columns)} |"
    return [line, "|" + "---|" * (line.count("|") - 1)]


def speedup_cells(by_temperature_figures: dict[float, MethodFigures], key: str) -> Iterable[str]:
    """Yield a method's cells: tokens per pass and speed-up at each temperature, then the number of pairs."""
    for of in by_temperature_figures.values():
        line = of.get(key, MethodRow())
        yield format_number(line.tokens / line.rounds) if line.rounds else ABSENT if not line.pairs else "-"
        yield quartile_text(line.speeds()) if line.speeds() else ABSENT
        if bound := bound_of(of):
            yield share_of_bound(line, bound)
    yield " + ".join(str(of[key].pairs) if key in of else "0" for of in by_temperature_figures.values())


def bound_of(of: MethodFigures) -> MethodRow | None:
    """Return the figures of the oracle, the upper bound of every drafter; None if it was not measured."""
    methods = catalogue()
    return next(
        (row for key, row in of.items() if key in methods and methods[key].bound and row.speeds()), None
    )


def share_of_bound(row: MethodRow, bound: MethodRow) -> str:
    """Return the median speed-up divided by the oracle's on the same tasks, in percent."""
    ours, limit = row.speeds(), [ratio for task in row.ratios for ratio in bound.speeds(task)]
    middle, most = quartiles(ours)[1], quartiles(limit)[1]
    return ABSENT if middle is None or not most else f"{middle / most:.0%}"


def bound_length(methods: dict[str, Method]) -> int | None:
    """Return the oracle's draft length in a benchmark, which runs default knobs."""
    return next((draft_nodes(method) for method in methods.values() if method.bound), None)


def draft_nodes(method: Method) -> int | None:
    """Return the most tokens that a method drafts a round with default knobs; None if no knob says it."""
    known = {knob.name: knob.default for knob in method.knobs}
    return known.get("nodes", known.get("gamma"))


def relatives_table(of: MethodFigures, methods: dict[str, Method]) -> list[str]:
    """Return the lines of a table of the methods that name a relative, each beside it; empty if none was
    measured with its relative. The oracle's share stands only where the method drafts as many tokens as the
    oracle."""
    pairs = [
        (method, methods[method.relative])
        for method in methods.values()
        if method.relative and method.key in of and method.relative in of
    ]
    if not pairs:
        return []
    bound = bound_of(of)
    length = bound_length(methods)
    rows = []
    for pair in pairs:
        nodes, found = [draft_nodes(method) for method in pair], [of[method.key] for method in pair]
        counts = " and ".join("not fixed" if count is None else str(count) for count in nodes)
        cells = [escape_markdown(method.title) for method in pair] + [
            counts if nodes[0] == nodes[1] and None not in nodes else f"{counts} (not equal)",
            " and ".join(format_number(row.tokens / row.rounds) if row.rounds else ABSENT for row in found),
            " and ".join(
                format_number(quartiles(row.speeds())[1] or 0) if row.speeds() else ABSENT for row in found
            ),
            share_of_bound(found[0], bound)
            if bound and nodes[0] == length
            else "not measured at this draft length",
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return [
        "| method | relative | nodes | tokens per pass | speed-up | of the oracle |",
        "|---|---|---|---|---|---|",
        *rows,
    ]


def looping_sections(figures: dict[float, MethodFigures], methods: dict[str, Method]) -> list[str]:
    """Return a section per temperature with the share of answers that loop, and the figures without them;
    empty if looping was not recorded."""
    out = []
    for temperature, of in figures.items():
        checked = {key: row for key, row in of.items() if row.checked}
        if not any(row.looping for row in checked.values()):
            continue
        rows = [
            f"| {escape_markdown(methods[key].title if key in methods else key)} | {row.looping / row.checked:.1%} | "
            f"{format_number(row.non_looping_tokens / row.non_looping_rounds) if row.non_looping_rounds else ABSENT} | "
            f"{quartile_text(row.non_looping) if row.non_looping else ABSENT} |"
            for key, row in sorted(checked.items(), key=lambda one: -(quartiles(one[1].non_looping)[1] or 0))
        ]
        out += [
            f"## Without looping answers, {temperature_name(temperature)}",
            TEXTS["loops"],
            "\n".join(
                [
                    "| method | looping answers | tokens per pass without them | speed-up without them |",
                    "|---|---|---|---|",
                    *rows,
                ]
            ),
        ]
    return out


def speedups_by_task(of: MethodFigures, methods: dict[str, Method], tasks: list[str]) -> Iterable[str]:
    """Yield the lines of a table of median speed-ups on each task and their mean, fastest method first. The
    mean is left out if a task is missing."""
    found = {key: [quartiles(of[key].speeds(task))[1] for task in tasks] for key in methods if key in of}
    known = {key: [value for value in mine if value is not None] for key, mine in found.items()}
    means = {key: fmean(known[key]) if len(known[key]) == len(tasks) else None for key in found}
    yield f"| method | {' | '.join(map(escape_markdown, tasks))} | mean of the tasks |"
    yield "|---" * (len(tasks) + 2) + "|"
    for key in sorted(found, key=lambda key: -(means[key] or 0)):
        figures = (ABSENT if value is None else format_number(value) for value in (*found[key], means[key]))
        yield f"| {escape_markdown(methods[key].title)} | {' | '.join(figures)} |"


def winners_table(of: MethodFigures, methods: dict[str, Method], tasks: list[str]) -> list[str]:
    """Return the lines of a table that names each family's fastest method on each task."""
    base = next(iter(methods))
    families: dict[str, list[str]] = defaultdict(list)
    for key in of:
        if key in methods and key != base and not methods[key].bound:
            families[methods[key].family].append(key)
    rows = [
        f"| {escape_markdown(family)} | {' | '.join(winner_cell(of, keys, methods, task) for task in tasks)} |"
        for family, keys in sorted(families.items())
    ]
    return [f"| family | {' | '.join(map(escape_markdown, tasks))} |", "|---" * (len(tasks) + 1) + "|", *rows]


def winner_cell(of: MethodFigures, keys: list[str], methods: dict[str, Method], task: str) -> str:
    """Return the table cell that names the fastest of some methods (``keys``) on a task."""
    there = [key for key in keys if of[key].speeds(task)]
    there = [key for key in there if methods[key].exactness in EXACT] or there
    if not there:
        return ABSENT
    middle: Callable[[str], float] = lambda key: nonempty_quartiles(of[key].speeds(task))[1]  # noqa: E731
    first, *rest = sorted(there, key=middle, reverse=True)
    mine = of[first].speeds(task)
    titles = f"{escape_markdown(methods[first].title)}{'' if methods[first].exactness in EXACT else f' ({methods[first].exactness})'}"
    if not rest:
        return TEXTS["winner.alone"].format(first=f"{titles} {quartile_text(mine)}")
    beaten = of[rest[0]].speeds(task)
    if min(len(mine), len(beaten)) >= FEWEST and nonempty_quartiles(mine)[0] > middle(rest[0]):
        return f"**{titles}** {quartile_text(mine)}"
    second = f"{escape_markdown(methods[rest[0]].title)} {quartile_text(beaten)}"
    return TEXTS["winner.unclear"].format(first=f"{titles} {quartile_text(mine)}", second=second)


def setting_sentence(sessions: list[BenchSession]) -> str:
    """Return a sentence on machine, versions, models and dates. The web page reads the target's name from
    it."""
    of, days = sessions[0].machine, sorted({one.began[:10] for one in sessions if one.run_groups})
    versions = ", ".join(
        f"{name} {of[name]}" for name in ("torch", "transformers", "python", "specviz") if name in of
    )
    models = f"{name_of(sessions[0], 'target')} with {name_of(sessions[0], 'draft')}"
    span = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    titles = {
        one.settings[
            "temperature"
        ]: f"{one.machine.get('threads')} thread{'s' * (one.machine.get('threads') != 1)}"
        for one in sorted(sessions, key=lambda one: one.settings["temperature"])
        if one.run_groups
    }
    threads = (
        titles.popitem()[1]
        if len({*titles.values()}) == 1
        else " and ".join(
            f"{count} {'at ' * bool(temperature)}{temperature_name(float(temperature))}"
            for temperature, count in titles.items()
        )
    )
    return escape_markdown(
        f"{of.get('machine')}, {of.get('device')}, {of.get('dtype')}, {threads}, {versions}; {models}; {span}."
    )


def bench_command(ledger: Ledger, sessions: list[BenchSession]) -> str:
    """Return the benchmark command that was run, as Markdown code."""
    asked, of = combined_request(sessions), sessions[-1].settings
    every, ours = (
        set(catalogue()) <= {*asked.methods, *asked.skipped},
        [key for key in asked.methods if key in catalogue()],
    )
    suites = [] if asked.suite == SUITE.name else asked.suite.split(", ")
    words = [
        "python",
        "-m",
        "specviz",
        "bench",
        *(word for one in suites for word in ("--suite", one)),
        "--methods",
        "all" if every else ",".join(ours[1:] or ours),
        *(["--tasks", ",".join(asked.tasks)] if asked.tasks else []),
        *("--reference" for _ in range(any(key not in catalogue() for key in asked.methods))),
        "--prompts",
        max(Counter(task for _, task in asked.prompts).values()),
        "--repeats",
        asked.repeats,
        "--max-new-tokens",
        of["max_new_tokens"],
        "--temperature",
        f"{of['temperature']:g}",
        *(
            word
            for name, usual in (("top_k", 0), ("top_p", 1), ("seed", 0))
            if of[name] != usual
            for word in (f"--{name.replace('_', '-')}", of[name])
        ),
        *(["--deterministic"] if of["deterministic"] else []),
        "--target",
        name_of(sessions[0], "target"),
        "--draft",
        name_of(sessions[0], "draft"),
        "--into",
        ledger.path.name.removesuffix(".gz"),
    ]
    return "    " + escape_markdown(shlex.join(map(str, words)))


def progress_sentence(temperature: float, sessions: list[BenchSession]) -> str:
    """Return a sentence on how much of the request is measured."""
    if not any(one.run_groups for one in sessions):
        return f"{temperature_name(temperature).capitalize()}: {ABSENT}."
    asked = combined_request(sessions)
    tasks = {task for _, task in asked.prompts}
    text = TEXTS["progress"].format(
        when=temperature_name(temperature).capitalize(),
        prompts=len(asked.prompts),
        tasks=len(tasks),
        repeats=asked.repeats,
        methods=len(asked.methods),
        progress=progress_of(sessions, asked),
    )
    together = [{run.method for run_group in one.run_groups for run in run_group.runs} for one in sessions]
    apart = set().union(*together) - max(together, key=len, default=set())
    if apart:
        text += TEXTS["sessions"].format(
            count=len(sessions), methods=", ".join(method for method in asked.methods if method in apart)
        )
    return escape_markdown(text)


def plain_differences(sessions: list[BenchSession]) -> list[float]:
    """Return the relative differences between two runs of plain decoding in the same turn, each as a share
    of the faster run."""
    seen: dict[Any, list[Run]] = defaultdict(list)
    for count, one in enumerate(sessions):
        for run_group in one.run_groups:
            seen[count, run_group.prompt, run_group.repeat].append(run_group.plain)
    ratios = [walltime_speedup(a, b) for runs in seen.values() for a, b in zip(runs, runs[1:])]
    return [max(ratio, 1 / ratio) - 1 for ratio in ratios if ratio]


def noise_sentence(sessions: list[BenchSession]) -> str:
    """Return a sentence on the difference between two runs of plain decoding in the same turn."""
    apart = plain_differences(sessions)
    return TEXTS["noise"].format(apart=median(apart), count=len(apart)) if apart else ""


def equality_sentence(greedy: MethodFigures, methods: dict[str, Method]) -> str:
    """Return a sentence on how many greedy runs of exact methods have the same tokens as plain decoding."""
    base = next(iter(methods))
    mine = [
        line
        for key, line in greedy.items()
        if key in methods and key != base and methods[key].exactness in EXACT
    ]
    runs, same = sum(line.pairs for line in mine), sum(line.same for line in mine)
    return TEXTS["same"].format(runs=runs, same=same) if runs else ""


def without_timing(
    by_temperature_figures: dict[float, MethodFigures],
    sessions: list[BenchSession],
    methods: dict[str, Method],
) -> str:
    """Return a sentence that lists the methods without a row in the tables, with the reasons if they are
    known."""
    why = combined_request(sessions).skipped
    none = [
        f"{method.title} ({short_reason(why[key], method.title)})" if key in why else method.title
        for key, method in methods.items()
        if not any(key in of for of in by_temperature_figures.values())
    ]
    return escape_markdown(TEXTS["not_measured"].format(methods="; ".join(none))) if none else ""


def short_reason(why: str, title: str) -> str:
    """Shorten the reason why a method cannot run: leave out its title and the command that would help, as
    in "needs eagle heads"."""
    return re.split("[,;:]", why.removeprefix(title))[0].strip(" .")


def combined_request(sessions: list[BenchSession]) -> Requested:
    """Return the union of the sessions' requests."""
    return reduce(or_, (one.asked for one in sessions))


def name_of(bench_session: BenchSession, role: str) -> str:
    """Return the name of a session's target or draft model (``role``); "none" if it has none, as on the
    command line."""
    return str((bench_session.settings.get(role) or {}).get("name", "none"))


def temperature_name(temperature: float) -> str:
    """Return "greedy" for temperature 0, else "temperature T"."""
    return f"temperature {temperature:g}" if temperature else "greedy"


def format_number(value: float) -> str:
    """Return a number as text with three significant digits."""
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


def quartile_text(values: list[float]) -> str:
    """Return the median and the quartiles of some values as text."""
    low, middle, high = nonempty_quartiles(values)
    return f"{format_number(middle)} ({format_number(low)} to {format_number(high)})"


def escape_markdown(text: str) -> str:
    """Escape text for Markdown, so that it cannot contain table cells, line breaks, paragraphs or markup."""
    return re.sub(r"[^\w ,.:;()/+%'@=&-]", " ", text)
