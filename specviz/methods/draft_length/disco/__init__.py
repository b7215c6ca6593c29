"""DISCO: a small classifier decides after each drafted token whether to continue (Mamou et al. 2405.04304).
Its inputs are the top draft probabilities, their entropy and the token's position. The token it looked at
is kept, so the output stays exact."""

from __future__ import annotations

from ....core import Knob, Method, Parts, Trained
from ....core.claim import Claim


def build(kit, threshold: float, most: int) -> Parts:
    from ....drafters.model.chain import DraftChain
    from ....policies import Classified
    from ....verifiers import TokenRejection

    return Parts(
        DraftChain(kit.open("draft")),
        Classified(kit.head("disco"), threshold, most),
        TokenRejection(),
    )


METHOD = Method(
    key="disco",
    title="DISCO (learned stop)",
    paper="Mamou et al. 2024, arXiv 2405.04304",
    summary="A two-layer classifier reads how sure the draft is and how far it has come, and decides whether to draft on.",
    knobs=(
        Knob("threshold", 0.7, 0.05, 0.95, "stop after a token whose predicted chance is below this"),
        Knob("most", 8, 1, 40, "longest draft"),
    ),
    needs=frozenset({"draft", "head:disco"}),
    look="The classifier's chance for each drafted token, and what became of it; the last one fell below the limit.",
    wins="Where a single probability misleads: it weighs the runners-up, the doubt and the place together.",
    loses="On text unlike that of its training; it does not learn while it serves.",
    differs="The inputs are the paper's. It does not give the number of probabilities, the width of the classifier or the threshold; "
    "here they are 10, 32 and 0.7, and half of the training text is drafted greedily.",
    aliases=("DynamIc SpeCulation lookahead Optimization", "dynamic speculation lookahead"),
    trains=(
        Trained(
            "disco",
            "A classifier that decides from the draft's probabilities whether to go on drafting.",
            "specviz.models.draft_length",
            after="draft",
        ),
    ),
    claims=(
        Claim(
            "A learned stop costs less modelled time than a fixed length.",
            "speculative",
            "modelled_time",
            figure="10.3 % faster than the best fixed length",
            place="abstract of 2405.04304",
            baseline_knobs={"gamma": 4},
        ),
    ),
    build=build,
)
