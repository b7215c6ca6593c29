"""Two models that take turns: BiLD's fallback and rollback, entropy-adaptive decoding."""

from __future__ import annotations

import pytest
import torch

from specviz.core import (
    Budget,
    DraftTree,
    Outcome,
    RandomStreams,
    Sampling,
    Scores,
    State,
    Verdict,
    open_run,
    play,
)
from specviz.methods import catalogue
from specviz.policies.model_switch import EntropySwitch
from specviz.trace.events import Committed, Decided, Verified
from specviz.trace.metrics import Totals

from ..exactness.toys import PROMPT, TinyTarget, cache_error, greedy, toy
from .toys import Tables, commits, decode, notes, probs, same_cache


def reported(events):
    return [(commit.kind, commit.tokens) for commit in commits(events)]


# --- BiLD --------------------------------------------------------------------------------------------------------------
def test_the_small_model_writes_while_it_is_sure_and_falls_back_before_it_is_not():
    """Its distribution is sure of t+1 after any token but 3; there the large one writes, and it would write
    7."""

    def small(tokens):
        return probs(8, **{f"t{(tokens[-1] + 1) % 8}": 0.5 if tokens[-1] == 3 else 0.9})

    def large(tokens):
        return probs(8, **{f"t{7 if tokens[-1] == 3 else (tokens[-1] + 1) % 8}": 0.7})

    state, events = decode("bild", Tables(large, small, 8), [6], 12)
    assert reported(events) == [
        ("plain", (7,)),
        ("bonus", (0, 1, 2, 3, 7)),
        ("bonus", (0, 1, 2, 3, 7)),
        ("plain", (0,)),
    ]
    first = notes(events, "fallback")[0]
    assert first == {"at": 6, "sure": [0.9, 0.9, 0.9, 0.9, 0.5], "least": 0.6, "why": "unsure"}
    assert state.tokens[first["at"]] == 7, "the token at that place is the large one's"
    assert not any(note["back"] for note in notes(events, "rollback"))


def test_what_the_large_model_finds_too_unlikely_is_rolled_back_with_all_behind_it():
    """After 2 the small model is sure of 3, to which the large one gives one in a thousand: -log p is 6.9,
    above 5."""

    def small(tokens):
        return probs(8, **{f"t{(tokens[-1] + 1) % 8}": 0.9})

    def large(tokens):
        return (
            probs(8, t6=0.9, t3=0.001) if tokens[-1] == 2 else probs(8, **{f"t{(tokens[-1] + 1) % 8}": 0.7})
        )

    _, events = decode("bild", Tables(large, small, 8), [7], 9, knobs={"most": 4})
    assert reported(events)[:2] == [("plain", (0,)), ("correction", (1, 2, 6))]
    note = notes(events, "rollback")[0]
    assert (note["at"], note["back"], note["gone"]) == (2, True, 2) and note["nats"][2] == pytest.approx(
        6.9078, abs=1e-3
    )
    assert [t["verdict"] for e in events if isinstance(e, Decided) and e.round == 1 for t in e.decisions] == [
        "accepted",
        "accepted",
        "rejected",
        "skipped",
    ]
    assert notes(events, "fallback")[0]["why"] == "full"
    loose, _ = decode("bild", Tables(large, small, 8), [7], 9, knobs={"most": 4, "rollback": 7.0})
    assert loose.tokens[1:6] == [0, 1, 2, 3, 4], "a higher bound keeps it"


def test_rollback_zero_is_plain_decoding_at_temperature_zero_and_the_paper_default_is_not():
    kit = toy(12, share=0.6, sharp=2.0)
    want = greedy(kit.net.logits, PROMPT, 40)
    exact, _ = decode("bild", kit, PROMPT, 40, knobs={"rollback": 0.0, "fallback": 0.3})
    lossy, events = decode(
        "bild", toy(12, share=0.6, sharp=2.0), PROMPT, 40, knobs={"rollback": 5.0, "fallback": 0.3}
    )
    assert exact.tokens == want != lossy.tokens and lossy.round < exact.round
    assert max(x for note in notes(events, "drift") for x in note["nats"]) > 0.1


@pytest.mark.parametrize(
    "key, knobs", [("bild", {"fallback": 0.4}), ("specdec", {}), ("specreason", {"least": 3.0})]
)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_caches_are_a_fresh_prefills_after_every_round(key, knobs, temperature):
    kit = toy(12, share=0.8, sharp=2.0)
    kit.piece = lambda token: b"." if token < 3 else b"x"
    method, fresh = catalogue()[key], TinyTarget(kit.net, 96)
    parts = method.build(kit, **method.read_knobs(knobs))
    state = State(list(PROMPT), Sampling(temperature, seed=3), limit=30)
    open_run(parts, kit.target, state)
    while not state.done:
        play(parts, kit.target, state)
        assert cache_error(kit.target, fresh, state.tokens) < 1e-11
        for model in kit.opened[1:]:
            assert same_cache(model, TinyTarget(model.net, 96)) < 1e-11


