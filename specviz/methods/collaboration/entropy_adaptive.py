"""Entropy-adaptive decoding: the small model generates while the last few distributions have low entropy,
the large one otherwise (Simonds 2502.06833). Nothing is verified, and tokens of the small model need no
target pass."""

from __future__ import annotations

from ...core import Drafter, Knob, Method, Parts
from ...core.claim import Claim


def build(kit, window: int, limit: float, dwell: int) -> Parts:
    from ...loops import switching
    from ...policies.model_switch import EntropySwitch
    from ...verifiers import TokenRejection

    return Parts(
        Drafter(),
        EntropySwitch(window, limit, dwell),
        TokenRejection(),
        switching,
        {"small": kit.open("middle", required=True)},
    )


METHOD = Method(
    key="entropy_adaptive",
    title="Entropy-adaptive decoding",
    paper="Simonds 2025, arXiv 2502.06833",
    summary="Two models take turns: the small one where the text is predictable, the large one where it is not. "
    "The mean entropy of the last few positions decides, and nothing is verified.",
    exactness="approximate",
    knobs=(
        Knob(
            "window", 5, 1, 64, "positions whose entropies are averaged; the paper does not publish its value"
        ),
        Knob(
            "limit",
            1.5,
            0.0,
            8.0,
            "mean entropy in nats above which the large model writes; not published either",
        ),
        Knob("dwell", 5, 1, 64, "fewest tokens that a model writes before the other one takes over"),
    ),
    needs=frozenset({"middle"}),
    look="The line of mean entropy against its limit, and whose tokens they are. There are no accepted drafts: nothing is checked.",
    wins="When most of a text is easy: the large model is asked for a part of the tokens only.",
    loses="A small model that is sure and wrong is never corrected: this is the small model's text wherever entropy is low.",
    differs="The rule is the paper's: the mean entropy of the last distributions, a limit, and a shortest turn. The paper gives no "
    "values; ours are chosen here, and the large model writes first.",
    claims=(
        Claim(
            "The large model writes a part of the tokens only.",
            "autoregressive",
            "accepted_length",
            figure="43 % of the tokens by the large model (11B), 96.7 % of its quality",
            place="abstract of 2502.06833",
        ),
    ),
    build=build,
)
