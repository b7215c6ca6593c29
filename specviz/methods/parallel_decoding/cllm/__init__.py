"""CLLM: Jacobi decoding with a fine-tuned target that was trained to correct several tokens of a wrong
block at once (Kou et al. 2403.00835). Exact for those weights at any temperature; they differ from the
original target's."""

from __future__ import annotations

from ....core import Knob, Method, Parts, Trained
from ....core.claim import Claim


def build(kit, block: int) -> Parts:
    from ....drafters.parallel.blocks import BlockJacobi
    from ....loops.target_replacement import replace_target
    from ....policies import Fixed
    from ....targets.fast import FastTarget
    from ....verifiers import TokenRejection

    helpers = {"writer": FastTarget(kit.head("cllm").fused)}
    return Parts(BlockJacobi(block, "prompt"), Fixed(block), TokenRejection(), replace_target, helpers)


METHOD = Method(
    key="cllm",
    title="CLLM (consistency model)",
    paper="Kou et al. 2024, arXiv 2403.00835",
    summary="The target itself, taught to jump: Jacobi decoding with weights that were trained to make a wrong block right in "
    "few passes. What is written is exactly what those weights write, and no longer what the target would have written.",
    exactness="approximate",
    knobs=(Knob("block", 6, 1, 64, "tokens guessed and corrected together until all of them stand"),),
    needs=frozenset({"head:cllm"}),
    look="The grid of guesses beside that of plain Jacobi: runs of tokens that come right in one pass, and some that were right "
    "early.",
    wins="Narrow tasks it was trained on; no draft model and no head is needed beside it.",
    loses="The weights are others: what the training cost the model in quality stands in its card.",
    differs="Decoding and both losses are the authors'. They train on complete trajectories generated beforehand; here each training "
    "step runs a block through a few Jacobi passes of the target. Above temperature 0 the block is verified by rejection "
    "sampling.",
    compared="code",
    published={"block": 16},
    aliases=("cllm", "consistency large language model", "consistency LLM"),
    trains=(
        Trained(
            "cllm",
            "An adapter of the target itself, trained to correct several tokens a forward pass.",
            "specviz.models.causal",
        ),
    ),
    claims=(
        Claim(
            "Training for consistency makes Jacobi decoding converge faster.",
            "jacobi",
            "accepted_length",
            figure="2.4 to 3.4 times plain decoding",
            place="abstract of 2403.00835",
            baseline_knobs={"block": 6},
            tokens=40,
        ),
    ),
    build=build,
)
