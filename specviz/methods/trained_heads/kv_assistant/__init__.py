"""A drafter that borrows the target's keys and values, as Gemma 4's assistants do: it has no KV cache, and
scores only the best clusters of the vocabulary."""

from __future__ import annotations

from ....core import Knob, Method, Parts, Trained
from ....core.claim import Claim
from ....core.note_kind import note


def build(kit, drafts: str, gamma: int, width: int, nodes: int, gain: float) -> Parts:
    from ....drafters.model.chain import DraftChain
    from ....drafters.model.confidence_trees import ConfidentTree
    from ....policies import Fixed
    from ....verifiers import TokenRejection
    from .kv_assistant_drafter import BorrowingDrafter

    def grow(model):
        return DraftChain(model) if drafts == "chain" else ConfidentTree(model, width, gain)

    return Parts(
        BorrowingDrafter(kit.head("kv_assistant"), grow), Fixed(gamma, width, nodes), TokenRejection()
    )


METHOD = Method(
    key="kv_assistant",
    title="KV-borrowing assistant",
    paper="Gemma 4 assistants, vLLM gemma4_mtp.py",
    summary="Reads the keys and values that the target has already computed and writes none: the draft has no cache at all.",
    knobs=(
        Knob(
            "drafts",
            "chain",
            choices=("chain", "tree"),
            help="a chain, as the engines do, or a tree that grows where it is sure",
        ),
        Knob("gamma", 4, 1, 8, "tokens drafted a round, a pass of the drafter each"),
        Knob("width", 2, 1, 10, "most children of a node of the tree"),
        Knob("nodes", 6, 1, 60, "nodes of the tree"),
        Knob(
            "gain",
            0.2,
            0.0,
            2.0,
            "a level of the tree is grown while the one before it added more than this to the expected accepted length",
        ),
    ),
    needs=frozenset({"head:kv_assistant", "kv", "embed", "head", "tap:final", "tree"}),
    look="Where in the target's own cache the query looks. Bytes of draft cache: 0.",
    wins="Long texts and many requests, where a draft's own cache would take memory and time; its steps cost the same at any depth.",
    loses="Deep in a draft: the tokens drafted so far are seen through one state only, and the position stands still.",
    differs="Layers, constant position, file layout and output over clusters are the published ones. The drafter here is trained for "
    "another target, reads a middle and the last layer, and scores its clusters with the target's output matrix.",
    compared="code",
    relative="glide",
    aliases=("gemma4_assistant", "Gemma 4 MTP", "draft-mtp", "frozen-KV MTP", "assistant model"),
    trains=(
        Trained(
            "kv_assistant",
            "Layers of queries over the target's KV cache, and an output over clusters of tokens.",
            f"{__name__}.kv_assistant_network",
        ),
    ),
    notes={
        "borrowed": note(
            "heads",
            "What a drafter without a KV cache reads of the target's (KV-borrowing assistant).",
            layers=(
                "layers of the target whose keys and values are read, one per layer of the drafter",
                [15, 29],
            ),
            cached=("tokens in the target's KV cache", 96),
            position=("position from which all steps of the draft look", 95),
            cache_bytes=("bytes of the drafter's own KV cache", 0),
            places=("positions that the first step attended to most", [95, 12, 0]),
            shares=("mean attention weight of each", [0.4, 0.2, 0.1]),
        ),
    },
    claims=(
        Claim(
            "A drafter over the target's own cache keeps as much as a head with a cache.",
            "glide",
            "accepted_length",
            tokens=40,
            baseline_knobs={"gamma": 5, "nodes": 5},
            why="it drafts a chain where GliDe drafts a tree; at equal tokens seen both keep the same in chains of four (1.22 and 1.21)",
        ),
    ),
    build=build,
)
