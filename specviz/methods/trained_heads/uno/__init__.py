"""Uno: the target drafts for itself by diffusion, through a LoRA that applies to positions with random
tokens; its own weights verify (Sahoo et al. 2609.04010). Each token is sampled from its position's
distribution, so token rejection is exact."""

from __future__ import annotations

from ....core import Knob, Method, Parts, Trained
from ....core.claim import Claim


def build(kit, gamma: int) -> Parts:
    from ....drafters.heads.draft_path import DraftPathChain
    from ....policies import Fixed
    from ....verifiers import TokenRejection

    return Parts(DraftPathChain(kit.head("uno")), Fixed(gamma), TokenRejection())


METHOD = Method(
    key="uno",
    title="Uno",
    paper="Sahoo et al. 2026, arXiv 2609.04010",
    summary="One model, two ways through it: with a small addition to its weights it turns noise into several tokens at once, and "
    "without it checks them.",
    knobs=(
        Knob(
            "gamma",
            4,
            1,
            16,
            "tokens drafted a round, as far as the block was trained; the paper's blocks have 4 to 16",
        ),
    ),
    needs=frozenset({"head:uno", "draft_path"}),
    look="The first draft token: its row holds the last token and the model's own weights, so it is always accepted. The others come "
    "from rows of random tokens.",
    wins="Where memory is scarce and a pass is bound by reading weights: no second model and no second cache.",
    loses="Small models: a round takes two whole passes, so it must write more than two tokens to gain.",
    differs="Gated LoRA, causal block, noise and linear sampler are those of the authors' code (ifm-ai/uno 9018a5d); its trees are left "
    "out. Noise is tokens 1 to before the mask token or the vocabulary's end, as theirs; our weights learned with token 0, too. "
    "Rank 8 and scale 2 where theirs are 128 and 16; the loss is the forward divergence of the target's stored top tokens, theirs "
    "the total variation.",
    compared="code",
    published={"gamma": 8},
    aliases=("uno", "diffusion LoRA", "Psi-Spec"),
    trains=(
        Trained(
            "uno",
            "A LoRA that lets the target turn rows of noise into draft tokens.",
            f"{__name__}.uno_network",
            one_pass=True,
        ),
    ),
    claims=(
        Claim(
            "The target drafts for itself through an adapter: its layers are read less often.",
            "autoregressive",
            "layers_read",
            figure="1.92 times plain decoding (Jais-3-7B)",
            place="the authors' code for 2609.04010",
            tokens=40,
        ),
    ),
    build=build,
)
