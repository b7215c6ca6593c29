"""SLRS: the draft is re-encoded in the target's tokens, and its first token is verified under the
probability that the draft produces any text starting with it (Timor et al. 2502.05202). The exact sum over
all such texts is exponential; here it covers one draft token, and two where the first is among the most
probable, which is exact and costs no more than a small tree."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, gamma: int, ahead: int) -> Parts:
    from ...drafters.vocabulary.chains import StringRejection
    from ...policies import Fixed
    from ...verifiers import TokenRejection

    return Parts(
        StringRejection(kit.open("other_draft"), kit.bridge("other_draft"), ahead),
        Fixed(gamma),
        TokenRejection(),
    )


METHOD = Method(
    key="slrs",
    title="String rejection across vocabularies (SLRS)",
    paper="Timor et al. 2025, arXiv 2502.05202",
    summary="Every word of the draft counts, also those the target does not have: it is judged by how the target would spell it.",
    knobs=(
        Knob("gamma", 2, 1, 16, "tokens drafted a round"),
        Knob(
            "ahead",
            4,
            0,
            16,
            "number of most probable draft tokens whose successor is scored, too, because both may form one of the "
            "target's; 0 looks at one token only",
        ),
    ),
    needs=frozenset({"other_draft"}),
    look="Tokens of the draft that become two of the target's: the first is judged by a ratio, the second must match. "
    "And two that become one.",
    wins="When the draft has many tokens that the target lacks, at temperature above 0.",
    loses="The rest of a spelling must match the target's own draw; a token that is three or more of the draft's is never proposed whole.",
    differs="The probability of a target token is summed over spellings by one draft token, or by two if the first is among the most "
    "probable. Verification is exact for what is proposed; the paper's sum has no such limit.",
    compared="formula",
    claims=(
        Claim(
            "Above temperature 0 rejection of strings is kept more often than exact matches of text.",
            "slem",
            "accepted_length",
            figure="up to 2.8 times plain decoding (the paper's three methods)",
            place="abstract of 2502.05202",
            knobs={"gamma": 3},
            baseline_knobs={"gamma": 3},
            temperature=1.0,
            tokens=40,
        ),
    ),
    build=build,
)
