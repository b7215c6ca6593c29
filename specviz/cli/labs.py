"""``specviz labs``: exercises of a course, with checks that grade them."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from .messages import TEXTS


def add(command) -> None:
    """Add the command to the parser."""
    sub = command(
        "labs", labs, "Exercises about speculative decoding that grade themselves: list, start, check."
    )
    sub.add_argument(
        "action", choices=("list", "start", "check"), help="list them, write a starter, or check a file"
    )
    sub.add_argument(
        "name", nargs="?", metavar="NAME", help="start: the lab; check: the file (.py or .ipynb)"
    )
    sub.add_argument(
        "--student",
        metavar="NAME",
        help="whose numbers and mistakes (start: student; check: the one that the file names)",
    )
    sub.add_argument("--into", metavar="FOLDER", help="start: where to write (a folder of the lab's name)")
    sub.add_argument("--html", metavar="FILE", help="check: write the first wrong decision as a page")
    sub.add_argument("--lab", metavar="NAME", help="check: the lab, if the file does not name it")


def labs(args: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    from ..coursework import catalogue, starter_files
    from .errors import UsageError

    if args.action == "list":
        rows = [{"name": one.key, "title": one.title} for one in catalogue.EXERCISES.values()]
        if args.json:
            print(json.dumps(rows, indent=2))
        else:
            from .terminal import table

            print(table(rows, ["name", "title"]))
        return 0
    if not args.name:
        raise UsageError("labs.name", action=args.action)
    if args.action == "start":
        exercise = catalogue.find(args.name)
        student = "student" if args.student is None else args.student
        paths = starter_files.start(exercise, student, Path(args.into or exercise.key))
        print(json.dumps([str(path) for path in paths]) if args.json else "\n".join(map(str, paths)))
        return 0
    report = catalogue.check(Path(args.name), args.lab, args.student, find_wrong=bool(args.html))
    if args.html and report.wrong:
        from ..coursework.messages import TEXTS as SENTENCES
        from ..trace.file_writer import write_file
        from ..trace.page import to_html

        page = to_html(
            report.wrong.records,
            title=SENTENCES["wrong.page"],
            autoplay=False,
            place=report.wrong.place,
            about=report.wrong.sentence,
        )
        write_file(Path(args.html), page)
    if args.json:
        print(json.dumps(report.record(), ensure_ascii=False, indent=2))
    else:
        for check in report.checks:
            print(
                TEXTS["labs.step"].format(
                    mark="ok  " if check.ok else "FAIL", name=check.name, sentence=check.sentence
                )
            )
        if args.html and not report.passed:
            shown = report.wrong and TEXTS["labs.wrong"].format(
                sentence=report.wrong.sentence, path=args.html
            )
            print(shown or TEXTS["labs.nothing"])
        print(TEXTS["labs.passed" if report.passed else "labs.failed"].format(name=report.exercise))
    return 0 if report.passed else 1
