"""CopySpec with a draft model: copy where the last tokens are a repetition, otherwise let the small model
draft (Dumitru et al. 2502.08923, the combination; the same preference is the hybrid of SAM-Decoding, Hu et
al. 2411.10666).
"""

from __future__ import annotations

from ...core import Budget, Knob, Method, Parts, StopBelowProbability
from ...core.claim import Claim


def build(kit, gram: int, block: int, gamma: int, least: float) -> Parts:
    from ...drafters.combined.fusion import BudgetLimited, FirstSufficientDraft
    from ...drafters.lookup.copying import GramCopy
    from ...drafters.model.chain import DraftChain
    from ...policies import Fixed
    from ...verifiers import TokenRejection

    model = BudgetLimited(DraftChain(kit.open("draft")), Budget(gamma, stop=StopBelowProbability(least)))
    drafter = FirstSufficientDraft(GramCopy(gram), model)
    return Parts(drafter, Fixed(max(block, gamma)), TokenRejection())


METHOD = Method(
    key="copy_or_draft",
    title="CopySpec with a draft model",
    paper="Dumitru et al. 2025, arXiv 2502.08923",
    summary="Copies a block while the text repeats itself, and asks the small model wherever it does not.",
    knobs=(
        Knob("gram", 3, 1, 10, "tokens that must repeat before anything is copied"),
        Knob("block", 10, 1, 64, "tokens copied a round"),
        Knob("gamma", 10, 1, 16, "tokens drafted by the small model where nothing is copied, at most"),
        Knob("least", 0.3, 0.0, 1.0, "chance below which a token ends the small model's draft; 0: none does"),
    ),
    needs=frozenset({"draft"}),
    look="Who drafts changes from round to round: arcs to the text for copies, draft probabilities for the small model.",
    wins="Edits with new words in between, rewrites of earlier turns: the best of both wherever one of them has nothing to say.",
    loses="A copy that is wrong pushes the small model aside for a round.",
    differs="The draft model stops below a confidence threshold; the paper's drafts have a fixed length. Sampling is exact, too.",
    compared="code",
    published={"gamma": 5, "least": 0.0},
    claims=(
        Claim(
            "Copies added to a draft model keep more where text repeats.",
            "speculative",
            "accepted_length",
            figure="49 % faster than speculative decoding, second turn",
            place="abstract of 2502.08923",
            tasks=("edit", "quote", "cite"),
            baseline_knobs={"gamma": 10},
            tokens=40,
        ),
    ),
    build=build,
)
