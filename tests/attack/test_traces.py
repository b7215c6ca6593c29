"""Traces at the edge of what docs/TRACE.md allows, and one step beyond: drawn in bounded time and memory,
or refused with a sentence by both readers. The whole edge, and the fuzzers with saved seeds, run under
SPECVIZ_TEST_SOAK=1."""

from __future__ import annotations

import base64
import copy
import json
import random

import pytest

from specviz.trace.files import TEXT, Trace
from specviz.trace.schema import PIECE, PROMPT, TraceError

from ..message_codes import refuses
from ..viewer import sample
from ..viewer.lenses import lensed

BASE = sample.race(("plain", "tree"), tokens=12)
SEEDS = (1, 7, 42, 1337)  # saved: a run that fails can be had again
# Loads a trace as a file is loaded, looks at its beginning, middle and end, and says what this took.
LOOK = """(text) => { const t0 = performance.now(), b = board.board, why = board.load(text);
  if (!why) for (const layout of ['race', 'watch']) for (const x of [0, 0.5, 1]) { board.setLayout(layout); b.scrubTo(x); b.inspector.last = 0; b.paint(); }
  return { why, seconds: (performance.now() - t0) / 1000, nodes: document.querySelectorAll('.sv *').length, rounds: [...b.st.lanes.values()].map((l) => l.committed) }; }"""
HEADER = next(r for r in BASE if r["type"] == "header")


def text_of(records):
    return "\n".join(json.dumps(r, separators=(",", ":")) for r in records)


def commits(rounds, depth, lane=0):
    """A first round as deep as asked for, and then many that draft nothing: totals by depth have to be
    carried through them all."""
    told = [copy.deepcopy(HEADER) | {"lane": lane}]

    def add(kind, /, **more):
        told.append({"type": kind, "seq": len(told), "lane": lane, **more})

    add(
        "draft",
        round=0,
        t0=0,
        t1=0,
        kind="chain",
        nodes=[
            {"id": i, "parent": i - 1, "depth": i + 1, "tok": 1, "q": None, "how": "x"} for i in range(depth)
        ],
    )
    for i in range(depth):
        add("judge", round=0, node=i, rule="x", p=None, q=None, u=None, verdict="accepted")
    for i in range(rounds):
        add(
            "commit",
            round=i,
            t=i / 1000,
            path=[],
            n_new=1,
            tail={"tok": 1, "why": "plain"},
            kv={"before": 0, "after": 0, "dropped": 0},
        )
    return told


def written(pieces, lane=0):
    """A lane that writes these bytes, a token each."""
    told, said = [copy.deepcopy(HEADER) | {"lane": lane}], 0
    for i, raw in enumerate(pieces):
        tail = {"tok": 1, "why": "plain"}
        told.append(
            {
                "type": "commit",
                "seq": 2 * i + 1,
                "lane": lane,
                "round": i,
                "t": i / 1000,
                "path": [],
                "n_new": 1,
                "tail": tail,
                "kv": {"before": 0, "after": 0, "dropped": 0},
            }
        )
        piece = {"tok": 1, "b": base64.b64encode(raw).decode(), "span": [said, said := said + len(raw)]}
        told.append({"type": "text", "seq": 2 * i + 2, "lane": lane, "round": i, "pieces": [piece]})
    return told


def asked(prompt, turns=()):
    header = copy.deepcopy(HEADER)
    header["prompt"] |= {"text": prompt, "turns": [{"role": "user", "text": t} for t in turns]}
    return [header]


def megabytes(page):
    """Of the page's heap, after what is no longer used was thrown away."""
    client = page.context.new_cdp_session(page)
    client.send("HeapProfiler.enable")
    client.send("HeapProfiler.collectGarbage")
    return client.send("Runtime.getHeapUsage")["usedSize"] / 2**20


def seen(drive, records, seconds, heap):
    """The look, within a budget of time and memory. Both readers must agree on whether it is a trace."""
    text = text_of(records)
    try:
        Trace.load(text.encode())
        python = ""
    except TraceError as why:
        python = str(why)

    def use(page):
        found = page.evaluate(LOOK, text)
        return found | {"heap": megabytes(page)}

    found = drive(use, limit=600)
    print(f"\n{len(text) / 2**20:.1f} MB, {len(records)} records: {found}")
    assert bool(python) == bool(found["why"]), (python, found["why"])
    assert found["seconds"] < seconds and found["heap"] < heap and found["nodes"] < 20_000, found
    return found


def test_totals_are_not_copied_a_round(drive):
    """3,000 rounds after one of 1,500 nodes: a copy of the totals by depth for each would be 4.5 million
    pairs."""
    found = seen(drive, commits(3000, 1500), 60, 90)
    assert found["rounds"] == [3000]


