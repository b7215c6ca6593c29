"""Multi-candidate speculative decoding: every draft position has several candidates, verified one after the
other (Yang et al. 2401.06706). They are sampled without replacement, so a rejected candidate is never
proposed again."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, first: int, later: int, depth: int, draft_temperature: float) -> Parts:
    from ...drafters.model.chain import DraftShape
    from ...policies import Fixed
    from ...trees import full_tree
    from ...verifiers import TokenRejection

    shape = full_tree((first,) + (later,) * (depth - 1))
    drafter = DraftShape(kit.open("draft"), shape, temperature=draft_temperature)
    return Parts(drafter, Fixed(depth, max(first, later), len(shape)), TokenRejection())


METHOD = Method(
    key="mcsd",
    title="Multi-candidate speculative decoding",
    paper="Yang et al. 2024, arXiv 2401.06706",
    summary="Drafts several candidates for each of the next few positions, so that one refusal seldom ends the round.",
    knobs=(
        Knob("first", 2, 1, 8, "candidates for the next token"),
        Knob("later", 1, 1, 3, "candidates after each token of the draft; the paper's tree is 4-2-2"),
        Knob("depth", 3, 1, 4, "positions ahead; the number of nodes grows exponentially with it"),
        Knob(
            "draft_temperature",
            0.0,
            0.0,
            2.0,
            "temperature of the draft, which may be another than the target's; 0: the run's",
        ),
    ),
    needs=frozenset({"draft", "tree"}),
    look="Later candidates that are taken after the first was refused.",
    wins="At temperature above 0, where the first candidate is often refused.",
    loses="Most of the 28 nodes of the paper's tree are wasted when the draft is nearly always right; the default here has six.",
    differs="As published, sampled without replacement. The draft's temperature is the run's unless it is set.",
    published={"first": 4, "later": 2, "depth": 3},
    claims=(
        Claim(
            "Several candidates at a place keep more than one.",
            "speculative",
            "accepted_length",
            figure="higher acceptance than speculative decoding",
            place="abstract of 2401.06706",
            temperature=1.0,
            knobs={"first": 4, "later": 2, "depth": 3},
            baseline_knobs={"gamma": 3},
            tokens=40,
        ),
    ),
    build=build,
)
