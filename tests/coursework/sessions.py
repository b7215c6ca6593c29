"""Do every lab as a student does, from an empty folder, and write what was seen to docs/labs.md:
``python -m tests.coursework.sessions [--resume] [LAB ...]``.

Each submission is graded by the command, and runs in a process of its own. For each lab: the solution, three right ones in other
styles, and known wrong ones with the sentence that each gets; then hostile ones. Results are kept in
docs/labs.jsonl, so that a lab can be done again alone; --resume leaves out what is there already."""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from specviz import cli
from specviz.coursework import catalogue, draft_lengths, lookup, verification
from specviz.coursework.exercise import Exercise
from specviz.evidence.doctor import machine

from . import submissions as s

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "labs.md"
STUDENT = "ada"
WRONG = 7  # known wrong submissions of a lab that are graded; tests.coursework.power has all of them
RIGHT = {
    "prompt_lookup": s.LOOKUP,
    "token_rejection": s.TOKEN,
    "sibling_residual": s.SIBLINGS,
    "block_verification": s.BLOCK,
    "draft_length": s.LENGTHS,
    "own_head": s.HEADS,
    "silent_killer": s.WIRING,
}
ANSWERS = {
    "prompt_lookup": lookup._answers,
    "token_rejection": verification._token_answers,
    "sibling_residual": verification._sibling_answers,
    "block_verification": verification._block_answers,
    "draft_length": draft_lengths._answers,
}
SOLUTION = str(ROOT / "specviz" / "verifiers" / "token_rejection.py")
HOSTILE = {
    "an endless loop": "def propose(tokens, gamma):\n    while True:\n        pass",
    "10 GB of memory": "def propose(tokens, gamma):\n    return [len(bytearray(10 * 2**30))]",
    "a network connection": "import socket\ndef propose(tokens, gamma):\n    socket.create_connection(('127.0.0.1', 9))",
    "reads the solution's file": f"def propose(tokens, gamma):\n    return [len(open({SOLUTION!r}).read())]",
    "imports the solution": "def propose(tokens, gamma):\n    import specviz.drafters.lookup\n    return []",
    "starts a program": "import os\ndef propose(tokens, gamma):\n    os.system('true')\n    return []",
    "ends the grader": "import os\ndef propose(tokens, gamma):\n    os.kill(os.getppid(), 9)\n    return []",
}


def command(*args: str) -> tuple[int, str, float]:
    """Run ``specviz labs``; return status, output and seconds."""
    began, out = time.monotonic(), io.StringIO()
    with contextlib.redirect_stdout(out):
        status = cli.main(["labs", *args])
    return status, out.getvalue(), time.monotonic() - began


def handed_in(starter: str, key: str, source: str) -> str:
    """Return the starter with a student's functions after its own, and the answers filled in."""
    answers = ANSWERS.get(key)
    filled = re.sub(r"(?m)^ANSWER = .*$", f"ANSWER = {answers(STUDENT)}", starter) if answers else starter
    return f"{filled}\n\n{source}\n"


def graded(key: str, kind: str, name: str, folder: Path, text: str) -> dict[str, Any]:
    """Grade a submission; return what was seen."""
    (folder / "starter.py").write_text(text, encoding="utf-8")
    status, out, seconds = command("check", str(folder / "starter.py"), "--lab", key, "--json")
    report = json.loads(out)
    wrong = [check for check in report["checks"] if not check["ok"]]
    ended = [check for check in wrong if check["name"] == "submission"]
    known = [check for check in wrong if "behaves like" in check["sentence"]]
    shown = next(iter(ended + known + wrong), None)
    return {
        "lab": key,
        "kind": kind,
        "name": name,
        "passed": report["passed"] and status == 0,
        "checks": len(report["checks"]),
        "behaves_like": report["behaves_like"],
        "sentence": shown["sentence"].replace(f"{ROOT}/", "") if shown else "",
        "caught_after": next(
            (
                c["figures"].get("caught_after_tokens")
                for c in wrong
                if c["figures"].get("caught_after_tokens")
            ),
            None,
        ),
        "seconds": round(seconds, 1),
    }


def submissions(exercise: Exercise) -> list[tuple[str, str, str]]:
    """Return (kind, name, source) of the submissions to a lab; the starter as it is has no source."""
    right = [("right", style, source) for style, source in RIGHT[exercise.key].items()]
    wrong = [("wrong", one.key, one.source or s.WRONG_HEADS.get(one.key, "")) for one in exercise.mistakes]
    return [("starter", "as it is", ""), *right, *(one for one in wrong if one[2])][: 1 + len(right) + WRONG]


