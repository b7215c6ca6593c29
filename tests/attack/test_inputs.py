"""What people and programs type: every wrong kind and value is one sentence, and nothing succeeds by
checking nothing."""

from __future__ import annotations

import math
import random

import pytest

from specviz import Sampling, SessionError, Trace, TraceError, ZooError, load, race
from specviz.cli import commands as cli
from specviz.core import Method
from specviz.methods import catalogue
from specviz.run import Session
from specviz.run.request import read_sampling
from specviz.trace.events import Failed, Finished

from ..message_codes import command_codes
from ..run.fakes import FakeLoaded

ODD = [
    None,
    True,
    False,
    -1,
    0,
    1,
    1.5,
    -0.0,
    1e308,
    -1e308,
    5e-324,
    math.nan,
    math.inf,
    -math.inf,
    2**63,
    -(2**63),
    10**400,
    "",
    " ",
    "1",
    "1e3",
    "0x10",
    "\u0661",
    "nan",
    "inf",
    "-inf",
    "abc",
    "\0",
    "\ud800",
    "x" * 100_000,
    b"1",
    [],
    [1],
    (),
    {},
    {"a": 1},
    {1},
    object(),
    1j,
    range(3),
]


def one_sentence(error: Exception) -> None:
    said = str(error)
    assert said and "\n" not in said and len(said) < 700, said[:900]


@pytest.mark.parametrize(
    "build",
    [
        lambda: Session(5, "autoregressive"),
        lambda: Session(None, "autoregressive"),
        lambda: Session(FakeLoaded(), 5),
        lambda: Session(FakeLoaded(), None),
        lambda: Session(FakeLoaded(), ["autoregressive"]),
        lambda: Session(FakeLoaded(), "speculative", [1]),
        lambda: Session(FakeLoaded(), "speculative", "gamma"),
        lambda: Session(FakeLoaded(), "speculative", {5: 1}),
        lambda: Session(FakeLoaded(), "speculative", None, None),
        lambda: Session(FakeLoaded(), "speculative", None, {"temperature": 1}),
        lambda: Session(FakeLoaded(), "speculative", memory=5),
        lambda: Session(FakeLoaded(), "speculative").run("x", stop=5),
        lambda: Session(FakeLoaded(), "speculative").run("x", cancel=5),
        lambda: Session(FakeLoaded(), "speculative").run("x", deadline="soon"),
        lambda: race([], "x"),
        lambda: race([5], "x"),
    ],
)
def test_wrong_kinds_are_one_sentence_in_python(build):
    with pytest.raises(SessionError) as caught:
        build()
    one_sentence(caught.value)


@pytest.mark.parametrize("name", ["temperature", "top_k", "top_p", "seed"])
def test_sampling_of_wrong_kinds(name):
    for value in ODD:
        for make in (Sampling, read_sampling):
            try:
                made = make(**{name: value})
            except ValueError as error:
                one_sentence(error)
            else:
                assert isinstance(getattr(made, name), (int, float)) and not isinstance(
                    getattr(made, name), bool
                )


def test_models_of_wrong_kinds(at_home):
    for value in [one for one in ODD if one is not None]:
        for names in ((value,), ("tiny", value)):
            try:
                assert load(*names).name == "tiny"
            except ZooError as error:
                one_sentence(error)
        try:
            load("tiny", None, value)
        except ZooError as error:
            one_sentence(error)
        else:
            raise AssertionError(f"{value!r} is no device")


@pytest.mark.parametrize("key", ["speculative", "draft_tree", "prompt_lookup", "suffix_decoding"])
def test_knobs_of_every_kind(key):
    loaded = FakeLoaded()
    for knob in catalogue()[key].knobs:
        for value in ODD:
            try:
                Session(loaded, key, {knob.name: value})
            except SessionError as error:
                one_sentence(error)


def test_requests_of_every_kind():
    session = Session(FakeLoaded(context=40), "autoregressive")
    for value in ODD:
        for name in ("prompt", "max_new_tokens", "stop", "deadline", "top_k_saved"):
            given = {"prompt": "hi", "max_new_tokens": 2} | {name: value}
            if name == "deadline" and isinstance(value, (int, str)) and not isinstance(value, bool):
                given["max_new_tokens"] = 1
            try:
                *_, end = session.run(given.pop("prompt"), **given)
                assert isinstance(end, Finished)
            except SessionError as error:
                one_sentence(error)


@pytest.mark.parametrize(
    "argv",
    [
        ["verify", "--method", ""],
        ["verify", "--method", ","],
        ["verify", "--method", " , "],
        ["bench", "--methods", ","],
        ["bench", "--methods", ""],
    ],
)
def test_nothing_succeeds_by_checking_nothing(at_home, capsys, argv):
    assert cli.main(argv) == 2
    out, err = capsys.readouterr()
    assert not out and "methods.empty" in command_codes(err)


def wild(rng: random.Random) -> list[str]:
    """A command line out of real words and nonsense."""
    words = [
        "run",
        "list",
        "verify",
        "bench",
        "replay",
        "--method",
        "speculative",
        "--prompt",
        "x",
        "--knob",
        "gamma=3",
        "--knob=",
        "--seed",
        "--json",
        "--stop",
        "--top-p",
        "--top-k",
        "--temperature",
        "--max-new-tokens",
        "--deadline",
        "--trace",
        "--target",
        "--draft",
        "--device",
        "cpu",
        "--html",
        "--suite",
        "--tasks",
        "--repeats",
        "--prompts",
        "none",
        "tiny",
        "-",
        "",
        "\0",
        "=",
        "\ud800",
        "0",
        "-1",
        "1e-300",
        "nan",
        "99999999999",
    ]
    return [rng.choice(["run", "list", "replay"])] + rng.choices(words, k=rng.randrange(9))


def shoot(seed: int, capsys) -> None:
    argv = wild(random.Random(seed))
    argv = [word for word in argv if word not in ("--trace", "--html")]
    try:
        status = cli.main([*argv, "--max-new-tokens", "2"] if argv[0] == "run" else argv)
    except SystemExit as end:
        status = end.code
    except BaseException as error:
        raise AssertionError(f"seed {seed}: {argv}: {type(error).__name__}: {error}") from error
    err = capsys.readouterr().err
    assert status in (0, 1, 2) and "Traceback" not in err, (seed, argv)
    if status:
        assert err.startswith("specviz: ") and err.count("\n") == 1, (seed, argv, err[:500])


def test_command_lines_of_nonsense(at_home, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", None)
    for seed in range(60):
        shoot(seed, capsys)


@pytest.mark.soak
def test_three_thousand_command_lines_of_nonsense(at_home, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", None)
    for seed in range(5000, 8000):
        shoot(seed, capsys)


def test_a_method_that_is_no_method_is_reported_before_anything_runs():
    broken = Method(key="b", title="B", paper="", summary="", build=lambda kit: None)
    *_, end = Session(FakeLoaded(), broken).run("hi", 2)
    assert isinstance(end, Failed) and end.why.endswith(".")


def test_traces_of_wrong_kinds():
    for value in ODD:
        try:
            Trace.load(value)
        except TraceError as error:
            one_sentence(error)
        else:
            raise AssertionError(repr(value))
