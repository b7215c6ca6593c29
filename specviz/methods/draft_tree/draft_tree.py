"""A draft tree: several continuations share one forward pass of the target (SpecInfer, Miao et al.
2305.09781; recursive rejection without replacement, Jeon et al. 2402.14160). The shape is fixed: wide at
the root, narrow below."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, children: str, verifier: str, width: int, depth: int, nodes: int) -> Parts:
    from ...drafters.model.chain import DraftShape
    from ...policies import Fixed
    from ...trees import chosen_children, drawn_children, hub_children, independent_children, sparse_tree
    from ...verifiers import BlockVerification, KSeq, SpecHub, TokenRejection, Traversal

    draw = {
        "top-k": chosen_children,
        "sampled": drawn_children,
        "independent": independent_children,
        "hub pairs": hub_children,
    }[children]
    verifiers = {
        "token": TokenRejection,
        "block": BlockVerification,
        "traversal": Traversal,
        "k-seq": KSeq,
        "spechub": SpecHub,
    }
    drafter = DraftShape(kit.open("draft"), sparse_tree(width, depth, nodes), children != "top-k", draw)
    return Parts(drafter, Fixed(depth, width, nodes), verifiers[verifier]())


METHOD = Method(
    key="draft_tree",
    title="Draft tree",
    paper="Miao et al. 2023, arXiv 2305.09781; Jeon et al. 2024, arXiv 2402.14160",
    summary="The small model proposes several alternatives at each place; the target checks the whole tree of them in one pass.",
    knobs=(
        Knob(
            "children",
            "top-k",
            choices=("top-k", "sampled", "independent", "hub pairs"),
            help="the draft's most likely tokens; tokens drawn without replacement, or with it; or pairs that hold the most likely "
            "one (at temperature 0 all the same)",
        ),
        Knob(
            "verifier",
            "token",
            choices=("token", "block", "traversal", "k-seq", "spechub"),
            help="how they are judged; a rule that does not know how they were drawn would bias the text and is refused",
            only_with=(
                ("token", "children", ("top-k", "sampled", "independent")),
                ("block", "children", ("top-k", "independent")),
                ("block", "width", (1,)),
                ("traversal", "children", ("top-k", "sampled", "independent")),
                ("k-seq", "children", ("top-k", "independent")),
                ("spechub", "children", ("top-k", "independent", "hub pairs")),
            ),
        ),
        Knob("width", 3, 1, 8, "most alternatives at one place"),
        Knob("depth", 4, 1, 10, "most tokens ahead"),
        Knob("nodes", 5, 1, 64, "nodes of the tree; each is one more token for the target to score"),
    ),
    needs=frozenset({"draft", "tree"}),
    look="Second and third choices that save a round in which the first choice was refused.",
    wins="On hardware where scoring twenty tokens costs little more than scoring one.",
    loses="On a CPU every further row costs time, and a narrow chain is often the better bargain.",
    differs="A workbench, not one paper's method: the tree's shape is narrow and fixed; children and verifier can be chosen from several "
    "papers.",
    compared="formula",
    claims=(
        Claim(
            "A tree keeps more than a chain as deep.",
            "speculative",
            "accepted_length",
            figure="1.5 to 2.8 times other serving systems",
            place="abstract of 2305.09781",
            knobs={"width": 3, "depth": 4, "nodes": 16},
            baseline_knobs={"gamma": 4},
        ),
    ),
    build=build,
)
