"""The commands: JSON shapes, one line for every mistake, exit codes, and no traceback."""

from __future__ import annotations

import argparse
import gzip
import io
import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from specviz.cli import commands as cli
from specviz.cli import request_options
from specviz.cli.messages import LONGEST, TEXTS
from specviz.cli.run_output import read_text_argument
from specviz.cli.terminal import TokenPrinter, escape_control_characters, table
from specviz.core.needs import missing_reason
from specviz.evidence.bench_ledger import Progress
from specviz.evidence.prompt_suites import read_suite
from specviz.evidence.resumable_bench import TEXTS as BENCH
from specviz.methods import catalogue
from specviz.run.machine import Machine
from specviz.run.request import GenerationRequest
from specviz.trace.events import Checked, Committed, Finished, TextEmitted
from specviz.trace.files import Trace
from specviz.zoo.text import TokenBytes

from ..evidence.test_certificate import Loaded
from ..message_codes import codes, engine_codes
from ..run.fakes import byte_level


@pytest.fixture
def command(at_home, capsys):
    def run(*argv):
        status = cli.main([str(a) for a in argv])
        out = capsys.readouterr()
        return status, out.out, out.err

    return run


def outside(home, *argv, **options):
    env = {**os.environ, "SPECVIZ_MODELS": str(home / "models.yaml")}
    return subprocess.Popen(
        [sys.executable, "-m", "specviz", *map(str, argv)],
        env=env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **options,
    )


def test_list_as_json(command):
    status, out, err = command("list", "--json")
    rows = json.loads(out)
    assert status == 0 and not err and [row["key"] for row in rows] == list(catalogue())
    assert all(
        row.keys()
        == {
            "key",
            "title",
            "family",
            "paper",
            "exactness",
            "writes",
            "reads",
            "differs",
            "compared",
            "published",
            "aliases",
            "available",
            "reason",
            "knob_limits",
            "by_time",
        }
        for row in rows
    )
    assert all(row["available"] == (row["reason"] is None) for row in rows)
    off = {row["key"]: row["reason"] for row in json.loads(command("list", "--json", "--draft", "none")[1])}
    assert missing_reason("draft", "tiny") in off["speculative"] and off["prompt_lookup"] is None


def test_list_for_people(command):
    status, out, _ = command("list")
    assert status == 0 and out.splitlines()[0].split() == [
        "key",
        "title",
        "family",
        "exactness",
        "writes",
        "reads",
        "available",
        "reason",
    ]
    assert catalogue()["speculative"].title in out


def test_run_as_json(command, at_home):
    status, out, err = command(
        "run", "--method", "speculative", "--prompt", "the cat", "--max-new-tokens", 9, "--json"
    )
    found = json.loads(out)
    assert status == 0 and not err
    assert found.keys() == {
        "text",
        "token_ids",
        "prompt_ids",
        "finish_reason",
        "busy",
        "metrics",
        "along_the_answer",
    }
    assert found["finish_reason"] == "length" and len(found["token_ids"]) == 9 == found["metrics"]["tokens"]
    assert {"block_efficiency", "acceptance_rate", "tokens_per_second", "overhead_share"} <= found[
        "metrics"
    ].keys()
    plain = json.loads(
        command("run", "--method", "autoregressive", "--prompt", "the cat", "--max-new-tokens", 9, "--json")[
            1
        ]
    )
    assert plain["token_ids"] == found["token_ids"] and plain["text"] == found["text"]


def test_run_for_people_and_for_the_record(command, tmp_path):
    path = tmp_path / "run.jsonl"
    status, out, err = command(
        "run",
        "--method",
        "draft_tree",
        "--prompt",
        "<|end|>",
        "--max-new-tokens",
        8,
        "--temperature",
        0.8,
        "--seed",
        4,
        "--knob",
        "depth=2",
        "--trace",
        path,
    )
    assert status == 0 and TEXTS["run.figures"].rpartition("}")[2] in err and "\033" not in out
    trace = Trace.load(path)
    header = trace.header()
    assert (
        header["knobs"]["depth"] == 2
        and header["sampling"]["seed"] == 4
        and header["prompt"]["text"] == "<|end|>"
    )
    assert out == trace.text() + "\n"
    html = tmp_path / "run.html"
    status, out, _ = command("replay", path, "--html", html)
    assert (
        status == 0
        and "replay.html" in codes(out.strip(), TEXTS)
        and "<html" in html.read_text(encoding="utf-8")
    )


