"""What the server lets through, whatever a program sends."""
from __future__ import annotations

import math
from itertools import product

import pytest

from specviz import catalogue
from specviz.ui.cards import cards
from specviz.ui.controls import unlawful
from specviz.ui.limits import BASELINE, Refused, Turnstile, read, titles

from .fake import CARDS

KNOWN = {card.key: card for card in CARDS}


def ask(**given):
    return read(KNOWN, **({"prompt": "hello", "methods": ["chain"]} | given))


@pytest.mark.parametrize("field, values, says", [
    ("prompt", ["", "  \n", None], "prompt is empty"),
    ("prompt", [7, {"a": 1}, ["x"]], "prompt must be text"),
    ("prompt", ["x" * 4001], "limit is 4,000"),
    ("max_new_tokens", [-1, 0, 1e9, 513], "must lie between 1 and 512"),
    ("max_new_tokens", [math.nan, "abc", None, 3.5, True, {}, math.inf, "9" * 400], "must be a whole number"),
    ("temperature", [-1, 2.1], "must lie between 0 and 2"),
    ("temperature", [math.inf, math.nan, None, "hot", []], "must be a number"),
    ("top_p", [0, -1, 2], "must lie between"),
    ("seed", [-1, 2**31], "seed must lie"),
    ("seed", [None, "x", 1.5], "seed must be a whole number"),
    ("prompts", [0, 9, -1], "Prompts at once must lie between 1 and 8"), ("prompts", ["many", None, 1.5, True], "Prompts at once must be a whole"),
    ("methods", [["nope"], ["../../x"], ["chain", "http://x"]], "There is no method"),
    ("methods", [7, [1], {"a": 1}, [None]], "list of method names"),
    ("methods", [["chain", "tree", "lookup", "heads", {"method": "chain", "knobs": {"gamma": 2}}]], "At most 5 lanes"),
    ("knobs", [[1], "x", {"chain": 1}], "knobs must be given"),
    ("knobs", [{"nope": {}}], "There is no method"),
    ("turns", ["x", [1], [{"role": "root", "content": "x"}], [{"role": "user", "content": 1}]], "Earlier messages must be"),
    ("turns", [[{"role": "user", "content": "x"}] * 41], "too long to continue"),
    ("system", [7, ["x"]], "system prompt must be text"),
    ("target", [7, "x" * 201], "must be given by its name"),
])
def test_what_does_not_fit_is_refused_with_a_sentence(field, values, says):
    for value in values:
        with pytest.raises(Refused, match=says) as refused:
            ask(**{field: value})
        sentence = str(refused.value)
        assert sentence.endswith((".", "}.")) and len(sentence) < 300 and "Traceback" not in sentence


def test_the_baseline_is_always_the_last_lane():
    for methods in ([], None, "chain", ["chain", BASELINE], [BASELINE, "chain", "chain"]):
        lanes = [key for key, _ in ask(methods=methods).lanes]
        assert lanes[-1] == BASELINE and lanes.count(BASELINE) == 1 and len(lanes) == len(set(lanes)) <= 2


def test_a_method_comes_again_with_other_knobs_and_the_same_lane_only_once():
    again = {"method": "chain", "knobs": {"gamma": 8}}
    got = ask(methods=["chain", again, again, {"method": "tree"}], knobs={"chain": {"gamma": 3}}).lanes
    assert [(key, knobs.get("gamma")) for key, knobs in got[:2]] == [("chain", 3), ("chain", 8)]
    assert [key for key, _ in got] == ["chain", "chain", "tree", BASELINE]
    names = titles(got, KNOWN)
    assert names[0].endswith("gamma 3") and names[1].endswith("gamma 8") and names[2] == KNOWN["tree"].title
    for bad in ([{"knobs": {}}], [{"method": 3}], [{"method": "chain", "knobs": 4}], {"knobs": {}}):
        with pytest.raises(Refused, match="list of method names"):
            ask(methods=bad)


def test_what_fits_is_taken_as_it_is():
    got = ask(max_new_tokens="12", temperature="0.5", top_p=1, seed=2.0, knobs={"chain": {"gamma": 7}}, target="",
              turns=[{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], system="s")
    assert (got.max_new_tokens, got.temperature, got.seed, got.target) == (12, 0.5, 2, None)
    assert dict(got.lanes)["chain"]["gamma"] == 7
    assert [m["role"] for m in got.messages()] == ["system", "user", "assistant", "user"]


def test_half_a_character_becomes_a_question_mark():
    assert ask(prompt="a\ud800b").prompt == "a?b"


def test_real_knobs_are_refused_in_the_methods_own_words():
    from specviz.ui.cards import cards

    with pytest.raises(Refused, match="gamma must"):
        read(cards(), prompt="x", methods=["speculative"], knobs={"speculative": {"gamma": "many"}})
    with pytest.raises(Refused, match="no knob"):
        read(cards(), prompt="x", methods=["speculative"], knobs={"speculative": {"nope": 1}})


def test_the_line_is_first_come_first_served_and_ends_somewhere():
    line = Turnstile(waiting=2)
    tickets = [line.enter() for _ in range(3)]
    assert [line.ahead(t) for t in tickets] == [0, 1, 2]
    with pytest.raises(Refused, match="2 runs are waiting"):
        line.enter()
    line.leave(tickets[1])
    line.leave(tickets[1])
    assert [line.ahead(tickets[0]), line.ahead(tickets[2])] == [0, 1]
    line.leave(tickets[0])
    assert line.ahead(tickets[2]) == 0


def test_grey_choices_are_the_unlawful_ones_and_every_lawful_pair_can_be_reached():
    """What the page greys is what the catalogue refuses; no lawful setting is locked away behind a grey one."""
    catalogued, ruled = catalogue(), 0
    for card in cards().values():
        knobs = [knob for knob in card.knobs if any(knob.only_with or knob.name == other for k in card.knobs for _, other, _ in k.only_with)]
        space = [dict(zip([k.name for k in knobs], values)) for values in product(*(k.choices or (k.low, k.high) for k in knobs))] if knobs else []
        full = {k.name: k.default for k in card.knobs}

        compatible_verifiers = [held for held in space if not _refused(catalogued[card.key], held)]
        for held in compatible_verifiers:
            off = unlawful(card.knobs, full | held)
            for knob in knobs:
                assert {c for c in knob.choices if _refused(catalogued[card.key], held | {knob.name: c})} == set(off.get(knob.name, ()))
        seen, front = [], compatible_verifiers[:1]
        while front:
            seen += front
            front = [h for h in compatible_verifiers if h not in seen and any(sum(h[n] != s[n] for n in h) == 1 for s in seen)]
        assert len(seen) == len(compatible_verifiers)
        ruled += bool(knobs)
    assert ruled


def _refused(method, held):
    try:
        method.read_knobs(held)
    except ValueError:
        return True
    return False
