"""GliDe with CaPE: a small decoder with cross-attention to the target's KV cache drafts a chain; CaPE adds
more candidates per position the less confident it is (Du et al. 2402.02082)."""

from __future__ import annotations

from ....core import Knob, Method, Parts, Trained
from ....core.claim import Claim
from ....core.note_kind import note


def build(kit, drafts: str, gamma: int, width: int, nodes: int) -> Parts:
    from ....drafters.model.chain import DraftChain
    from ....policies import Fixed
    from ....verifiers import TokenRejection
    from .glide_drafter import CapeChain, Glide

    grow = CapeChain if drafts == "with candidates" else DraftChain
    return Parts(Glide(kit.head("glide"), grow), Fixed(gamma, width, nodes), TokenRejection())


METHOD = Method(
    key="glide",
    title="GliDe with CaPE",
    paper="Du et al. 2024, arXiv 2402.02082",
    summary="A small decoder looks at the target's own keys and values while it drafts, and offers more candidates where it is unsure.",
    knobs=(
        Knob(
            "drafts",
            "with candidates",
            choices=("with candidates", "chain"),
            help="more candidates next to the chain the less sure it is (CaPE), or the chain alone (GliDe)",
        ),
        Knob("gamma", 3, 1, 16, "tokens of the chain; it was trained for 5 without the target's keys"),
        Knob("width", 3, 1, 16, "most candidates at one position, where it is least sure"),
        Knob("nodes", 3, 1, 64, "nodes in all, candidates included"),
    ),
    needs=frozenset({"head:glide", "kv", "embed", "head", "tree"}),
    look="How sure it was at each position, and how many candidates stand there: few where it is sure, many where it is not.",
    wins="On long texts: what the target has read is looked up and not read again.",
    loses="Deep in a draft, where the target has no keys yet; and candidates are tokens that the target must score.",
    differs="Layers, training blocks and numbers of candidates are the paper's. Embedding and output matrix are the target's instead of "
    "its own. The authors draft greedily; here the chain alone is sampled at the run's temperature.",
    compared="notes",
    published={"nodes": 35, "width": 7},
    aliases=("CaPE", "confidence-aware proposal expansion"),
    trains=(
        Trained("glide", "One layer that attends to the target's KV cache.", f"{__name__}.glide_network"),
    ),
    notes={
        "widths": note(
            "widths",
            "Number of candidates at each position of the chain; it is larger where the draft is less confident (GliDe with CaPE).",
            sure=("the draft's top-1 probability at each position", [0.9, 0.5, 0.25]),
            wide=("candidates", [1, 5, 7]),
        ),
    },
    claims=(
        Claim(
            "Candidates at unsure places keep more than the chain.",
            "glide",
            "accepted_length",
            figure="2.17 to 2.61 times plain decoding",
            place="abstract of 2402.02082",
            baseline_knobs={"gamma": 5, "nodes": 5, "drafts": "chain"},
            tokens=40,
            knobs={"gamma": 5, "nodes": 5},
        ),
    ),
    build=build,
)
