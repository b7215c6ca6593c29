"""The certificate over whole answers: uniform where the distribution holds, bent by each known mistake, and
honest about how sure it is."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from specviz.core import Method, Parts, Sampling
from specviz.drafters.model.chain import DraftChain
from specviz.evidence import whole_answers as whole
from specviz.evidence.statistics import CELLS, FEW, kolmogorov_smirnov_p, p_value, uniformity_p_values
from specviz.lab.broken_methods import BUILT, broken
from specviz.methods import catalogue
from specviz.policies import Fixed
from specviz.targets.tiny import TinyTarget
from specviz.verifiers import TokenRejection

from ..exactness import broken_methods as w
from ..exactness.test_broken_methods import chain, parts
from ..message_codes import refuses
from .test_certificate import PROMPTS, RIGHT, Loaded


class ArgmaxBonus(TokenRejection):
    """After full acceptance the target's best token is written instead of a drawn one."""

    def verify(self, tree, scores, state):
        verdict = super().verify(tree, scores, state)
        return replace(verdict, token=int(verdict.probs.argmax())) if verdict.kind == "bonus" else verdict


class WarmBonus(TokenRejection):
    """After full acceptance a token of the distribution without temperature and filters is written."""

    def verify(self, tree, scores, state):
        verdict = super().verify(tree, scores, state)
        if verdict.kind != "bonus":
            return verdict
        return replace(
            verdict,
            token=state.rng.pick("verify", scores.logits[(verdict.path or (-1,))[-1] + 1].softmax(-1)),
        )


class NothingTwice(TokenRejection):
    """After full acceptance no token is written twice in a row."""

    def verify(self, tree, scores, state):
        verdict = super().verify(tree, scores, state)
        if verdict.kind != "bonus" or not verdict.path:
            return verdict
        probs = verdict.probs.clone()
        probs[tree.tokens[verdict.path[-1]]] = 0
        return replace(verdict, token=state.rng.pick("verify", probs / probs.sum()))


class SecondChance(w.Walk):
    """A chosen token that was refused may be written all the same."""

    def test(self, tree, child, p, state):
        decision = super().test(tree, child, p, state)
        return replace(decision, residual=p) if decision.verdict == "rejected" else decision


class StaleDistribution(DraftChain):
    """The first node carries the distribution that the first node of the round before was drawn from."""

    old = None

    def propose(self, state, budget):
        tree = super().propose(state, budget)
        if not len(tree):
            return tree
        fresh, self.old = self.old, tree.probs[:1]
        return tree if fresh is None else replace(tree, probs=torch.cat([fresh, tree.probs[1:]]))


def wrong(build) -> Method:
    return Method("it", "It", "", "test", build)


WRONG = {
    "bonus: the best token": wrong(parts(chain, ArgmaxBonus)),
    "bonus from the draft": wrong(parts(chain, w.BonusFromDraft)),
    "bonus: warm and unfiltered": wrong(parts(chain, WarmBonus)),
    "bonus: nothing twice": wrong(parts(chain, NothingTwice, 1)),
    "a lookup's token has a second chance": wrong(parts(lambda kit: w.Told(2), SecondChance)),
    "no residual": wrong(parts(chain, w.NoResidual)),
    "wrong temperature": wrong(parts(chain, w.NoTemperature)),
    "stale draft distribution": wrong(parts(lambda kit: StaleDistribution(kit.open("draft")))),
    **{key: broken(key) for key in BUILT if key != "none"},
}


def ask(method, tokens=600, **how):
    loaded = Loaded(share=0.3, sharp=1.2, **how)
    answer = whole.certify_answers(loaded, method, PROMPTS, tokens)
    json.dumps(answer, allow_nan=False)
    return answer


@pytest.mark.parametrize(
    "key", [pytest.param(key, marks=[pytest.mark.thorough] if i % 2 else []) for i, key in enumerate(RIGHT)]
)
def test_a_right_method_is_flat(key):
    answer = ask(key, ends=frozenset({7}))
    # Whether a right method is looked at again depends on the processor's rounding.
    assert (
        answer["status"] == "pass"
        and answer["samples"] == sum(answer["histogram"])
        and not answer["impossible"]
    )
    assert answer["samples"] in [600 * look for look in whole.LOOKS]
    parts_of_all = [
        group["samples"]
        for name, group in answer["groups"].items()
        if name not in ("all", whole.RATIO, whole.NUMBER, whole.DRAWN, *whole.RANKS)
    ]
    assert sum(parts_of_all) == answer["samples"] and f"p = {answer['p']:.2g}" in answer["detail"]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.thorough if i % 6 else []) for i, name in enumerate(WRONG)]
)
def test_each_known_mistake_is_caught(name):
    answer = ask(WRONG[name], 2400 if name.startswith("stale") else 900)
    assert answer["status"] == "fail" and answer["p"] < whole.CHANCE, answer["detail"]


@pytest.mark.thorough
def test_a_wrong_bonus_is_reported_by_its_own_tokens():
    answer = ask(WRONG["bonus: the best token"])
    assert (
        whole.TEXTS["worst"].format(group="bonus") in answer["detail"]
        and answer["groups"]["drafted"]["p"] > 1e-4
    )


