"""Each sentence of docs/requests.md and SECURITY.md is tried: tests/sentences.json names the tests of each. A
sentence that is new or worded anew fails here until somebody has looked at what tries it. Sentences that promise
nothing (whom to write to, what is not promised) have no test."""

from __future__ import annotations

import json
import re
from dataclasses import fields

import pytest
import torch

from specviz import ROOT, load
from specviz.core import Sampling
from specviz.core.logits_processors import Context, LogitBias, Penalties
from specviz.engine.engine import batch_sharing
from specviz.engine.limits import GENERATION, RunRequest
from specviz.methods import catalogue
from specviz.run import Session, collect
from specviz.run.prefix_cache import PrefixCache
from specviz.run.processors import ProcessorFactory
from specviz.run.request import GenerationRequest
from specviz.serve.http_guard import allowed_hosts
from specviz.serve.openai_fields import OTHER_FIELDS, REQUEST_FIELDS
from specviz.trace.recorder import Recorder
from specviz.zoo.registry import register
from specviz.zoo.tokenizer import generation_defaults

from .doc_sentences import sentences
from .run.fakes import FakeLoaded
from .run.test_prefix_cache import conversation

TABLE = json.loads((ROOT / "tests" / "sentences.json").read_text(encoding="utf-8"))
PROMISE_NOTHING = 4  # sentences without a test
PAGE = (ROOT / "docs" / "requests.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", TABLE)
def test_each_sentence_names_the_tests_that_try_it(page):
    stated = sentences((ROOT / page).read_text(encoding="utf-8"))
    listed = [row[0] for row in TABLE[page]]
    assert [one for one in stated if one not in listed] == []
    assert [one for one in listed if one not in stated] == []


def test_each_named_test_is_there():
    named = {test for rows in TABLE.values() for row in rows for test in row[1:]}
    missing = []
    for one in named:
        file, _, name = one.partition("::")
        text = (ROOT / file).read_text(encoding="utf-8") if (ROOT / file).is_file() else ""
        if not re.search(rf"^(async )?def {name}\(", text, re.M):
            missing.append(one)
    assert missing == []
    assert sum(len(row) == 1 for rows in TABLE.values() for row in rows) <= PROMISE_NOTHING


def table_of_fields() -> dict[str, str]:
    """Return {field: default} of the first table of docs/requests.md."""
    first = PAGE[: PAGE.index("| surface |")]
    return dict(re.findall(r"^\| `(\w+)` \| ([^|]+?) \|", first, re.M))


def test_missing_fields_have_the_defaults_of_the_table():
    listed, request = table_of_fields(), GenerationRequest()
    names = {field.name for field in fields(request)} - {"from_model"} | {"generation_config"}
    assert set(listed) == names
    for name, default in listed.items():
        number = re.match(r"-?\d+(\.\d+)?", default)
        if number:
            assert float(number[0]) == getattr(request, name), name
        elif name not in ("generation_config", "tool_choice"):
            assert getattr(request, name) in (None, (), False), name


def test_every_surface_reads_every_field():
    """The command line and Python read them by ``from_dict``. Of the endpoint's, a picture is a part of a message; of
    the page's, the first four have arguments of their own."""
    names = {field.name for field in fields(GenerationRequest)} - {"from_model"}
    assert names - {*REQUEST_FIELDS, *OTHER_FIELDS} == {"image"}
    assert names - set(GENERATION) == {"temperature", "top_p", "seed", "max_tokens"}
    asked = RunRequest("x", (("speculative", {}),), seed=2**53 - 1)
    assert asked.seed == 2**53 - 1


def test_top_k_of_minus_one_is_off():
    logits = torch.randn(3, 40, generator=torch.Generator().manual_seed(0))
    kept = GenerationRequest(temperature=1, top_k=-1).sampling.probs(logits)
    assert torch.equal(kept, Sampling(1.0).probs(logits)) and bool((kept > 0).all())
    assert int((GenerationRequest(temperature=1, top_k=5).sampling.probs(logits) > 0).sum()) == 15


def test_penalties_are_those_of_the_table():
    """By hand: token 0 stands in the prompt, 1 once and 2 twice in the output, 3 nowhere."""
    rows = torch.tensor([[4.0, 4.0, -4.0, 4.0]])
    context = Context([0], [1, 2, 2], [()])

    def after(**penalties):
        return Penalties(**penalties)(rows.clone(), context)[0].tolist()

    assert after(repetition=2.0) == [2.0, 2.0, -8.0, 4.0]
    assert after(frequency=0.5) == [4.0, 3.5, -5.0, 4.0]
    assert after(presence=0.5) == [4.0, 3.5, -4.5, 4.0]


def test_a_bias_is_clamped():
    request = GenerationRequest(logit_bias={1: 500, 2: -500})
    assert dict(request.logit_bias) == {1: 100.0, 2: -100.0}
    assert LogitBias(request.logit_bias)(torch.zeros(1, 4), Context([], [], [()]))[0].tolist() == [
        0,
        100,
        -100,
        0,
    ]


