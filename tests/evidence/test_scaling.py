"""Fits in the logarithm: known coefficients come back, a spoiled order does not pass for a distribution,
what is damaged is a sentence."""

from __future__ import annotations

import json
import math
import random

import pytest

from specviz import lab
from specviz.evidence.scaling import FILE, FIT, drafts_in, fit, report
from specviz.lab.scaling import scaling
from specviz.training.__main__ import main
from specviz.training.scaling import TEXTS
from specviz.zoo.registry import register

from ..message_codes import codes, command_codes, refuses

TOKENS = [60_000, 120_000, 250_000, 500_000, 1_000_000]
GREEDY, SAMPLED = "acceptance_rate_greedy", "acceptance_rate_sampled"
SIZES = {"t-small": 500_000, "t-draft": 1_000_000, "t-wide": 2_000_000, "t-deep": 2_100_000}


def probs(tokens: float, parameters: float) -> float:
    return -1.2 + 0.05 * math.log(tokens) + 0.07 * math.log(parameters)


def carry(folder, name, parameters, *, target="t", began=None, points=None, **more):
    points = (
        points
        if points is not None
        else [
            {"step": i, "tokens": n, GREEDY: probs(n, parameters), SAMPLED: probs(n, parameters) / 2}
            for i, n in enumerate(TOKENS)
        ]
    )
    (folder / name).mkdir(parents=True)
    reported = {
        "target": target,
        "parameters": parameters,
        "from": began,
        "answers": 9,
        "points": points,
        **more,
    }
    (folder / name / FILE).write_text(json.dumps(reported))


@pytest.fixture
def models(tmp_path):
    for name, size in SIZES.items():
        carry(tmp_path / "models", name, size)
    carry(tmp_path / "models", "t-grown", 4_000_000, began="t-draft")
    carry(tmp_path / "models", "another", 100_000, target="u")
    return tmp_path / "models"


def test_a_distribution_with_known_coefficients_is_recovered_and_a_spoiled_order_is_none():
    rng = random.Random(4)
    xs = [2.0**i for i in range(6, 22)]
    ys = [0.1 + 0.03 * math.log(x) + rng.gauss(0, 0.002) for x in xs]
    found = fit(list(zip(xs, ys)))
    assert (
        found.a == pytest.approx(0.1, abs=0.005)
        and found.b == pytest.approx(0.03, abs=0.001)
        and found.r2 > 0.99
    )
    assert found.predict(2.0**24) == pytest.approx(0.1 + 0.03 * 24 * math.log(2), abs=0.01) and (
        found.points,
        found.most,
    ) == (16, 2.0**21)
    spoiled = [fit(list(zip(xs, rng.sample(ys, len(ys))))) for _ in range(50)]
    assert max(one.r2 for one in spoiled) < 0.5 and max(abs(one.b) for one in spoiled) < 0.025


@pytest.mark.parametrize(
    "points, r2",
    [([], 0), ([(1, 1), (2, 2)], 0), ([(1, 1), (2, 2), (2, 3)], 0), ([(1, 5), (2, 5), (4, 5)], None)],
)
def test_no_distribution_through_two_sizes_and_no_share_of_no_spread(points, r2):
    found = fit(points)
    assert (found is None) if r2 == 0 else (found.r2 is None and found.b == 0 and found.a == 5)


def test_a_report_fits_each_draft_all_and_their_sizes(models):
    found = report("t", drafts_in(models))
    assert [one["name"] for one in found["drafts"]] == [*SIZES, "t-grown"] and found["missing"] == []
    log_fits = found["figures"][GREEDY]
    for name, size in SIZES.items():
        assert log_fits["each"][name]["b"] == pytest.approx(0.05) and log_fits["each"][name][
            "a"
        ] == pytest.approx(-1.2 + 0.07 * math.log(size))
    assert (
        log_fits["parameters"]["b"] == pytest.approx(0.07)
        and log_fits["parameters"]["r2"] == pytest.approx(1)
        and log_fits["parameters"]["points"] == 5
    )
    assert (
        log_fits["tokens"]["b"] == pytest.approx(0.05)
        and log_fits["tokens"]["r2"] < 0.9
        and log_fits["tokens"]["points"] == 20
    ), "sizes apart, one grown"
    assert found["figures"][SAMPLED]["parameters"]["b"] == pytest.approx(0.035)
    ahead = log_fits["each"]["t-draft"]["prediction"]
    assert ahead["at"] == 4e6 and ahead["value"] == pytest.approx(probs(4e6, 1e6))
    assert len(log_fits["said"]) == 7 and all(len(codes(one, {"fit": FIT})) == 1 for one in log_fits["said"])
    assert (
        len(found["began"]) == 1
        and found["began"][0].startswith("t-grown ")
        and " t-draft" in found["began"][0]
    )


