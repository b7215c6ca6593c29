"""Speculative decoding: a small model drafts a few tokens, the target checks them all in one pass.

Leviathan et al. 2211.17192; Chen et al. 2302.01318. Each drafted token x is kept with probability min(1,
p(x)/q(x)); the first refused one is replaced by a draw from norm((p - q)+), which makes the output exactly
the target's.
"""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, gamma: int) -> Parts:
    from ...drafters.model.chain import DraftChain
    from ...policies import Fixed
    from ...verifiers import TokenRejection

    return Parts(DraftChain(kit.open("draft")), Fixed(gamma), TokenRejection())


METHOD = Method(
    key="speculative",
    title="Speculative decoding",
    paper="Leviathan et al. 2023, arXiv 2211.17192; Chen et al. 2023, arXiv 2302.01318",
    summary="A small model writes a few tokens ahead; the large one checks them all in one pass and keeps what it agrees with.",
    knobs=(
        Knob("gamma", 4, 1, 16, "tokens drafted a round; more pay off only while the draft is mostly right"),
    ),
    needs=frozenset({"draft"}),
    look="The first refused token of a round: everything after it is thrown away, and the target's own token takes its place.",
    wins="When the draft model is much cheaper than the target and agrees with it often.",
    loses="When the two disagree early in the round, or when gamma drafts cost more than they save.",
    differs="As published.",
    compared="formula",
    aliases=("draft_model", "STANDALONE", "DraftTarget", "draft-simple", "assistant", "speculative sampling"),
    claims=(
        Claim(
            "Drafting with a small model, the target runs less than once for each token.",
            "autoregressive",
            "accepted_length",
            figure="2 to 3 times faster than plain decoding",
            place="abstract of 2211.17192, T5-XXL",
        ),
    ),
    build=build,
)
