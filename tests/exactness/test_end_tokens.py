"""Nothing is drafted below an end token: such nodes are never written, and cost the target's time."""

from __future__ import annotations

import pytest
import torch

from specviz.core import DraftTree, Sampling, State, TreeBuilder, open_run
from specviz.core.note_kinds import NOTES, PER_NODE, keep_nodes
from specviz.core.round import clip

from .toys import PROMPT, later, methods, player, provided, sample, toy_of

NEVER_ENDS = {"autoregressive"}  # methods whose drafts on toys hold no end token
STOP = frozenset({1, 4, 7})
CASES = [
    later(pytest.param(method, id=method.key), method.key in sample() | {"specdiff", "medusa", "specdiff2"})
    for method in methods("exact", "greedy only")
]


@pytest.mark.parametrize("method", CASES)
def test_no_node_below_an_end_token_is_scored(method):
    ends = 0
    for seed in range(8):
        for temperature in (0.0, 1.0)[: 2 - (method.exactness == "greedy only")]:
            kit = toy_of(method, 12, seed=seed, share=0.6, sharp=1.0)
            provided(method, kit)
            parts = method.build(kit, **method.read_knobs({}))
            state = State(list(PROMPT), Sampling(temperature, seed=seed), limit=30, stop=STOP)
            open_run(parts, kit.target, state)
            with torch.inference_mode():
                while not state.done:
                    tree = player(parts)(parts, kit.target, state).tree
                    for node in range(len(tree)):
                        ends += tree.tokens[node] in STOP
                        parent = tree.parents[node]
                        if parent >= 0 and parent not in tree.probes:
                            assert tree.tokens[parent] not in STOP
    assert ends or method.key in NEVER_ENDS


def test_a_cut_below_an_end_token_keeps_what_the_notes_say_of_each_node():
    """Renumbered nodes: the second of three branches ends early."""
    builder = TreeBuilder()
    for token, parent in ((5, -1), (1, -1), (6, -1), (8, 0), (9, 1), (2, 4), (3, 2)):
        builder.add(token, parent)
    for kind, fields in PER_NODE.items():
        state = State([0], stop=STOP)
        data = dict(NOTES[kind].example)
        for name in fields:
            data[name] = ["root"] * (name == "group") + list(range(7))
        state.note(kind, **data)
        tree = clip(builder.tree(), state)
        assert (tree.tokens, tree.parents) == ((5, 1, 6, 8, 3), (-1, -1, -1, 0, 2))
        for name in fields:
            assert state.notes[0][1][name] == ["root"] * (name == "group") + [0, 1, 2, 3, 6]
    assert keep_nodes("match", {"copied": 3}, [0]) == {"copied": 3}
    assert clip(DraftTree.chain((5, 6)), State([0], stop=STOP)).tokens == (5, 6)
