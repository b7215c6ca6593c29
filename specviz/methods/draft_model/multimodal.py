"""Speculative decoding for multimodal models (Gagrani et al. 2404.08856): the target reads a picture before
the text; the draft model reads the text only, or a caption of the picture and the text."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim
from ...core.note_kind import IDS, note

READS = ("text", "text and caption")


def build(kit, gamma: int, draft_reads: str) -> Parts:
    from ...drafters.model.prefixed import CaptionedChain
    from ...policies import Fixed
    from ...verifiers import TokenRejection

    caption = kit.caption if draft_reads == READS[1] else ()
    return Parts(
        CaptionedChain(kit.open("draft"), caption, bool(kit.target.prefix_id)), Fixed(gamma), TokenRejection()
    )


METHOD = Method(
    key="multimodal",
    title="Multimodal, language-only draft",
    paper="Gagrani et al. 2024, arXiv 2404.08856",
    summary="The large model sees a picture, the small one only the text so far. It still guesses the grammar, and the picture's words are "
    "corrected.",
    knobs=(
        Knob("gamma", 4, 1, 16, "tokens drafted a round (the paper's 3 and 5)"),
        Knob(
            "draft_reads",
            READS[0],
            choices=READS,
            help="whether the draft model also reads a caption of the picture, which names its things but not their places",
        ),
    ),
    needs=frozenset({"draft", "input:picture", "output:text"}),
    look="Colours, things and places are refused, the words between them are kept. Hide the picture and the target guesses, too.",
    wins="Long answers, of which the picture decides few words: the draft model needs no eyes and reads no picture.",
    loses="Short answers that are all picture: each of their words is refused, and the draft is wasted.",
    differs="The paper's target is LLaVA-7B with a draft of 115 M parameters; here a toy describes drawings. The caption is what the "
    "target's output layer reads from the picture's tokens, not the text of a captioning model (as TABED's, 2601.20357).",
    published={"gamma": 3},
    notes={
        "reads": note(
            "reads",
            "What target and draft model read before the text (multimodal speculative decoding).",
            picture=("whether the target reads a picture", True),
            caption=("tokens of the caption that the draft model reads", IDS),
        )
    },
    aliases=("MLLM", "VLM", "LLaVA", "vision", "image", "TABED"),
    claims=(
        Claim(
            "A draft model that never sees the picture drafts for a target that does.",
            "autoregressive",
            "accepted_length",
            figure="up to 2.37 times, memory-bound",
            place="abstract of 2404.08856, LLaVA 7B",
            target="specviz-vision",
            tokens=32,
        ),
    ),
    build=build,
)