@pytest.mark.parametrize("busy", [True, False])
def test_a_busy_machine_is_said_printed_and_recorded(command, monkeypatch, tmp_path, busy):
    monkeypatch.setattr(
        Machine,
        "observe",
        lambda self, lane, event: [Checked("busy", {})] if busy and isinstance(event, Finished) else [],
    )
    monkeypatch.setattr(Machine, "start_events", lambda self: [])
    run = ["run", "--method", "autoregressive", "--prompt", "the cat", "--max-new-tokens", 3]
    lines = command(*run, "--trace", tmp_path / "t.jsonl")[2].splitlines()
    either = {"run.busy", "run.busy.replaced"}  # the second where passes of this very run were interrupted
    assert any(either & codes(line, TEXTS) for line in lines) is busy
    trace = Trace.load(tmp_path / "t.jsonl")
    assert any(row["type"] == "check" and row["kind"] == "busy" for row in trace.records) is busy
    assert trace.records[0]["env"].keys() >= {"threads", "pass_seconds", "usual_pass_seconds"}
    assert json.loads(command(*run, "--json")[1])["busy"] is busy


def test_a_prompt_from_stdin_raw_and_with_a_system_message(command, monkeypatch):
    ids = {}
    for name, more in {"chat": [], "raw": ["--raw"], "system": ["--system", "Be brief."]}.items():
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xef\xbb\xbfthe cat"), "cp1252"))
        out = command(
            "run", "--method", "autoregressive", "--prompt", "-", "--max-new-tokens", 1, "--json", *more
        )[1]
        ids[name] = json.loads(out)["prompt_ids"]
    assert ids["raw"] == byte_level().encode("the cat")
    assert len(ids["raw"]) < len(ids["chat"]) < len(ids["system"])


