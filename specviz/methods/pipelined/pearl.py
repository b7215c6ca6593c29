"""PEARL: drafting and verification overlap (Liu et al. 2408.11850). The first draft token is verified while
the rest is drafted (pre-verify), and the next draft is generated while this one is verified
(post-verify)."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, gamma: int) -> Parts:
    from ...drafters.model.chain import DraftChain
    from ...loops import Pipelined
    from ...policies import Fixed
    from ...verifiers.pearl import PearlVerification

    return Parts(DraftChain(kit.open("draft")), Fixed(gamma), PearlVerification(), Pipelined())


METHOD = Method(
    key="pearl",
    title="PEARL (parallel drafting)",
    paper="Liu et al. 2024, arXiv 2408.11850",
    summary="The draft model writes the next tokens while the target still checks the last ones. "
    "What was written ahead is kept when everything passes, and thrown away when something does not.",
    knobs=(
        Knob(
            "gamma",
            4,
            1,
            16,
            "tokens written ahead a round; best where they take as long as one pass of the target",
        ),
    ),
    needs=frozenset({"draft"}),
    look="The two rows of the timeline: while all drafts pass neither model waits, and a refusal costs what was written ahead.",
    wins="When drafts are mostly right, and a chunk of them takes about as long as a pass of the target.",
    loses="When both must share one core: then nothing runs in parallel, and what is thrown away was paid for. There is no bonus token.",
    differs="The two modes are the authors'. They run the models on two devices at once; on one device each waits for the other, and the "
    "timeline shows when both would have started.",
    compared="code",
    aliases=("PEARL",),
    claims=(
        Claim(
            "Drafting while the target verifies costs less modelled time than taking turns.",
            "speculative",
            "modelled_time",
            figure="up to 1.52 times speculative decoding",
            place="abstract of 2408.11850",
            step=0.25,
            tokens=40,
        ),
    ),
    build=build,
)
