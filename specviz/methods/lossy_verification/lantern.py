"""LANTERN: on a picture many patches look alike, so a drafted one may pass with the probability of its
nearest neighbours in the codebook (Jang et al. 2410.03355, LANTERN++ 2502.06352)."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, delta: float, neighbours: int, bound: str, window: int, init: str) -> Parts:
    import torch

    from ...drafters.parallel.blocks import SampledJacobi
    from ...policies import Fixed
    from ...verifiers import Lantern

    near = torch.as_tensor(kit.codec.neighbours[:, :neighbours])
    verifier = Lantern(near, kit.codec.tokens.start, delta, bound == "relative")
    return Parts(SampledJacobi(init, kit.codec.columns, kit.codec.tokens), Fixed(window), verifier)


METHOD = Method(
    key="lantern",
    title="LANTERN",
    paper="Jang et al. 2024, arXiv 2410.03355; Park et al. 2025, 2502.06352",
    summary="A drafted patch passes with the probability of its look-alikes added to its own: fewer passes, a slightly different picture.",
    exactness="approximate",
    knobs=(
        Knob("delta", 0.2, 0.0, 1.0, "most probability that look-alikes may add; 0 is exact"),
        Knob("neighbours", 64, 1, 1000, "look-alikes of an entry of the codebook that may count"),
        Knob(
            "bound",
            "absolute",
            choices=("absolute", "relative"),
            help="delta itself (LANTERN), or delta times the patch's own probability (LANTERN++)",
        ),
        Knob("window", 16, 1, 64, "positions guessed ahead"),
        Knob(
            "init",
            "auto",
            choices=("auto", "context", "left", "above", "sample", "random"),
            help="what new positions are filled with, as in speculative Jacobi decoding",
        ),
    ),
    needs=frozenset({"codebook"}),
    look="How many look-alikes were counted, and the total variation from the target's distribution at every test.",
    wins="Pictures, whose tokens are interchangeable: the target spreads its probability over patches that look the same.",
    loses="Where the exact patch matters: thin strokes of letters get noisy as delta grows.",
    differs="The drafts are those of speculative Jacobi decoding; the paper's are EAGLE-2's trees. After a refusal only the look-alikes "
    "that were counted lose their probability, so that delta 0 is exact; the authors' code takes it from all of them.",
    compared="notes",
    published={"delta": 0.1, "neighbours": 1000},
    aliases=("LANTERN++", "relaxed speculative decoding"),
    claims=(
        Claim(
            "Counting like patches of the codebook keeps more than the exact rule.",
            "speculative_jacobi",
            "accepted_length",
            figure="1.76 times the speed-up of the exact rule, sampling",
            place="abstract of 2410.03355",
            target="specviz-pictures",
            temperature=1.0,
            knobs={"window": 16},
            baseline_knobs={"window": 16},
        ),
    ),
    build=build,
)