@pytest.mark.parametrize(
    "argv, says",
    [
        (["run", "--method", "nope", "--prompt", "x"], "There is no method 'nope'; there are autoregressive"),
        (["run", "--method", "speculative", "--prompt", ""], "The prompt is empty"),
        (["run", "--method", "speculative", "--prompt", "cat " * 900], "engine prompt.context"),
        (["run", "--method", "speculative", "--prompt", "x", "--knob", "gamma"], "code knob.form"),
        (["run", "--method", "speculative", "--prompt", "x", "--knob", "gamma=99"], "engine knob.range"),
        (
            ["run", "--method", "speculative", "--prompt", "x", "--max-new-tokens", "abc"],
            "engine request.number",
        ),
        (["run", "--method", "speculative", "--prompt", "x", "--temperature", "9"], "engine request.range"),
        (["run", "--method", "speculative", "--prompt", "x", "--target", "../../x"], "engine model.no_file"),
        (["run", "--method", "speculative", "--prompt", "x", "--draft", "none"], "needs a draft model"),
        (["run", "--method", "speculative", "--prompt", "x", "--device", "tpu"], "engine device.unknown"),
        (
            ["run", "--method", "autoregressive", "--prompt", "x", "--trace", "/no/such/place/t.jsonl"],
            "code file.write",
        ),
        (["run", "--method", "autoregressive"], "required: --prompt"),
        (["replay", "/no/such/file", "--html", "x.html"], "engine trace.read"),
        (["replay", __file__, "--html", __file__], "code file.same"),
        (["replay", __file__, "--html", "/dev/null"], "code file.write"),
        (["bench", "--suite", "/no/such/file"], "engine suite.read"),
        (["bench", "--repeats", "0"], "engine request.whole"),
        (["bench", "--minutes", "5"], "code bench.minutes"),
        (["bench", "--knob", "gamma=2"], "code bench.knob"),
        (["bench", "--into", "a", "--knob", "speculative.gamma=2"], "code bench.into_knobs"),
        (["bench", "--into", "a", "--traces", "b"], "code bench.into_knobs"),
        (["bench", "--into", "a", "--table", "b"], "code bench.table_and_into"),
        (["bench", "--write"], "code bench.write"),
        (["bench", "--tasks", ","], "code list.empty"),
        (["bench", "--tasks", ""], "code list.empty"),
        (["load", "--methods", ","], "code list.empty"),
        (["load-test", "--users", ","], "code list.empty"),
        (["load", "--rate", " , "], "code list.empty"),
        (["load", "--tasks", ","], "code list.empty"),
        (["load", "--out", "/no/such/place/f.json"], "code file.write"),
        (["load", "--out", "/dev/null"], "code file.write"),
        (["load", "--write", "x.md"], "code load.write"),
        (["run", "--prompt", "x"], "code run.method_or_server"),
        (["export", "--gguf", "--out", "/dev/null"], "code file.write"),
        (["bench", "--into", "/no/such/place/f.jsonl"], "engine ledger.write"),
        (["bench", "--table", "/no/such/file"], "engine ledger.read"),
        (["bench", "--into", __file__], "engine ledger.line"),
        (["bench", "--methods", "nope"], "engine method.unknown"),
        (["bench", "--tasks", "nope"], "engine suite.task"),
        (["verify", "--method", "nope"], "engine method.unknown"),
        (["list", "--target", "nope"], "engine model.unknown"),
        (["fly"], "invalid choice"),
        (["list", "--colour"], "unrecognized arguments"),
    ],
)
def test_mistakes_are_one_line_and_a_status(command, argv, says):
    status, out, err = command(*argv)
    assert status in (1, 2) and err.startswith("specviz: ") and len(err) < LONGEST + 20
    if says.startswith("code "):
        assert status == 2 and says.removeprefix("code ") in codes(
            err.removeprefix("specviz: ").strip(), TEXTS
        ), err
    elif says.startswith("engine "):
        assert says.removeprefix("engine ") in engine_codes(err), err
    else:  # words of argparse, or of the method
        assert says.lower() in err.lower()
    assert err.count("\n") == 1 and "Traceback" not in err
    assert not out.strip()


RUN = ["run", "--method", "speculative", "--prompt", "x"]


@pytest.mark.parametrize(
    "argv, says",
    [
        ([*RUN[:2], "speculatve", "--prompt", "x"], "did you mean speculative?"),
        ([*RUN, "--knob", "gama=3"], "gamma"),
        ([*RUN, "--request", "@/no/such.json"], "/no/such.json"),
        ([*RUN, "--request", '{"max_token": 3}'], "did you mean max_tokens?"),
        ([*RUN, "--deadline", "soon"], "deadline"),
        ([*RUN, "--top-k-saved", "many"], "top_k_saved"),
        ([*RUN, "--image", "/no/such.png"], ""),
        ([*RUN, "--temprature", "1"], "did you mean --temperature"),
        (["rnu"], "did you mean run"),
        (["bench", "--methods", "nope"], "method"),
        (["bench", "--methods", "sam_decodin"], "did you mean sam_decoding?"),
        (["bench", "--suite", "/no/such.jsonl"], "No such file"),
        (["bench", "--tasks", "nope"], "nope"),
        (["bench", "--repeats", "0"], "repeats"),
        (["bench", "--prompts", "few"], "prompts"),
        (["bench", "--max-new-tokens", "0"], "max_new_tokens"),
        (["verify", "--method", "nope"], "method"),
        (["load", "--methods", "nope"], "method"),
        (["load", "--tasks", "nope"], "nope"),
        (["load", "--suite", "/no/such.jsonl"], "No such file"),
        (["chat", "--temperature", "9"], "emperature"),
    ],
)
def test_wrong_usage_is_status_2_before_anything_is_loaded(command, monkeypatch, argv, says):
    monkeypatch.setattr("specviz.zoo.pair.load", lambda *_, **__: pytest.fail("models were loaded"))
    status, out, err = command(*argv)
    assert (status, out) == (2, "") and says in err, err


