"""Limits of a request and of the queue, whatever a program sends."""

from __future__ import annotations

import math
from itertools import product

import pytest

from specviz import catalogue
from specviz.engine.cards import cards
from specviz.engine.limits import BASELINE, SIZES, Refused, RunQueue, check_size, lane_titles, read_request
from specviz.ui.controls import incompatible_choices
from specviz.ui.lab_questions import LabQuestions

from ..ui.fake import CARDS, FakeBackend

KNOWN = {card.key: card for card in CARDS}


def ask(**given):
    return read_request(KNOWN, **({"prompt": "hello", "methods": ["chain"]} | given))


@pytest.mark.parametrize(
    "field, values, code",
    [
        ("prompt", ["", "  \n", None], "field.empty"),
        ("prompt", [7, True], "field.text"),
        ("prompt", [{"a": 1}, ["x"]], "size.values"),
        ("prompt", ["x" * 4001], "size.text"),
        ("max_new_tokens", [-1, 0, 1e9, 513], "field.range"),
        ("max_new_tokens", [math.nan, "abc", None, 3.5, True, {}, math.inf, "9" * 30 + "x"], "field.number"),
        ("max_new_tokens", ["9" * 41, 10**500], "size.text"),
        ("temperature", [-1, 2.1], "field.range"),
        ("temperature", [math.inf, math.nan, None, "hot", []], "field.number"),
        ("top_p", [0, -1, 2], "field.range"),
        ("seed", [-1, 2**53], "field.range"),
        ("seed", [None, "x", 1.5], "field.number"),
        ("prompts", [0, 9, -1], "field.range"),
        ("prompts", ["many", None, 1.5, True], "field.number"),
        ("methods", [["nope"], ["../../x"], ["chain", "http://x"]], "field.method"),
        ("methods", [7, [1], {"a": 1}, [None]], "field.methods"),
        (
            "methods",
            [["chain", "tree", "lookup", "heads", {"method": "chain", "knobs": {"gamma": 2}}]],
            "field.lanes",
        ),
        ("knobs", [[1], "x", {"chain": 1}], "field.knobs"),
        ("knobs", [{"nope": {}}], "field.method"),
        (
            "turns",
            ["x", [1], [{"role": "root", "content": "x"}], [{"role": "user", "content": 1}]],
            "field.turns",
        ),
        ("turns", [[{"role": "user", "content": "x"}] * 41], "field.conversation"),
        ("system", [7], "field.text"),
        ("system", [["x"]], "size.values"),
        ("target", [7], "field.model"),
        ("target", ["x" * 201], "size.text"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(field, values, code):
    for value in values:
        with pytest.raises(Refused) as refused:
            ask(**{field: value})
        sentence = str(refused.value)
        assert refused.value.code == code, (value, refused.value.code)
        assert sentence.endswith((".", "}.")) and len(sentence) < 300


MANY = 100_000
LARGE = {
    "text": "x" * MANY,
    "list": ["chain"] * MANY,
    "object": {f"k{i}": 1 for i in range(MANY)},
    "digits": 10**MANY,
    "key": {"k" * MANY: 1},
    "objects": [{"method": "chain", "knobs": {}}] * MANY,
    "inner": {"chain": {f"k{i}": 1 for i in range(MANY)}},
}
for shape, inner in (("lists", lambda v: [v]), ("nested", lambda v: {"a": v})):
    LARGE[shape] = 1
    for _ in range(MANY):
        LARGE[shape] = inner(LARGE[shape])


@pytest.mark.parametrize("shape", LARGE)
@pytest.mark.parametrize("field", SIZES)
def test_a_hundred_thousand_of_anything_is_refused_by_size_alone(field, shape):
    """Every field of every endpoint: its size is checked before anything else is done with it."""
    with pytest.raises(Refused) as refused:
        if field == "name" or field == "payload":
            LabQuestions(FakeBackend(), RunQueue())._check(
                LARGE[shape] if field == "name" else "echo", LARGE[shape] if field == "payload" else {}
            )
        elif field.endswith("body") or field == "session":
            check_size(field, LARGE[shape])
        else:
            given = {"generation": {"n": LARGE[shape]}} if field == "n" else {field: LARGE[shape]}
            read_request(Untouched(), **({"prompt": "x"} | given))
    assert refused.value.code.startswith("size.")


def test_only_a_pictures_data_url_may_be_longer_than_a_text():
    url = "data:image/png;base64," + "A" * MANY
    check_size("openai body", {"messages": [{"content": [{"image_url": {"url": url}}]}]})
    check_size("prompt", "data:image/ is how such a URL begins")
    for field, value in (("openai body", "x" + url), ("body", url), ("openai body", url * 20)):
        with pytest.raises(Refused) as refused:
            check_size(field, [value])
        assert refused.value.code == "size.text"


class Untouched(dict):
    """Cards that nobody may ask for before the size of everything is known."""

    def __getattribute__(self, name):
        raise AssertionError(f"{name} was used")


def test_the_baseline_is_always_the_last_lane():
    for methods in ([], None, "chain", ["chain", BASELINE], [BASELINE, "chain", "chain"]):
        lanes = [key for key, _ in ask(methods=methods).lanes]
        assert lanes[-1] == BASELINE and lanes.count(BASELINE) == 1 and len(lanes) == len(set(lanes)) <= 2


def test_a_method_comes_again_with_other_knobs_and_the_same_lane_only_once():
    again = {"method": "chain", "knobs": {"gamma": 8}}
    got = ask(methods=["chain", again, again, {"method": "tree"}], knobs={"chain": {"gamma": 3}}).lanes
    assert [(key, knobs.get("gamma")) for key, knobs in got[:2]] == [("chain", 3), ("chain", 8)]
    assert [key for key, _ in got] == ["chain", "chain", "tree", BASELINE]
    names = lane_titles(got, KNOWN)
    assert names[0].endswith("gamma 3") and names[1].endswith("gamma 8") and names[2] == KNOWN["tree"].title
    half = ask(
        methods=["chain", {"method": "chain", "knobs": {"gamma": 8}}]
    ).lanes  # the first lane has its defaults
    assert [name.count(",") for name in lane_titles(half, KNOWN)[:2]] == [1, 1]
    for bad in ([{"knobs": {}}], [{"method": 3}], [{"method": "chain", "knobs": 4}], {"knobs": {}}):
        with pytest.raises(Refused) as refused:
            ask(methods=bad)
        assert refused.value.code == "field.methods"


def test_what_fits_is_taken_as_it_is():
    got = ask(
        max_new_tokens="12",
        temperature="0.5",
        top_p=1,
        seed=2.0,
        knobs={"chain": {"gamma": 7}},
        target="",
        turns=[{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],
        system="s",
    )
    assert (got.max_new_tokens, got.temperature, got.seed, got.target) == (12, 0.5, 2, None)
    assert dict(got.lanes)["chain"]["gamma"] == 7
    assert [m["role"] for m in got.messages()] == ["system", "user", "assistant", "user"]


def test_half_a_character_becomes_a_question_mark():
    assert ask(prompt="a\ud800b").prompt == "a?b"


def test_real_knobs_are_refused_in_the_methods_own_words():
    from specviz.engine.cards import cards

    for knobs, name in (({"gamma": "many"}, "gamma"), ({"nope": 1}, "nope")):
        with pytest.raises(Refused) as refused:
            read_request(cards(), prompt="x", methods=["speculative"], knobs={"speculative": knobs})
        assert refused.value.code == "field.knob" and name in refused.value.values["why"]


def test_the_queue_is_first_come_first_served_and_bounded():
    line = RunQueue(waiting=2)
    tickets = [line.enter() for _ in range(3)]
    assert [line.ahead(t) for t in tickets] == [0, 1, 2]
    with pytest.raises(Refused) as refused:
        line.enter()
    assert refused.value.code == "queue.full"
    line.leave(tickets[1])
    line.leave(tickets[1])
    assert [line.ahead(tickets[0]), line.ahead(tickets[2])] == [0, 1]
    line.leave(tickets[0])
    assert line.ahead(tickets[2]) == 0


def test_addresses_take_turns_in_the_queue():
    """A flood of one address delays every other by one run at most."""
    line = RunQueue()
    flood = [line.enter("flood") for _ in range(8)]
    assert line.ahead(flood[0]) == 0  # it is active, and stays first
    one, other = line.enter("one"), line.enter("other")
    assert [line.ahead(one), line.ahead(other), line.ahead(flood[1])] == [1, 2, 3]
    line.leave(flood[0])
    assert [line.ahead(one), line.ahead(other), line.ahead(flood[1]), line.ahead(flood[2])] == [0, 1, 2, 3]


@pytest.mark.parametrize("greedy", [1, 6])
def test_whoever_comes_back_at_once_does_not_go_before_those_who_wait(greedy):
    """One address keeps as many places as it may; two others ask again when they were answered. Each of them is
    served after at most two runs: one that is under way, and one of the other's."""
    line, waits, clients = RunQueue(), {"one": [], "other": []}, {}
    flood = [line.enter("flood") for _ in range(greedy)]
    for name in waits:
        clients[name] = [line.enter(name), 0]
    for _ in range(60):
        tickets = [*flood, *(ticket for ticket, _ in clients.values())]
        (active,) = [ticket for ticket in tickets if line.ahead(ticket) == 0]
        line.leave(active)
        for name, client in clients.items():
            client[1] += 1
            if client[0] is active:
                waits[name].append(client[1])
                client[:] = line.enter(name), 0
        if active in flood:
            flood[flood.index(active)] = line.enter("flood")
    assert all(len(counts) > 15 and max(counts) <= 3 for counts in waits.values())


def test_a_batch_filled_by_one_address_takes_the_first_run_of_another():
    line = RunQueue(together=4)
    flood = [line.enter("flood", "batch") for _ in range(6)]
    assert [line.ahead(ticket) for ticket in flood] == [0, 0, 0, 0, 4, 5]
    one, second = line.enter("one", "batch"), line.enter("one", "batch")
    assert line.ahead(one) == 0 and line.ahead(second) > 0


def test_a_run_that_gives_way_goes_on_after_one_run_of_each_other_address():
    line = RunQueue()
    long, same = line.enter("flood"), line.enter("flood")
    assert line.ahead(long) == 0 and not line.give_way(long) and line.ahead(same) == 1
    one, two = line.enter("one"), line.enter("two", "batch")
    assert line.give_way(long)
    assert [line.ahead(ticket) for ticket in (one, two, long, same)] == [0, 1, 2, 3]
    again = line.enter("one")
    line.leave(one)
    assert [line.ahead(ticket) for ticket in (two, long, again, same)] == [0, 1, 2, 3]
    joins = line.enter(
        "three", "batch"
    )  # its address has not had a turn yet, so it comes before the long run
    assert line.ahead(joins) == 0
    line.leave(two)
    line.leave(joins)
    assert [line.ahead(ticket) for ticket in (long, again, same)] == [0, 1, 2]
    assert line.give_way(long) and line.ahead(again) == 0
    line.leave(again)
    assert line.ahead(long) == 0 and line.ahead(same) == 1


def test_an_honest_visitor_has_a_place_in_a_flooded_queue():
    line, refused = RunQueue(), 0
    for address in ("a", "b", "c", "d"):
        for _ in range(100):
            try:
                line.enter(address)
            except Refused as why:
                refused += 1
                assert why.code in ("queue.share", "queue.full")
    tickets = [line.enter(f"honest {i}") for i in range(18)]
    assert refused > 300 and all(line.ahead(ticket) <= 4 + i for i, ticket in enumerate(tickets))


def test_a_silent_run_loses_its_place(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("specviz.engine.run_queue.time.monotonic", lambda: now[0])
    line = RunQueue(silence=10)
    hung, after = line.enter("a"), line.enter("b")
    assert (line.ahead(hung), line.ahead(after)) == (0, 1)
    now[0] = 8
    line.alive(hung)
    for now[0] in range(9, 18):
        assert line.ahead(after) == 1
    for now[0] in (60, 61):  # the process was stopped, or the machine slept: that is one second
        assert line.ahead(after) == 1
    now[0] = 62
    assert line.ahead(after) == 0
    line.leave(hung)


def test_grey_choices_are_the_incompatible_ones_and_every_compatible_pair_can_be_reached():
    """The page greys the choices that the catalogue refuses; no compatible setting is unreachable because
    of a grey one."""
    catalogued, ruled = catalogue(), 0
    for card in cards().values():
        knobs = [
            knob
            for knob in card.knobs
            if any(knob.only_with or knob.name == other for k in card.knobs for _, other, _ in k.only_with)
        ]
        space = (
            [
                dict(zip([k.name for k in knobs], values))
                for values in product(*(k.choices or (k.low, k.high) for k in knobs))
            ]
            if knobs
            else []
        )
        full = {k.name: k.default for k in card.knobs}

        allowed = [chosen for chosen in space if not _refused(catalogued[card.key], chosen)]
        for chosen in allowed:
            off = incompatible_choices(card.knobs, full | chosen)
            for knob in knobs:
                assert {
                    c for c in knob.choices if _refused(catalogued[card.key], chosen | {knob.name: c})
                } == set(off.get(knob.name, ()))
        seen, front = [], allowed[:1]
        while front:
            seen += front
            front = [
                h for h in allowed if h not in seen and any(sum(h[n] != s[n] for n in h) == 1 for s in seen)
            ]
        assert len(seen) == len(allowed)
        ruled += bool(knobs)
    assert ruled


def _refused(method, chosen):
    try:
        method.read_knobs(chosen)
    except ValueError:
        return True
    return False
