"""SmartSpec: choose the draft length with the highest expected goodput of the current batch, from measured
costs of passes and drafts and the acceptance rate; under load it falls to 0 (Liu et al. 2406.14066)."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, first: int, most: int) -> Parts:
    from ...drafters.model.chain import DraftChain
    from ...loops.batched import batch_of_one
    from ...policies import Goodput
    from ...verifiers import TokenRejection

    return Parts(DraftChain(kit.open("draft")), Goodput(first, most), TokenRejection(), batch_of_one)


METHOD = Method(
    key="smartspec",
    title="SmartSpec (goodput)",
    paper="Liu et al. 2024, arXiv 2406.14066",
    summary="Measures what a pass costs by its tokens and drafts as far as pays for all requests together; when the machine is "
    "full it stops drafting.",
    knobs=(
        Knob("first", 4, 1, 16, "length of the first drafts, while nothing was measured yet"),
        Knob("most", 8, 1, 16, "longest draft considered"),
    ),
    needs=frozenset({"draft"}),
    look="The line of tokens a second expected from each length: its peak is what is drafted, and it moves to 0 as "
    "requests come in.",
    wins="Wherever the load changes: it speculates for few requests and decodes plainly for many.",
    loses="It takes all requests for equally easy, and its first rounds are spent measuring.",
    differs="The formula is the paper's; its costs are measured, and all requests share one acceptance rate. Ours: few requests draft "
    "until the costs are measured; a request whose draft model must prefill first drafts only if enough tokens remain to pay for "
    "it; and while drafting is off, single requests try a draft for 2 % of the time.",
    aliases=("TurboSpec", "DSD", "goodput"),
    by_time=True,
    claims=(
        Claim(
            "A length by goodput costs fewer tokens of the batch's passes than a long fixed one.",
            "speculative",
            "batch_rows",
            figure="latency up to 3.2 times lower than plain decoding",
            place="abstract of 2406.14066",
            requests=4,
            baseline_knobs={"gamma": 8},
            tokens=96,
        ),
    ),
    build=build,
)
