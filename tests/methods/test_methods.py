"""Each method end to end on a tiny model: greedy equality, and its distribution where enumeration is
cheap."""

import subprocess
import sys
from dataclasses import replace

import pytest

from specviz import ROOT, Session, collect, load
from specviz.core import EXACTNESS, Budget, Method, Sampling, State
from specviz.methods import catalogue, draft_model
from specviz.targets.tiny import TinyTarget

from . import test_every
from .toys import distance, greedy, joint, kit, probs_of, run

PROMPT = [1, 2, 0, 3, 1, 2]
# every method that promises the target's text and runs on what the kit here has
MINE = [
    key
    for key, method in catalogue().items()
    if method.exactness in ("exact", "greedy only") and method.needs <= {"draft"} | TinyTarget.capabilities
]
CASES = [(key, {}) for key in MINE] + [
    ("draft_tree", {"children": "sampled"}),
    ("prompt_lookup", {"occurrence": "latest"}),
    ("token_recycling", {"nodes": 9, "start": "empty"}),
    ("banditspec", {"rule": "EXP3Spec"}),
]
SMALL = [
    ("speculative", {"gamma": 2}),
    ("block_verification", {"gamma": 2}),
    ("draft_tree", {"width": 2, "depth": 2, "nodes": 3}),
    ("draft_tree", {"children": "sampled", "width": 2, "depth": 2, "nodes": 3}),
    ("prompt_lookup", {"gamma": 2}),
    ("token_recycling", {"nodes": 8, "depth": 2}),
    ("lookahead", {"window": 2, "ngram": 3, "guesses": 2}),
]


def test_the_catalogue_finds_its_files_and_begins_with_plain_decoding():
    found = catalogue()
    assert list(found)[0] == "autoregressive"
    rest = [(m.family, m.title) for m in list(found.values())[1:]]
    assert rest == sorted(rest)
    for key, method in found.items():
        assert isinstance(method, Method) and method.key == key and method.exactness in EXACTNESS
        assert method.title and method.summary and method.look and method.wins and method.loses
        assert all(knob.help and knob.read(None) == knob.default for knob in method.knobs)


SHARES = {"bad draft": 0.5, "perfect draft": 1.0}
GREEDY = [  # ``make test`` takes each method with one draft or none; tests/run/test_session.py has all of them
    pytest.param(key, knobs, share, id=f"{key}-{name}", marks=[pytest.mark.thorough] * ((i + at) % 3 > 0))
    for i, (key, knobs) in enumerate(CASES)
    for at, (name, share) in enumerate(SHARES.items())
]


@pytest.mark.parametrize("key, knobs, share", GREEDY)
def test_greedy_output_is_plain_decodings(key, knobs, share):
    things = kit(12, share, 3)
    tokens, outcomes = run(catalogue()[key], things, PROMPT, 40, **knobs)
    assert tokens == greedy(things.net, PROMPT, 40)
    assert sum(len(o.committed) for o in outcomes) == 40


@pytest.mark.parametrize("key", MINE)
def test_an_end_token_in_the_draft_ends_the_run(key):
    things = kit(12, 1.0, 3)
    want = greedy(things.net, PROMPT, 40)
    end = want[7]
    tokens, _ = run(catalogue()[key], things, PROMPT, 40, stop=frozenset({end}))
    assert tokens == want[: want.index(end) + 1]


@pytest.mark.parametrize("key", MINE)
def test_short_limits_are_kept(key):
    for count in (1, 2, 3):
        things = kit(12, 1.0, 3)
        assert run(catalogue()[key], things, PROMPT, count)[0] == greedy(things.net, PROMPT, count), count


def test_a_perfect_draft_is_accepted_whole():
    things = kit(12, 1.0, 3)
    for key, knobs in (
        ("speculative", {"gamma": 4}),
        ("block_verification", {"gamma": 4}),
        ("draft_tree", {"depth": 4, "nodes": 9}),
    ):
        _, outcomes = run(catalogue()[key], things, PROMPT, 20, **knobs)
        assert [len(o.committed) for o in outcomes] == [5] * 4


def test_methods_without_a_draft_model_gain_on_a_loop():
    """A tiny random model repeats itself; every lookup must notice."""
    things = kit(12, 1.0, 3)
    for key in ("prompt_lookup", "token_recycling", "lookahead", "jacobi"):
        _, outcomes = run(catalogue()[key], things, PROMPT, 60)
        assert len(outcomes) < 50, key


@pytest.mark.parametrize("key,knobs", SMALL)
def test_the_distribution_at_temperature_one_is_the_targets(key, knobs):
    things = kit(3, 0.7, 1)
    prompt = [1, 2, 0, 1, 1, 2]
    sampling = Sampling(1.0)
    got = probs_of(lambda rng: tuple(run(catalogue()[key], things, prompt, 2, sampling, rng, **knobs)[0]))
    assert distance(got, joint(things.net, prompt, 2, sampling)) < 1e-12


def test_a_target_without_trees_gets_chains():
    things = kit(12, 0.9, 3)
    for key in (k for k in MINE if {"draft", "tree"} <= catalogue()[k].needs and k != "rasd"):
        parts = catalogue()[key].build(things, **catalogue()[key].read_knobs({}))
        state = State(list(PROMPT))
        parts.drafter.start(state, things.target, None)
        tree = parts.drafter.propose(state, Budget(gamma=3, width=1))
        assert tree.parents == tuple(range(-1, len(tree) - 1)) and len(tree)


def test_the_file_of_the_how_to_is_a_method(tmp_path, monkeypatch, at_home):
    """It is saved where the page says, checked as every method is, and writes the target's greedy text."""
    text = (ROOT / "docs" / "howto" / "add-a-method.md").read_text(encoding="utf-8")
    (tmp_path / "my_method.py").write_text(text.split("```python\n")[1].split("```")[0], encoding="utf-8")
    lint = [sys.executable, "-m", "ruff", "check", "--config", str(ROOT / "pyproject.toml"), str(tmp_path)]
    assert subprocess.run(lint).returncode == 0
    monkeypatch.setattr(draft_model, "__path__", [*draft_model.__path__, str(tmp_path)])
    catalogue.cache_clear()
    try:
        method = catalogue()["my_method"]
        test_every.test_it_says_what_it_is(method)
        test_every.test_it_needs_what_its_parts_need(method)
        test_every.test_it_plays_and_keeps_its_limit(method)
        with pytest.raises(AssertionError, match="make docs"):
            test_every.test_it_stands_in_the_generated_pages(method)
        with pytest.raises(AssertionError, match="sentence"):
            test_every.test_it_says_what_it_is(replace(method, wins="x"))
        loaded = load()
        plain, ours = (
            collect(Session(loaded, key).run("the cat", 24)).token_ids
            for key in ("autoregressive", "my_method")
        )
        assert ours == plain and len(plain) == 24
    finally:
        catalogue.cache_clear()
        sys.modules.pop("specviz.methods.draft_model.my_method", None)
        vars(draft_model).pop("my_method", None)