def test_what_was_accepted_is_uniform_only_together_with_the_corrections():
    """Why these two are one group: apart, a right method would be called wrong."""
    loaded, method = Loaded(share=0.3, sharp=1.2), catalogue()["speculative"]
    measure_missing, how = whole.answer_generators(loaded, method, {"gamma": 2}, PROMPTS, Sampling(1.0)), []
    grouped = whole._group
    whole._group = lambda kind: how.append(kind) or grouped(kind)
    try:
        places = whole.PitValues()
        while len(places.values) < 600:
            next(measure_missing)(places)
    finally:
        whole._group = grouped
    alone = [x for x, kind in zip(places.values, how) if kind == "correction"]
    assert min(uniformity_p_values(alone)) < 1e-3 < min(uniformity_p_values(places.group("drafted")))


def test_what_promises_no_distribution_or_cannot_run():
    lossy = [key for key, method in catalogue().items() if method.exactness != "exact"]
    assert {whole.certify_answers(Loaded(), key)["status"] for key in lossy} == {"not applicable"}
    loaded = Loaded()
    loaded.unsupported_reason = lambda method: "It needs a draft model."
    assert whole.certify_answers(loaded, "speculative") == {
        "status": "unavailable",
        "detail": loaded.unsupported_reason(None),
    }


def test_a_token_of_probability_zero_fails_by_itself():
    class Last(TokenRejection):
        def verify(self, tree, scores, state):
            return replace(super().verify(tree, scores, state), token=int(scores.logits[0].argmin()))

    answer = ask(wrong(parts(chain, Last)), 200)
    assert (
        answer["status"] == "fail"
        and answer["impossible"]
        and answer["p"] == 0.0
        and whole.TEXTS["impossible"].format(count=answer["impossible"]) in answer["detail"]
    )


@pytest.mark.thorough
def test_knobs_reach_the_method_and_short_drafts_stay_in_range():
    with refuses(ValueError, "knob.unknown", "'width'"):
        whole.certify_answers(Loaded(), "speculative", PROMPTS, 10, {"width": 2})
    for method in catalogue().values():
        for depth, _, _ in whole.SETTINGS:
            method.read_knobs(whole.draft_depth_knobs(method, depth))
    seen = []
    spy = replace(
        catalogue()["speculative"],
        build=lambda kit, gamma: seen.append(gamma) or Parts(chain(kit), Fixed(gamma), TokenRejection()),
    )
    whole.certify_answers(Loaded(), spy, PROMPTS, 10)
    assert seen == [4 if depth is None else depth for depth, _, _ in whole.SETTINGS]
    seen.clear()
    whole.certify_answers(Loaded(), spy, PROMPTS, 10, {"gamma": 3})
    assert seen == [3] * len(whole.SETTINGS)


def test_a_place_lies_in_the_mass_of_its_token():
    loaded = Loaded(vocab=5)
    target, tokens = loaded.open_target(), [2, 0, 4, 1]
    places = whole.token_positions(target, [1, 3], tokens, Sampling(1.0))
    for at, (token, (probs_there, _, place, ratio, number, _, _)) in enumerate(zip(tokens, places)):
        fresh = TinyTarget(loaded.toy.net, 96)
        fresh.sync([1, 3, *tokens[:at]])
        probs = fresh.score(whole.DraftTree()).logits[0].softmax(-1)
        before = float(probs[probs > probs[token]].sum())
        assert before <= place <= before + float(probs[token]) + 1e-9 and ratio is None
        assert float(probs[:token].sum()) - 1e-6 <= number <= float(probs[: token + 1].sum()) + 1e-6
        torch.testing.assert_close(probs_there, probs.double(), atol=1e-6, rtol=0)


# --- the tests of uniformity -------------------------------------------------------------------------------------------
def test_p_values_of_even_numbers_are_even():
    """Below each level lie about as many p-values as the level says: so a right method fails as rarely as
    it is told."""
    source, count = torch.Generator().manual_seed(3), 500
    rows = torch.rand(count, 300, generator=source, dtype=torch.float64).tolist()
    found = [uniformity_p_values(row, serial=True) for row in rows]
    assert {len(tests) for tests in found} == {3}
    for which in range(3):
        for level in (0.5, 0.1, 0.02):
            share = sum(tests[which] < level for tests in found) / count
            assert abs(share - level) < 4.5 * (level * (1 - level) / count) ** 0.5, (which, level, share)


def test_too_few_values_are_no_evidence():
    assert uniformity_p_values([0.5] * (FEW - 1)) == [] and min(uniformity_p_values([0.5] * FEW)) < 1e-9
    assert whole.PitValues([0.5] * 10, ["plain"] * 10).report()["p"] == 1.0


def test_neighbours_that_repeat_each_other_are_noticed():
    source = torch.Generator().manual_seed(1)
    even = torch.rand(200, generator=source, dtype=torch.float64)
    twice = even.repeat_interleave(2).tolist()
    assert uniformity_p_values(twice, serial=True)[2] < 1e-9


def test_the_tails_are_the_known_ones():
    assert p_value(CELLS - 1, CELLS - 1) == pytest.approx(0.4515, abs=1e-3) and p_value(
        3.841, 1
    ) == pytest.approx(0.05, abs=1e-3)
    # the 5 % point of the distance for large n is 1.3581 / sqrt(n)
    count, shift = 10_000, 1.3581 / 100
    x = ((torch.arange(count, dtype=torch.float64) + 0.5) / count + shift).clamp(max=1)
    assert kolmogorov_smirnov_p(x) == pytest.approx(0.05, abs=0.004)
