"""HADES: an accelerator that accepts draft tokens and rolls back without its host (2412.19925). The text is
that of speculative decoding; a note adds the modelled time and energy of each round on such a chip."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim
from ...core.note_kind import note


def build(kit, gamma: int, on_chip: bool, bandwidth: float, arithmetic: float) -> Parts:
    from ...core.chip_model import Chip, transformer_size
    from ...drafters.model.on_chip import ChainOnChip
    from ...policies import Fixed
    from ...verifiers import TokenRejection

    draft = kit.open("draft")
    target_size, draft_size = (
        transformer_size(model.layers, model.hidden, kit.vocab, 2.0) for model in (kit.target, draft)
    )
    chip = Chip(
        bandwidth=bandwidth * 1e9,
        arithmetic=arithmetic * 1e12,
        sram_bandwidth=bandwidth * 1e10,
        on_chip=on_chip,
    )
    return Parts(ChainOnChip(draft, chip, (target_size, draft_size)), Fixed(gamma), TokenRejection())


METHOD = Method(
    key="hades",
    title="HADES (modelled chip)",
    paper="HADES 2024, arXiv 2412.19925",
    summary="Speculative decoding, and beside each measured round the time and energy it would take on a chip that accepts and rolls "
    "back without its host. The chip is a model: only the tokens are real.",
    knobs=(
        Knob(
            "gamma",
            4,
            1,
            16,
            "tokens drafted a round; a longer draft saves less on a chip that computes slowly",
        ),
        Knob(
            "on_chip",
            True,
            help="accept and roll back on the chip, with the draft's weights in its own memory; off: on the host",
        ),
        Knob(
            "bandwidth",
            100.0,
            1.0,
            10000.0,
            "memory bandwidth of the modelled chip in GB/s; on-chip memory counts as ten times that",
        ),
        Knob("arithmetic", 1.0, 0.01, 10000.0, "arithmetic of the modelled chip in TFLOP/s"),
    ),
    needs=frozenset({"draft"}),
    look="Two bars a round: the chip's modelled time with and without its host, and this machine's measured time under them.",
    wins="Where the host's part of a round costs as much as a pass: small models on fast memory.",
    loses="On a processor there is nothing to save: here the host is the chip, and the text takes as long as speculative decoding's.",
    differs="The hardware is not built: a roofline stands for it (bytes over bandwidth or operations over arithmetic, whichever is longer; "
    "two bytes a weight, sizes estimated from layers and width, no reading of keys and values). No figure of the paper is used. "
    "Accept and reject rules are exact ones of speculative sampling.",
    notes={
        "chip": note(
            "chip",
            "Modelled (not measured) time and energy of the round on a chip that accepts and rolls back without the host (HADES).",
            on_chip=("whether acceptance and rollback are on the chip", True),
            tokens=("committed tokens", 3),
            drafted=("tokens drafted", 4),
            draft=("modelled seconds of drafting", 0.0004),
            verify=("of verification", 0.0027),
            sync=("of host synchronisation", 0.0),
            host=("modelled seconds of the round with the host", 0.0036),
            plain=("of a plain pass", 0.0027),
            joules=("modelled energy of the round", 0.02),
            plain_joules=("of a plain pass", 0.016),
        )
    },
    aliases=("hardware accelerator", "FPGA", "on-chip rollback"),
    claims=(
        Claim(
            "A chip that accepts and rolls back itself saves the host's part of a round (modelled).",
            "speculative",
            "chip_time",
        ),
    ),
    build=build,
)
