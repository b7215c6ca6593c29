"""A multi-token prediction module drafts a chain: one layer on the target's hidden state, applied
repeatedly to its own output (DeepSeek-V3, 2412.19437). Each token is sampled from the module's
distribution, so token rejection is exact at every temperature.
"""

from __future__ import annotations

from ....core import Knob, Method, Parts, Trained
from ....core.claim import Claim


def build(kit, gamma: int) -> Parts:
    from ....drafters.heads.features import FeatureDrafter
    from ....drafters.model.chain import DraftChain
    from ....policies import Fixed
    from ....verifiers import TokenRejection

    return Parts(FeatureDrafter(kit.head("mtp"), DraftChain), Fixed(gamma), TokenRejection())


METHOD = Method(
    key="mtp",
    title="MTP module",
    paper="DeepSeek-AI 2024, arXiv 2412.19437",
    summary="The module with which a model was taught to see one token further drafts, and is fed its own state to see more.",
    knobs=(
        Knob("gamma", 2, 1, 8, "tokens drafted a round, a pass of the module each; the report drafts one"),
    ),
    needs=frozenset({"head:mtp", "tap:final", "embed", "head"}),
    look="The first token is what the module was taught; each further one stands on its own guess, and is right less often.",
    wins="Models that bring such a module along: it costs one layer, and no draft model has to be found.",
    loses="Small targets: the layer and a pass through the whole vocabulary for each token are no small share of them.",
    differs="The report drafts one token with one module; more tokens come from running it again on its own output, as servers do. The "
    "module is trained after the target, not with it.",
    published={"gamma": 1},
    aliases=("mtp", "multi-token prediction", "NextN", "nextn", "deepseek_mtp", "draft-mtp"),
    trains=(
        Trained(
            "mtp",
            "A module that joins the last hidden state with the next token's embedding.",
            f"{__name__}.mtp_network",
        ),
    ),
    claims=(
        Claim(
            "A module for the token after next saves passes.",
            "autoregressive",
            "accepted_length",
            figure="85 to 90 % of the second tokens kept, 1.8 times the tokens/s",
            place="section 5.4.3 of 2412.19437, as quoted",
            tokens=40,
            knobs={"gamma": 3},
        ),
    ),
    build=build,
)
