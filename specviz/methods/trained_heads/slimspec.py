"""SlimSpec: EAGLE-2 with a low-rank output matrix (Plaksin et al. 2605.10453). Most of a draft head's time
is spent on the target's output matrix; here a product of two thin matrices approximates it. Unlike with
FR-Spec, every token can be drafted. The target verifies with its own matrix."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim
from ...core.note_kind import note


def build(kit, rank: int, calibration: int, top_k: int, depth: int, nodes: int, gain: float) -> Parts:
    from ...drafters.heads.features import FeatureDrafter
    from ...drafters.heads.low_rank_output import LowRankOutput, calibration_states
    from ...drafters.model.confidence_trees import ConfidentTree
    from ...policies import Fixed
    from ...verifiers import TokenRejection

    head, tokens = kit.head("eagle"), kit.open_store("text").array.tokens
    drafter = LowRankOutput(
        FeatureDrafter(head, lambda model: ConfidentTree(model, top_k, gain)),
        head,
        rank,
        lambda: calibration_states(kit.open("target"), tokens, calibration),
    )
    return Parts(drafter, Fixed(depth, top_k, nodes), TokenRejection())


METHOD = Method(
    key="slimspec",
    title="SlimSpec",
    paper="Plaksin et al. 2026, arXiv 2605.10453",
    summary="EAGLE-2 whose output matrix is two thin ones: a guess costs a part of the full matrix, and no token is left out.",
    knobs=(
        Knob(
            "rank",
            96,
            1,
            4096,
            "inner width of the two factors; above the width of the target nothing is lost and nothing gained",
        ),
        Knob(
            "calibration",
            1024,
            64,
            16384,
            "tokens of the datastore whose hidden states the factors are fitted to, once per session",
        ),
        Knob("top_k", 2, 1, 10, "nodes of a level that go on, and children of each; 10 on a GPU"),
        Knob("depth", 2, 1, 8, "levels grown, a pass of the head each"),
        Knob("nodes", 4, 1, 60, "nodes kept in the end; 60 on a GPU"),
        Knob(
            "gain",
            0.2,
            0.0,
            2.0,
            "a level is grown while the one before it added more than this to the expected accepted length",
        ),
    ),
    needs=frozenset({"head:eagle", "tap:final", "embed", "head", "tree", "store:text"}),
    look="Rare words stay possible, but the order of the best guesses blurs: compare the first refused token with FR-Spec's.",
    wins="Large vocabularies over small heads, in texts with rare words.",
    loses="At a low rank the best guess is often another one than the full matrix would give, and the target refuses it.",
    differs="The factors are fitted to the logits of a calibration text in closed form; the paper trains them with its EAGLE-3 head. Here "
    "the head is EAGLE's.",
    compared="notes",
    published={"top_k": 10, "depth": 6, "nodes": 60, "gain": 0.0},
    aliases=("SlimSpec", "low-rank LM head"),
    notes={
        "low_rank": note(
            "heads",
            "The low-rank output matrix with which a head drafts (SlimSpec).",
            rank=("inner width of the two factors", 96),
            hidden=("width of the target", 576),
            kept=("share of the variance of a calibration text's logits that the factors hold", 0.9),
        ),
    },
    relative="eagle2",
    claims=(
        Claim(
            "A low-rank output matrix keeps four fifths of what the whole one keeps.",
            "eagle2",
            "accepted_length",
            figure="output matrix 4 to 5 times faster",
            place="abstract of 2605.10453",
            baseline_knobs={"depth": 4},
            factor=0.8,
            tokens=40,
            knobs={"depth": 4, "nodes": 5},
        ),
    ),
    build=build,
)
