"""Proxy tuning as an FS-GEN collaboration: logits l + alpha (s - s0), the target's shifted by the change
that tuning made in a small model (Zhang et al. 2406.12295; Liu et al. 2401.08565). The papers use a small
model after (s) and before tuning (s0). Here s is the draft model and s0 the draft model stopped after half
of its layers, with its own final norm and head."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, alpha: float, router: str, gamma: int) -> Parts:
    from ...drafters.model.chain import DraftChain
    from ...loops.mixed_target import decode_mixture, proxy_mix
    from ...policies.routers import ROUTERS, routing_policy
    from ...verifiers import TokenRejection

    small = kit.open("middle", required=True)
    half = f"layer:{(small.layers + 1) // 2 if small.layers > 1 else 0}"  # of a single layer, its input
    helpers = {
        "small": small,
        "mix": proxy_mix(alpha, lambda scores: small.head(small.norm(scores.hidden_states[half]))),
        "router": ROUTERS[router],
        "hidden_states": frozenset({half}),
    }
    return Parts(
        DraftChain(kit.open("draft")),
        routing_policy(router, gamma),
        TokenRejection(),
        decode_mixture,
        helpers,
    )


METHOD = Method(
    key="proxy_decoding",
    title="Collaborative decoding, by proxy",
    paper="Zhang et al. 2024, arXiv 2406.12295; Liu et al. 2024, arXiv 2401.08565",
    summary="Adds to the target's logits what a small model knows beyond a weaker one; here that is the draft model cut in half. "
    "Approximate as seen from the target alone, and exact for the distribution of all together: speculation does not change that.",
    exactness="approximate",
    knobs=(
        Knob(
            "alpha",
            1.0,
            0.0,
            3.0,
            "how much of the small model's gain is added; 0 is the target alone, where it has a say",
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
    needs=frozenset({"draft", "middle", "middle:half"}),
    look="Tokens that neither the target nor the draft model would have written alone; the drift says how far from the target it is.",
    wins="With a small model tuned for a subject that the large one was not: the tuning carries over without touching its weights.",
    loses="Here, where the weaker model is only half of the draft: it shows how it works and makes no text better.",
    differs="The papers contrast a small model before and after tuning. Here the draft model stands for the tuned one, and its own first "
    "half of layers for the other. Drafts are verified against the mixture, as in speculative contrastive decoding.",
    compared="code",
    claims=(
        Claim(
            "A router asks the second model for a part of the tokens only.",
            "proxy_decoding",
            "asked_share",
            figure="fewer than 20 % of the tokens need the large model",
            place="abstract of 2406.12295",
            knobs={"router": "delta"},
            baseline_knobs={"router": "always"},
        ),
    ),
    build=build,
)
