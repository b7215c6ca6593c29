"""Which method for a server: every choice has an answer, nothing is told that the engine cannot do, and
every figure has a source."""

from __future__ import annotations

import json
from itertools import product

import pytest
import yaml

from specviz.cli.commands import main
from specviz.lab import LabError, answer
from specviz.lab.recommend import FILE, SHOWN, experts_read, questions, recommend, will_it_pay
from specviz.methods import catalogue

TABLE = yaml.safe_load(FILE.read_text(encoding="utf-8"))


def test_every_choice_has_an_answer_in_order_with_flags_of_its_engine():
    words = questions()
    for choice in product(*(q["answers"] for q in words.values())):
        asked = dict(zip(words, choice))
        found = recommend(**asked)
        assert found["asked"] == asked and bool(found["few"]) == (len(found["answers"]) < SHOWN)
        methods = [one["method"] for one in found["answers"]]
        assert len(methods) <= SHOWN and len(set(methods)) == len(methods)
        for one in found["answers"]:
            entry = TABLE["methods"][one["method"]]
            assert one["flags"] == entry["flags"][asked["engine"]] and asked["model"] in entry.get(
                "needs", [asked["model"]]
            )
        fitting = [
            one["figure"]["speedup"]
            for one in found["answers"]
            if one["figure"] and "load" not in one["differs"]
        ]
        assert fitting == sorted(fitting, reverse=True)


def test_many_requests_turn_the_order_around():
    one, many = (recommend(engine="vllm", model="family", load=load)["answers"] for load in ("one", "many"))
    assert one[0]["method"] == "draft_model" and many[0]["method"] == "plain"
    assert recommend(engine="sglang", model="head", load="many")["answers"][0]["method"] == "eagle3"


def test_figures_have_sources_and_cards_exist():
    for figure in TABLE["figures"]:
        assert (
            figure["method"] in TABLE["methods"]
            and figure["source"]
            and figure["speedup"] > 0
            and figure["setting"]
        )
    for engine in TABLE["engines"].values():
        assert set(engine.get("also", ())) <= set(catalogue())
    for method in TABLE["methods"].values():
        assert method["card"] in catalogue() and set(method["flags"]) <= set(TABLE["engines"])


@pytest.mark.parametrize("asked", [{"engine": "nope"}, {"load": 3}, {"task": ["chat"]}])
def test_an_answer_that_is_none_is_refused(asked):
    with pytest.raises(LabError):
        next(answer("recommend", asked))


def test_the_command_and_the_page_answer_alike(capsys):
    asked = {"engine": "llama_cpp", "model": "none", "task": "copy", "load": "one", "temperature": "greedy"}
    assert (
        main(["recommend", "--json", *(x for key, value in asked.items() for x in (f"--{key}", value))]) == 0
    )
    assert json.loads(capsys.readouterr().out) == next(answer("recommend", asked))
    for model in ("none", "family"):
        few = recommend(engine="sglang", model=model)["few"]
        assert main(["recommend", "--engine", "sglang", "--model", model]) == 0
        said = capsys.readouterr().out
        assert ("Only " in said) == bool(few) and few in said
    assert main(["recommend", "--model", "mtp"]) == 0 and "num_speculative_tokens" in capsys.readouterr().out


def test_a_mixture_of_experts_comes_with_warnings_and_a_dense_model_with_none():
    assert list(recommend(experts="moe")["warnings"]) == ["experts.union", "experts.draft"]
    assert recommend()["warnings"] == {} == recommend(experts="dense")["warnings"]


def test_the_union_of_experts_grows_to_all_of_them():
    assert experts_read(128, 8, 1) == pytest.approx(1) and experts_read(8, 8, 9) == pytest.approx(1)
    assert 3.2 < experts_read(128, 8, 5) < 5 and experts_read(128, 8, 10**6) == pytest.approx(16)


def test_the_estimate_is_the_formula_and_says_when_nothing_pays():
    """The case that users reported: a 9 B draft for 17 B active parameters; and a tenth of it."""
    large = will_it_pay(17, 9, 0.75, experts=128, used=8)
    assert large["pays"] is False and large["best"] == 0 and max(large["speedups"]) < 1
    small = will_it_pay(17, 0.6, 0.75)
    assert small["pays"] and small["speedups"][small["best"] - 1] == max(small["speedups"])
    assert small["speedups"][0] == pytest.approx(1.75 / (1 + 0.6 / 17), abs=1e-3)
    assert max(will_it_pay(17, 0.6, 0.75, experts=128, used=8)["speedups"]) < max(small["speedups"])


@pytest.mark.parametrize(
    "sizes", [(0, 1, 0.5), (1, 1, 1.0), (1, -1, 0.5), (1, 1, 0.5, 4, 8), (1, 1, 0.5, 8, 0)]
)
def test_sizes_that_cannot_be_are_refused(sizes):
    with pytest.raises(LabError):
        will_it_pay(*sizes)


def test_the_command_estimates_and_refuses_half_of_the_sizes(capsys):
    sizes = ["--active", "17", "--drafter", "9", "--acceptance", "0.75", "--routed", "8/128"]
    assert main(["recommend", "--experts", "moe", "--json", *sizes]) == 0
    assert json.loads(capsys.readouterr().out)["pays"]["pays"] is False
    assert main(["recommend", *sizes]) == 0 and capsys.readouterr().out
    for broken in (["--active", "17"], [*sizes[:6], "--routed", "8"]):
        assert main(["recommend", *broken]) != 0
