"""SmartSpec: the draft length that promises most written tokens a second for the batch as it is now, by measured costs of
passes and drafts and by the acceptance so far; under load it falls to 0 (Liu et al. 2406.14066).
"""
from __future__ import annotations

from ...core import Knob, Method, Parts


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
    summary="Measures what a pass costs by its rows and drafts as far as pays for all requests together; when the machine is "
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
    differs="The formula is the paper's, its costs are measured. One acceptance serves all requests. Ours is that few requests "
            "draft while nothing is measured, that a request whose text must be read first drafts only where its rest is long enough "
            "to pay for that, and that without drafts a request tries one now and then, for two hundredths of the time.",
    aliases=("TurboSpec", "DSD", "goodput"),
    build=build,
)