def test_sizes_are_compared_at_the_tokens_that_all_drafts_reached(tmp_path):
    """Drafts that learn for as many minutes: the larger, the fewer tokens. At their ends the smallest is
    ahead."""
    for name, size, seen in (("t-small", 500_000, 64), ("t-draft", 1_000_000, 8), ("t-wide", 2_000_000, 1)):
        points = [{"tokens": n * seen, GREEDY: probs(n * seen, size)} for n in TOKENS]
        carry(tmp_path, name, size, points=points)
    drafts = drafts_in(tmp_path)
    ends = [one["points"][-1][GREEDY] for one in drafts]
    assert ends == sorted(ends, reverse=True)
    found = report("t", drafts)["figures"][GREEDY]
    assert found["parameters"]["b"] == pytest.approx(0.07) and found["at_tokens"] == max(TOKENS)
    assert found["sizes"]["t-small"] == pytest.approx(probs(max(TOKENS), 500_000))


def test_what_is_missing_is_named_with_its_commands(models, tmp_path):
    few = report("u", drafts_in(models))
    assert (
        len(few["missing"]) == 3
        and few["missing"][0] == "python -m specviz.training draft --size small --target u --data DIR"
    )
    none = report("v", drafts_in(models))
    assert (
        none["missing"][0] == "python -m specviz.training draft --target v --data DIR"
        and none["figures"][GREEDY]["said"] == []
        and none["drafts"] == []
    )


def test_a_fit_that_explains_little_predicts_nothing():
    points = [
        {"tokens": n, GREEDY: share, SAMPLED: 0.3 + 0.1 * i}
        for i, (n, share) in enumerate(zip(TOKENS, (0.5, 0.2, 0.6, 0.3, 0.5)))
    ]
    figures = report("t", [{"name": "x", "target": "t", "parameters": 9, "from": None, "points": points}])[
        "figures"
    ]
    spoiled, good = (figures[figure]["each"]["x"] for figure in (GREEDY, SAMPLED))
    assert spoiled["r2"] < 0.5 < good["r2"] and spoiled["prediction"] is None and good["prediction"]
    assert figures[GREEDY]["said"] == [] and len(figures[SAMPLED]["said"]) == 1


def test_a_prediction_stays_a_share():
    points = [{"tokens": n, GREEDY: min(1.0, 0.2 * i + 0.2)} for i, n in enumerate(TOKENS)]
    found = report("t", [{"name": "x", "target": "t", "parameters": 9, "from": None, "points": points}])
    assert (
        found["figures"][GREEDY]["each"]["x"]["prediction"]["value"] == 1.0
        and found["figures"][SAMPLED]["each"]["x"] is None
    )


@pytest.mark.parametrize(
    "spoil",
    [
        b"",
        b"[]",
        b"\xff\xfe",
        b'{"target": "t", "parameters": 0, "from": null, "points": []}',
        b'{"target": "t", "parameters": 5, "from": null, "points": [{"tokens": 0}]}',
        b'{"target": "t", "parameters": 5, "from": null, "points": [{"tokens": 3, "acceptance_rate_greedy": 1e9}]}',
    ],
)
def test_what_is_damaged_is_one_sentence(models, tmp_path, capsys, spoil):
    (models / "t-wide" / FILE).write_bytes(spoil)
    with refuses(lab.LabError, "scaling.record", "t-wide/training.json"):
        scaling(folder=models)
    assert main(["scaling", "--work", str(tmp_path), "--target", "t"]) == 1
    said = capsys.readouterr().err
    assert "scaling.record" in command_codes(said) and said.count("\n") == 1


def test_the_command_prints_points_distributions_and_json(models, tmp_path, capsys):
    assert main(["scaling", "--work", str(tmp_path), "--target", "t"]) == 0
    said = capsys.readouterr().out
    assert (
        said.count("t-draft ") >= 5
        and "ln(parameters), R\u00b2 1.000 with 5 " in said
        and TEXTS["too_few"] not in said
    )
    assert main(["scaling", "--work", str(tmp_path), "--target", "t", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == report("t", drafts_in(models))
    assert main(["scaling", "--work", str(tmp_path), "--target", "nobody"]) == 0
    said = capsys.readouterr().out
    assert TEXTS["no_drafts"].format(target="nobody") in said and "draft --target nobody --data DIR" in said


def test_the_lab_tells_of_each_target_the_asked_one_first(models):
    assert [one["target"] for one in scaling(folder=models)["targets"]] == [
        "u",
        "t",
    ]  # as their smallest drafts come
    assert [one["target"] for one in scaling("t", models)["targets"]] == ["t", "u"]
    (models / "bare").mkdir()
    (models / "bare" / "config.json").write_text("{}")
    assert scaling("bare", models)["targets"][0]["missing"] and [
        one["target"] for one in scaling("../x", models)["targets"]
    ] == ["u", "t"]


def test_the_shipped_drafts_carry_points_and_those_of_one_target_a_distribution():
    """What the Lab shows of this project's own checkpoints; a shipped target without points is told how
    they are made."""
    name = register().default
    reported = scaling(name)["targets"]
    assert (
        reported[0]["target"] == name
        and len(reported[0]["drafts"]) >= 3
        and all(one["points"] for one in reported[0]["drafts"])
    )
    probs = reported[0]["figures"][GREEDY]
    longest = max((one for one in probs["each"].values() if one), key=lambda one: one["most"])
    assert (
        probs["said"] and longest["b"] > 0
    )  # those that go on from a learned draft, for minutes, need not gain
    bare = scaling("Llama-specviz-16M")["targets"][0]
    assert bare["target"] == "Llama-specviz-16M" and (bare["drafts"] or bare["missing"])
