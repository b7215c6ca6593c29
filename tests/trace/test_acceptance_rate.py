"""One acceptance rate for all verifiers: tried are the examined nodes whose parent was accepted; the share
of all examined nodes has a name of its own."""

from __future__ import annotations

from specviz.trace.events import Committed, Decided, Drafted
from specviz.trace.metrics import Totals


def folded(path, verdicts, parents=(-1, 0, 1, 2)):
    totals, depths = Totals(), {-1: 0}
    for i, parent in enumerate(parents):
        depths[i] = depths[parent] + 1
    nodes = tuple(
        {"id": i, "parent": parent, "depth": depths[i], "tok": i} for i, parent in enumerate(parents)
    )
    totals.fold(Drafted(0, 0.0, 0.0, nodes))
    totals.fold(Decided(0, tuple({"node": i, "verdict": verdict} for i, verdict in enumerate(verdicts))))
    totals.fold(Committed(0, 0.0, path, (1,) * (len(path) + 1), "correction", None, None, {}, {}))
    return totals


def test_a_verifier_that_examines_the_whole_block_has_the_same_rate_as_one_that_stops():
    stops = folded((0,), ("accepted", "rejected", "skipped", "skipped"))
    whole = folded((0,), ("accepted", "rejected", "rejected", "rejected"))
    assert stops.metrics()["acceptance_rate"] == whole.metrics()["acceptance_rate"] == 0.5
    assert stops.metrics()["examined_acceptance"] == 0.5 and whole.metrics()["examined_acceptance"] == 0.25
    assert stops.by_position == whole.by_position == [[1, 1], [1, 0]]


def test_siblings_of_accepted_nodes_are_tried_and_totals_add_up():
    tree = folded((1,), ("rejected", "accepted", "rejected", "rejected"), parents=(-1, -1, 0, 1))
    assert (tree.tried, tree.examined, tree.accepted) == (3, 4, 1)
    both = tree + tree
    assert (both.tried, both.examined) == (6, 8)
