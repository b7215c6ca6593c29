"""Falcon: a semi-autoregressive head drafts several tokens per pass, each pass conditioned on the
predictions of the one before (Gao et al. 2412.12639). Nodes are chosen: each is accepted with its target
probability, exact at every temperature."""

from __future__ import annotations

from ....core import Knob, Method, Parts, Trained
from ....core.claim import Claim
from ....core.note_kind import note


def build(kit, top_k: int, depth: int, nodes: int) -> Parts:
    from ....policies import Fixed
    from ....verifiers import TokenRejection
    from .falcon_drafter import BlockwiseTree

    return Parts(BlockwiseTree(kit.head("falcon"), top_k), Fixed(depth, top_k, nodes), TokenRejection())


METHOD = Method(
    key="falcon",
    title="Falcon",
    paper="Gao et al. 2024, arXiv 2412.12639",
    summary="An EAGLE-like head that writes two tokens a pass: half the passes of a draft, and each pair still sees the one "
    "before it.",
    knobs=(
        Knob("top_k", 2, 1, 10, "paths that go into the next pass, and tokens tried at each position"),
        Knob("depth", 4, 1, 8, "levels of the tree, two a pass; the authors' trees have 8"),
        Knob("nodes", 5, 1, 60, "nodes kept in the end"),
    ),
    needs=frozenset({"head:falcon", "tap:final", "embed", "head", "tree"}),
    look="Levels come in pairs: the second of a pair was guessed without knowing which token the first became.",
    wins="Between a head that pays a pass for each token and a block from one pass: long drafts at half the price.",
    loses="The second token of a pair mixes what would follow several first ones.",
    differs="Head, mask and glancing training are the authors'. Their recurrent network runs over each position separately, as in their "
    "code and not in the figure. Their blocks begin with the first row of each pass (commit 1fe360e), so the last one may be "
    "short; here blocks end at the last token of the text, in training too, so the last one is whole. "
    "Their trees are fixed; here the most probable paths are followed.",
    compared="code",
    published={"depth": 8},
    aliases=("falcon", "semi-autoregressive", "glancing"),
    trains=(
        Trained(
            "falcon",
            "EAGLE's layer after a recurrent one; it drafts two tokens a forward pass.",
            f"{__name__}.falcon_network",
        ),
    ),
    notes={
        "rounds": note(
            "heads",
            "Drafting passes of several tokens each; every pass is conditioned on the predictions of the pass before (Falcon).",
            size=("tokens of a pass", 2),
            paths=("paths extended in each pass", [1, 2]),
            nodes=("drafted", 6),
        ),
    },
    claims=(
        Claim(
            "Two tokens a pass: fewer passes of the drafter than EAGLE.",
            "eagle2",
            "draft_passes",
            figure="2.91 to 3.51 times plain decoding",
            place="abstract of 2412.12639",
            baseline_knobs={"depth": 4},
            tokens=40,
            why="27 % of its first guesses are accepted, 59 % of EAGLE-2's (docs/trained.md), so there are more rounds",
        ),
    ),
    build=build,
)