def test_a_model_that_is_not_there_says_what_is_missing(command):
    for name in ("./nowhere", "/no/such/folder", "folder/model.gguf", "model.gguf"):
        status, _, err = command("list", "--target", name)
        assert status == 2 and "model.no_file" in engine_codes(err) and name in err
    status, _, err = command("list", "--target", "tiny-draf")
    assert status == 2 and "did you mean tiny-draft?" in err


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion_is_a_script_of_the_commands_and_names(command, shell, tmp_path):
    status, out, _ = command("completion", shell)
    assert status == 0 and all(
        word in out for word in ("completion", "--max-new-tokens", "sam_decoding", "tiny")
    )
    if shell == "bash" and shutil.which("bash"):
        ask = 'COMP_WORDS=(specviz run --method sam_d); COMP_CWORD=3; _shtab_specviz; echo "${COMPREPLY[@]}"'
        (tmp_path / "script").write_text(f"{out}\n{ask}\n")
        done = subprocess.run(["bash", str(tmp_path / "script")], capture_output=True, text=True, check=True)
        assert done.stdout.split() == ["sam_decoding"], done.stderr


def test_a_run_that_breaks_is_one_line(command, monkeypatch):
    def build(kit):
        raise RuntimeError("no such luck\nmore")

    plain = catalogue()["autoregressive"]
    monkeypatch.setitem(plain.__dict__, "build", build)
    status, out, err = command("run", "--method", "autoregressive", "--prompt", "x", "--json")
    assert (
        status == 1
        and not out
        and err.startswith(f"specviz: {plain.title} ")
        and err.lower().endswith(": no such luck.\n")
    )


def test_bench_as_json(command, tmp_path):
    suite = tmp_path / "suite.jsonl.gz"
    rows = [{"task": task, "prompt": f"the {task} cat"} for task in ("sea", "mat") for _ in range(2)]
    suite.write_bytes(gzip.compress("".join(json.dumps(r) + "\n" for r in rows).encode()))
    status, out, _ = command(
        "bench",
        "--methods",
        "prompt_lookup,speculative",
        "--suite",
        suite,
        "--repeats",
        1,
        "--max-new-tokens",
        6,
        "--prompts",
        1,
        "--json",
    )
    report = json.loads(out)
    assert status == 0 and report.keys() == {"environment", "rows"}
    assert [(r["method"], r["task"]) for r in report["rows"]] == [
        (m, t) for m in ("autoregressive", "prompt_lookup", "speculative") for t in ("sea", "mat", "mean")
    ]
    assert all(
        {"block_efficiency", "acceptance_rate", "tokens_per_second", "walltime_speedup", "spread"} <= r.keys()
        for r in report["rows"]
    )
    assert (
        report["environment"]["suite"] == "suite.jsonl.gz"
        and report["environment"]["target"]["name"] == "tiny"
    )


def test_bench_in_two_sittings_and_its_table(command, tmp_path):
    suite, path = tmp_path / "suite.yaml", tmp_path / "f.jsonl"
    suite.write_text(json.dumps({"sea": ["the sea cat"], "mat": ["the mat cat", "cat " * 400]}))
    asked = [
        "bench",
        "--methods",
        "prompt_lookup",
        "--suite",
        suite,
        "--repeats",
        1,
        "--max-new-tokens",
        6,
        "--into",
        path,
    ]
    assert command(*asked, "--minutes", 1e-9)[1].endswith(
        f"{Progress(0, 4, 0, 2, 0.0, {})}.{BENCH['too_long'].format(count=1)}{BENCH['continue'].format(left='')}\n"
    )
    status, out, _ = command(*asked, "--json")
    assert status == 0 and json.loads(out)["runs"] == json.loads(out)["of"] == 4
    lines = path.read_text().splitlines()
    assert (
        "All 4" in command(*asked)[1] and path.read_text().splitlines() == lines
    )  # nothing is left to measure
    status, out, _ = command("bench", "--table", path)
    assert (
        status == 0
        and out.startswith("# Every method")
        and "| Prompt lookup | exact | " in out
        and "tiny with tiny-draft;" in out
    )
    assert "--suite suite.yaml --methods prompt_lookup --prompts 1" in out
    assert json.loads(command("bench", "--table", path, "--json")[1])["page"] == out


