"""No draft ends a run or changes its text: narrower, wider, with a shorter context, with logits that
overflow, with unknown tokens."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file

from specviz import Sampling, load
from specviz.core import DraftTree, Scores
from specviz.methods import catalogue
from specviz.run import Session, collect
from specviz.run.request import GenerationRequest
from specviz.trace.events import Committed, Failed, Finished, TextEmitted
from specviz.zoo import forget, survey
from specviz.zoo.draft_model import CAPABILITIES, DraftModel

from .checkpoints import write

ROLES = {"draft", "middle"}
HELPERS = {
    "proxy_decoding",
    "contrastive_decoding",
    "entropy_adaptive",
}  # the second model takes part in the text itself
METHODS = [
    key
    for key, method in catalogue().items()
    if ROLES & set(method.needs) and not set(method.needs) - ROLES - {"tree", "rewind"} and key not in HELPERS
]
EXACT = [key for key in METHODS if catalogue()[key].exactness == "exact"]
PROMPT = "the cat sat on the mat"


@pytest.fixture(autouse=True)
def drop_weights():
    yield
    forget()


def draft(folder, how: str):
    """A draft of one layer that the target's tokenizer fits, spoiled in one way."""
    write(folder, layers=1, seed=3, **({"max_position_embeddings": 40} if how == "short" else {}))
    tensors, config = (
        load_file(folder / "model.safetensors"),
        json.loads((folder / "config.json").read_text()),
    )
    embedding = tensors["model.embed_tokens.weight"]
    if how == "narrow":
        tensors["model.embed_tokens.weight"], config["vocab_size"] = embedding[:200].clone(), 200
    if how == "wide":
        tensors["model.embed_tokens.weight"] = torch.cat([embedding, embedding[:20] * 3])
        config["vocab_size"] = 320
    if how == "overflow":
        tensors["model.norm.weight"] = torch.full_like(tensors["model.norm.weight"], 3e38)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture
def pair(tmp_path, monkeypatch):
    """A loaded target with a spoiled draft, by the way it is spoiled."""

    def make(how: str):
        write(tmp_path / "target")
        (tmp_path / "models.yaml").write_text(
            "default: t\nbackends: {fast: [llama]}\nmodels:\n  t: {path: target}\n"
        )
        monkeypatch.setenv("SPECVIZ_MODELS", str(tmp_path / "models.yaml"))
        return load("t", str(draft(tmp_path / how, how)), deterministic=True)

    return make


def run(loaded, method: str, temperature: float = 0.0, prompt: str = PROMPT, tokens: int = 40):
    session = Session(loaded, method, sampling=Sampling(temperature=temperature, seed=4), deterministic=True)
    events = [*session.run(prompt, tokens)]
    assert isinstance(events[-1], Finished), (method, events[-1])
    ids = [piece[0] for event in events if isinstance(event, TextEmitted) for piece in event.pieces]
    return SimpleNamespace(token_ids=ids, totals=events[-1].totals)


@pytest.mark.parametrize(
    "every", [False, pytest.param(True, marks=pytest.mark.thorough)], ids=["sample", "all"]
)
@pytest.mark.parametrize("how", ["narrow", "wide", "short", "overflow"])
def test_every_method_ends_its_run_and_exact_ones_keep_the_text(pair, how, every):
    """Each method in ``make test`` with one of the four, and with all of them in ``make thorough``."""
    loaded = pair(how)
    tokens = 32 if how == "short" else 12
    plain = run(loaded, "autoregressive", tokens=tokens).token_ids
    assert len(EXACT) > 20 and set(EXACT) < set(METHODS)
    at = ["narrow", "wide", "short", "overflow"].index(how)
    for method in METHODS if every else METHODS[at::4]:
        run(loaded, method, 1.0, tokens=tokens)
        if method in EXACT:
            assert run(loaded, method, tokens=tokens).token_ids == plain, method


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("method", sorted(HELPERS))
def test_a_second_model_that_overflows_is_named(pair, method, temperature):
    """Its logits decide about the text, so the run ends; it says whose logits they are."""
    *_, last = Session(
        pair("overflow"), method, sampling=Sampling(temperature=temperature), deterministic=True
    ).run(PROMPT, 12)
    assert isinstance(last, Failed) and "second model" in last.why, last


def test_a_mixture_reports_the_targets_own_probabilities(pair):
    """At temperature 0 a trace shows softmax of the target, not of what was mixed."""
    loaded = pair("fine")
    events = [*Session(loaded, "contrastive_decoding", deterministic=True).run(PROMPT, 8, top_k_saved=3)]
    target, text = loaded.open_target(), list(events[0].header["prompt"]["ids"])
    for event in (one for one in events if isinstance(one, Committed)):
        target.sync(text + list(event.tokens[:-1]))
        own = target.score(DraftTree()).logits[0].float().softmax(-1)[event.tokens[-1]]
        assert event.softmax_p == pytest.approx(float(own), rel=1e-4)
        text += event.tokens


def test_tokens_that_the_draft_lacks_are_read_in_the_prompt_and_in_the_text(pair):
    loaded = pair("narrow")
    prompt = PROMPT + " the hat"
    ids = loaded.tokenizer.encode(prompt)
    plain = run(loaded, "autoregressive", prompt=prompt)
    assert max(ids) >= 200 or max(plain.token_ids) >= 200
    for method in EXACT[::4]:
        assert run(loaded, method, prompt=prompt).token_ids == plain.token_ids, method


