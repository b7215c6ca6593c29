"""Chimera: each prediction reads a trigram encoder (short context) and one layer over the target's hidden
states (long context), with one head per step (Zeng et al. 2402.15758). Tree nodes are chosen, not sampled,
so verification is exact at every temperature."""

from __future__ import annotations

from ....core import Knob, Method, Parts, Trained
from ....core.claim import Claim
from ....core.note_kind import IDS as NOTE_IDS
from ....core.note_kind import note


def build(kit, nodes: int, depth: int) -> Parts:
    from ....drafters.heads.shapes import shape_for_heads
    from ....policies import Fixed
    from ....verifiers import TokenRejection
    from .chimera_drafter import ChimeraTree

    heads = kit.head("chimera")
    shape = shape_for_heads(heads.accuracy, nodes, heads.nodes)
    return Parts(ChimeraTree(heads, shape), Fixed(depth, 10, len(shape)), TokenRejection())


METHOD = Method(
    key="chimera",
    title="Chimera",
    paper="Zeng et al. 2024, arXiv 2402.15758",
    summary="Each guess reads the last three tokens closely and the whole text through one layer over the target's states.",
    knobs=(
        Knob("nodes", 0, 0, 64, "nodes of the tree; 0: as many as the heads were calibrated for"),
        Knob("depth", 3, 1, 8, "most heads used, one a token ahead; the authors train 3 to 5"),
    ),
    needs=frozenset({"head:chimera", "head", "embed", "tap:final", "tree"}),
    look="The three tokens that each guess reads: from the third on all of them are guesses themselves.",
    wins="Text whose next word hangs on the last few: names, formulas, fixed phrases.",
    loses="Deep in the tree: what stands for the states in between was never the target's.",
    differs="Encoders and heads follow the authors' training code; their decoding program uses a part that they removed. Heads may use "
    "the target's output matrix. The tree is verified by rejection sampling.",
    compared="code",
    aliases=("Chimera",),
    trains=(
        Trained(
            "chimera",
            "Heads that read three tokens closely and the whole text through one layer.",
            f"{__name__}.chimera_network",
        ),
    ),
    notes={
        "trigram": note(
            "ahead",
            "The trigram that the encoder read for each drafted token on the tree's first path (Chimera).",
            rows=(
                "`[{tokens, tok, chance}]`: the trigram, the drafted token and its probability",
                [{"tokens": NOTE_IDS[:3], "tok": 14, "chance": 0.6}],
            ),
        ),
    },
    claims=(
        Claim(
            "A small draft over the target's states saves passes.",
            "autoregressive",
            "accepted_length",
            figure="2.7 times plain decoding",
            place="abstract of 2402.15758",
            tokens=40,
            knobs={"depth": 3},
        ),
    ),
    build=build,
)
