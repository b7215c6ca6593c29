"""PARD: a draft model fine-tuned on mask tokens drafts all its tokens in one forward pass (An et al.
2504.18583). Each token is sampled from its own logits, independently of the others, so token rejection is
exact at every temperature."""

from __future__ import annotations

from ....core import Knob, Method, Parts, Trained
from ....core.claim import Claim


def build(kit, gamma: int) -> Parts:
    from ....drafters.model.masked import MaskedDraft
    from ....policies import Fixed
    from ....verifiers import TokenRejection

    return Parts(MaskedDraft(kit.head("pard")), Fixed(gamma), TokenRejection())


METHOD = Method(
    key="pard",
    title="PARD",
    paper="An et al. 2025, arXiv 2504.18583",
    summary="A draft model that drafts its whole block in one pass: mask tokens stand for the words it has not written.",
    knobs=(
        Knob("gamma", 2, 1, 16, "tokens drafted a round, all from one pass; the authors take 12 on a GPU"),
    ),
    needs=frozenset({"head:pard"}),
    look="The draft takes one pass however long it is; later positions are guessed without knowing what the earlier ones became.",
    wins="Wherever the number of draft passes decides the cost of a draft; one draft model serves every target with its vocabulary.",
    loses="Open text: two good continuations get mixed, and the tokens after a wrong one are wasted.",
    differs="As published, and published models load. Every token is sampled and verified by rejection sampling, so temperatures above "
    "0, which the authors do not cover, are exact. Ours is trained on the target's distribution, theirs on the tokens of a text.",
    compared="code",
    published={"gamma": 12},
    aliases=("pard", "parallel draft", "parallel_drafting"),
    trains=(
        Trained(
            "pard",
            "The draft model, trained to read mask tokens, so that it drafts a block in one forward pass.",
            "specviz.models.masked",
            after="draft",
            one_pass=True,
        ),
    ),
    claims=(
        Claim(
            "The whole draft takes one pass of the draft model.",
            "speculative",
            "draft_passes",
            figure="3.67 times plain decoding, 1.15 times EAGLE-3",
            place="abstract of 2504.18583v4, LLaMA3.1-8B",
            knobs={"gamma": 4},
        ),
    ),
    build=build,
)
