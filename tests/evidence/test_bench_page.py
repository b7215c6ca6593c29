"""The table of all methods: its figures by hand, who wins, what its head admits, and that the page's picker
reads it."""

from __future__ import annotations

import json
import re

from specviz.engine.cards import cards
from specviz.evidence.bench_figures import figures_json, speedup_figures
from specviz.evidence.bench_ledger import BenchSession, Ledger, Requested, Run, RunGroup
from specviz.evidence.bench_page import ABSENT, TEXTS, escape_markdown, figures_by_method, page, winners_table
from specviz.methods import catalogue
from specviz.run.request import SessionError
from specviz.ui.picker_rows import measured_speedups, rows

from ..message_codes import begins, refuses

BASE = "autoregressive"
MACHINE = {
    "machine": "Some (R) Processor, 2 cores",
    "device": "cpu",
    "dtype": "float32",
    "threads": 2,
    "torch": "2",
    "python": "3",
}
SETTINGS = {
    "target": {"name": "Llama-x-16M"},
    "draft": {"name": "Llama-x-draft"},
    "suite": "mark",
    "max_new_tokens": 96,
    "top_k": 0,
    "top_p": 1.0,
    "seed": 0,
    "deterministic": False,
}
PROMPTS = ((1, "story"), (2, "story"), (3, "edit"), (4, "edit"))


def bench_session(
    temperature, speeds, began="2026-01-02T03:04:05+00:00", machine=MACHINE, methods=(), **settings
):
    """A sitting of legs, one for each speed-up of each task: {method: {task: [speed-ups]}}, four passes for
    eight tokens each."""
    asked = Requested(
        (BASE, *(methods or speeds)), PROMPTS, 3, "heldout.jsonl", (), {"jacobi": "Jacobi needs | more."}
    )
    one = BenchSession(began, {**SETTINGS, "temperature": temperature, **settings}, machine, asked)
    places = {
        "story": [(1, r) for r in (1, 2, 3)] + [(2, r) for r in (1, 2, 3)],
        "edit": [(3, r) for r in (1, 2, 3)] + [(4, 1)],
    }
    for task, spots in places.items():
        for n, (prompt, repeat) in enumerate(spots):
            made = tuple(
                Run(key, 8, 4, seconds=0.8 / of[task][n], same=n > 0)
                for key, of in speeds.items()
                if n < len(of.get(task, ()))
            )
            if made:
                one.run_groups.append(
                    RunGroup(prompt, task, repeat, 36.0, Run(BASE, 8, 8, seconds=0.8, same=True), made)
                )
    return one


def ledger(path, *sessions):
    """A file that these sittings wrote, read again."""
    book = Ledger(path)
    for one in sessions:
        run_groups, one.run_groups = one.run_groups, []
        book.begin(one)
        for leg in run_groups:
            book.add(leg)
    return Ledger(path)


def said(code, **values):
    return begins(TEXTS, code, **values)


GREEDY = {
    "prompt_lookup": {"story": [1.0, 1.2, 1.4, 1.6], "edit": [3.0, 3.12, 3.2, 3.32]},
    "copyspec": {"story": [1.32, 1.12, 1.52, 1.24], "edit": [2.0, 2.12, 2.2, 2.3]},
    "speculative": {"story": [1.5, 2.5]},
}
SAMPLED = {"copyspec": {"story": [0.9, 1.1]}, "swift": {"edit": [0.5]}}