def test_the_order_of_operations_is_the_pages():
    line = re.search(r"Order of operations on the logits: (.+?)\.\s", PAGE, re.S)
    stated = re.split(r", (?:and )?|\s+and (?=presence)", " ".join(line[1].split()))
    assert stated[-4:] == ["temperature", "min-p", "top-k", "top-p"]
    loaded = load("Llama-specviz-16M", device="cpu")
    request = GenerationRequest(
        bad_words=["a"],
        min_tokens=2,
        logit_bias={3: 1},
        frequency_penalty=0.1,
        response_format={"type": "choice", "choice": ["yes"]},
    )
    made = [type(one).__name__ for one in ProcessorFactory(request, loaded).make().processors]
    assert made == ["GrammarMask", "BadWords", "MinTokens", "LogitBias", "Penalties"]
    assert stated[:4] == ["grammar mask", "bad words", "minimum length", "bias"]


def test_four_methods_write_what_was_not_verified():
    found = {key for key, method in catalogue().items() if method.unchecked}
    assert found == {"fastcot", "superposed", "parallel_branches", "contrastive_decoding"}


def test_the_measured_table_counts_what_the_page_says():
    """Its rows, and what the sentences and the small table above it say of them."""
    part = PAGE[PAGE.index("## Structured output by method") : PAGE.index("## Log-probabilities")]
    rows = re.findall(r"^\| `\w+` \| (.+) \|$", part, re.M)
    cells = [row.split(" | ") for row in rows]
    valid, equal, sampled = (
        [tuple(map(int, re.findall(r"\d+", row[column]))) for row in cells] for column in range(3)
    )
    said = {
        name: (int(count), int(of))
        for name, count, of in re.findall(
            r"^\| ((?:greedy|sampled), [a-z ]+) \| (\d+) of (\d+) \|$", PAGE, re.M
        )
    }
    sums = [tuple(map(sum, zip(*column))) for column in (valid, equal, sampled)]
    assert list(said.values()) == sums
    assert f"{len(rows)} exact methods" in PAGE
    speculative = [row for row in cells[1:] if row[3] != "-"]  # the first is plain decoding
    few = sum(float(row[3]) < 1.05 for row in speculative)
    assert f"{few} of {len(speculative)} methods write fewer than 1.05" in PAGE


def test_log_probabilities_stand_on_every_surface():
    """In the result, and in the records of a trace; the command line and the endpoint print those of the result
    (tests/cli/test_cli.py, tests/serve/test_openai_api.py)."""
    loaded = FakeLoaded()
    session = Session(loaded, "speculative", request=GenerationRequest(max_tokens=8, logprobs=2))
    recorder, records, events = Recorder(0, loaded.token_bytes, loaded.token_bytes.special), [], []
    for event in session.run("the cat"):
        events.append(event)
        records += recorder.take(event)
    found = collect(events)
    stored = [value for one in records if one["type"] == "commit" for value in one["logprobs"]]
    assert len(found.logprobs) == len(found.token_ids) == len(stored)
    assert stored == pytest.approx(found.logprobs)


def test_what_a_turn_computes_again():
    """Tokens of the target's prefill in a second turn. A cache holds the target's keys and values alone."""
    loaded, cache = load("Llama-specviz-16M", device="cpu"), PrefixCache()

    def second_turn(method):
        _, computed, reused = conversation(loaded, method, cache, turns=2)[1]
        return computed, reused

    plain, drafted, reading = map(second_turn, ("autoregressive", "speculative", "eagle2"))
    assert plain[1] >= 12 and drafted == plain
    assert reading[0] == sum(plain) and not reading[1]
    assert [name for name, value in vars(cache).items() if hasattr(value, "sync")] == ["_target"]
    cache.close()


def test_what_plans_for_the_whole_batch_is_batched_greedily_only():
    loaded = FakeLoaded()
    assert (
        batch_sharing(loaded, "smartspec", {}) == "greedy"
        and batch_sharing(loaded, "speculative", {}) == "any"
    )
    assert batch_sharing(loaded, "swift", {}) == "none"


def test_what_the_embedded_models_recommend():
    names = [name for name, entry in register().entries.items() if entry.path and entry.role == "target"]
    found = {name: generation_defaults(register().find(name).folder()) for name in names}
    assert {name: values for name, values in found.items() if values} == {
        "specviz-vision": {"temperature": 1.0}
    }


def test_a_space_leaves_names_to_its_proxy(monkeypatch):
    monkeypatch.delenv("SPACE_ID", raising=False)
    assert "*" not in allowed_hosts()
    monkeypatch.setenv("SPACE_ID", "somebody/specviz")
    assert allowed_hosts() == {"*"}


def test_the_long_tests_are_there():
    """What SECURITY.md says of ``make soak``: each kind has a test of that tier."""
    files = {
        "fuzzers": "tests/attack/test_strings.py",
        "five hundred runs": "tests/attack/test_load.py",
        "a thousand runs": "tests/serve/test_http_guard.py",
        "twenty-five others": "tests/ui/test_service_soak.py",
        "what an honest client waits": "tests/attack/test_costs.py",
        "killed": "tests/attack/test_kills.py",
        "at their limits": "tests/attack/test_traces.py",
        "long races": "tests/ui/test_soak.py",
    }
    assert all("mark.soak" in (ROOT / file).read_text(encoding="utf-8") for file in files.values())
    make = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "-m soak" in make and "pip-audit" in make or "pip_audit" in make
