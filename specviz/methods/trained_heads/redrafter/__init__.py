"""ReDrafter: beam search with a recurrent head on the target's last hidden state; common prefixes of beams
are verified once (Zhang et al. 2403.09919). Beams are chosen, not sampled: each node is accepted with its
target probability, exact at every temperature."""

from __future__ import annotations

from ....core import Knob, Method, Parts, Trained
from ....core.claim import Claim
from ....core.note_kind import IDS as NOTE_IDS
from ....core.note_kind import note


def build(kit, beams: int, depth: int) -> Parts:
    from ....policies import Fixed
    from ....verifiers import TokenRejection
    from .redrafter_drafter import BeamTree

    return Parts(BeamTree(kit.head("redrafter"), beams), Fixed(depth, beams, beams * depth), TokenRejection())


METHOD = Method(
    key="redrafter",
    title="ReDrafter",
    paper="Zhang et al. 2024, arXiv 2403.09919",
    summary="A tiny recurrent head writes several continuations at once by beam search; what they share is checked only once.",
    knobs=(
        Knob("beams", 2, 1, 50, "beams followed; the authors' example takes 45 on a GPU"),
        Knob("depth", 2, 1, 8, "tokens of each beam"),
    ),
    needs=frozenset({"head:redrafter", "head", "embed", "tap:final", "tree"}),
    look="How many of the beams' tokens are left once shared beginnings are merged: beams mostly differ at their ends.",
    wins="Where a draft must hang together and cost little: a step is a few small matrices for all beams at once.",
    loses="Where beams agree on a wrong beginning: all of them fail at one token.",
    differs="Head, beam search and the tree of common prefixes are the authors'. Above temperature 0 they compare beams with samples "
    "that follow no single distribution; here each node is accepted with the target's probability of it, which is exact.",
    compared="formula",
    published={"beams": 45},
    aliases=("ReDrafter", "recurrent drafter", "ml-recurrent-drafter"),
    trains=(
        Trained(
            "redrafter",
            "A small recurrent head for beam search, the same at every step.",
            f"{__name__}.redrafter_network",
        ),
    ),
    notes={
        "beam": note(
            "ahead",
            "The beams of a search, and the tree they form once shared prefixes are merged (ReDrafter).",
            beams=(
                "`[{tokens, chance}]`, most probable first",
                [{"tokens": NOTE_IDS, "chance": 0.6}, {"tokens": NOTE_IDS[::-1], "chance": 0.4}],
            ),
            nodes=("of the tree they form", 7),
            apart=("tokens of all beams", 8),
        ),
    },
    claims=(
        Claim(
            "Beams keep more than one chain of the recurrent head.",
            "redrafter",
            "accepted_length",
            figure="up to 2.8 times plain decoding",
            place="full-paper notes on 2403.09919",
            knobs={"depth": 3, "beams": 4},
            baseline_knobs={"depth": 3, "beams": 1},
            tokens=40,
        ),
    ),
    build=build,
)