def test_the_figures_are_medians_and_quartiles_of_the_pairs(tmp_path):
    reported = page(
        ledger(
            tmp_path / "f.jsonl",
            bench_session(0.0, GREEDY),
            bench_session(1.0, SAMPLED, "2026-01-03T00:00:00+00:00"),
        )
    )
    lines = {
        line.split(" | ")[0]: line
        for line in reported.partition("## ")[0].splitlines()
        if line.startswith("| ")
    }
    # prompt lookup: 1, 1.2, 1.4, 1.6, 3, 3.12, 3.2, 3.32: between the 4th and 5th; a quarter of the way is
    # 1.2 + 3/4 of 0.2
    assert (
        lines["| Prompt lookup"]
        == f"| Prompt lookup | exact | 2 | 2.3 (1.35 to 3.14) | {ABSENT} | {ABSENT} | 8 + 0 |"
    )
    assert (
        lines["| Speculative decoding"]
        == f"| Speculative decoding | exact | 2 | 2 (1.75 to 2.25) | {ABSENT} | {ABSENT} | 2 + 0 |"
    )
    assert (
        lines["| CopySpec"] == "| CopySpec | exact | 2 | 1.76 (1.3 to 2.14) | 2 | 1 (0.95 to 1.05) | 8 + 2 |"
    )
    assert lines["| Plain decoding"] == "| Plain decoding | exact | 1 | 1 (1 to 1) | 1 | 1 (1 to 1) | 8 + 3 |"
    order = [key for key in lines if key != "| method"]
    assert order == ["| Prompt lookup", "| Speculative decoding", "| CopySpec", "| Plain decoding", "| SWIFT"]
    head = reported.partition("\n| method")[0]
    assert (
        "Some (R) Processor, 2 cores, cpu, float32, 2 threads, torch 2, python 3; Llama-x-16M with Llama-x-draft; "
        "2026-01-02 to 2026-01-03."
    ) in head
    assert (
        "    python -m specviz bench --suite heldout.jsonl --methods prompt_lookup,copyspec,speculative --prompts 2 "
        "--repeats 3 --max-new-tokens 96 --temperature 0 --target Llama-x-16M --draft Llama-x-draft --into f.jsonl"
    ) in head
    greedy = said("progress", when="Greedy", prompts=4, tasks=2, repeats=3, methods=4)
    assert (
        greedy in head
        and [n in head.partition(greedy)[2].splitlines()[0] for n in ("26", "48", "54.2", "2", "12")]
        == [True] * 5
    )
    assert said("progress", when="Temperature 1", prompts=4, tasks=2, repeats=3, methods=3) in head
    assert TEXTS["same"].format(runs=18, same=13) in head  # the first of each is not the same, by script
    assert (
        "Jacobi decoding (Jacobi needs   more)" in reported.partition(said("not_measured"))[2].splitlines()[0]
    )
    by_task = reported.partition("## Speed-up by task, greedy\n\n")[2].partition("\n\n")[0].splitlines()
    assert by_task == [
        "| method | story | edit | mean of the tasks |",
        "|---|---|---|---|",
        "| Prompt lookup | 1.3 | 3.16 | 2.23 |",
        "| CopySpec | 1.28 | 2.16 | 1.72 |",
        "| Plain decoding | 1 | 1 | 1 |",
        f"| Speculative decoding | 2 | {ABSENT} | {ABSENT} |",
    ]


def test_methods_of_a_session_of_their_own_are_named(tmp_path):
    first, second, again = (
        bench_session(0.0, speeds, f"2026-01-0{day}T00:00:00+00:00")
        for day, speeds in (
            (2, GREEDY),
            (3, {"swift": {"edit": [0.5]}}),
            (4, {"copyspec": GREEDY["copyspec"]}),
        )
    )
    apart = escape_markdown(TEXTS["sessions"].format(count=2, methods="swift"))
    assert apart in page(ledger(tmp_path / "a.jsonl", first, second))
    whole = [bench_session(0.0, GREEDY)]
    for of in (whole, [*whole, again]):  # one that goes on with the same methods is nothing to mention
        assert said("sessions") not in page(ledger(tmp_path / f"{len(of)}.jsonl", *of))


def test_each_method_stands_beside_the_oracle_where_that_was_measured(tmp_path):
    bounded = {**GREEDY, "oracle": {"story": [4.0] * 4, "edit": [5.0] * 4}}
    reported = page(
        ledger(
            tmp_path / "f.jsonl",
            bench_session(0.0, bounded),
            bench_session(1.0, SAMPLED, "2026-01-03T00:00:00+00:00"),
        )
    )
    lines = {
        line.split(" | ")[0][2:]: line.strip("| ").split(" | ")
        for line in reported.partition("## ")[0].splitlines()
        if line.startswith("| ")
    }
    titles = lines["method"]
    assert [title.rpartition(": ")[2] for title in titles] == [
        "method",
        "exactness",
        "tokens per pass",
        "speed-up",
        "of the oracle at draft length 4",
        "tokens per pass",
        "speed-up",
        "pairs",
    ], "none at temperature 1"
    found = {key: lines[escape_markdown(catalogue()[key].title)][4] for key in (*GREEDY, "oracle")}
    # of the median over all their tasks: prompt lookup 2.3 of 4.5, CopySpec 1.76 of 4.5, speculative
    # decoding 2 of 4
    assert found == {"prompt_lookup": "51%", "copyspec": "39%", "speculative": "50%", "oracle": "100%"}


