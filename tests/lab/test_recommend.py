"""Which method for a server: every choice has an answer, nothing is told that the engine cannot do, and
every figure has a source."""

from __future__ import annotations

import json
import re
from itertools import product

import pytest
import yaml

from specviz.cli.commands import main
from specviz.cli.recommend import QUESTIONS
from specviz.lab import FIELDS, LabError, answer
from specviz.lab.acceptance_rates import estimate, read_rates
from specviz.lab.recommend import FILE, SHOWN, experts_read, questions, recommend, will_it_pay
from specviz.methods import catalogue

TABLE = yaml.safe_load(FILE.read_text(encoding="utf-8"))


ASKED = ("engine", "model", "task", "temperature", "experts")  # what the order of answers may depend on


def test_every_choice_has_an_answer_in_order_with_flags_of_its_engine():
    words = questions()
    for users, *choice in product((1, 4, 64), *(words[name]["answers"] for name in ASKED)):
        asked = dict(zip(ASKED, choice))
        found = recommend(users=users, **asked)
        assert asked | {"users": users} == {name: found["asked"][name] for name in (*ASKED, "users")}
        assert bool(found["few"]) == (len(found["answers"]) < SHOWN)
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
            if one["figure"] and not {"users", "experts"} & {each["what"] for each in one["differs"]}
        ]
        assert fitting == sorted(fitting, reverse=True)
        pays = found["verdict"]["pays"]
        assert (pays is False) == (methods[0] == "plain" or "figures.low" in found["verdict"]["reasons"])


def test_many_requests_turn_the_order_around_and_speculation_is_advised_against():
    one, many = (recommend(engine="vllm", model="family", users=users) for users in (1, 64))
    assert one["answers"][0]["method"] == "draft_model" and many["answers"][0]["method"] == "plain"
    assert many["verdict"] == {"pays": False, "reasons": ["users.none"]}
    assert recommend(engine="sglang", model="head", users=64)["answers"][0]["method"] == "eagle3"


def test_a_known_model_answers_the_questions_about_it_and_fills_the_command():
    found = recommend(name="qwen/qwen3-8b", model="none", experts="moe", users=8)
    assert found["asked"]["name"] == "Qwen/Qwen3-8B" and found["asked"]["experts"] == "dense"
    first, second, *_ = found["answers"]
    assert (
        "vllm serve Qwen/Qwen3-8B " in first["flags"]
        and "RedHatAI/Qwen3-8B-speculator.eagle3" in first["flags"]
    )
    assert second["method"] == "draft_model" and '"model": "Qwen/Qwen3-0.6B"' in second["flags"]
    assert first["figure"]["speedup"] == 2.39 and [one["what"] for one in first["differs"]] == [
        "temperature",
        "task",
    ]
    own = recommend(name="my/model", engine="vllm", model="head")["answers"][0]["flags"]
    assert "vllm serve my/model " in own and "EAGLE3-HEAD" in own


def test_every_listed_model_has_a_complete_command_on_vllm():
    for name in questions()["name"]["options"]:
        first = recommend(name=name)["answers"][0]["flags"]
        assert name in first and not {"MODEL", "DRAFT", "EAGLE3-HEAD"} & set(re.findall(r"[A-Z0-9-]+", first))


def test_every_difference_between_a_source_and_the_request_is_listed():
    found = recommend(
        name="my/model", engine="llama_cpp", model="family", card="h100", users=3, temperature="sampled"
    )
    asked = dict(engine="llama_cpp", model="family", card="cpu", task="code", users=1)
    listed = recommend(name="x/CodeLlama-34B", **asked)["answers"]
    published = next(one for one in listed if "CodeLlama-34B" in one["figure"]["setting"])
    differs = {one["what"]: one["theirs"] for one in published["differs"]}
    assert differs == {"temperature": ""}
    for one in found["answers"]:
        if one["method"] == "draft_model":
            assert {"engine", "model", "card", "temperature"} <= {each["what"] for each in one["differs"]}


def test_a_range_is_of_all_figures_for_about_as_many_users():
    one, many = (
        next(a for a in recommend(engine="sglang", users=users)["answers"] if a["method"] == "eagle3")
        for users in (1, 500)
    )
    assert one["range"] == {"low": 2.36, "high": 2.85, "count": 2, "users": True}
    assert many["range"] == {"low": 1.38, "high": 2.85, "count": 5, "users": False}


def test_no_figure_for_as_many_users_says_nothing_where_this_model_has_one_for_users_unknown():
    own = recommend(name="deepseek-ai/DeepSeek-V3", engine="sglang", users=8)  # its paper names no users
    assert own["verdict"] == {"pays": None, "reasons": ["users.between"]}
    assert [one["method"] for one in own["answers"]][:2] == ["mtp", "plain"]
    assert recommend(name="Qwen/Qwen3-8B", users=512)["verdict"] == {"pays": False, "reasons": ["users.none"]}
    lone = recommend(name="my/model-A3B", engine="llama_cpp", model="none")
    assert lone["verdict"] == {"pays": False, "reasons": ["experts.named", "experts.none"]}


