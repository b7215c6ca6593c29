"""SWIFT: the target drafts with some of its sublayers skipped; which ones is searched during generation, on
its own text (Xia et al. 2410.06916)."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(
    kit, ratio: float, gamma: int, sure: float, wide: int, widths: str, context: int, every: int
) -> Parts:
    from ...drafters.layers.layer_skipping import NARROW, PUBLISHED, SkippedLayers
    from ...indexes.earlier_answers import memory_of
    from ...policies import Fixed
    from ...verifiers import TokenRejection

    drafter = SkippedLayers(
        ratio, sure, wide, context, every, PUBLISHED if widths == "published" else NARROW, memory_of(kit)
    )
    return Parts(drafter, Fixed(gamma, wide, gamma * wide), TokenRejection())


METHOD = Method(
    key="swift",
    title="SWIFT",
    paper="Xia et al. 2024, arXiv 2410.06916",
    summary="Drafts with part of its own layers switched off, and keeps looking for the part that it misses least.",
    knobs=(
        Knob(
            "ratio", 0.45, 0.1, 0.9, "share of the inner attention and feed-forward sublayers that is skipped"
        ),
        Knob("gamma", 6, 1, 25, "most tokens drafted a round (the paper's 25)"),
        Knob("sure", 0.8, 0.0, 1.0, "the draft ends after a token of which it was less sure than this"),
        Knob("wide", 2, 1, 10, "most alternatives where it is unsure (the paper's 10)"),
        Knob(
            "widths",
            "1 to 4",
            choices=("1 to 4", "published"),
            help="alternatives for four grades of certainty; published: 3, 5, 8, 10 at temperature 0 and 1, 3, 5, 10 above it",
        ),
        Knob("context", 32, 8, 64, "tokens of the answer on which a set of layers is judged"),
        Knob(
            "every",
            4,
            1,
            64,
            "rounds from one trial of another set to the next; the paper's 1 pays in long answers only",
        ),
    ),
    needs=frozenset({"skip", "tree"}),
    look="The layer bar changes while it writes: grey sublayers are skipped, and the share of agreement rises.",
    wins="Large models with many layers, of which nearly half can be missed on a given subject.",
    loses="Small models need all their layers: a draft with half of them is refused, and the search costs a pass a round.",
    differs="As published; the layer search continues from answer to answer as long as the visit lasts, where the paper's runs over a "
    "set of questions.",
    compared="code",
    published={"gamma": 25, "wide": 10, "widths": "published", "every": 1},
    aliases=("self-speculative", "Draft & Verify"),
    claims=(
        Claim(
            "Skipping layers chosen on the fly reads the layers less often than plain decoding.",
            "autoregressive",
            "layers_read",
            figure="1.3 to 1.6 times plain decoding",
            place="abstract of 2410.06916",
            tokens=128,
            why="the default target keeps a twelfth of what it drafts without some of its layers (docs/bench.jsonl.gz)",
        ),
    ),
    build=build,
)