@pytest.mark.thorough
def test_verify_on_the_real_engine(command, monkeypatch):
    from specviz.evidence import certificate as certify

    monkeypatch.setattr(
        certify.distribution,
        "__defaults__",
        tuple(60 if d == 400 else d for d in certify.distribution.__defaults__),
    )
    status, out, err = command("verify", "--method", "speculative,jacobi", "--json")
    rows = json.loads(out)
    assert status == 0 and all(
        row.keys() == {"key", "forward", "greedy", "distribution", "answers", "detail"} for row in rows
    )
    assert [row["key"] for row in rows] == ["speculative", "jacobi"]
    assert all(row["greedy"] in ("identical", "near_tie") for row in rows)
    assert [row["distribution"] for row in rows] == ["pass", "pass"] and rows[0]["detail"]["greedy"][
        "tokens"
    ] > 0


@pytest.mark.thorough
def test_verify_catches_a_broken_bonus_in_the_shared_verifier(command, monkeypatch):
    """The argmax instead of a draw: the first tokens of the default settings do not show it."""
    from specviz.evidence import certificate as certify
    from specviz.evidence import whole_answers
    from specviz.verifiers import TokenRejection

    right = TokenRejection.verify

    def wrong(self, tree, scores, state):
        verdict = right(self, tree, scores, state)
        return replace(verdict, token=int(verdict.probs.argmax())) if verdict.kind == "bonus" else verdict

    monkeypatch.setattr(TokenRejection, "verify", wrong)
    # a toy in the place of the tiny pair, whose target is all but certain of each token: there the argmax
    # is no mistake
    monkeypatch.setattr(cli, "_loaded", lambda args: Loaded(share=0.3, sharp=1.2))
    monkeypatch.setattr(whole_answers, "encode", lambda loaded, prompt: [1, 2, 0, 3, 1, 2])
    monkeypatch.setattr(whole_answers, "runs_on_small_target", lambda method: False)  # the toy is one
    monkeypatch.setattr(certify, "fix_bucket", lambda loaded: "plain")
    for name in ("greedy", "distribution"):
        monkeypatch.setattr(certify, name, lambda loaded, key, knobs: {"status": "pass", "detail": "fine."})
    status, out, _ = command("verify", "--method", "speculative", "--knob", "gamma=1", "--json")
    row = json.loads(out)[0]
    assert (
        status == 1 and row["answers"] == "fail" and row["detail"]["answers"]["groups"]["bonus"]["p"] < 1e-4
    )
    assert {"p", "samples", "histogram"} <= row["detail"]["answers"].keys()
    assert command("verify", "--method", "speculative,jacobi", "--knob", "gamma=1")[0] == 2


@pytest.mark.thorough
def test_verify_says_a_defect_in_its_status(command, monkeypatch):
    from specviz.evidence import certificate as certify

    monkeypatch.setattr(
        certify, "greedy", lambda loaded, key, knobs: {"status": "diverged", "detail": "token 3 differs."}
    )
    monkeypatch.setattr(
        certify, "distribution", lambda loaded, key, knobs: {"status": "pass", "detail": "fine."}
    )
    lossy = next(m.key for m in catalogue().values() if m.exactness == "approximate")
    status, out, _ = command("verify", "--method", "speculative")
    assert status == 1 and "diverged" in out and "token 3 differs. fine." in out
    assert command("verify", "--method", lossy)[0] == 0  # it never promised