def session(exercise: Exercise, resume: bool = False) -> None:
    """Do one lab from an empty folder, and keep a row for each submission."""
    ledger = ROOT / "docs" / "labs.jsonl"
    lines = ledger.read_text(encoding="utf-8").splitlines() if resume and ledger.exists() else []
    there = {(row["lab"], row["kind"], row["name"]) for row in map(json.loads, lines)}
    with tempfile.TemporaryDirectory() as name:
        status, _, _ = command(
            "start", exercise.key, "--student", STUDENT, "--into", f"{name}/{exercise.key}"
        )
        assert status == 0
        folder = Path(name) / exercise.key
        starter = (folder / "starter.py").read_text(encoding="utf-8")
        for kind, what, source in submissions(exercise):
            if (exercise.key, kind, what) in there:
                continue
            text = handed_in(starter, exercise.key, source) if source else starter
            keep(graded(exercise.key, kind, what, folder, text))


def hostile() -> None:
    """Grade the hostile submissions, and keep a row for each."""
    with tempfile.TemporaryDirectory() as name:
        for what, source in HOSTILE.items():
            keep(graded("prompt_lookup", "hostile", what, Path(name), source))


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Return whether two rows are of the same submission."""
    return all(one[field] == other[field] for field in ("lab", "kind", "name"))


def keep(row: dict[str, Any]) -> None:
    """Put a row in the ledger, in place of an earlier one of the same submission, and write the page."""
    with (ROOT / "docs" / "labs.jsonl").open("a+", encoding="utf-8") as ledger:
        fcntl.flock(ledger, fcntl.LOCK_EX)
        ledger.seek(0)
        rows = [one for one in map(json.loads, ledger) if not same(one, row)] + [row]
        ledger.truncate(0)
        ledger.write("".join(json.dumps(one, ensure_ascii=False) + "\n" for one in rows))
    PAGE.write_text(page(rows, machine()), encoding="utf-8")
    print(
        row["lab"], row["kind"], row["name"], row["passed"], row["behaves_like"], row["seconds"], flush=True
    )


def cell(text: str) -> str:
    """Return text as a cell of a table."""
    return text.replace("|", "\\|").replace("\n", " ")


def page(rows: list[dict[str, Any]], facts: dict[str, Any]) -> str:
    """Return docs/labs.md. facts: of the machine."""
    by_lab = {key: [row for row in rows if row["lab"] == key and row["kind"] != "hostile"] for key in RIGHT}
    lines = [
        "# The labs, graded",
        "",
        "Every lab was started in an empty folder, and each submission graded by `specviz labs check`; each ran in a process of its",
        "own. Written by `python -m tests.coursework.sessions`; seconds are of the whole check. How often every wrong variant is caught,",
        "after how many tokens, and false alarms of right ones: `python -m tests.coursework.power 200`.",
        f"Machine: {facts['processor']}, {facts['cores']} cores, beside other work (load average {facts['load_average']}).",
        "",
        "| lab | right ones passed | wrong ones caught | of these named | longest check, s |",
        "|---|---|---|---|---|",
    ]
    for key, some in by_lab.items():
        right = [row for row in some if row["kind"] == "right"]
        wrong = [row for row in some if row["kind"] == "wrong"]
        named = sum(row["behaves_like"] == row["name"] for row in wrong)
        lines.append(
            f"| {key} | {sum(row['passed'] for row in right)} of {len(right)} | {sum(not row['passed'] for row in wrong)} of {len(wrong)} "
            f"| {named} | {max((row['seconds'] for row in some), default=0):.0f} |"
        )
    for key, some in by_lab.items():
        lines += ["", f"## {key}", "", "| submission | result | sentence | s |", "|---|---|---|---|"]
        for row in some:
            result = "passed" if row["passed"] else "failed"
            label = {"starter": "starter as it is", "right": f"right: {row['name']}"}.get(
                row["kind"], row["name"]
            )
            lines.append(f"| {label} | {result} | {cell(row['sentence'])} | {row['seconds']:.0f} |")
    lines += ["", "## Hostile submissions", "", "| what it tries | sentence | s |", "|---|---|---|"]
    lines += [
        f"| {row['name']} | {cell(row['sentence'])} | {row['seconds']:.0f} |"
        for row in rows
        if row["kind"] == "hostile"
    ]
    return "\n".join(lines) + "\n"


def main(names: list[str]) -> None:
    """Do the named labs ("hostile" is one), or all of them."""
    labs = [name for name in names if name != "--resume"] or [*RIGHT, "hostile"]
    for name in labs:
        if name == "hostile":
            hostile()
        else:
            session(catalogue.find(name), "--resume" in names)


if __name__ == "__main__":
    main(sys.argv[1:])