def test_the_draft_does_not_shorten_the_targets_context(pair):
    loaded = pair("short")
    assert loaded.context == 256
    prompt = "the cat sat on the mat. " * 8
    plain = run(loaded, "autoregressive", prompt=prompt)
    done = run(loaded, "speculative", prompt=prompt)
    assert done.token_ids == plain.token_ids and done.totals["drafted"] == 0
    (stopped,) = done.totals["draft_stopped"]
    assert stopped["model"] == "short" and stopped["reason"] == "context"


@pytest.mark.parametrize("method", sorted(HELPERS))
def test_a_method_that_writes_with_two_models_ends_at_the_shorter_context(pair, method):
    loaded = pair("short")
    session = Session(loaded, method, deterministic=True, request=GenerationRequest(seed=4, ignore_eos=True))
    *_, last = session.run(PROMPT, 40)
    assert isinstance(last, Finished) and last.finish == "context"
    assert len(session.encode(PROMPT)) + last.totals["tokens"] == 40
    *_, last = session.run("the cat " * 20, 40)
    assert isinstance(last, Failed) and {"40", str(len(session.encode("the cat " * 20)))} <= set(
        re.findall(r"\d+", last.why)
    )


@pytest.mark.parametrize("method", sorted(HELPERS))
@pytest.mark.parametrize("how", ["narrow", "wide"])
def test_what_is_offered_with_a_draft_of_another_width_runs(pair, how, method):
    """Of a narrow or wide draft no half can be run, so proxy decoding is not offered with it."""
    loaded, card = pair(how), catalogue()[method]
    assert (
        (loaded.unsupported_reason(card) is None)
        == (method != "proxy_decoding")
        == (survey("t", str(loaded.draft_folder))(card) is None)
    )
    if loaded.unsupported_reason(card) is None:
        assert len(run(loaded, method, 1.0).token_ids) == 40


def test_an_overflow_is_reported_with_the_name_of_the_draft_and_drafting_stops(pair):
    for temperature in (0.0, 1.0):
        done = run(pair("overflow"), "speculative", temperature)
        (stopped,) = done.totals["draft_stopped"]
        assert stopped["model"] == "overflow" and stopped["reason"] == "overflow"
        assert done.totals["drafted"] <= 8 and len(done.token_ids) > 4, "one round at most has a draft"


@pytest.mark.parametrize("how", ["narrow", pytest.param("wide", marks=pytest.mark.thorough)])
def test_the_distribution_of_a_drafted_token_is_the_targets(pair, how):
    """In 400 answers of two tokens, whose first one is drafted: the share of the token on which draft and
    target differ most."""
    loaded, answers = pair(how), 400
    ids = Session(loaded, "autoregressive").encode(PROMPT)

    def probs(model) -> torch.Tensor:
        model.sync(ids)
        return model.score(DraftTree()).logits[0].div(2.0).softmax(-1)

    target, draft = probs(loaded.open_target()), probs(loaded.kit().open("draft"))
    token = int((target - draft).abs().argmax())
    found = 0
    for seed in range(answers):
        session = Session(
            loaded, "speculative", sampling=Sampling(temperature=2.0, seed=seed), deterministic=True
        )
        found += collect(session.run(PROMPT, 2)).token_ids[0] == token
    p, q = float(target[token]), float(draft[token])
    margin = 4 * (answers * p * (1 - p)) ** 0.5 + 1
    assert abs(found - answers * p) < margin < abs(answers * q - answers * p), (
        "a verifier that accepts every draft is caught"
    )


class Narrow:
    """A model of two tokens that offers more than a draft may use."""

    vocab = 2
    context = 16
    hidden = 4
    layers = 1
    busy = 1.5
    passes = 3
    weights = "w"
    capabilities = frozenset({"tree", "draft_chain", "kv", "early"})
    rows = torch.zeros(1, 2)

    def sync(self, tokens):
        return Scores(torch.zeros(0, 2))

    def score(self, tree, start=0):
        return Scores(self.rows)


def test_only_what_is_declared_is_reachable():
    model = DraftModel(Narrow(), 4, "narrow")
    assert (
        model.capabilities == {"tree", "draft_chain"}
        and model.capabilities <= CAPABILITIES
        and model.busy == 1.5
    )
    assert model.score(DraftTree()).logits.softmax(-1).tolist() == [[0.5, 0.5, 0.0, 0.0]]
    for name in ("kv", "early", "rows", "model"):
        with pytest.raises(AttributeError):
            getattr(model, name)
    assert "draft_chain" not in DraftModel(Narrow(), 1, "wide").capabilities


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_rows_that_are_no_numbers_become_uniform_and_end_drafting(bad):
    net = Narrow()
    model = DraftModel(net, 2, "narrow")
    model.sync([0, 1])
    assert model.ready()
    net.rows = torch.tensor([[0.0, bad], [1.0, 2.0], [-torch.inf, 0.0]])
    assert model.score(DraftTree.chain([0, 1])).logits.tolist() == [[0.0, 0.0], [1.0, 2.0], [-torch.inf, 0.0]]
    assert not model.ready() and model.problem == {"model": "narrow", "reason": "overflow", "tokens": 2}