def test_verify_shows_what_is_done_when_it_is_interrupted(command, monkeypatch):
    from specviz.evidence import certificate as certify
    from specviz.evidence import whole_answers

    def greedy(loaded, key, knobs):
        if key == "jacobi":
            raise KeyboardInterrupt
        return {"status": "identical", "detail": "first."}

    monkeypatch.setattr(certify, "greedy", greedy)
    monkeypatch.setattr(
        certify, "distribution", lambda loaded, key, knobs: {"status": "pass", "detail": "fine."}
    )
    monkeypatch.setattr(
        whole_answers,
        "certify_with_small_target",
        lambda loaded, key, knobs: {"status": "pass", "detail": "fine."},
    )
    monkeypatch.setattr(cli, "_loaded", lambda args: Loaded(share=0.3, sharp=1.2))
    monkeypatch.setattr(certify, "fix_bucket", lambda loaded: "plain")
    status, out, err = command("verify", "--method", "speculative,jacobi")
    assert status == 130 and "speculative" in out and "jacobi" not in out
    assert "speculative: greedy identical, distribution pass, answers pass" in err, (
        "said when it was found: a kill loses no minutes"
    )
    status, out, err = command("verify", "--method", "speculative,sequoia", "--tests", "greedy")
    assert status == 0 and "sequoia: greedy identical\n" in err and "distribution" not in out + err


def test_from_outside_help_and_mistakes_cost_nothing(at_home):
    for argv, status, where in ((["--help"], 0, "out"), (["run"], 2, "err"), (["fly"], 2, "err")):
        done = outside(at_home, *argv)
        out, err = done.communicate(timeout=60)
        assert done.returncode == status and (out if where == "out" else err)
        assert "Traceback" not in err and (where == "out" or err.count("\n") == 1)
    probe = "import sys, specviz.cli.commands as cli; cli.parser(); print([m for m in ('torch', 'transformers') if m in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, timeout=60).stdout
        == "[]\n"
    )


def test_every_command_and_option_says_what_it_does():
    commands = next(
        action for action in cli.parser()._actions if isinstance(action, argparse._SubParsersAction)
    ).choices
    assert {
        "run",
        "chat",
        "bench",
        "verify",
        "load",
        "serve",
        "replay",
        "export",
        "models",
        "list",
        "doctor",
    } <= commands.keys()
    assert not [
        (name, action.dest) for name, sub in commands.items() for action in sub._actions if not action.help
    ]
    assert all(sub.description for sub in commands.values())


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGTERM,
        *(pytest.param(n, marks=pytest.mark.thorough) for n in (signal.SIGINT, signal.SIGHUP)),
    ],
)
def test_from_outside_a_signal_ends_the_run_and_keeps_the_trace(at_home, tmp_path, number):
    path = tmp_path / "run.jsonl"
    done = outside(
        at_home,
        "run",
        "--method",
        "autoregressive",
        "--prompt",
        "the cat",
        "--max-new-tokens",
        200,
        "--raw",
        "--stop",
        "\x01never",
        "--trace",
        path,
    )
    first = done.stdout.read(1)  # it writes
    done.send_signal(number)
    out, err = done.stdout.read(), done.stderr.read()
    assert (
        done.wait(timeout=60) in (0, 128 + number) and "Traceback" not in err
    )  # 0: it was quicker than we were
    trace = Trace.load(path)
    assert first + out == trace.text() + "\n" and trace.of("done")[0]["finish"] in (
        "stopped",
        "length",
        "stop",
    )


@pytest.mark.parametrize(
    "encoding, option",
    [
        ("ascii", "--json"),
        pytest.param("cp1252", "--raw", marks=pytest.mark.thorough),
        pytest.param("utf-8", "--json", marks=pytest.mark.thorough),
    ],
)
def test_from_outside_a_console_without_a_character_gets_an_escape(at_home, encoding, option):
    argv = ["run", "--method", "speculative", "--prompt", "the \u732b", "--max-new-tokens", 60, option]
    env = {**os.environ, "SPECVIZ_MODELS": str(at_home / "models.yaml"), "PYTHONIOENCODING": encoding}
    code = (
        "import sys; from specviz.run.result import Result; from specviz.cli import main;"
        "Result.text = property(lambda self: '\\u732b \\U0001f600 \\ud800'); status = main(sys.argv[1:]);"
        "print('\\u732b \\U0001f600 \\ud800'); sys.exit(status)"
    )
    done = subprocess.run([sys.executable, "-c", code, *map(str, argv)], env=env, capture_output=True)
    assert done.returncode == 0, done.stderr
    *answer, last = done.stdout.decode(encoding).splitlines()
    escaped = "\\u732b \\ud83d\\ude00 \\ud800"
    assert last == (escaped if encoding != "utf-8" else "\u732b \U0001f600 \\ud800")
    if option == "--json":
        assert json.loads("\n".join(answer))["text"] == "\u732b \U0001f600 \ud800"


