"""``specviz doctor`` and ``specviz chat`` on the tiny pair."""

from __future__ import annotations

import io
import json
import re
import sys

import pytest
from rich.cells import cell_len

from specviz.cli import commands as cli
from specviz.cli.live_answer import LiveAnswer
from specviz.cli.messages import TEXTS
from specviz.evidence import doctor
from specviz.methods import catalogue
from specviz.run.machine import Machine
from specviz.trace.events import Checked, Finished


@pytest.fixture
def command(at_home, capsys, monkeypatch):
    def run(*argv, typed=""):
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        status = cli.main([str(a) for a in argv])
        out = capsys.readouterr()
        return status, out.out, out.err

    return run


def test_doctor_reports_the_machine_the_forward_and_what_a_pass_costs(command):
    status, out, _ = command("doctor", "--json", "--seconds", "0.1")
    found = json.loads(out)
    assert (
        status == 0
        and found["machine"]["cores"] >= 1
        and found["libraries"]["torch"]
        and found["libraries"]["specviz"]
    )
    assert [row["tokens"] for row in found["target"]["passes"]] == list(doctor.PASS_TOKENS)
    assert all(row["ms"] > 0 for row in found["target"]["passes"]) and found["target"]["forward"] in (
        "eager",
        "static",
        "captured",
    )
    assert all(row.keys() == {"name", "needed_for", "get"} for row in found["missing"])


def test_doctor_goes_on_without_a_target_and_measures_nothing_when_asked(command):
    status, out, _ = command("doctor", "--json", "--target", "no_such_model")
    found = json.loads(out)
    assert status == 1 and "no_such_model" in found["target"]["problem"] and found["machine"]["processor"]
    assert "passes" not in json.loads(command("doctor", "--json", "--seconds", "0")[1])["target"]
    assert command("doctor", "--seconds", "-1")[0] == command("doctor", "--seconds", "soon")[0] == 2


def test_doctor_for_people_names_the_processor_and_the_passes(command):
    status, out, _ = command("doctor", "--seconds", "0.05")
    assert status == 0 and out.startswith("processor") and "relative" in out


def test_a_missing_package_is_named_with_the_command_that_gets_it(monkeypatch):
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: None)
    assert {row["name"]: row["get"] for row in doctor.missing_packages()}["rich"] == "pip install rich"


def test_chat_remembers_switches_methods_and_forgets(command):
    typed = "the cat\n/method prompt_lookup\nthe cat\n/new\nthe cat\n/quit\nnever read\n"
    status, out, _ = command("chat", "--json", "--max-new-tokens", 6, typed=typed)
    rows = [json.loads(line) for line in out.splitlines()]
    assert status == 0 and [row["method"] for row in rows] == [
        "speculative",
        "prompt_lookup",
        "prompt_lookup",
    ]
    first, second, third = (len(row["prompt_ids"]) for row in rows)
    assert (
        first < second and third == first and rows[0]["text"] == rows[2]["text"]
    )  # greedy: exact methods agree


def test_chat_shows_the_method_and_its_figures_after_an_answer(command):
    status, out, err = command(
        "chat", "--max-new-tokens", 20, "--method", "autoregressive", typed="the cat\n"
    )
    assert (
        status == 0
        and out.endswith("\n")
        and catalogue()["autoregressive"].title in err
        and f"1{TEXTS['run.figures'].rpartition('}')[2]}" in err
    )


class Terminal(io.StringIO):
    """A terminal that keeps what it was sent. rows(): the lines that are on it; it knows only the movements
    that rich.live makes."""

    def isatty(self):
        return True

    def rows(self):
        rows, at = [""], 0
        for part in re.findall(r"\x1b\[[?\d;]*[A-Za-z]|[\r\n]|[^\x1b\r\n]+", self.getvalue()):
            if part == "\n":
                at += 1
                rows += [""] * (at == len(rows))
            elif part.endswith("A") and part.startswith("\x1b"):
                at -= int(part[2:-1])
            elif part == "\x1b[2K":
                rows[at] = ""
            elif part not in "\r" and not part.startswith("\x1b"):
                rows[at] += part
        return "\n".join(row.rstrip() for row in rows).rstrip().split("\n")