@pytest.mark.parametrize(
    "records, code",
    [
        (asked("x" * (PROMPT + 1)), "trace.text"),
        (asked("x", ["y" * (PROMPT // 2)] * 3), "trace.prompt"),
        (asked("\x01" * 900_000), "trace.text"),
        (written([b"x" * (PIECE * 3 // 4 + 3)]), "trace.base64"),
        (written([b"x" * 3072] * (TEXT // 3072 + 1)), "trace.content"),
        (
            [
                *commits(2, 0),
                {
                    "type": "commit",
                    "seq": 99,
                    "lane": 0,
                    "round": 0,
                    "t": 1,
                    "path": [],
                    "n_new": 1,
                    "tail": {"tok": 1, "why": "plain"},
                    "kv": {"before": 0, "after": 0, "dropped": 0},
                },
            ],
            "trace.content",
        ),
    ],
    ids=["prompt", "turns", "controls", "token", "text", "commits"],
)
def test_a_step_beyond_a_limit_is_refused_by_both_readers(drive, records, code):
    with refuses(TraceError, code) as caught:
        Trace.load(text_of(records).encode())
    assert str(caught.value).startswith(seen(drive, records, 60, 200)["why"].partition(":")[0] + " "), (
        "the same record"
    )


@pytest.mark.parametrize(
    "records",
    [
        asked("\x01" * PROMPT),
        written([b"\x01" * 3072] * 40),
        written([b"a\x01" * 1500] * 40),
        written([b"\xff" * 3072] * 40),
    ],
    ids=["prompt", "controls", "between", "no text"],
)
def test_what_cannot_be_seen_is_counted_and_not_drawn_one_by_one(drive, records):
    assert seen(drive, records, 60, 200)["why"] == ""


def test_a_prompt_of_one_long_token_many_times_is_drawn(drive):
    """Its 4,000 ids name 12 MB of bytes, which nobody needs to find the prompt in."""
    header = asked("a" * 3000 + "b")[0]
    header["prompt"]["ids"] = [5] * 4000
    vocab = {
        "type": "vocab",
        "seq": 1,
        "lane": 0,
        "tokens": {"5": base64.b64encode(b"a" * 3000).decode()},
        "special": [],
    }
    assert seen(drive, [header, vocab, *written([b"x"])[1:]][:2], 60, 200)["why"] == ""


@pytest.mark.soak
@pytest.mark.parametrize(
    "records",
    [  # functions, as each takes a second that other tests need not wait for
        lambda: commits(60_000, 4096),
        lambda: [r for lane in range(64) for r in commits(1500, 4, lane)],
        lambda: [r for lane in range(4) for r in written([b"\x01" * 3072] * (TEXT // 3072), lane)],
        lambda: written([b"\xf0\x9f\x98\x80"] * 49_000),
    ],
    ids=["rounds", "lanes", "controls", "tokens"],
)
def test_the_edge_is_drawn(drive, records):
    assert seen(drive, records(), 60, 300)["why"] == ""


def spoilt(rng):
    """A real trace with a few of its values replaced, its records dropped, doubled or swapped."""
    records = copy.deepcopy(lensed(BASE, 1, every=3))
    odd = [
        None,
        -1,
        0,
        10**15,
        1e308,
        "x",
        "<img src=x onerror=alert(1)>",
        [],
        [[]],
        {},
        True,
        "\u202e",
        "A" * 5000,
        [0] * 5000,
    ]
    for _ in range(rng.randint(1, 5)):
        i, j = rng.randrange(len(records)), rng.randrange(len(records))
        how = rng.choice(("field", "field", "inner", "drop", "double", "swap"))
        if how == "drop" and len(records) > 2:
            del records[i]
        elif how == "double":
            records.insert(j, copy.deepcopy(records[i]))
        elif how == "swap":
            records[i], records[j] = records[j], records[i]
        else:
            one = records[i]
            inner = [v for v in one.values() if isinstance(v, dict) and v]
            one = rng.choice(inner) if how == "inner" and inner else one
            one[rng.choice(sorted(one))] = rng.choice(odd)
    return text_of(records)


def fuzzed(drive, seed, count):
    rng = random.Random(seed)
    texts = [spoilt(rng) for _ in range(count)]
    told = {"read": 0, "refused": 0}
    for text in texts:
        try:
            Trace.load(text.encode())
            told["read"] += 1
        except TraceError as why:
            assert str(why).endswith(".") and len(str(why)) < 400
            told["refused"] += 1

    def use(page):
        for text in texts:
            found = page.evaluate(LOOK, text)
            assert found["why"] == "" or found["why"].endswith("."), found
            assert found["seconds"] < 60 and found["nodes"] < 20_000, found

    drive(use, limit=900)
    return told


def test_spoilt_traces_are_read_or_refused_by_both(drive):
    assert fuzzed(drive, SEEDS[0], 12)["refused"]


@pytest.mark.soak
@pytest.mark.parametrize("seed", SEEDS)
def test_two_thousand_spoilt_traces(drive, seed):
    told = fuzzed(drive, seed, 500)
    assert min(told.values()) > 0, told
