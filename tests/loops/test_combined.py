"""FS-GEN's collaborative decoding: speculation on two models together follows the distribution of the two
together, exactly."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from specviz.core import DraftTree, RandomStreams, Sampling, Scores, State, open_run, play
from specviz.loops.mixed_target import MixedTarget, contrastive_mix, proxy_mix
from specviz.methods import catalogue
from specviz.policies.routers import ROUTERS, always, margin_below, top1_below
from specviz.targets.fast import FastModel

from ..exactness.enumeration import distance, joint, probs_of_engine
from ..exactness.toys import PROMPT, TinyTarget, greedy, toy
from ..methods.toys import Rows
from ..targets.tiny import CONFIGS, network
from .toys import Tables, decode, notes, probs, same_cache

KEYS = ("contrastive_decoding", "proxy_decoding")


def reference(kit, key, knobs):
    """The combined logits [tokens, vocab] of a text, from the two networks without a cache: written again,
    from the papers."""

    def logits(tokens):
        large, small = kit.net.logits(tokens), kit.small.logits(tokens)
        if key == "contrastive_decoding":
            both = small + knobs["beta"] * (large - small)
            both[large < large.max(-1, keepdim=True).values + math.log(knobs["alpha"])] = -math.inf
        else:
            both = large + knobs["alpha"] * (small - half(kit.small, tokens))
        distributions = small.softmax(-1)
        first, second = distributions.topk(2).values.unbind(-1)
        asked = {"always": first >= 0, "max probability": first < 0.5, "delta": (first - second) / 2 < 0.2}[
            knobs["router"]
        ]
        return torch.where(asked[:, None], both, small)

    return logits


def half(net, tokens):
    """Logits after the first of the net's two layers."""
    n = len(tokens)
    mask = torch.full((n, n), -torch.inf, dtype=net.output.dtype).triu(1)
    x = net.embed(tokens)
    x = net.block(
        net.layers[0],
        x,
        x.new_zeros(2, net.heads, n, net.width // net.heads),
        0,
        net.rotations(list(range(n))),
        mask,
    )
    return net.head(net.norm(x))


SETTINGS = [
    ("contrastive_decoding", {"beta": beta, "alpha": alpha, "router": router, "gamma": 2})
    for beta, alpha, router in (
        (0.5, 0.1, "always"),
        (1.7, 0.3, "always"),
        (0.5, 0.1, "max probability"),
        (1.7, 0.1, "delta"),
    )
]
SETTINGS += [
    ("proxy_decoding", {"alpha": alpha, "router": router, "gamma": 2})
    for alpha, router in ((1.0, "always"), (0.7, "max probability"))
]


@pytest.mark.parametrize(
    "key, knobs", SETTINGS, ids=lambda x: x if isinstance(x, str) else "-".join(map(str, x.values()))
)
def test_the_distribution_is_that_of_the_two_together(key, knobs):
    """Enumerated on the real engine, caches included, and told apart from the target's own distribution."""
    kit = toy(3, share=0.4, sharp=1.2)
    sampling = Sampling(1.0)
    prompt = [1, 2, 0]
    count = 2
    method = catalogue()[key]
    parts = method.build(kit, **method.read_knobs(knobs))
    helpers = parts.helpers
    pair = MixedTarget(
        kit.target,
        helpers["small"],
        helpers["mix"],
        helpers["router"],
        helpers.get("hidden_states", frozenset()),
    )
    state = State(list(prompt), sampling, limit=count)
    open_run(parts, pair, state)
    accepted = [0.0]

    def after(target, state, outcome, prob):
        accepted[0] += prob * len(outcome.verdict.path)

    probs, endings = probs_of_engine(parts, pair, state, count, after, (kit.net, kit.small))
    combined = joint(reference(kit, key, knobs), prompt, count, sampling, 3)
    assert distance(probs, combined) < 1e-12 and endings >= 6 and accepted[0] > 0.05
    assert distance(combined, joint(kit.net.logits, prompt, count, sampling, 3)) > 0.01
    assert method.exactness == "approximate"


@pytest.mark.parametrize(
    "key, knobs", SETTINGS, ids=lambda x: x if isinstance(x, str) else "-".join(map(str, x.values()))
)
def test_at_temperature_zero_speculation_writes_what_the_two_would_write_token_by_token(key, knobs):
    for share in (0.0, 0.8):
        kit = toy(12, share=share, sharp=2.0)
        state, events = decode(key, kit, PROMPT, 30, knobs={**knobs, "gamma": 4})
        assert state.tokens == greedy(reference(kit, key, knobs), PROMPT, 30)
        drift = [x for note in notes(events, "drift") for x in note["nats"]]
        same = state.tokens == greedy(kit.net.logits, PROMPT, 30)
        assert len(drift) == 30 and (max(drift) < 1e-12) == same


@pytest.mark.parametrize("key", KEYS)
def test_caches_are_a_fresh_prefills_after_every_round(key):
    kit = toy(12, share=0.8, sharp=2.0)
    method = catalogue()[key]
    parts = method.build(kit, **method.read_knobs({}))
    helpers = parts.helpers
    pair = MixedTarget(
        kit.target,
        helpers["small"],
        helpers["mix"],
        helpers["router"],
        helpers.get("hidden_states", frozenset()),
    )
    state = State(list(PROMPT), Sampling(1.0), RandomStreams(2), 30)
    open_run(parts, pair, state)
    while not state.done:
        play(parts, pair, state)
        assert kit.target.cached_tokens == helpers["small"].cached_tokens == state.tokens[:-1]
        for model in kit.opened:
            assert same_cache(model, TinyTarget(model.net, 96)) < 1e-11


def test_real_networks_write_what_they_would_write_token_by_token(tmp_path):
    for seed, name in enumerate(("target", "draft")):
        network(CONFIGS["llama"](), seed).save_pretrained(tmp_path / name)
    models = [FastModel(tmp_path / name, device="cpu") for name in ("target", "draft")]

    class Kit:
        target, vocab = models[0].open(), models[0].vocab

        def open(self, role, required=False):
            return models[1].open()

    for key in KEYS:
        plain, fast = (
            decode(key, Kit(), [7, 3, 21, 7], 14, knobs={"gamma": gamma, "alpha": 0.2})[0].tokens
            for gamma in (1, 5)
        )
        assert plain == fast and len(set(plain)) > 4


def test_the_mixtures_are_the_papers():
    large, small = torch.tensor([[2.0, 0.0, -4.0]]), Scores(torch.tensor([[1.0, 1.0, 1.0]]))
    assert contrastive_mix(0.5, 0.1)(large, small).tolist() == [
        [1.5, 0.5, -math.inf]
    ]  # 0 is above 2 + ln 0.1, -4 is below
    assert contrastive_mix(2.0, 0.1)(large, small).tolist() == [[3.0, -1.0, -math.inf]]
    assert contrastive_mix(1.0, 0.001)(large, small).tolist() == large.tolist()
    assert proxy_mix(2.0, lambda scores: torch.tensor([[0.0, 1.0]]))(large, small).tolist() == [
        [4.0, 0.0, -4.0]
    ], "a narrower model"


@pytest.mark.parametrize(
    "router, want",
    [(always, [True] * 3), (top1_below(0.5), [False, True, False]), (margin_below(0.2), [False, True, True])],
)
def test_routers_ask_where_the_small_model_hesitates(router, want):
    distributions = torch.tensor([[0.9, 0.05, 0.05], [0.4, 0.35, 0.25], [0.55, 0.45, 0.0]])
    assert router(distributions).tolist() == want and set(ROUTERS) == {"always", "max probability", "delta"}


def test_the_target_is_only_heard_where_it_is_asked_and_drafts_end_there():
    """The small model is sure of t+1 but after 3, where it wavers; there the target's 6 weighs in."""

    def small(tokens):
        return probs(8, t4=0.35, t5=0.3) if tokens[-1] == 3 else probs(8, **{f"t{(tokens[-1] + 1) % 8}": 0.9})

    kit = Tables(lambda tokens: probs(8, t6=0.9), small, 8)
    kit.target.capture = lambda names: None
    state, events = decode(
        "contrastive_decoding", kit, [0], 8, knobs={"router": "max probability", "beta": 1.0, "gamma": 8}
    )
    assert state.tokens == [0, 1, 2, 3, 6, 7, 0, 1, 2]
    asked = [x for note in notes(events, "combined") for x in note["asked"]]
    assert asked == [False, False, False, True, False, False, False, False]
    assert [len(note["tokens"]) for note in notes(events, "combined")][0] == 4, (
        "the draft ends with the token it hesitates over"
    )


def test_tokens_the_small_model_does_not_know_are_the_targets_alone():
    class Narrow(Rows):
        def score(self, tree, start=0):
            scores = super().score(tree, start)
            scores.logits[:, 3] = -math.inf
            return scores

    ours, theirs = (
        torch.tensor([0.2, 0.2, 0.2, 0.4], dtype=torch.float64),
        torch.tensor([0.6, 0.2, 0.2, 0.0], dtype=torch.float64),
    )
    for beta in (0.5, 2.0):
        pair = MixedTarget(
            Rows(lambda tokens: ours, 4),
            Narrow(lambda tokens: theirs, 4),
            contrastive_mix(beta, 0.001),
            always,
        )
        pair.sync([0])
        row = pair.score(DraftTree()).logits[0]
        assert float(row[3]) == pytest.approx(float(ours[3].log())) and row.isfinite().all()


def test_the_lens_tells_what_each_thought_of_every_token():
    kit = toy(6, share=0.5, sharp=1.5)
    state, events = decode("contrastive_decoding", kit, PROMPT, 20, Sampling(1.0))
    reported = notes(events, "combined")
    assert list(itertools.chain(*(note["tokens"] for note in reported))) == state.tokens[len(PROMPT) :]
    at = len(PROMPT)
    for note in reported:
        for i, token in enumerate(note["tokens"]):
            for name, net in (("large", kit.net), ("small", kit.small)):
                assert note[name][i] == pytest.approx(
                    float(net.logits(state.tokens[:at])[-1].softmax(-1)[token]), abs=1e-5
                )
            at += 1
