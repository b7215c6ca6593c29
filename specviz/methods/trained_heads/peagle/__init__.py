"""P-EAGLE: EAGLE-3's head drafts its whole block in one pass, with mask states in place of the hidden
states it does not have yet. Each token is sampled from its own logits, independently of the others, so
token rejection is exact at every temperature."""

from __future__ import annotations

from ....core import Knob, Method, Parts, Trained
from ....core.claim import Claim


def build(kit, gamma: int) -> Parts:
    from ....policies import Fixed
    from ....verifiers import TokenRejection
    from .peagle_drafter import OnePassFeatures

    return Parts(OnePassFeatures(kit.head("peagle")), Fixed(gamma), TokenRejection())


METHOD = Method(
    key="peagle",
    title="P-EAGLE",
    paper="P-EAGLE 2026, as vLLM and speculators have it",
    summary="EAGLE-3 without the waiting: a learned mask state stands for each token not drafted yet, and one pass fills in all "
    "of them.",
    knobs=(
        Knob(
            "gamma", 2, 1, 16, "tokens drafted a round, all from one pass; published heads were trained for 8"
        ),
    ),
    needs=frozenset({"head:peagle", "tap:layer", "embed", "head"}),
    look="One pass of the head a round, however long the draft: hold it next to EAGLE-3, which pays a pass for each token.",
    wins="Wherever a head's price is its passes; it reads three layers of the target, as EAGLE-3 does.",
    loses="Open text: a later position does not know what the one before it became, so two continuations get mixed.",
    differs="Head, masks and training are those of the public code, and published files load. Above temperature 0 every token is sampled "
    "and verified by rejection sampling. Ours shares the target's embedding and output matrix; published heads have their own.",
    compared="code",
    published={"gamma": 8},
    aliases=("peagle", "p-eagle", "parallel eagle", "parallel_drafting"),
    trains=(
        Trained(
            "peagle",
            "EAGLE-3's layers with a mask state, which draft a block in one forward pass.",
            f"{__name__}.peagle_network",
            one_pass=True,
        ),
    ),
    claims=(
        Claim(
            "The whole draft takes one pass of the head.",
            "eagle3",
            "draft_passes",
            figure="1.10 to 1.36 times EAGLE-3",
            place="abstract of 2602.01469",
            baseline_knobs={"top_k": 1, "depth": 2, "nodes": 2},
            tokens=40,
        ),
    ),
    build=build,
)