def test_a_draft_that_is_too_large_comes_after_plain_decoding():
    found = recommend(name="openai-community/gpt2", engine="transformers")
    methods = [one["method"] for one in found["answers"]]
    assert "draft.large" in found["verdict"]["reasons"] and methods.index("plain") < methods.index(
        "draft_model"
    )
    assert "draft.large" not in recommend(name="Qwen/Qwen3-8B")["verdict"]["reasons"]


def test_measured_rates_decide_and_set_the_draft_length():
    good = recommend(name="Qwen/Qwen3-8B", rates="0.8, 0.6, 0.05")
    assert good["measured"]["speedups"] == [1.8, 2.4, 2.45] and good["verdict"]["pays"] is True
    many = recommend(name="Qwen/Qwen3-8B", rates="0.8, 0.6, 0.05", users=600)
    assert many["measured"]["best"] == 0 and many["verdict"] == {"pays": False, "reasons": ["rates.lose"]}
    some = recommend(name="Qwen/Qwen3-8B", rates="0.8, 0.6, 0.05", users=200, engine="sglang")
    assert some["measured"]["best"] == 1 and "--speculative-num-steps 1" in some["answers"][0]["flags"]
    assert "--speculative-num-draft-tokens 2" in some["answers"][0]["flags"]
    line = "Mean acceptance length: 2.4, Per-position acceptance rate: 0.81, 0.62, Avg Draft acceptance rate: 60%"
    assert read_rates(f"Per-position acceptance rate: 0.1\n{line}") == [0.81, 0.62] == read_rates("81% 62%")


def test_low_rates_of_an_unknown_draft_leave_it_open():
    """0.15 and 0.05 give 1.2 tokens a pass, which two draft tokens of a tenth of a pass each use up."""
    low = recommend(rates="0.15, 0.05")
    assert low["measured"]["doubtful"] and low["verdict"] == {"pays": None, "reasons": ["rates.draft"]}
    good = recommend(rates="0.8, 0.6")
    assert not good["measured"]["doubtful"] and good["verdict"]["pays"] is True


@pytest.mark.parametrize(
    "name, moe",
    [("Qwen/Qwen3-30B-A3B", True), ("mistralai/Mixtral-8x7B-v0.1", True), ("allenai/OLMoE-1B-7B", True)]
    + [("me/dense-70b", False), ("me/a100-tuned-7b", False), ("", False)],
)
def test_a_name_may_say_that_a_model_is_a_mixture_of_experts(name, moe):
    found = recommend(name=name)
    assert (found["asked"]["experts"] == "moe") is moe
    assert ("experts.named" in found["verdict"]["reasons"]) is moe


@pytest.mark.parametrize("text", ["", "soon", "1.2", "0.5, 0.6", ", ".join(["0.5"] * 33)])
def test_rates_that_cannot_be_are_refused(text):
    with pytest.raises(LabError):
        read_rates(text)


def test_the_roofline_of_the_estimate_is_the_formula():
    found = estimate([0.8, 0.6], 100, 295.0, 0.1, [1.0, 1.0])
    assert found["speedups"] == [round(1.8 / 1.1, 3), round(2.4 / (300 / 295 + 0.2), 3)]


def test_tools_and_grammars_change_flags_and_warn_where_engines_have_faults():
    calls = recommend(model="none", tools="calls", structured="json", task="copy")
    assert set(calls["warnings"]) == {"structured.thinking", "tools.ngram"}
    flags = {one["method"]: one["flags"] for one in calls["answers"]}["ngram"]
    assert '"prompt_lookup_min": 8' in flags
    assert recommend(engine="sglang", tools="calls", structured="json")["warnings"] == {}


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


@pytest.mark.parametrize(
    "asked",
    [
        {"engine": "nope"},
        {"users": 0},
        {"users": True},
        {"users": "many"},
        {"task": ["chat"]},
        {"name": "a b; rm"},
        {"name": 3},
        {"rates": "x" * 5000},
    ],
)
def test_an_answer_that_is_none_is_refused(asked):
    with pytest.raises(LabError):
        next(answer("recommend", asked))


def test_the_command_and_the_page_answer_alike(capsys):
    asked = {"engine": "llama_cpp", "model": "none", "task": "copy", "users": 2, "temperature": "greedy"}
    asked |= {"name": "my/model", "rates": "0.8,0.5", "card": "cpu", "experts": "moe"}
    options = [x for key, value in asked.items() for x in (f"--{key}", str(value))]
    assert main(["recommend", "--json", *options]) == 0
    assert json.loads(capsys.readouterr().out) == next(answer("recommend", asked))
    for model in ("none", "family"):
        few = recommend(engine="sglang", model=model)["few"]
        assert main(["recommend", "--engine", "sglang", "--model", model]) == 0
        said = capsys.readouterr().out
        assert ("Only " in said) == bool(few) and few in said
    assert main(["recommend", "--model", "mtp"]) == 0 and "num_speculative_tokens" in capsys.readouterr().out


def test_the_page_is_answered_as_the_table_says_for_every_question():
    """Every question of the page reaches the answer: "experts" once did not."""
    assert set(FIELDS["recommend"]) == set(questions()) == set(QUESTIONS)
    assert list(next(answer("recommend", {"experts": "moe"}))["warnings"]) == [
        "experts.union",
        "experts.draft",
    ]


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