def test_a_method_stands_beside_its_nearest_relative_and_says_where_nodes_differ(tmp_path):
    runs = {
        key: {"story": [1.0] * 4} for key in ("uno", "orthrus", "dflash", "domino", "pearl", "ssd", "taps")
    } | {"oracle": {"story": [2.0] * 4}}
    text = page(ledger(tmp_path / "f.jsonl", bench_session(0.0, runs)))
    lines = [
        line.strip("| ").split(" | ")
        for line in text.partition("## Beside its nearest relative, greedy")[2].split("\n## ")[0].splitlines()
        if line.startswith("| ")
    ][1:]
    methods = catalogue()
    assert {(line[0], line[1]): (line[2], line[5]) for line in lines} == {
        (escape_markdown(methods[key].title), escape_markdown(methods[methods[key].relative].title)): want
        for key, want in {
            "orthrus": ("4 and 4", "50%"),
            "domino": ("3 and 3", "not measured at this draft length"),
            "ssd": ("3 and 4 (not equal)", "not measured at this draft length"),
        }.items()
    }
    assert all(
        method.relative in methods and method.relative != method.key
        for method in methods.values()
        if method.relative
    )


def test_a_winner_is_named_only_where_it_is_clear(tmp_path):
    of = figures_by_method([bench_session(0.0, GREEDY)])
    first, _, *found = winners_table(of, catalogue(), ["story", "edit"])
    assert first == "| family | story | edit |" and len(found) == 2
    speculative, lookups = (line.split(" | ") for line in found)
    assert speculative == [
        "| Draft model",
        TEXTS["winner.alone"].format(first="Speculative decoding 2 (1.75 to 2.25)"),
        f"{ABSENT} |",
    ]
    assert lookups[1] == TEXTS["winner.unclear"].format(
        first="Prompt lookup 1.3 (1.15 to 1.45)", second="CopySpec 1.28 (1.21 to 1.37)"
    )
    assert lookups[2] == "**Prompt lookup** 3.16 (3.09 to 3.23) |"
    few = {"prompt_lookup": {"edit": [3.0, 3.1, 3.2]}, "copyspec": {"edit": [2.0, 2.1, 2.2]}}
    assert (
        said("winner.unclear", first="Prompt lookup 3.1 (3.05 to 3.15)")
        in winners_table(figures_by_method([bench_session(0.0, few)]), catalogue(), ["edit"])[2]
    )


def test_an_approximate_method_wins_only_where_no_exact_one_is(tmp_path):
    family = next(
        f
        for f in {m.family for m in catalogue().values()}
        if {"exact", "approximate"} <= {m.exactness for m in catalogue().values() if m.family == f}
    )
    exact, loose = (
        next(m for m in catalogue().values() if (m.family, m.exactness) == (family, e))
        for e in ("exact", "approximate")
    )
    speeds = {exact.key: {"edit": [1.0] * 4}, loose.key: {"edit": [9.0] * 4}}
    assert (
        said("winner.alone", first=f"{exact.title} 1 (")
        in winners_table(figures_by_method([bench_session(0.0, speeds)]), catalogue(), ["edit"])[2]
    )
    del speeds[exact.key]
    assert (
        said("winner.alone", first=f"{loose.title} (approximate) 9 (")
        in winners_table(figures_by_method([bench_session(0.0, speeds)]), catalogue(), ["edit"])[2]
    )


def test_a_pair_is_of_one_leg_and_plain_decoding_is_held_against_itself(tmp_path):
    one = bench_session(0.0, {})
    for seconds, key in ((1.0, "swift"), (2.0, "jacobi")):  # the machine got slower in between
        one.run_groups.append(
            RunGroup(
                1, "story", 1, 1.0, Run(BASE, 8, 8, seconds=seconds), (Run(key, 8, 8, seconds=seconds / 2),)
            )
        )
    one.run_groups.append(
        RunGroup(
            1,
            "story",
            1,
            1.0,
            Run(BASE, 8, 8, seconds=1.0),
            (Run("swift", 8, 8, seconds=9.0), Run("medusa", failed="oh")),
        )
    )
    of = figures_by_method([one])
    assert (
        of["swift"].speeds() == of["jacobi"].speeds() == [2.0] and "medusa" not in of
    )  # the first of two counts
    assert TEXTS["noise"].format(apart=1.0, count=2) in page(ledger(tmp_path / "f.jsonl", one))


