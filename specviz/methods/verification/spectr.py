"""SpecTr: k independent drafts are verified together by a nearly optimal transport between the draft's and
the target's distribution (K-SEQ, Sun et al. 2310.15141). Drafts that begin with the accepted tokens remain
candidates. At temperature 0 all drafts would be equal, so there is only one."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, drafts: int, gamma: int) -> Parts:
    from ...drafters.model.multi_draft import DraftPaths
    from ...policies import Fixed
    from ...verifiers import KSeq

    return Parts(DraftPaths(kit.open("draft")), Fixed(gamma, drafts, drafts * gamma), KSeq())


METHOD = Method(
    key="spectr",
    title="SpecTr (K-SEQ)",
    paper="Sun et al. 2023, arXiv 2310.15141",
    summary="Several independent drafts run in parallel; all that agree with the accepted text stay in the race.",
    knobs=(
        Knob("drafts", 4, 1, 8, "independent sequences (K); the paper goes up to 8"),
        Knob("gamma", 4, 1, 8, "length of each"),
    ),
    needs=frozenset({"draft", "tree"}),
    look="Duplicate siblings: drafts that sampled the same tokens are scored and verified separately.",
    wins="At temperature above 0, when a single draft is refused early.",
    loses="Duplicate siblings cost positions and gain little; sampling without replacement accepts more with as many positions.",
    differs="As published; rho is found by bisection at every node.",
    claims=(
        Claim(
            "Judging several drafts together keeps more than one chain as long.",
            "speculative",
            "accepted_length",
            figure="1.37 times speculative decoding",
            place="abstract of 2310.15141",
            temperature=1.0,
            baseline_knobs={"gamma": 4},
            tokens=40,
        ),
        Claim(
            "K-SEQ keeps more of the same drafts than recursive rejection.",
            "draft_tree",
            "equal_drafts",
            temperature=1.0,
            tokens=40,
        ),
    ),
    build=build,
)
