"""Who may judge what: every pair of children and rule, told before a run exactly as the run itself would
find out."""

from __future__ import annotations

import itertools

import pytest

from specviz.core import (
    CHOSEN,
    IID,
    WITHOUT_REPLACEMENT,
    IncompatibleVerifier,
    Parts,
    Sampling,
    State,
    compatible_verifiers,
    open_run,
    play,
)
from specviz.engine.cards import cards
from specviz.methods.draft_tree.draft_tree import METHOD, build
from specviz.policies import Fixed
from specviz.trees import HUB
from specviz.verifiers import BlockVerification, KSeq, Lenient, SpecHub, TokenRejection, Traversal, Typical

from ..message_codes import refuses
from .toys import PROMPT, begin, methods, toy, toy_of

KNOBS = {knob.name: knob for knob in METHOD.knobs}
CHILDREN = KNOBS["children"].choices
JUDGES = {
    "token": TokenRejection,
    "block": BlockVerification,
    "traversal": Traversal,
    "k-seq": KSeq,
    "spechub": SpecHub,
}


def judged(children: str, verifier: str, width: int) -> str:
    """What a run of the pair says: nothing, or why it was refused."""
    kit = toy(6, share=0.5)
    parts = build(kit, children, verifier, width, 2, 5)
    try:
        for seed in range(3):
            state = State(list(PROMPT), Sampling(1.0, seed=seed), limit=6)
            open_run(parts, kit.target, state)
            play(parts, kit.target, state)
    except IncompatibleVerifier as refusal:
        return str(refusal)
    return ""


@pytest.mark.parametrize("children, verifier", itertools.product(CHILDREN, JUDGES))
def test_every_cell_is_known_beforehand(children, verifier):
    assert set(JUDGES) == set(KNOBS["verifier"].choices)
    width = 1 if verifier == "block" and children != "hub pairs" else 3
    refusal, run = (
        KNOBS["verifier"].conflict_reason(verifier, {"children": children, "width": width}),
        judged(children, verifier, width),
    )
    assert bool(refusal) == bool(run), (refusal, run)
    if refusal:  # both are named, and what would do instead
        with pytest.raises(ValueError) as caught:
            METHOD.read_knobs({"children": children, "verifier": verifier, "width": width})
        assert str(caught.value) == refusal and repr(children) in refusal and repr(verifier) in refusal
        reported = refusal.split("choose")[1]
        for other in JUDGES:
            if not KNOBS["verifier"].conflict_reason(other, {"children": children, "width": width}):
                assert other in reported and not judged(children, other, width)
        assert JUDGES[verifier].title in run


def test_block_verification_takes_chains_alone():
    refusal = KNOBS["verifier"].conflict_reason("block", {"children": "top-k", "width": 2})
    assert "verifier 'block'" in refusal and "width 2" in refusal
    assert "token rejection" in judged("top-k", "block", 3)
    assert not KNOBS["verifier"].conflict_reason("block", {"children": "top-k", "width": 1})


def test_the_card_of_the_page_has_the_table_too():
    card = {knob.name: knob for knob in cards()["draft_tree"].knobs}
    assert card["verifier"].only_with == KNOBS["verifier"].only_with


@pytest.mark.parametrize(
    "labels, who",
    [
        (
            {CHOSEN},
            {
                "token rejection",
                "multi-step speculative sampling",
                "block verification (chains)",
                "traversal verification",
                "K-SEQ",
                "SpecHub",
            },
        ),
        (
            {IID},
            {
                "token rejection",
                "multi-step speculative sampling",
                "block verification (chains)",
                "traversal verification",
                "K-SEQ",
                "SpecHub",
            },
        ),
        (
            {WITHOUT_REPLACEMENT},
            {"token rejection", "multi-step speculative sampling", "traversal verification"},
        ),
        ({HUB}, {"SpecHub"}),
        ({HUB, WITHOUT_REPLACEMENT}, set()),
    ],
    ids=lambda kinds: "+".join(sorted(kinds)) or "none",
)
def test_who_is_compatible_for_what(labels, who):
    lossy = {title for title in compatible_verifiers(labels) if title.endswith("(lossy)")}
    assert set(compatible_verifiers(labels)) - lossy == who
    assert (Lenient.title in compatible_verifiers(labels)) == (labels <= Lenient.labels) and (
        Typical.title in compatible_verifiers(labels)
    ) == (labels <= Typical.labels)


@pytest.mark.parametrize("method", methods("exact"), ids=lambda m: m.key)
def test_every_method_is_a_compatible_pair_at_its_defaults(method):
    """At temperature 1, where drawn children are drawn: a method that breaks the table could not play a
    round."""
    kit = toy_of(method, 6, share=0.6)
    parts = method.build(kit, **method.read_knobs({}))
    state = begin(parts, kit, Sampling(1.0), 8)
    if parts.loop is None:
        while not state.done:
            play(parts, kit.target, state)
        assert state.left == 0


def test_an_incompatible_pair_is_refused_in_the_run_and_nothing_is_written():
    kit = toy(6)
    parts = build(kit, "sampled", "k-seq", 3, 2, 5)
    state = begin(Parts(parts.drafter, Fixed(2, 3, 5), parts.verifier), kit, Sampling(1.0), 6)
    with refuses(
        IncompatibleVerifier,
        "verifier.incompatible",
        "K-SEQ",
        "chosen and iid",
        "without_replacement",
        "token",
    ):
        play(parts, kit.target, state)
    assert state.tokens == PROMPT