def test_each_temperature_may_have_threads_of_its_own_and_says_so(tmp_path):
    one, two = ({**MACHINE, "threads": n} for n in (1, 2))
    few = {"swift": {"edit": [1.5]}}
    reported = page(
        ledger(
            tmp_path / "f.jsonl",
            bench_session(0.0, GREEDY, machine=one),
            bench_session(1.0, SAMPLED),
            bench_session(1.0, few, machine=one),
        )
    )
    assert "float32, 1 thread greedy and 2 threads at temperature 1, torch 2" in reported
    copied, swift = (
        next(line for line in reported.splitlines() if line.startswith(f"| {title} "))
        for title in ("CopySpec", "SWIFT")
    )
    assert copied.endswith("| 8 + 2 |") and swift.endswith("| 0 + 1 |") and "0.5" in swift, (
        "the one run with one thread is left aside"
    )
    assert (
        escape_markdown(
            said(
                "excluded.runs",
                count=2,
                target="Llama-x-16M",
                draft="Llama-x-draft",
                machine="Some (R) Processor, 2 cores",
                threads=1,
            )
        )
        in (reported.partition(said("excluded"))[2])
    )
    assert (
        page(
            ledger(
                tmp_path / "g.jsonl",
                bench_session(0.0, GREEDY, machine=one),
                bench_session(1.0, SAMPLED, machine=one, target={"name": "big"}),
            )
        ).count("temperature 1")
        <= 1
    ), "what is of another target is still left aside"


def test_what_is_of_other_settings_stands_in_no_line(tmp_path):
    few, many = {"swift": {"edit": [1.5]}}, GREEDY
    book = ledger(
        tmp_path / "f.jsonl",
        bench_session(0.0, few, target={"name": "big"}),
        bench_session(0.0, many),
        bench_session(0.0, few, max_new_tokens=8),
        bench_session(0.0, few, machine={**MACHINE, "threads": 1}),
        bench_session(1.0, {}),
    )
    reported = page(book)
    excluded = reported.partition(said("excluded"))[2].splitlines()[0]
    assert (
        "| SWIFT" not in reported
        and said("excluded.runs", count=2, target="big", draft="Llama-x-draft") in excluded
        and "8 tokens" in excluded
    )
    assert "| SWIFT" in page(book, "big") and "| Prompt lookup" not in page(book, "big")
    for chosen in (("nope", None), (None, "none")):
        with refuses(SessionError, "ledger.no_runs"):
            page(book, *chosen)
    with refuses(SessionError, "ledger.no_runs"):
        page(ledger(tmp_path / "g.jsonl", bench_session(0.0, {})))


def test_the_page_reads_the_figures_that_the_benchmark_writes(tmp_path):
    path = tmp_path / "bench.json"
    path.write_text(
        figures_json(
            speedup_figures(
                ledger(tmp_path / "f.jsonl", bench_session(0.0, GREEDY), bench_session(1.0, SAMPLED))
            )
        )
    )
    found = measured_speedups(path)
    assert found["speedups"] == {
        "prompt_lookup": [2.3, None],
        "speculative": [2.0, None],
        "copyspec": [1.76, 1.0],
        BASE: [1.0, 1.0],
    }
    assert 0 <= found["noise"] < 1 and "noise" in json.loads(path.read_text())
    assert found["model"] == "Llama-x-16M" and found["where"].startswith("Some (R) Processor, 2 cores")
    speeds = {row["key"]: row["speed"] for row in rows(cards(), (), path)}
    assert speeds["copyspec"] == [1.76, 1.0] and speeds["swift"] is None and speeds["medusa"] is None
    only = tmp_path / "sampled.json"  # nothing greedy: no figure is taken for what it is not
    only.write_text(
        figures_json(speedup_figures(ledger(tmp_path / "d.jsonl", bench_session(1.0, SAMPLED, draft=None))))
    )
    assert measured_speedups(only)["speedups"] == {} and measured_speedups(only)["model"] == ""


def test_nothing_that_a_file_says_breaks_a_line(tmp_path):
    assert {escape_markdown(m.title) for m in catalogue().values()} == {m.title for m in catalogue().values()}
    assert {escape_markdown(m.family) for m in catalogue().values()} == {
        m.family for m in catalogue().values()
    }
    evil = "a | b\n| c <script> `d` [e](f) # **g**"
    speeds = {**GREEDY, f"own {evil}": {"story": [1.0]}}
    reported = page(
        ledger(
            tmp_path / "f.jsonl",
            bench_session(0.0, speeds, machine={**MACHINE, "machine": evil}, target={"name": evil}),
        )
    )
    assert not re.search(r"<|`|\]\(f|# \*", reported.replace("](log/2026-11/speed.md)", ""))
    for block in re.findall(r"(?:^\|.*\n)+", reported, re.M):
        assert len({line.count("|") for line in block.splitlines()}) == 1
