"""The sums of the Lab, in the browser, against brute recomputation from the same records."""

from __future__ import annotations

import itertools
import json
import math
from statistics import median

import pytest

from specviz.evidence.statistics import chi_square

from ..viewer import sample


def rounds_of(records: list[dict], lane: int) -> list[dict]:
    """What a lane's records say of each round, without the viewer's fold."""
    out: dict[int, dict] = {}
    for r in records:
        if r["lane"] == lane and "round" in r:
            mine = out.setdefault(r["round"], {"judge": {}})
            if r["type"] == "judge":
                mine["judge"][r["node"]] = r
            else:
                mine[r["type"]] = r
    return [out[k] for k in sorted(out)]


def places(rounds: list[dict]) -> list[tuple[int | None, int | None]]:
    """For every token of the output: was the draft right (1, 0, None not asked), and as which of its
    siblings."""
    out = []
    for r in rounds:
        nodes, path = r["draft"]["nodes"], r["commit"]["path"]
        for node in path:
            siblings = [n["id"] for n in nodes if n["parent"] == nodes[node]["parent"]]
            out.append((1, siblings.index(node)))
        end = path[-1] if path else -1
        out.append((0, -1) if any(n["parent"] == end for n in nodes) else (None, None))
    return out


def count_rounds(known: list[tuple[int, int]], gamma: int, width: int) -> int:
    """Decode again, token by token, with a draft that is right exactly where `known` says."""
    at = rounds = 0
    while at < len(known):
        drafted = min(gamma, len(known) - at - 1)
        kept = 0
        while kept < drafted and known[at + kept][0] == 1 and known[at + kept][1] < width:
            kept += 1
        at, rounds = at + kept + 1, rounds + 1
    return rounds


def bounds(asked: list[tuple], gamma: int, width: int) -> tuple[int, int]:
    """Fewest and most rounds over every way in which the places nobody asked about could have gone."""
    holes = [i for i, a in enumerate(asked) if a[0] is None]
    assert len(holes) <= 12, "too many to enumerate"
    counts = []
    for way in itertools.product((0, 1), repeat=len(holes)):
        filled = list(asked)
        for i, hit in zip(holes, way):
            filled[i] = (hit, 0 if hit else -1)
        counts.append(count_rounds(filled, gamma, width))
    return min(counts), max(counts)


WHAT_IF = """(text) => { const sets = JSON.parse(text); const ls = SpecVizPanels.traceLanes.lanes(api.trace()), l = ls.find((x) => !x.baseline), c = SpecVizPanels.maths.curveOf(l.base ? [l, l.base] : [l]);
  return sets.map((s) => SpecVizPanels.maths.whatIf(l, s, c.at)); }"""


@pytest.mark.parametrize("kind", ["chain", "tree", "lookup"])
def test_what_if_bounds_hold_for_every_way_it_could_have_gone(visit, kind) -> None:
    records = sample.race(("plain", kind), tokens=24)
    asked = places(rounds_of(records, 1))
    sets = [{"gamma": g, "width": w} for g in (1, 2, 3, 4, 5) for w in (1, 2, 3) if kind != "tree" or g <= 4]
    found = visit(lambda page: page.evaluate(WHAT_IF, json.dumps(sets)), records=records)
    for s, got in zip(sets, found):
        fewest, most = bounds(asked, s["gamma"], s["width"])
        assert (got["high"]["rounds"], got["low"]["rounds"]) == (fewest, most), s
        assert got["unknown"] == sum(a[0] is None for a in asked) and got["places"] == len(asked)
        assert got["low"]["tau"] == pytest.approx(24 / most if len(asked) == 24 else len(asked) / most)


def test_as_recorded_the_sums_give_the_recorded_run(visit) -> None:
    records = sample.race(("plain", "chain"), tokens=80)
    mine, plain = rounds_of(records, 1), rounds_of(records, 0)
    got = visit(lambda page: page.evaluate(WHAT_IF, json.dumps([{"gamma": 4}]))[0], records=records)
    depth = [max((n["depth"] for n in r["draft"]["nodes"]), default=0) for r in mine]
    step = sum(r["timing"]["draft_ns"] for r, d in zip(mine, depth) if d) / sum(depth) / 1e9
    by = {}
    for r in mine + plain:
        by.setdefault(r["verify"]["n_in"], []).append(r["timing"]["verify_ns"] / 1e9)
    other = median(
        (r["timing"]["judge_ns"] + r["timing"]["cache_ns"] + r["timing"]["other_ns"]) / 1e9 for r in mine
    )
    assert got["perRound"] == pytest.approx(4 * step + median(by[5]) + other)
    assert got["low"]["rounds"] <= len(mine) + 1 and got["same"] >= len(mine) - 1
    clock = sum(sum(v for k, v in r["timing"].items() if k.endswith("_ns")) for r in mine) / 1e9
    assert got["low"]["seconds"] == pytest.approx(clock, rel=0.05)


GAP = "() => SpecVizPanels.maths.gap(SpecVizPanels.traceLanes.lanes(api.trace()).find((l) => !l.baseline))"


