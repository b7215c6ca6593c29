"""Files that commands write: checked before anything is computed, never what the same command reads, never
lost on a full disc."""

from __future__ import annotations

import os
import signal
import time
from argparse import Namespace
from pathlib import Path

import pytest

from specviz.cli import bench as bench_command
from specviz.cli import commands as cli
from specviz.cli.commands import refuse_empty_options
from specviz.cli.messages import UsageError
from specviz.cli.output_files import FileText, check_files
from specviz.cli.run_output import interrupted_by_signals, read_text_argument
from specviz.cli.terminal import escape_control_characters
from specviz.evidence.bench_files import write_rows
from specviz.trace import file_writer

from ..message_codes import refuses

ROWS = [{"method": "a", "speed": 1.5, "interval": [1, 2]}]


@pytest.fixture
def file(tmp_path):
    place = tmp_path / "answers.jsonl"
    place.write_text("old")
    return place


@pytest.mark.parametrize(
    "options",
    [
        {"predicted": "FILE", "save": "FILE"},
        {"predicted": "FILE", "trace": "FILE"},
        {"request": "@FILE", "trace": "FILE"},
        {"suite": ["ours", "FILE"], "csv": "FILE"},
        {"suite": "FILE", "out": "FILE"},
        {"table": "FILE", "parquet": "LINK"},
        {"into": "LINK", "csv": "FILE"},
        {"image": "FILE", "save": "FILE"},
        {"trace": "FILE", "html": "FILE"},
        {"target": "FOLDER", "save": "FILE"},
        {"model": "FOLDER", "out": "LINK"},
        {"draft": "FILE", "trace": "FILE"},
    ],
)
def test_no_command_writes_over_what_it_reads(file, options):
    (file.parent / "link").symlink_to(file)
    names = {
        "FILE": str(file),
        "@FILE": f"@{file}",
        "LINK": str(file.parent / "link"),
        "FOLDER": str(file.parent),
    }
    given = {
        name: [names.get(one, one) for one in value] if isinstance(value, list) else names[value]
        for name, value in options.items()
    }
    if "predicted" in given:
        given["predicted"] = read_text_argument(given["predicted"])
        assert given["predicted"] == "old" and isinstance(given["predicted"], FileText)
    with refuses(UsageError, "file.same"):
        check_files(Namespace(**given))


def test_other_files_are_let_through_and_two_names_of_one_are_not(file, tmp_path):
    new = str(tmp_path / "new")
    check_files(
        Namespace(
            suite=[str(file)],
            target="SmolLM2-135M-Instruct",
            request='{"n": 2}',
            trace=new,
            save=str(file.parent / "other"),
        )
    )
    check_files(Namespace(request='{"stop": ["%s"]}' % ("x" * 400), trace=new))  # longer than a file's name
    check_files(Namespace(target=str(tmp_path), save=new))  # a new file beside a model's
    check_files(Namespace(table="x\0", trace=None, save=None))
    for same in (new, f"{tmp_path}/./new"):
        with refuses(UsageError, "file.twice"):
            check_files(Namespace(csv=new, parquet=same))
    with refuses(UsageError, "file.write"):
        check_files(Namespace(csv="http://127.0.0.1/x"))
    os.mkfifo(tmp_path / "pipe")
    with refuses(UsageError, "file.write"):
        check_files(Namespace(csv=str(tmp_path / "pipe")))


@pytest.mark.parametrize(
    "argv",
    [
        ["bench", "--table", "docs/bench.jsonl.gz", "--csv", "docs/bench.jsonl.gz"],
        ["run", "--method", "a", "--prompt", "x", "--trace", "FILE", "--save", "FILE"],
        [
            "export",
            "--gguf",
            "--model",
            "Llama-specviz-16M",
            "--out",
            "assets/models/Llama-specviz-16M/config.json",
        ],
    ],
)
def test_commands_check_before_they_begin(file, monkeypatch, capsys, argv):
    monkeypatch.chdir(cli.__file__.rsplit("/specviz/", 1)[0])
    before = {place: Path(place).read_bytes() for place in argv if Path(place).is_file()}
    assert cli.main([str(file) if one == "FILE" else one for one in argv]) == 2
    assert (
        all(Path(place).read_bytes() == data for place, data in before.items()) and file.read_text() == "old"
    )


@pytest.mark.parametrize("fails", ["fsync", "replace"])
def test_rows_leave_the_old_file_on_a_full_disc(file, monkeypatch, fails):
    pytest.importorskip("pandas")

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(file_writer.os, "fsync", full) if fails == "fsync" else broken.setattr(
            type(file), "replace", full
        )
        with pytest.raises(ValueError):
            write_rows(ROWS, str(file))
    assert file.read_text() == "old" and [one.name for one in file.parent.iterdir()] == [file.name]
    write_rows(ROWS, str(file))
    assert file.read_text().splitlines() == ["method,speed,interval_low,interval_high", "a,1.5,1,2"]


@pytest.mark.parametrize(
    "argv",
    [
        ["serve", "--key", ""],
        ["serve", "--key", "a", "--key", ""],
        ["serve", "--host", ""],
        ["models", "--fetch", ""],
        ["load", "--out", ""],
        ["bench", "--table", ""],
        ["bench", "--into", ""],
        ["bench", "--csv", ""],
        ["run", "--prompt", "x", "--method", "a", "--save", ""],
        ["run", "--prompt", "x", "--server", ""],
        ["run", "--prompt", "x", "--method", "a", "--request", ""],
        ["list", "--target", ""],
    ],
)
def test_an_option_without_a_value_is_refused(argv):
    """`--key "$KEY"` of an unset variable must not serve without a key."""
    with refuses(UsageError, "option.empty", argv[-2]):
        refuse_empty_options(cli.parser().parse_args(argv))


def test_an_empty_text_is_no_missing_value(tmp_path):
    (tmp_path / "empty").write_text("")
    refuse_empty_options(
        cli.parser().parse_args(
            ["run", "--method", "a", "--prompt", "", "--predicted", str(tmp_path / "empty")]
        )
    )


def test_keys_of_nothing_do_not_open_the_endpoint(monkeypatch):
    monkeypatch.setenv("SPECVIZ_API_KEYS", " , ")
    with refuses(UsageError, "serve.keys"):
        cli.parser().parse_args(["serve", "--port", "0"]).command(
            cli.parser().parse_args(["serve", "--port", "0"])
        )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signals_interrupt_and_are_given_back(number):
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), interrupted_by_signals():
        os.kill(os.getpid(), number)
        time.sleep(5)
    assert signal.getsignal(number) == before
    assert bench_command.interrupted_by_signals is cli.interrupted_by_signals is interrupted_by_signals


def test_direction_and_line_characters_are_escaped():
    assert escape_control_characters("a\u061cb\u2028c\u2029") == "a\\u061cb\\u2028c\\u2029"
