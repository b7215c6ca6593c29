"""FLy: a rejection at a high-entropy position of the target is overruled if all drafted tokens after it
match (Li et al. 2511.22972)."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, unsure: float, window: int, gamma: int, inner: int) -> Parts:
    from ...drafters.lookup.copying import NgramDraft
    from ...drafters.model.chain import DraftChain
    from ...drafters.model.staged import StagedDrafter
    from ...policies import Fixed
    from ...verifiers import TokenRejection
    from ...verifiers.deferred import DeferredAcceptance

    draft = kit.open("draft")
    if inner:
        drafter = StagedDrafter(Parts(NgramDraft(3, 2), Fixed(inner), TokenRejection()), draft)
    else:
        drafter = DraftChain(draft)
    return Parts(drafter, Fixed(gamma), DeferredAcceptance(unsure, window))


METHOD = Method(
    key="fly",
    title="FLy (deferred acceptance)",
    paper="Li et al. 2025, arXiv 2511.22972",
    summary="Lets another wording pass where the target could have gone either way and agrees with everything that comes after it.",
    exactness="approximate",
    knobs=(
        Knob(
            "unsure",
            0.5,
            0.0,
            1.1,
            "least that the target's three best tokens add to its entropy, in nats; above 1.09 it is exact",
        ),
        Knob("window", 3, 0, 12, "tokens after a refused one that must all be accepted; 0 is exact"),
        Knob("gamma", 5, 1, 32, "tokens drafted a round"),
        Knob("inner", 0, 0, 16, "tokens that counts of the text hand to the draft model; 0: it drafts alone"),
    ),
    needs=frozenset({"draft"}),
    look="Tokens that were refused and stand all the same, and the drift: what each of them gave up, in nats.",
    wins="A good draft model that words things a little differently: its drafts are no longer cut at every synonym.",
    loses="The text is no longer the target's. With a weak draft nothing long enough agrees after a refusal.",
    differs="The rule is the authors'; their program examines one token fewer after the rejection. Above temperature 0 they accept a "
    "token if it equals one of two samples of the target; here it is verified by rejection sampling.",
    compared="code",
    published={"unsure": 0.3, "window": 6, "gamma": 15, "inner": 6},
    aliases=("rejection_sample_method fly", "loosely speculative decoding"),
    claims=(
        Claim(
            "Deferred judgement keeps more than exact matching.",
            "speculative",
            "accepted_length",
            figure="1.04 to 1.94 times speculative decoding",
            place="users' measurements of 2511.22972",
            baseline_knobs={"gamma": 5},
            tokens=40,
        ),
    ),
    build=build,
)
