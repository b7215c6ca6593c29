"""Contrastive decoding as an FS-GEN collaboration: logits s + beta (l - s) of the large and the small model
(Zhang et al. 2406.12295; Li et al. 2210.15097). The small model also drafts, and drafts are verified
against the combined distribution, so speculation does not change it (speculative contrastive decoding, Yuan
et al. 2311.08981)."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, beta: float, alpha: float, router: str, gamma: int) -> Parts:
    from ...drafters.model.chain import DraftChain
    from ...loops.mixed_target import contrastive_mix, decode_mixture
    from ...policies.routers import ROUTERS, routing_policy
    from ...verifiers import TokenRejection

    helpers = {
        "small": kit.open("middle", required=True),
        "mix": contrastive_mix(beta, alpha),
        "router": ROUTERS[router],
    }
    return Parts(
        DraftChain(kit.open("draft")),
        routing_policy(router, gamma),
        TokenRejection(),
        decode_mixture,
        helpers,
    )


METHOD = Method(
    key="contrastive_decoding",
    title="Collaborative decoding, contrastive",
    paper="Zhang et al. 2024, arXiv 2406.12295; Yuan et al. 2023, arXiv 2311.08981",
    summary="Large and small model decide each token together, by the difference of their logits. "
    "Approximate as seen from the target alone, and exact for that of the two together: speculation does not change it.",
    exactness="approximate",
    unchecked="removes tokens by its mixture before the grammar is asked, and may leave none",
    knobs=(
        Knob(
            "beta",
            0.5,
            0.0,
            3.0,
            "0 is the small model, 1 the target; above 1 what only the small model likes counts against a token",
        ),
        Knob(
            "alpha",
            0.1,
            0.001,
            1.0,
            "tokens with less than this share of the target's best probability are out",
        ),
        Knob(
            "router",
            "always",
            choices=("always", "max probability", "delta"),
            help="where the target has a say: everywhere, or where the small model's "
            "best token has less than 0.5, or where half its lead over the second is below 0.2; elsewhere the small model decides",
        ),
        Knob("gamma", 5, 1, 16, "most tokens drafted a round"),
    ),
    needs=frozenset({"draft", "middle"}),
    look="What the two thought of each token, and what came of it; the drift is how far that is from the target alone.",
    wins="Above beta 1, against the dull and repetitive habits that both models share; below it, as an average of two opinions.",
    loses="The further from beta 1, the less the small model's drafts or the target's knowledge count. Each round reads twice.",
    differs="As the authors' code, without the router that is a trained classifier. Drafts are verified against the mixture, as its "
    "speculative form does.",
    compared="code",
    claims=(
        Claim(
            "A router asks the second model for a part of the tokens only.",
            "contrastive_decoding",
            "asked_share",
            figure="fewer than 20 % of the tokens need the large model",
            place="abstract of 2406.12295",
            knobs={"router": "delta"},
            baseline_knobs={"router": "always"},
        ),
    ),
    build=build,
)
