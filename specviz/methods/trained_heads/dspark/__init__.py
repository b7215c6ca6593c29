"""DSpark: a block drafter whose positions depend on the token before them through a low-rank matrix (a
Markov head), and which predicts each token's acceptance probability (DeepSeek's DSpark, as in the authors'
public code). Tokens are sampled in order through the Markov head, so each has the distribution it was
sampled from and token rejection is exact."""

from __future__ import annotations

from ....core import Knob, Method, Parts, Trained
from ....core.claim import Claim


def build(kit, gamma: int, sure: float) -> Parts:
    from ....drafters.heads.masked_block import BlockChain
    from ....policies import Fixed
    from ....verifiers import TokenRejection

    return Parts(BlockChain(kit.head("dspark"), sure), Fixed(gamma), TokenRejection())


METHOD = Method(
    key="dspark",
    title="DSpark",
    paper="DSpark 2026, the authors' code DeepSpec",
    summary="A block drafted in one pass, where each token still knows the one before it, cut where the drafter stops trusting itself.",
    knobs=(
        Knob(
            "gamma",
            7,
            1,
            15,
            "tokens drafted a round, as far as the block was trained; the authors' blocks have 7",
        ),
        Knob(
            "sure",
            0.3,
            0.0,
            1.0,
            "the draft ends before the first token whose confidence is below this, maybe before any; 0 drafts "
            "the block, as the authors evaluate",
        ),
    ),
    needs=frozenset({"head:dspark", "tap:layer", "embed", "head"}),
    look="Long drafts where the text is easy, short ones where it is open: the confidence of each position stands next to its verdict.",
    wins="Everywhere a block drafter does; the Markov head mends what positions guessed alone get wrong.",
    loses="At high temperature confidence is low and blocks are cut short.",
    differs="Written from the authors' public code: the block ends at the first token below the confidence threshold. They compute whole "
    "blocks, which also suits a GPU best.",
    published={"sure": 0.0},
    trains=(
        Trained(
            "dspark",
            "A block drafter with a Markov head and a confidence head.",
            "specviz.models.masked_block",
            one_pass=True,
        ),
    ),
    claims=(
        Claim(
            "A Markov head keeps more than DFlash's independent places.",
            "dflash",
            "accepted_length",
            figure="3.64 tokens a pass, DFlash 3.07 (MT-Bench, Qwen3-4B)",
            place="the authors' code DeepSpec",
            knobs={"sure": 0.0, "gamma": 5},
            tokens=40,
            baseline_knobs={"gamma": 5},
            why="DFlash has learned from 2.8 million tokens of visitors' prompts, DSpark from 0.1 million",
        ),
    ),
    build=build,
)
