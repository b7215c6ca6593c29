"""EasySpec: groups of the draft model's layers run in parallel instead of sequentially, which approximates
its hidden states and would use several devices at once (Wu et al. 2502.02493). Tokens are sampled from the
approximate distribution, so the output stays exact; the KV cache of accepted tokens is recomputed
sequentially."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim
from ...core.needs import require_of_draft


def build(kit, model: str, group: int, gamma: int, drafts: str, width: int, nodes: int) -> Parts:
    from ...drafters.layers.layer_parallel import LayerParallel
    from ...drafters.model.chain import DraftChain, DraftShape
    from ...policies import Fixed
    from ...trees import sparse_tree
    from ...verifiers import TokenRejection

    drafter = kit.target if model == "target" else kit.open("deepest" if model == "deep draft" else "draft")
    require_of_draft(drafter, "layer_parallel")
    if drafts == "chain":
        return Parts(LayerParallel(drafter, group, DraftChain), Fixed(gamma), TokenRejection())
    shape = sparse_tree(width, gamma, nodes)
    return Parts(
        LayerParallel(drafter, group, lambda view: DraftShape(view, shape)),
        Fixed(gamma, width, nodes),
        TokenRejection(),
    )


METHOD = Method(
    key="easyspec",
    title="EasySpec (layers side by side)",
    paper="Wu et al. 2025, arXiv 2502.02493",
    summary="Runs several layers of the draft at the same time on the same input: a little blurred, and right surprisingly often.",
    knobs=(
        Knob(
            "model",
            "deep draft",
            choices=("deep draft", "draft", "target"),
            help="whose layers draft: those of the deepest draft model that the pair has, as in the paper; those of its own draft (two "
            "layers leave none between the first and the last, which always run as ever); or the target's own",
        ),
        Knob(
            "group", 4, 1, 8, "layers that run side by side; 1 is ordinary drafting, 5 and more blur too much"
        ),
        Knob("gamma", 2, 1, 12, "most tokens ahead"),
        Knob("drafts", "chain", choices=("tree", "chain"), help="what is drafted; the paper's are trees"),
        Knob("width", 3, 1, 8, "most alternatives at one place of the tree"),
        Knob("nodes", 8, 1, 64, "nodes of the tree; each is one more token for the target to score"),
    ),
    needs=frozenset({"draft", "layer_parallel"}),
    look="The first drafted token is exact; see how much later ones suffer as the group grows.",
    wins="With a deep draft model and one device a layer of the group, as in the paper.",
    loses="Here all layers share one device, so nothing is saved: this shows the blur, not the speed.",
    differs="As published, except for two points: the tree's shape, which the paper does not give, and the order within a group, where "
    "each attention is added before its feed-forward. All layers share one device.",
    published={"drafts": "tree"},
    claims=(
        Claim(
            "Layers side by side draft in fewer sequential steps.",
            "speculative",
            "draft_layers",
            figure="drafting up to 1.62 times faster, accuracy falls by at most 7 %",
            place="abstract of 2502.02493",
            tokens=40,
            knobs={"gamma": 3},
        ),
        Claim(
            "Layers side by side keep nine tenths of what the same layers in sequence keep.",
            "easyspec",
            "accepted_length",
            figure="accuracy falls by at most 7 %",
            place="abstract of 2502.02493",
            baseline_knobs={"gamma": 3, "group": 1},
            factor=0.9,
            tokens=40,
            knobs={"gamma": 3},
        ),
    ),
    build=build,
)
