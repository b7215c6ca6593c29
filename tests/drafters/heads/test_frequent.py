"""A head that chooses among frequent tokens: which they are, what it is lent, and what stays between runs."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from specviz.checkpoints.weights import ModelError
from specviz.core import Budget, DraftTree, Parts, Sampling, State, open_run, play
from specviz.drafters.heads import reduced_output
from specviz.drafters.heads.features import FeatureModel
from specviz.drafters.heads.reduced_output import (
    DRAFT_TOKENS,
    ReducedHead,
    read_draft_tokens,
    target_for_drafting,
)
from specviz.methods import catalogue, head_kinds
from specviz.methods.trained_heads.clover.clover_drafter import CloverTree
from specviz.methods.trained_heads.fr_spec.fr_spec_drafter import most_frequent
from specviz.models import linear
from specviz.policies import Fixed
from specviz.targets.tiny import TinyTarget
from specviz.trees import Scorer, full_tree
from specviz.verifiers import TokenRejection

from ...exactness.toys import PROMPT, begin, toy

FR_SPEC = catalogue()["fr_spec"]


def run(kit, count: int, length: int = 30):
    """(tokens drafted, the state, its notes) of a greedy run with so many frequent tokens."""
    parts = FR_SPEC.build(kit, **FR_SPEC.read_knobs({"vocabulary": count, "nodes": 6, "depth": 2}))
    state = State(list(PROMPT), Sampling(0.0), limit=length)
    drafted = set()
    notes = []
    open_run(parts, kit.target, state)
    while not state.done:
        outcome = play(parts, kit.target, state)
        drafted |= set(outcome.tree.tokens)
        notes += [data for kind, data in state.notes if kind == "frequent"]
        state.notes.clear()
    return drafted, state, notes


def test_the_most_frequent_tokens_are_counted_in_the_corpus_and_equals_go_by_id():
    corpus = np.array(
        [4, 4, 4, 1, 1, 3, 0, 99, 2**32 - 1], np.uint32
    )  # what is no token of the vocabulary does not count
    assert [most_frequent(corpus, 6, count).tolist() for count in (1, 2, 3, 5)] == [
        [4],
        [1, 4],
        [0, 1, 4],
        [0, 1, 2, 3, 4],
    ]
    assert len(most_frequent(corpus, 6, 100)) == 6


def test_the_cut_matrix_says_what_the_whole_one_says_of_its_tokens_and_nothing_of_the_others():
    target = TinyTarget(toy(7).net, 32)
    tokens, states = torch.tensor([1, 4, 5]), torch.randn(3, target.hidden, dtype=target.net.output.dtype)
    cut = ReducedHead(target, tokens)
    assert torch.allclose(cut(states)[:, tokens], target.head(states)[:, tokens], atol=1e-6)
    others = [token for token in range(7) if token not in tokens]
    assert bool((cut(states)[:, others] == -torch.inf).all())


def test_only_frequent_tokens_are_drafted_and_the_rest_of_the_text_is_reported():
    whole = toy(7, sharp=0.5)
    drafted, state, notes = run(whole, 3)
    spoken = set(most_frequent(whole.open_store("text").array.tokens, 7, 3).tolist())
    written = state.tokens[len(PROMPT) :]
    assert drafted and drafted <= spoken and notes
    assert [token for note in notes for token in note["beyond"]] == [
        token for token in written if token not in spoken
    ]
    assert {note["spoken"] for note in notes} == {3} and {note["vocabulary"] for note in notes} == {7}
    assert run(toy(7, sharp=0.5), 7)[0] - spoken, "with all tokens others are drafted, too"


def test_the_likely_tokens_are_those_of_the_logits_which_are_not_written():
    parts = FR_SPEC.build(toy(7, sharp=0.5), **FR_SPEC.read_knobs({"vocabulary": 4, "nodes": 6, "depth": 2}))
    state = State(list(PROMPT), Sampling(0.0), limit=12)
    kit = toy(7, sharp=0.5)
    open_run(parts, kit.target, state)
    play(parts, kit.target, state)
    model = parts.drafter.inner.model
    assert "top_tokens" in model.capabilities and model.sync(state.tokens)
    narrow = model._narrow.tokens.tolist()
    for tree in (DraftTree(), DraftTree(tuple(narrow[:2]), (-1, -1), (-1, -1))):
        values, tokens = model.top_log_probs(tree, 0, 3, 0.7)
        wanted = (model.score(tree).logits / 0.7).log_softmax(-1).topk(3)
        assert tokens.tolist() == wanted.indices.tolist() and values.shape == (max(1, len(tree)), 3)
        torch.testing.assert_close(values, wanted.values, rtol=1e-5, atol=1e-6)


def test_logits_are_written_where_processors_read_them():
    model = FeatureModel.__new__(FeatureModel)
    model.capabilities = frozenset({"top_tokens"})
    state = State(list(PROMPT), Sampling(0.0), limit=12)
    assert Scorer(model, state).finds_top and Scorer(model).finds_top
    state.top_k_saved = 3
    assert state.saves_draft_logits and not Scorer(model, state).finds_top


def test_no_clock_chooses_how_the_cut_matrix_is_stored(monkeypatch):
    """It is cut within a run, and a deterministic one writes the same in the next process."""
    monkeypatch.setattr(linear, "_measure", lambda *_: pytest.fail("measured"))
    target = TinyTarget(toy(7).net, 32)
    target.embed = lambda ids, inner=target.embed: inner(ids).float()
    target.head = lambda states, inner=target.head: inner(states.double()).float()
    assert isinstance(ReducedHead(target, torch.tensor([1, 4])).linear, linear.TransposedLinear)


def test_the_matrix_is_cut_once_a_head_and_again_for_another_target(monkeypatch):
    made = []
    monkeypatch.setattr(
        reduced_output, "ReducedHead", lambda target, *rest: made.append(target) or ReducedHead(target, *rest)
    )
    one, other = toy(7, seed=1), toy(7, seed=2)
    head = one.head("eagle")
    for kit in (one, one, other):
        kit.head = lambda kind: head
        run(kit, 4, 4)
    assert len(made) == 2


def kind_of(method):
    """Return the kind of the head that multiplies by the output matrix: a block drafter rather than its
    correction."""
    kinds = [need.removeprefix("head:") for need in method.needs if need.startswith("head:")]
    return min(kinds, key=lambda kind: (not head_kinds()[kind].one_pass, kind), default=None)


# heads that multiply by the target's output matrix: EAGLE-3's toy has one of its own, and stores add what
# they hold
SPEAKERS = [
    key
    for key, method in catalogue().items()
    if kind_of(method) not in (None, "eagle3")
    and "head" in method.needs
    and not any(need.startswith("store:") for need in method.needs)
    # the first keeps the whole vocabulary; clusters choose the tokens of the second
    and key not in ("slimspec", "kv_assistant")
    and method.family in (catalogue()["medusa"].family, catalogue()["eagle"].family)
]


@pytest.mark.parametrize("key", SPEAKERS)
def test_a_head_that_states_its_draft_tokens_drafts_no_others(key):
    method, tokens, drafted = catalogue()[key], torch.arange(1, 40, 2), []  # more than a node has children
    for stated in (None, tokens):
        kit, seen = toy(40, sharp=0.5), set()
        head, others = kit.head(kind_of(method)), kit.head
        head.draft_tokens = stated
        kit.head = lambda kind, head=head, others=others: head if kind == kind_of(method) else others(kind)
        parts, state = (
            method.build(kit, **method.read_knobs({})),
            State(list(PROMPT), Sampling(0.0), limit=30),
        )
        open_run(parts, kit.target, state)
        while not state.done:
            seen |= set(play(parts, kit.target, state).tree.tokens)
        drafted.append((seen, state.tokens))
    assert drafted[1][0] and drafted[1][0] <= set(tokens.tolist()) and drafted[0][0] - set(tokens.tolist())
    assert drafted[0][1] == drafted[1][1], "the text is the target's"
    target = kit.target
    assert target_for_drafting(target, object()) is target


@pytest.mark.parametrize(
    "content, good",
    [
        ("[5, 1, 4]", True),
        ("[7]", False),
        ("[1, 1]", False),
        ("[true]", False),
        ("[]", False),
        ('{"a": 1}', False),
        ("[1", False),
        ("[-1]", False),
    ],
)
def test_draft_tokens_are_distinct_ids_of_the_vocabulary(tmp_path, content, good):
    assert read_draft_tokens(tmp_path / "medusa", 7) is None
    (tmp_path / DRAFT_TOKENS).write_text(content)
    if good:
        assert read_draft_tokens(tmp_path / "medusa", 7).tolist() == [1, 4, 5]
    else:
        with pytest.raises(ModelError) as refused:
            read_draft_tokens(tmp_path / "medusa", 7)
        assert refused.value.code == "head.draft_tokens"


def test_clover_reads_a_root_that_it_may_not_draft():
    """Its table was made of the restricted output matrix, in which such a root has no row."""
    kit = toy(12)
    heads = kit.head("clover")
    heads.draft_tokens = torch.tensor([1, 2, 3, 4])
    drafter = CloverTree(heads, full_tree((1, 1)))
    parts = Parts(drafter, Fixed(2, 1), TokenRejection())
    state = begin(parts, kit, Sampling(0.0), limit=4, prompt=[1, 2, 9])
    tree = drafter.propose(state, Budget(2, 1))
    assert drafter.table is not None and bool(drafter.table.isfinite().all())
    assert len(tree) == 2 and set(tree.tokens) <= {1, 2, 3, 4}