def on_a_terminal(monkeypatch, width=40):
    for name, value in {"TERM": "xterm-256color", "COLUMNS": str(width), "LINES": "20"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)
    return Terminal()


def test_chat_shows_the_figures_on_a_terminal_while_the_answer_grows(command, monkeypatch):
    screen = on_a_terminal(monkeypatch)
    monkeypatch.setattr(sys, "stdout", screen)
    status, _, err = command("chat", "--max-new-tokens", 40, "--method", "speculative", typed="the cat\n")
    name = catalogue()["speculative"].title
    assert status == 0 and screen.getvalue().count(name) > 5 and "38;5;" in screen.getvalue()
    assert name not in "".join(screen.rows()) and name in err  # what stays on stdout is the answer alone


@pytest.mark.parametrize("width", [20, 23, 200])
def test_a_growing_answer_leaves_the_text_wrapped_at_words_and_no_figures(monkeypatch, width):
    screen = on_a_terminal(monkeypatch, width)
    words = [
        "one",
        " two",
        " three",
        "\n",
        "\n",
        "a\tb",
        *[" word"] * 20,
        " ",
        "\033[38;5;33;4mend\033[0m",
        " \u732b" * 12,
        "\nlast",
    ]
    with LiveAnswer(screen, lambda: "figures") as stream:
        for word in words:
            stream.write(word)
            stream.flush()
    left, text = screen.rows(), "".join(words).replace("\033[38;5;33;4m", "").replace("\033[0m", "")
    assert " ".join(left).split() == text.split() and screen.getvalue().count("figures") >= len(words)
    assert all(cell_len(row) <= width for row in left) and left[1] == "" and left[-1] == "last"


def test_chat_says_of_each_answer_whether_the_machine_was_busy(command, monkeypatch):
    seen = iter((True, False, True))
    monkeypatch.setattr(Machine, "start_events", lambda self: [])
    monkeypatch.setattr(
        Machine,
        "observe",
        lambda self, lane, event: [Checked("busy", {})] * (isinstance(event, Finished) and next(seen)),
    )
    out = command(
        "chat", "--json", "--max-new-tokens", 2, "--method", "autoregressive", typed="the cat\nand\n"
    )[1]
    assert [json.loads(line)["busy"] for line in out.splitlines()] == [True, False]
    assert TEXTS["run.busy"] in " ".join(
        command("chat", "--max-new-tokens", 2, "--method", "autoregressive", typed="the cat\n")[2].split()
    )


def test_chat_takes_a_request_and_reuses_the_cache_of_the_turn_before(command):
    typed = "the cat sat on the mat\n/temperature 0\nand then\n"
    status, out, _ = command(
        "chat", "--json", "--max-new-tokens", 6, "--request", '{"logit_bias": {"40": 100}}', typed=typed
    )
    first, second = (json.loads(line) for line in out.splitlines())
    assert (
        status == 0 and set(first["token_ids"]) == set(second["token_ids"]) == {40} and second["reused"] > 8
    )
    for given in ('{"n": 2}', '{"topk": 2}'):
        assert command("chat", "--request", given, typed="the cat\n")[0] == 2


@pytest.mark.parametrize(
    "line", ["/method nothing", "/knob gamma", "/knob colour=blue", "/temperature hot", "/knob gamma=-1"]
)
def test_a_mistake_is_one_sentence_and_the_conversation_goes_on(command, line):
    status, out, err = command("chat", "--json", "--max-new-tokens", 3, typed=f"{line}\nthe cat\n")
    assert (
        status == 0
        and err.startswith("specviz: ")
        and len(err.strip().splitlines()) == 1
        and json.loads(out)["text"] is not None
    )
