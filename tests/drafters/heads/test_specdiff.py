"""SpecDiff: its cached passes are the network's, a block reads both ways, and drafts in several steps keep
the target's distribution."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from specviz.core import IID, DraftTree, Sampling, State, TreeBuilder
from specviz.core.budget import Budget
from specviz.drafters.heads.diffusion import DiffusionDraft
from specviz.models.heads import TargetInfo
from specviz.verifiers import TokenRejection

from ...methods.toys import distance, round_probs, table, target_probs
from ...models.tiny import head

WIDE = 6
BODY = TargetInfo("toy", WIDE, 8, 2, dtype=torch.float64, config={"num_attention_heads": 2, "head_dim": 4})


def drafter(vocab=8, steps=1, order="left_to_right", kind=DiffusionDraft, text=(1, 2, 0)):
    """An untrained drafter whose embedding is a fixed random table; its logits are remembered by text and
    block."""
    made = kind(
        head("specdiff", TargetInfo("toy", WIDE, vocab, 2, dtype=torch.float64, config=BODY.config)),
        steps,
        order,
    )
    rows = torch.randn(vocab, WIDE, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    made.start(State(list(text)), SimpleNamespace(embed=lambda ids: rows[torch.as_tensor(ids)]), None)
    plain, found = made._logits, {}

    def remembered(state, tokens):
        key = tuple(state.tokens), tuple(tokens)
        if key not in found:
            found[key] = plain(state, tokens)
        return found[key]

    made._logits = remembered
    return made


def whole(made, text, tokens):
    """Logits of a block from the network's training pass: the text causal, the block in both directions."""
    block = [text[-1], *(0 if token is None else token for token in tokens)]
    n, size = len(text) - 1, len(block)
    mask = torch.ones(n + size, n + size, dtype=torch.bool)
    mask[:n] = mask[:n].tril()
    hidden = torch.tensor([False] * (n + 1) + [token is None for token in tokens])
    with torch.inference_mode():
        rows = made.net.rows(made.target.embed([*text[:-1], *block]), hidden)[None]
        return made.net.lm_head(made.net(rows, torch.arange(n + size)[None], mask[None, None]))[0, n:-1]


def test_cached_passes_are_the_networks():
    made = drafter()
    for text in ([1, 2, 0], [1, 2, 0, 5, 7], [1, 2, 0, 5, 7, 3], [1, 2, 4], [6], [1] * 90 + [2]):
        for tokens in ([None] * 3, [4, None, None], [None, 2]):
            assert torch.allclose(
                made._logits(State(list(text)), tokens), whole(made, text, tokens), atol=1e-5
            ), text


def test_a_block_reads_both_ways_and_the_text():
    made, text = drafter(), [1, 2, 0, 5]
    first = made._logits(State(text), [None, None, None])[0]
    assert not torch.allclose(first, made._logits(State(text), [None, None, 3])[0], atol=1e-3)
    assert not torch.allclose(first, made._logits(State([7, 2, 0, 5]), [None, None, None])[0], atol=1e-3)


@pytest.mark.parametrize(
    "order, steps, passes",
    [("left_to_right", 1, 1), ("left_to_right", 2, 2), ("left_to_right", 8, 3), ("random", 1, 1)],
)
def test_the_note_names_the_step_of_each_place(order, steps, passes):
    state = State([1, 2, 0], Sampling(1.0))
    tree = drafter(steps=steps, order=order).propose(state, Budget(3))
    ((kind, note),) = state.notes
    assert (
        kind == "diffusion"
        and note["passes"] == passes == max(note["steps"]) + 1
        and len(note["steps"]) == len(tree) == 3
    )
    assert note["steps"] == sorted(note["steps"]) and tree.label(0) == IID


def test_in_random_order_every_place_is_filled_once_and_chosen():
    made = drafter(steps=4, order="random")
    seen = set()
    for turn in range(60):
        state = State([1, 2, turn % 8], Sampling(1.0, seed=turn))
        tree = made.propose(state, Budget(3))
        assert len(tree) == 3 and not any(tree.label(i) == IID for i in range(3))
        seen.add(tuple(state.notes[0][1]["steps"]))
    assert any(steps != tuple(sorted(steps)) for steps in seen), (
        "an order that is always from left to right is not random"
    )


class DrawnAtRandom(DiffusionDraft):
    """In random order with the row that each token was drawn from recorded as its distribution: it read
    places to the right."""

    def _random(self, state: State, count: int) -> DraftTree:
        rows: dict = {}
        plain = self._logits

        def kept(state, tokens):
            logits = plain(state, tokens)
            rows.update({i: logits[i] for i, token in enumerate(tokens) if token is None})
            return logits

        self._logits = kept
        tree = super()._random(state, count)
        self._logits, build = plain, TreeBuilder()
        for i, token in enumerate(tree.tokens):
            build.add(token, i - 1, build.begin(state.sampling.probs(rows[i]), IID))
        return build.tree()


class FirstRows(DiffusionDraft):
    """Several steps, but every token's distribution is that of the first step, as if p0 had been kept."""

    def _in_order(self, state: State, count: int, budget: Budget) -> DraftTree:
        tree, build = super()._in_order(state, count, budget), TreeBuilder()
        rows = self._logits(state, [None] * count)
        for i, token in enumerate(tree.tokens):
            build.add(token, i - 1, build.begin(state.sampling.probs(rows[i]), IID))
        return build.tree()


def off(made, vocab, gamma=3, depth=3):
    """Total variation between the written tokens' distribution and the target's, and the expected number of
    accepted tokens."""
    target = table(vocab, 5)

    def propose(state):
        state.tokens = [1, 2, 0]
        state.start = 3
        return made.propose(state, Budget(gamma))

    found, accepted, _ = round_probs(propose, TokenRejection(), target, depth)
    assert sum(found.values()) == pytest.approx(1, abs=1e-9)
    return distance(found, target_probs(target, vocab, depth)), accepted


THOROUGH = pytest.mark.thorough


@pytest.mark.parametrize(
    "vocab, steps, order",
    [
        (8, 1, "left_to_right"),
        (8, 2, "left_to_right"),
        (4, 1, "random"),
        (3, 2, "random"),
        (4, 3, "left_to_right"),
        pytest.param(5, 2, "random", marks=THOROUGH),
        pytest.param(4, 3, "random", marks=THOROUGH),
    ],
)
def test_drafts_of_three_places_keep_the_joint_distribution(vocab, steps, order):
    found, accepted = off(drafter(vocab, steps, order), vocab)
    assert found < 1e-9 and accepted > 0.1


@pytest.mark.parametrize("kind, order", [(DrawnAtRandom, "random"), (FirstRows, "left_to_right")])
def test_wrong_variants_are_caught(kind, order):
    assert off(drafter(3, 2, order, kind), 3)[0] > 1e-5