def test_a_byte_order_mark_is_no_part_of_a_file(command, tmp_path):
    def mark(name, text):
        (tmp_path / name).write_text("\ufeff" + text, encoding="utf-8")
        return tmp_path / name

    request = mark("request.json", json.dumps({"max_tokens": 3}))
    trace = tmp_path / "run.jsonl"
    asked = ("run", "--method", "speculative", "--prompt", "the cat", "--trace", trace)
    assert command(*asked, "--request", f"@{request}")[0] == 0
    marked = mark("marked.jsonl", trace.read_text(encoding="utf-8"))
    assert Trace.load(marked).records == Trace.load(trace).records
    suite = mark("suite.jsonl", json.dumps({"task": "chat", "prompt": "the cat"}))
    assert [item.task for item in read_suite(suite)] == ["chat"]
    assert read_text_argument(str(mark("text", "the cat"))) == "the cat"


def test_from_outside_a_reader_that_goes_away(at_home):
    done = outside(at_home, "run", "--help")
    done.stdout.close()
    err = done.stderr.read()
    assert done.wait(timeout=60) in (0, 1) and not err


class Screen:
    def __init__(self, tty):
        self.text, self.tty = "", tty

    def write(self, text):
        self.text += text

    def flush(self):
        pass

    def isatty(self):
        return self.tty


def shown_on(screen, words, verdicts=("accepted", "correction"), stops=()):
    vocab = byte_level()
    writer = TokenPrinter(screen, TokenBytes(vocab), stops)
    at = 0
    for r, word in enumerate(words):
        tokens = vocab.encode(word, add_special_tokens=False)
        kind = verdicts[r % len(verdicts)]
        path = tuple(range(len(tokens) - 1))
        writer.print_event(Committed(r, 0.0, path, tuple(tokens), kind, None, None, {}, {}))
        writer.print_event(TextEmitted(r, tuple((t, b"", at, at) for t in tokens)))
    writer.close()
    return screen.text


def test_colours_come_with_a_second_channel_and_can_be_switched_off(monkeypatch):
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "xterm-256color")
    text = shown_on(Screen(True), ["sea", "\n\U0001f600", "x"], ["accepted", "correction", "bonus"])
    assert (
        "\033[38;5;33;4m" in text
        and "\033[38;5;175;7m\U0001f600\033[0m" in text
        and "\033[38;5;36;1mx\033[0m" in text
    )
    assert "7m\n" not in text and "\ufffd" not in text
    monkeypatch.setenv("NO_COLOR", "1")
    assert shown_on(Screen(True), ["sea", "x"]) == "seax"
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert shown_on(Screen(True), ["sea"]) == "sea"
    assert shown_on(Screen(False), ["sea"]) == "sea"


def test_a_terminal_is_never_given_orders():
    assert (
        escape_control_characters("\033]0;pwned\x07 \u202egnp\ttab\nline\x9b31m")
        == "\\x1b]0;pwned\\x07 \\u202egnp\ttab\nline\\x9b31m"
    )
    assert (
        shown_on(Screen(True), ["\033[2J"]) == "\\x1b[2J"
        and shown_on(Screen(False), ["\033[2J"]) == "\033[2J"
    )


def test_a_stop_string_is_not_printed():
    assert shown_on(Screen(False), ["the EN", "D of it"], stops=("END",)) == "the "
    assert shown_on(Screen(False), ["the EN", "jo"], stops=("END",)) == "the ENjo"


def test_tables_line_up():
    text = table(
        [{"a": "x", "b": 1.23456, "c": [1.0, 2.0]}, {"a": "long", "b": None, "c": None}], ["a", "b", "c"]
    )
    assert text.splitlines() == ["a        b  c", "----  ----  ------", "x     1.23  1 to 2", "long     -  -"]


