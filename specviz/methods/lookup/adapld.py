"""AdaPLD: try several continuations of a lexical match at once; without a match, look up positions with a
similar hidden state (Liu et al. 2606.05742)."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, length: int, ngram: int, least: int, branches: int, likeness: float, nodes: int) -> Parts:
    from ...drafters.combined.fusion import FirstSufficientDraft
    from ...drafters.lookup.branched_copy import BranchedCopy
    from ...drafters.lookup.hidden_state_lookup import HiddenStateCopy
    from ...policies import Fixed
    from ...verifiers import TokenRejection

    drafter = FirstSufficientDraft(BranchedCopy(ngram, least, branches), HiddenStateCopy(branches, likeness))
    return Parts(drafter, Fixed(length, branches, nodes), TokenRejection())


METHOD = Method(
    key="adapld",
    title="AdaPLD",
    paper="Liu et al. 2026, arXiv 2606.05742",
    summary="Looks for the same words first and for the same meaning after that, and tries several ways on from what it finds.",
    knobs=(
        Knob("length", 8, 1, 32, "most tokens copied from one place"),
        Knob("ngram", 4, 1, 8, "longest end of the text that is looked up"),
        Knob("least", 2, 1, 8, "shortest end that may be; below it the states are asked"),
        Knob("branches", 2, 1, 8, "continuations tried at once"),
        Knob("likeness", 0.5, -1.0, 1.0, "smallest likeness (cosine) of two states"),
        Knob("nodes", 6, 1, 64, "nodes of the tree"),
    ),
    needs=frozenset({"tap:final", "tree"}),
    look="Who drafts: arcs from equal words, neighbours where no words were equal; and the fork where the same words went on in two ways.",
    wins="Text that says the same again in other words, and phrases that have more than one continuation.",
    loses="On fresh text similar states are found nearly every round, and most of what followed there is refused.",
    differs="From the abstract: n-grams first, hidden states where no n-gram matches. A third-party re-implementation branches at the "
    "target's next-best tokens and ranks equal matches by their hidden states; here the latest continuations branch. The numbers "
    "are ours.",
    claims=(
        Claim(
            "Likeness of states and branches find copies that exact matching misses.",
            "prompt_lookup",
            "accepted_length",
            figure="up to 3.10 times plain decoding",
            place="abstract of 2606.05742",
            tokens=40,
        ),
    ),
    build=build,
)