@pytest.mark.parametrize("kind", ["chain", "tree", "lookup"])
def test_the_gap_adds_up_and_each_part_is_what_it_says(visit, kind) -> None:
    records = sample.race(("plain", kind), tokens=120)
    g = visit(lambda page: page.evaluate(GAP), records=records)
    mine, plain = rounds_of(records, 1), rounds_of(records, 0)
    ns = lambda rs, k: sum(r["timing"][f"{k}_ns"] for r in rs) / 1e9  # noqa: E731
    tried = kept = 0
    for r in mine:
        levels: dict[int, bool] = {}
        for node, j in r["judge"].items():
            if j["verdict"] != "skipped":
                d = r["draft"]["nodes"][node]["depth"]
                levels[d] = levels.get(d, False) or j["verdict"] == "accepted"
        tried, kept = tried + len(levels), kept + sum(levels.values())
    tokens, alpha = sum(r["commit"]["n_new"] for r in mine), kept / tried
    gamma = sum(max((n["depth"] for n in r["draft"]["nodes"]), default=0) for r in mine) / len(mine)
    one = ns(plain, "verify") / len(plain)
    c = ns(mine, "draft") / (gamma * len(mine)) / one
    expected = (
        sum(alpha**i for i in range(int(gamma) + 1))
        if gamma == int(gamma)
        else (1 - alpha ** (gamma + 1)) / (1 - alpha)
    )
    done = {r["lane"]: r["totals"] for r in records if r["type"] == "done"}
    measured = (done[0]["seconds"] / done[0]["tokens"]) / (done[1]["seconds"] / done[1]["tokens"])
    assert (g["alpha"], g["gamma"], g["c"], g["tau"]) == pytest.approx((alpha, gamma, c, tokens / len(mine)))
    assert g["formula"] == pytest.approx(expected / (c * gamma + 1)) and g["measured"] == pytest.approx(
        measured
    )
    assert g["formula"] + sum(s["by"] for s in g["steps"]) == pytest.approx(g["measured"])
    assert g["formula"] + g["steps"][0]["by"] == pytest.approx(tokens / len(mine) / (c * gamma + 1))


def test_curve_roofline_cells_and_samples(visit) -> None:
    def use(page):
        m = "SpecVizPanels.maths"
        at = page.evaluate(
            f"() => {{ const c = {m}.curve([{{rows: 1, seconds: 2, n: 9}}, {{rows: 5, seconds: 4, n: 9}}, {{rows: 3, seconds: 1, n: 1}}].sort((a, b) => a.rows - b.rows)); return [1, 2, 3, 4, 5, 9].map(c.at); }}"
        )
        assert (
            at[:5] == pytest.approx([1.9, 1.9, 1.9, 2.95, 4]) and at[5] > 4
        )  # never falls with more rows; two that fall share their mean
        roof = page.evaluate(
            f"() => {m}.roofline({{ target: 8e9, draft: 1e9, bytes: 2, bandwidth: 2e12, flops: 3e14, tau: 3, gamma: 4, rows: 5, batch: 1 }})"
        )
        assert roof["plain"]["seconds"] == pytest.approx(8e-3) and roof["plain"]["bound"] == "memory"
        assert roof["speedup"] == pytest.approx(3 * 8e-3 / (4 * 1e-3 + 8e-3))
        busy = page.evaluate(
            f"() => {m}.roofline({{ target: 8e9, draft: 0, bytes: 2, bandwidth: 2e12, flops: 3e14, tau: 3, gamma: 4, rows: 5, batch: 1000 }})"
        )
        assert busy["verify"]["bound"] == "arithmetic" and busy["speedup"] == pytest.approx(3 / 5)
        counts, probs = [104, 47, 29, 20], [0.5, 0.25, 0.15, 0.1]
        cells = page.evaluate(
            "(t) => SpecVizPanels.maths.cells(...JSON.parse(t))", json.dumps([counts, probs])
        )
        want, _ = chi_square(
            dict(enumerate(probs)), __import__("collections").Counter(dict(enumerate(counts))), 200
        )
        assert sum(x["add"] for x in cells) == pytest.approx(want)
        for residual, want_law in ((True, [0.5, 0.3, 0.2]), (False, [0.4, 0.42, 0.18])):
            got = page.evaluate("(r) => SpecVizPanels.samplingGame.many(200000, 3, r)", residual)
            assert sum(got["counts"]) == 200_000 and got["kept"] / 200_000 == pytest.approx(0.6, abs=0.005)
            for n, p in zip(got["counts"], want_law):
                assert abs(n / 200_000 - p) < 5 * math.sqrt(p / 200_000)

    visit(use)


def test_records_from_anywhere_are_read_without_harm(visit) -> None:
    base = sample.race(("plain", "chain"), tokens=20)
    rotten = []
    for change in ({"draft_ns": "x", "verify_ns": None}, {"draft_ns": -5, "verify_ns": 1e308}):
        rotten.append([{**r, **change} if r["type"] == "timing" else r for r in base])
    rotten.append(
        [
            {**r, "target": 7, "draft": [], "env": None, "sampling": "hot", "knobs": 3}
            if r["type"] == "header"
            else r
            for r in base
        ]
    )
    rotten += [
        base[:1],
        base[: len(base) // 3],
        [r for r in base if r["type"] != "header"],
        [r for r in base if r["type"] != "timing"],
        [{}],
        [],
    ]
    script = """(text) => { const out = []; for (const recs of JSON.parse(text)) { const ls = SpecVizPanels.traceLanes.lanes(recs); for (const l of ls) if (l.rounds.some((r) => r.nodes.length)) {
      const c = SpecVizPanels.maths.curveOf([l]); SpecVizPanels.maths.gap(l); if (c) SpecVizPanels.maths.whatIf(l, { gamma: 2 }, c.at); SpecVizPanels.predictability.ease(l); } out.push(ls.length); } return out; }"""
    assert visit(lambda page: page.evaluate(script, json.dumps(rotten)))[:2] == [2, 2]
