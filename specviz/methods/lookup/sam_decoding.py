"""SAM-Decoding: a suffix automaton of the text gives the longest match of its suffix in amortised constant
time per token; long matches are copied, otherwise another drafter may be used (Hu et al. 2411.10666)."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim
from . import CAUTION


def build(kit, gamma: int, least: int, stretch: float, otherwise: str, nodes: int, caution: float) -> Parts:
    from ...drafters.combined.fusion import FirstSufficientDraft
    from ...drafters.lookup.copying import SuffixCopy
    from ...drafters.lookup.cost_gate import with_cost_gate
    from ...drafters.lookup.token_recycling import TokenRecycling
    from ...policies import Fixed
    from ...trees import sparse_tree
    from ...verifiers import TokenRejection

    copy = with_cost_gate(SuffixCopy(least, stretch), caution)
    if otherwise == "nothing":
        return Parts(copy, Fixed(gamma), TokenRejection())
    depth = min(gamma, 6)
    drafter = FirstSufficientDraft(copy, TokenRecycling(sparse_tree(8, depth, nodes)))
    return Parts(drafter, Fixed(gamma, 8, max(nodes, gamma)), TokenRejection())


METHOD = Method(
    key="sam_decoding",
    title="SAM-Decoding",
    paper="Hu et al. 2024, arXiv 2411.10666",
    summary="Always knows the longest repetition that the text is in the middle of, and copies further the longer it is.",
    knobs=(
        Knob("gamma", 40, 1, 64, "most tokens to copy"),
        Knob(
            "least",
            2,
            1,
            16,
            "shortest match that is copied from (the paper's 5); the gate learns which short ones to trust",
        ),
        Knob("stretch", 4.0, 0.5, 16.0, "tokens copied for each token of the match"),
        Knob(
            "otherwise",
            "nothing",
            choices=("nothing", "token recycling"),
            help="who drafts when there is no long match",
        ),
        Knob("nodes", 16, 1, 80, "nodes of the other drafter's tree"),
        CAUTION,
    ),
    look="The arc to the matched place grows with the length of the match, and with it the length of the copy.",
    wins="Long copies: edits, quotations, logs, code. A match of ten tokens drafts forty, and most of them stand.",
    loses="Fresh text has short matches only, which the gate soon keeps back: such rounds are plain decoding.",
    differs="As published, with our cost gate and a shorter minimum match.",
    compared="code",
    published={"least": 5, "caution": 0.0},
    aliases=("SAM", "SAMD"),
    claims=(
        Claim(
            "The longest suffix match drafts at least as much as short n-grams.",
            "prompt_lookup",
            "accepted_length",
            figure="1.84 times plain decoding, prompt lookup 1.66",
            place="notes on 2411.10666 and Spec-Bench's leaderboard, Vicuna-7B, greedy",
            factor=0.95,
            tokens=40,
        ),
    ),
    build=build,
)
