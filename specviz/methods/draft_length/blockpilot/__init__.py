"""BlockPilot: a small network chooses the draft length once, after the prompt, for the whole answer
(2606.31315). The length depends on the prompt only, so the output stays exact."""

from __future__ import annotations

from ....core import Knob, Method, Parts, Trained
from ....core.claim import Claim


def build(kit, most: int) -> Parts:
    from ....drafters.heads.features import FeatureDrafter
    from ....drafters.model.chain import DraftChain
    from ....policies.learned import OncePerPrompt
    from ....verifiers import TokenRejection

    network, drafter = kit.head("blockpilot"), FeatureDrafter(kit.head("eagle"), DraftChain)

    def choose(state) -> int | None:
        before = drafter.model.before
        return None if before is None else network.length(before)

    return Parts(drafter, OncePerPrompt(choose, most), TokenRejection())


METHOD = Method(
    key="blockpilot",
    title="BlockPilot",
    paper="BlockPilot 2026, arXiv 2606.31315",
    summary="Reads the prompt and chooses one draft length for the whole answer: asked once, it costs nothing while decoding.",
    knobs=(Knob("most", 8, 1, 20, "longest draft; also used where the network cannot be asked"),),
    needs=frozenset({"head:blockpilot", "head:eagle", "tap:final", "embed", "head"}),
    look="One length for all rounds of an answer. Other lengths for other prompts only where the head's drafts hold that long.",
    wins="Where prompts differ and rounds do not: copies get long drafts, open questions short ones.",
    loses="An answer that changes its kind on the way keeps its length; AdaEAGLE asks in each round. Here it chose 1 for each of 60 "
    "prompts: EAGLE's chains repay one token, and the best length of each answer would be 2.4 % faster.",
    differs="The network's shape, its dropout and its use after the prefill are the authors'. They choose block sizes 14 to 18 of a block "
    "drafter from the prompt's representation; here it is the length of EAGLE's chain, from the last state that the prefill computes, "
    "and the layers are narrower.",
    compared="code",
    relative="adaeagle",
    aliases=("block size predictor",),
    trains=(
        Trained(
            "blockpilot",
            "A network that chooses the length of EAGLE's chains from the prompt.",
            f"{__name__}.blockpilot_network",
            after="eagle",
        ),
    ),
    claims=(
        Claim(
            "A length chosen once per prompt keeps more than one chosen each round.",
            "adaeagle",
            "accepted_length",
            figure="5.92 accepted tokens, 4.20 times plain decoding",
            place="the authors' code for 2606.31315, Qwen3-4B",
            tokens=40,
            why="it chooses one token for every prompt here, AdaEAGLE more where EAGLE's head is sure",
        ),
    ),
    build=build,
)
