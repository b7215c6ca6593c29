"""Certificates: what they say of right methods, of wrong ones, of near-ties; and the statistics under
them."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from functools import lru_cache
from types import SimpleNamespace

import pytest
import torch

from specviz.core import Method, Sampling
from specviz.evidence import certificate as certify
from specviz.evidence.statistics import ACCEPTANCE, Acceptance, Cells, chi_square, normal_score, p_value
from specviz.methods import catalogue
from specviz.targets.tiny import TinyTarget

from ..exactness import broken_methods as w
from ..exactness.test_broken_methods import CASES, chain, parts
from ..exactness.toys import random_probs, toy
from ..message_codes import begins, refuses
from ..models import tiny

PROMPTS = [[1, 2, 0, 3, 1, 2], [4, 4, 1]]
RIGHT = ["speculative", "block_verification", "draft_tree", "prompt_lookup"]


class Loaded:
    """What specviz.zoo.load gives, around a toy."""

    codec = SimpleNamespace(prompts=())

    def __init__(
        self, vocab: int = 12, share: float = 0.8, sharp: float = 2.0, target=TinyTarget, ends=frozenset()
    ):
        self.toy, self.kind = toy(vocab, share=share, sharp=sharp), target
        self.context, self.end_tokens = 96, ends

    def open_target(self):
        return self.kind(self.toy.net, self.context)

    def kit(self):
        target = self.open_target()
        return SimpleNamespace(
            vocab=self.toy.vocab,
            target=target,
            open=lambda role, required=False: TinyTarget(self.toy.small, self.context),
            open_net=lambda net: TinyTarget(net, self.context),
            head=lambda kind: tiny.head(kind, tiny.body(target)),
        )

    def unsupported_reason(self, method):
        return None

    def knob_limits(self, method):
        return {}


@pytest.fixture
def only(monkeypatch):
    """Put one method in the place of the catalogue."""

    def put(build, **facts):
        method = Method("it", "It", "", "", build=build, **{"needs": frozenset({"draft"}), **facts})
        monkeypatch.setattr(certify, "catalogue", lambda: {"it": method})
        return "it"

    return put


def keys(answer):
    json.dumps(answer, allow_nan=False)
    return set(answer)


@pytest.mark.parametrize("key", RIGHT)
def test_right_methods_are_identical(key):
    answer = certify.greedy(Loaded(ends=frozenset({7})), key, PROMPTS, 40)
    assert keys(answer) == {"status", "tokens", "position", "margin", "detail"}
    assert (
        answer["status"] == "identical"
        and answer["tokens"] > 4
        and answer["position"] is answer["margin"] is None
    )


def test_a_defect_is_named_with_its_place_and_margin(only):
    loaded = Loaded()
    answer = certify.greedy(loaded, only(parts(chain, w.AlwaysAccept)), PROMPTS, 40)
    plain, gaps = certify.plain_decoding(loaded.open_target(), PROMPTS[0], 40)
    assert (
        keys(answer)
        and answer["status"] == "diverged"
        and answer["margin"] == gaps[answer["position"]] > 1e-3
    )
    assert (
        answer["detail"].startswith(begins(certify.TEXTS, "diverged", at=answer["position"]))
        and answer["detail"].count(".") < 6
    )
    lossy = certify.greedy(loaded, only(parts(chain, w.AlwaysAccept), exactness="approximate"), PROMPTS, 40)
    assert lossy["status"] == "diverged" and lossy["detail"].endswith(
        certify.TEXTS["lossy"].format(exactness="approximate")
    )


class Shaky(TinyTarget):
    """Tokens 3 and 5 are equally likely, except for a little wherever several rows are computed together."""

    def _forward(self, rows):
        logits, hidden_states = super()._forward(rows)
        logits[:, 3] += 2
        logits[:, 5] = logits[:, 3] + 1e-7 * (len(rows.ids) > 1)
        return logits, hidden_states


def test_a_near_tie_is_reported_from_a_defect():
    answer = certify.greedy(Loaded(target=Shaky), "speculative", PROMPTS, 40)
    assert answer["status"] == "near_tie" and answer["margin"] < 1e-6 and "rounding" in answer["detail"]


def test_stopping_early_is_a_defect(only):
    class Ends(w.Walk):
        """Takes an unlikely end token for granted."""

        def verify(self, tree, scores, state):
            return replace(super().verify(tree, scores, state), token=next(iter(state.stop)))

    answer = certify.greedy(Loaded(ends=frozenset({11})), only(parts(chain, Ends)), PROMPTS, 40)
    assert answer["status"] == "diverged"


def test_what_cannot_run_says_why():
    loaded = Loaded()
    loaded.unsupported_reason = lambda method: "It needs a draft model."
    assert (
        certify.greedy(loaded, "speculative")["status"]
        == certify.distribution(loaded, "speculative")["status"]
        == "unavailable"
    )
    assert certify.greedy(loaded, "speculative")["detail"] == loaded.unsupported_reason(None)


@pytest.mark.parametrize("key", RIGHT)
def test_right_methods_follow_the_distribution(key):
    answer = certify.distribution(Loaded(vocab=8, sharp=1.2), key, PROMPTS[0], 150)
    assert (
        keys(answer) == {"status", "z", "samples", "detail"}
        and answer["status"] == "pass"
        and abs(answer["z"]) < 4
    )
    assert (begins({"a": ACCEPTANCE}, "a") in answer["detail"]) == (key == "speculative"), answer["detail"]


def test_the_seed_decides():
    loaded = Loaded(vocab=6, sharp=1.2)
    one, again, other = (
        certify.distribution(loaded, "prompt_lookup", PROMPTS[0], 60, Sampling(1.0, seed=seed))
        for seed in (1, 1, 2)
    )
    assert one == again != other


@pytest.mark.parametrize(
    "name",
    [
        "softmax-q test on top-k children",
        "bonus drawn from the draft",
        *(
            pytest.param(name, marks=pytest.mark.thorough)
            for name in ("always accept", "stop rule that drops the token it looked at")
        ),
    ],
)
def test_wrong_methods_fail_the_same_certificate(name, only):
    case, loaded = CASES[name], Loaded(vocab=4, share=0.5, sharp=1.2)
    for build, status in ((case.right, "pass"), (case.wrong, "fail")):
        assert certify.distribution(loaded, only(build), PROMPTS[0], 250, case.sampling)["status"] == status


def test_a_token_of_probability_zero_fails(only):
    answer = certify.distribution(
        Loaded(vocab=3, share=0.3, sharp=0.5),
        only(parts(chain, w.NoTemperature)),
        [1, 2, 0, 1],
        300,
        Sampling(1.0, top_k=2),
    )
    assert keys(answer) and answer["status"] == "fail" and answer["z"] is None


def test_a_wrong_rate_of_acceptance_fails_even_where_the_distribution_is_right(only):
    """Refusing half of what could be kept is compatible when the correction is drawn from p itself; the
    rate gives it away."""

    class Shy(w.Walk):
        def test(self, tree, child, p, state):
            trial = super().test(tree, child, p, state)
            return replace(trial, verdict="rejected", residual=p, rule="ratio")

    answer = certify.distribution(Loaded(vocab=8, sharp=1.0), only(parts(chain, Shy)), PROMPTS[0], 150)
    assert (
        abs(answer["z"]) < 4
        and answer["status"] == "fail"
        and begins({"a": ACCEPTANCE}, "a") in answer["detail"]
    )


def test_no_distribution_is_promised_or_none_can_be_tested():
    lossy = [key for key, method in catalogue().items() if method.exactness != "exact"]
    assert {certify.distribution(Loaded(), key)["status"] for key in lossy} == {"not applicable"}
    certain = certify.distribution(Loaded(), "speculative", PROMPTS[0], 50, Sampling(1e-9))
    assert certain["status"] == "not applicable" and certain["detail"] == certify.TEXTS["no_choice"]


def test_knobs_reach_the_method_and_wrong_ones_are_refused():
    with refuses(ValueError, "knob.unknown", "'width'"):
        certify.greedy(Loaded(), "speculative", PROMPTS, knobs={"width": 2})
    assert certify.greedy(Loaded(), "speculative", PROMPTS, 20, {"gamma": 2})["status"] == "identical"


def test_nothing_global_is_changed():
    before = (
        torch.get_num_threads(),
        torch.is_grad_enabled(),
        torch.get_default_dtype(),
        torch.random.get_rng_state().sum(),
    )
    certify.greedy(Loaded(), "speculative", PROMPTS, 10)
    certify.distribution(Loaded(), "speculative", PROMPTS[0], 20)
    after = (
        torch.get_num_threads(),
        torch.is_grad_enabled(),
        torch.get_default_dtype(),
        torch.random.get_rng_state().sum(),
    )
    assert before == after and not torch.is_inference_mode_enabled()


# --- the statistics ----------------------------------------------------------------------------------------------------
def table(vocab, seed):
    return lru_cache(maxsize=None)(lambda prefix: random_probs(random.Random(f"{seed}/{prefix}"), vocab))


def draw(probs, rng, depth, stop):
    tokens = ()
    while len(tokens) < depth and not (tokens and tokens[-1] in stop):
        tokens += (rng.choices(range(len(probs(tokens))), probs(tokens).tolist())[0],)
    return tokens


@pytest.mark.parametrize("samples", [20, 60, 300, 5000])
@pytest.mark.parametrize("stop", [frozenset(), frozenset({1})], ids=["", "end token"])
def test_cells_hold_everything_that_can_come_up(samples, stop):
    for seed in range(20):
        probs, rng = table(5, seed), random.Random(seed)
        cells = Cells.build(probs, samples, 3, stop)
        assert sum(cells.expected.values()) == pytest.approx(1) and cells.expected
        assert min(cells.expected.values()) * samples >= 5 - 1e-9 or len(cells.expected) == 1
        share = Counter()
        for tokens, prob in continuations(probs, 3, stop):
            share[cells.find(tokens)] += prob
        assert share == pytest.approx(cells.expected)
        assert cells.find(draw(probs, rng, 3, stop)) in cells.expected


def continuations(probs, depth, stop, prefix=(), prob=1.0):
    if len(prefix) == depth or (prefix and prefix[-1] in stop):
        yield prefix, prob
        return
    for token, p in enumerate(probs(prefix).tolist()):
        yield from continuations(probs, depth, stop, (*prefix, token), prob * p)


def test_chi_square_is_a_standard_normal_where_the_distribution_is_right_and_far_off_where_it_is_not():
    probs = table(4, 1)
    shifted = table(4, 2)
    rng = random.Random(0)
    cells = Cells.build(probs, 400, 2)
    right = [
        normal_score(
            *chi_square(cells.expected, Counter(cells.find(draw(probs, rng, 2, ())) for _ in range(400)), 400)
        )
        for _ in range(150)
    ]
    mean = sum(right) / len(right)
    assert (
        abs(mean) < 0.35
        and 0.7 < sum((z - mean) ** 2 for z in right) / len(right) < 1.4
        and max(map(abs, right)) < 4
    )
    assert (
        normal_score(
            *chi_square(
                cells.expected, Counter(cells.find(draw(shifted, rng, 2, ())) for _ in range(400)), 400
            )
        )
        > 8
    )


def test_chi_square_is_infinite_on_the_impossible():
    assert chi_square({"a": 0.5, "b": 0.5}, Counter(a=5, c=1), 6) == (float("inf"), 1)
    assert chi_square({"a": 1.0, "b": 0.0, "c": 0.0}, Counter(a=5, b=1), 6) == (float("inf"), 2)
    assert normal_score(float("inf"), 2) == float("inf") and p_value(float("inf"), 2) == 0


def test_the_chi_square_tail_is_the_known_one():
    assert chi_square({"a": 0.5, "b": 0.5}, Counter({"a": 60, "b": 40}), 100) == (4.0, 1) and p_value(
        4.0, 1
    ) == pytest.approx(0.0455, abs=1e-4)


def test_acceptance_counts_only_draws_from_the_drafts_distribution():
    p, q = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.2, 0.3, 0.5])
    first = Acceptance(p, q)
    for i in range(100):
        first.add({"rule": "ratio", "q": 0.5, "tok": 2, "verdict": "accepted" if i < 70 else "rejected"})
    assert first.overlap == pytest.approx(0.7) and abs(first.z) < 1e-5 and "70.0%" in str(first)
    first.add({"rule": "ratio", "q": 0.1, "tok": 2, "verdict": "accepted"})
    assert first.z == 0 and str(first) == "", "a token of another distribution ends the comparison"
    assert Acceptance(p, None).z == 0 and str(Acceptance(p, q)) == ""
