"""STree: a draft tree verified in one pass of a target with recurrent states, which no rejected token may
touch (Wu et al. 2505.14969)."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, shape: str, verifier: str) -> Parts:
    from ...drafters.model.state_tree import StateTree
    from ...policies import Fixed
    from ...trees.shapes import STREE
    from ...verifiers import TokenRejection, Traversal

    tree = STREE[shape]
    return Parts(
        StateTree(kit.open("draft"), tree),
        Fixed(max(tree.depths), 5, len(tree)),
        {"token": TokenRejection, "traversal": Traversal}[verifier](),
    )


METHOD = Method(
    key="stree",
    title="STree",
    paper="Wu et al. 2025, arXiv 2505.14969",
    summary="A state-space target checks a whole draft tree in one pass: decay is summed along each branch, and only what was accepted "
    "moves the state.",
    knobs=(
        Knob(
            "shape",
            "12 places",
            choices=("12 places", "17 places"),
            help="the authors' static trees: four levels of three nodes, or "
            "five nodes and then three levels of four",
        ),
        Knob(
            "verifier", "token", choices=("token", "traversal"), help="how the tree is judged; both are exact"
        ),
    ),
    needs=frozenset({"draft", "tree", "state:decay"}),
    look="How much of the state survives along each branch, and how few bytes a round writes.",
    wins="On state-space models, which cannot drop a row of a cache: a rejected branch costs no copy of the state.",
    loses="On short drafts: a chain needs no tree. On a CPU every place of the tree costs time.",
    differs="Scan, convolution and replay are the paper's, checked against the sequential recurrence. The draft is an embedded Llama "
    "instead of a distilled Mamba-2, and the replay happens at the commit instead of in the next pass.",
    compared="code",
    published={"shape": "12 places"},
    aliases=("STree", "state-space tree scan", "mamba speculative decoding"),
    claims=(
        Claim(
            "State-space models verify a tree: more is kept than from a chain as deep.",
            "speculative",
            "accepted_length",
            figure="faster than speculative decoding of state-space models",
            place="abstract of 2505.14969",
            target="Llama-specviz-mamba",
            baseline_knobs={"gamma": 4},
            tasks=("story",),
            temperature=1.0,
        ),
    ),
    build=build,
)
