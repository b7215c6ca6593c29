"""MLPSpeculator: a small recurrent network on the target's last hidden state; each level also reads the
token drafted before it (Wertheimer et al. 2404.19124). Nodes are chosen, not sampled, so verification is
exact at every temperature."""

from __future__ import annotations

from ....core import Knob, Method, Parts, Trained
from ....core.claim import Claim


def build(kit, depth: int, paths: int, top: int) -> Parts:
    from ....drafters.heads.recurrent import MlpSpeculatorTree
    from ....policies import Fixed
    from ....verifiers import TokenRejection

    return Parts(
        MlpSpeculatorTree(kit.head("mlp_speculator"), paths, top), Fixed(depth, 16, 64), TokenRejection()
    )


METHOD = Method(
    key="mlp_speculator",
    title="MLPSpeculator",
    paper="Wertheimer et al. 2024, arXiv 2404.19124",
    summary="Levels of a small network guess one token after another from the target's last hidden state, each knowing the token before.",
    knobs=(
        Knob("depth", 2, 1, 8, "most levels used, one a token ahead"),
        Knob("paths", 2, 1, 16, "most probable paths that are checked"),
        Knob("top", 0, 0, 6, "tokens followed at each level; 0: as many as the weights were made for"),
    ),
    needs=frozenset({"head:mlp_speculator", "tap:final", "tree"}),
    look="Unlike Medusa's, the tokens below two parents differ: a level has read what stands above its guess.",
    wins="Where a draft must cost next to nothing but should still hang together: a level is two small matrices.",
    loses="Far ahead: beyond the target's last hidden state it has read nothing but its own guesses, without attention.",
    differs="The network, its weight names and the choice of paths are the authors'; paths with a common prefix share nodes. They "
    "compare with the target's top-1 token; here verification is exact at every temperature.",
    compared="formula",
    published={"paths": 5, "depth": 8},
    aliases=("mlp_speculator", "Combined Token/Embedding Speculator", "IBM accelerator"),
    trains=(
        Trained(
            "mlp_speculator",
            "Levels on the last hidden state, each reading the token drafted before it.",
            f"{__name__}.mlp_speculator_network",
        ),
    ),
    claims=(
        Claim(
            "A small network on the last state saves passes.",
            "autoregressive",
            "accepted_length",
            figure="2 to 3 times faster",
            place="abstract of 2404.19124",
            tokens=40,
            knobs={"depth": 3},
        ),
    ),
    build=build,
)
