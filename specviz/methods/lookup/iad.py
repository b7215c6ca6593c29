"""Input-guided aggressive decoding: where the output mostly repeats the input, as in editing, the input is
the draft (Ge et al. 2205.10350). After a difference, copying resumes where the last output tokens occur in
the input exactly once."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, gamma: int, longest: int, from_start: bool) -> Parts:
    from ...drafters.lookup.input_copy import InputCopy
    from ...policies import Fixed
    from ...verifiers import TokenRejection

    return Parts(InputCopy(longest, from_start), Fixed(gamma), TokenRejection())


METHOD = Method(
    key="iad",
    title="Input-guided aggressive decoding",
    paper="Ge et al. 2022, arXiv 2205.10350",
    summary="Copies the prompt into the answer until the model objects, then finds its place again and goes on copying.",
    knobs=(
        Knob("gamma", 16, 1, 1024, "tokens copied a round; the paper copies all that is left of the input"),
        Knob("longest", 3, 1, 6, "longest end of the text that may tell the place"),
        Knob(
            "from_start",
            False,
            help="copy from the prompt's first token at once: for a raw prompt that is nothing but the input",
        ),
    ),
    look="A correction, a round or two without a draft, and then a long copy again.",
    wins="Correcting, renaming and reformatting a text: most of the answer is in the prompt.",
    loses="Where the answer is new; and a word that stands in the prompt twice does not tell the place.",
    differs="As published, but a round copies a limited number of tokens instead of the whole rest, and the position is found by up to "
    "three last tokens.",
    compared="code",
    published={"gamma": 1024},
    aliases=("IAD", "aggressive decoding", "input-guided"),
    claims=(
        Claim(
            "Copying from the input saves most passes where the output resembles it.",
            "autoregressive",
            "accepted_length",
            figure="7 to 9 times plain decoding (grammar correction)",
            place="abstract of 2205.10350",
            tasks=("edit", "quote", "cite"),
            tokens=40,
        ),
    ),
    build=build,
)