# --- entropy-adaptive decoding -----------------------------------------------------------------------------------------
def outcome(entropy):
    """A round whose distribution has this entropy: two tokens, found by bisection."""
    low, high = 1e-9, 0.5
    for _ in range(60):
        p = (low + high) / 2
        h = -(p * torch.tensor(p).log() + (1 - p) * torch.tensor(1 - p).log())
        low, high = (p, high) if h < entropy else (low, p)
    rows = torch.tensor([[p, 1 - p]]).log()
    return Outcome(DraftTree(), Scores(rows), Verdict((), 0, "plain"), Budget(0), (0,), (0,), {})


def writers(policy, entropies):
    out = []
    for h in entropies:
        out.append(policy.writer[0])
        policy.observe(outcome(h))
    return out


def test_the_mean_over_the_window_decides_who_writes():
    policy = EntropySwitch(window=2, limit=0.3, dwell=1)
    assert writers(policy, [0.1, 0.1, 0.6, 0.6, 0.1, 0.1, 0.1]) == [*"lssllls"]
    assert policy.mean == pytest.approx(0.1, abs=1e-4) and policy.entropy_values()["limit"] == 0.3


def test_nobody_is_relieved_before_the_dwell_is_over():
    policy = EntropySwitch(window=1, limit=0.3, dwell=3)
    assert writers(policy, [0.1, 0.6, 0.1, 0.1, 0.6, 0.6, 0.6, 0.6]) == [*"lllsssll"]


def test_each_token_is_its_writers_own_choice_and_only_the_large_ones_have_a_pass():
    kit = toy(12, share=0.5, sharp=2.0)
    state, events = decode("entropy_adaptive", kit, PROMPT, 40, knobs={"limit": 1.2, "window": 2, "dwell": 2})
    writers = [note["writer"] for note in notes(events, "switch")]
    assert {"small", "large"} == set(writers) and writers[:2] == ["large"] * 2
    for i, writer in enumerate(writers):
        at = len(PROMPT) + i
        net = kit.net if writer == "large" else kit.small
        assert state.tokens[at] == int(net.logits(state.tokens[:at])[-1].argmax())
    assert [c.kind for c in commits(events)] == [
        "plain" if writer == "large" else "small" for writer in writers
    ]
    totals = Totals()
    for event in events:
        totals.fold(event)
    assert totals.rounds == writers.count("large") == sum(isinstance(e, Verified) for e in events)
    assert (
        totals.metrics()["block_efficiency"] == pytest.approx(40 / writers.count("large"))
        and totals.drafted == totals.tried == 0
    )
    read = sum(e.rows for e in events if isinstance(e, Verified))
    last = max(i for i, writer in enumerate(writers) if writer == "large")
    assert read == last + 1, (
        "the target reads every token once: the root, and what the small model wrote since"
    )
    assert [c.kv["before"] for c in commits(events)][0] == len(PROMPT) - 1 and commits(events)[last].kv[
        "after"
    ] == len(PROMPT) + last


def test_the_mean_in_the_lens_is_what_decided():
    kit = toy(12, share=0.5, sharp=2.0)
    _, events = decode("entropy_adaptive", kit, PROMPT, 40, knobs={"limit": 1.2, "window": 3, "dwell": 1})
    reported = notes(events, "switch")
    for i in range(3, len(reported) - 1):
        assert reported[i]["mean"] == pytest.approx(
            sum(x["entropy"] for x in reported[i - 2 : i + 1]) / 3, abs=1e-4
        )
        assert reported[i + 1]["writer"] == ("large" if reported[i]["mean"] > 1.2 else "small")


def test_without_a_limit_it_is_one_model_or_the_other():
    kit = toy(12, share=0.5, sharp=2.0)
    want = greedy(kit.net.logits, PROMPT, 20)
    assert decode("entropy_adaptive", kit, PROMPT, 20, knobs={"limit": 0.0})[0].tokens == want
    state, _ = decode("entropy_adaptive", kit, PROMPT, 20, knobs={"limit": 8.0, "dwell": 1})
    assert state.tokens == greedy(kit.small.logits, state.tokens[: len(PROMPT) + 1], 19) != want


def test_a_model_that_is_relieved_catches_up_and_its_cache_is_a_fresh_prefills():
    kit = toy(12, share=0.5, sharp=2.0)
    method = catalogue()["entropy_adaptive"]
    parts = method.build(kit, **method.read_knobs({"limit": 1.5, "window": 2, "dwell": 2}))
    state = State(list(PROMPT), Sampling(1.0), RandomStreams(5), 40)
    small = kit.opened[1]
    seen = 0
    for event in parts.loop(parts, kit.target, state):
        if isinstance(event, Committed):
            writer = kit.target if event.kind == "plain" else small
            assert cache_error(writer, TinyTarget(writer.net, 96), state.tokens) < 1e-11
            assert len(kit.target.cached_tokens) <= event.kv["after"], "rows may wait for the next pass"
            assert kit.target.cached_tokens == state.tokens[: len(kit.target.cached_tokens)]
            seen += event.kind == "small"
    assert 0 < seen < 40