def test_a_predicted_text_is_read_from_a_file(command, tmp_path):
    asked = ("run", "--method", "predicted_output", "--prompt", "the cat", "--max-new-tokens", 9, "--json")
    (tmp_path / "text.txt").write_text("the cat sat on the mat", encoding="utf-8")
    plain = json.loads(command("run", "--method", "autoregressive", *asked[3:])[1])
    status, out, err = command(*asked, "--predicted", tmp_path / "text.txt")
    assert status == 0 and not err and json.loads(out)["text"] == plain["text"]
    status, out, err = command(*asked, "--predicted", tmp_path / "nowhere.txt")
    assert status == 2 and err.startswith("specviz: ") and "nowhere.txt" in err and err.count("\n") == 1
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\xff")
    assert TEXTS["file.not_text"] in command(*asked, "--predicted", tmp_path / "bytes")[2]


@pytest.mark.parametrize(
    "options, want",
    [
        ([], {}),
        (
            ["--request", '{"presence_penalty": 0.5, "max_tokens": 9}'],
            {"presence_penalty": 0.5, "max_tokens": 9},
        ),
        (
            ["--request", '{"max_tokens": 9, "top_k": 3}', "--max-new-tokens", "20", "--stop", "x"],
            {"max_tokens": 20, "top_k": 3, "stop": ("x",)},
        ),
    ],
)
def test_a_request_is_read_from_json_and_from_options_of_its_own(options, want):
    args = cli.parser().parse_args(["run", "--prompt", "x", "--method", "speculative", *options])
    assert GenerationRequest.from_dict(request_options.given_fields(args)).record() == want


@pytest.mark.parametrize("given", ["{", "[1]", "@/nowhere.json", "3"])
def test_a_request_that_is_no_object_is_refused(given):
    args = cli.parser().parse_args(["run", "--prompt", "x", "--method", "speculative", "--request", given])
    with pytest.raises(cli.UsageError) as refused:
        request_options.given_fields(args)
    assert refused.value.code == ("run.request_file" if given.startswith("@") else "run.request")


def test_the_models_own_settings_are_used_where_asked_for_and_named_otherwise(command, monkeypatch):
    monkeypatch.setattr(
        "specviz.zoo.pair.generation_defaults", lambda folder: {"temperature": 0.25, "top_k": 7}
    )
    run = ("run", "--method", "speculative", "--prompt", "the cat", "--max-new-tokens", 3, "--json")
    for more, said in (
        ((), ("temperature 0.25", "top_k 7", "--generation-config")),
        (("--generation-config",), ("temperature 0.25", "top_k 7")),
        (("--generation-config", "--temperature", "0"), ("top_k 7",)),
    ):
        status, _, err = command(*run, *more)
        assert (
            status == 0
            and all(word in err for word in said)
            and ("temperature" in err) == ("temperature 0.25" in said)
        )


def test_all_answers_are_written_and_recorded(command, tmp_path):
    asked = (
        "run",
        "--method",
        "speculative",
        "--prompt",
        "the cat",
        "--max-new-tokens",
        4,
        "--json",
        "--temperature",
        1,
    )
    status, out, _ = command(*asked, "--request", '{"n": 2, "seed": 3}', "--trace", tmp_path / "two.jsonl")
    alone = [json.loads(command(*asked, "--seed", seed)[1])["text"] for seed in (3, 4)]
    assert status == 0 and [answer["text"] for answer in json.loads(out)["answers"]] == alone
    assert {record["lane"] for record in Trace.load(tmp_path / "two.jsonl").records} == {0, 1}


@pytest.mark.parametrize(
    "more", [("--stop", "x"), ("--request", "{}"), ("--raw",), ("--knob", "a=1"), ("--generation-config",)]
)
def test_options_that_no_server_is_sent_are_refused(command, more):
    status, _, err = command("run", "--server", "vllm=http://127.0.0.1:9#m", "--prompt", "x", *more)
    assert status == 2 and more[0] in err
