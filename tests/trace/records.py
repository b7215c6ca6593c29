"""What must hold of the records of any run: every verdict can be recomputed from them, and they tell the
text."""

from __future__ import annotations

import json

import pytest


def rounds(events) -> list[dict[str, list]]:
    """The records of each round by type; all of them are plain finite JSON."""
    out: dict[int, dict[str, list]] = {}
    for event in events:
        for record in event.records():
            json.dumps(record, allow_nan=False)
            if "round" in record:
                out.setdefault(record["round"], {}).setdefault(record["type"], []).append(record)
    assert list(out) == list(range(len(out)))
    return list(out.values())


def retell(events, prompt: list[int], own_loop: bool = False) -> list[int]:
    """The tokens of a run as its records tell them, each round checked on the way. own_loop: drafting and
    verifying may overlap, and not every node need be read."""
    tokens = list(prompt)
    for group in rounds(events):
        tokens += check_round(group, len(tokens) - 1, own_loop)
    return tokens


def check_round(group: dict[str, list], before: int, own_loop: bool = False) -> list[int]:
    """One round's records against each other; ``before``: rows in the cache. Returns what it wrote."""
    (draft,), (verify,), (commit,), (timing,) = (
        group["draft"],
        group["verify"],
        group["commit"],
        group["timing"],
    )
    nodes = {node["id"]: node for node in draft["nodes"]}
    judged = {record["node"]: record for record in group.get("judge", [])}
    assert len(judged) == len(group.get("judge", [])), "a node is judged once"
    assert set(judged) == {i for i, node in nodes.items() if not node.get("probe")}
    assert 1 <= verify["n_in"] <= len(nodes) + 1 and (draft["kind"] == "none") == (not nodes)
    accepted = {i for i, record in judged.items() if check_trial(record, nodes[i])}
    path, tail = commit["path"], commit["tail"]
    written = [nodes[i]["tok"] for i in path] + [tail["tok"]]
    chain = list(path)
    if tail["why"] == "accepted":
        chain += accepted - set(path)
        assert nodes[chain[-1]]["tok"] == tail["tok"]
    assert accepted == set(chain) and len(chain) == len(path) + (tail["why"] == "accepted")
    assert [nodes[i]["parent"] for i in chain] == [-1, *chain][: len(chain)], (
        "the path is the chain of accepted nodes"
    )
    assert tail["why"] in ("bonus", "correction", "accepted", "plain") and (
        tail["why"] != "plain" or not judged
    )
    assert commit["kv"] == {
        "before": before,
        "after": before + len(written),
        "dropped": verify["n_in"] - len(written),
    }
    assert commit["n_new"] == len(written) and all(timing[k] >= 0 for k in timing if k.endswith("_ns"))
    assert (
        draft["t0"] <= draft["t1"] <= commit["t"]
        and draft["t0"] <= verify["t1"]
        and verify["t0"] <= verify["t1"] <= commit["t"]
    )
    assert own_loop or (draft["t1"] == verify["t0"] and verify["n_in"] == len(nodes) + 1)
    return written


def check_trial(record: dict, node: dict) -> bool:
    """One judge record against its node; whether it was accepted."""
    if record["verdict"] == "skipped":
        assert record["u"] is record["a"] is record["p"] is None
        return False
    ok = record["verdict"] == "accepted"
    assert (record["q"] is None) == (node["how"] == "chosen") and 0 <= record["a"] <= 1 + 1e-9
    assert ok == (record["u"] < record["a"]) if record["u"] is not None else (ok and record["a"] == 1), (
        "accepted iff u < a"
    )
    if record["rule"] in ("ratio", "match"):
        assert record["q"] == (pytest.approx(node["q"], rel=1e-6) if node["q"] is not None else None)
        assert record["a"] == (record["p"] if record["q"] is None else min(1, record["p"] / record["q"]))
    if not ok and record["q"] is None and record.get("resid") and record["p"] < 1:
        assert node["tok"] not in dict(record["resid"]), "a refused chosen token is gone"
    return ok
