from ...core import Family, Knob

FAMILY = Family(
    "Trained heads",
    "A few layers on the target's own states guess what comes next.",
    place=5,
    founder="medusa",
)
TYPICAL_KNOBS = (  # of Medusa's typical acceptance on a tree of heads
    Knob("floor", 0.09, 0.01, 1.0, "a token of at least this probability always passes"),
    Knob(
        "share",
        0.3,
        0.01,
        1.0,
        "and one of at least this share of exp(-entropy), which is lower where many tokens are likely",
    ),
    Knob(
        "last",
        "argmax",
        choices=("argmax", "typical", "distribution"),
        help="the token after what was kept: the target's best, as the authors' fast mode has it; drawn from those that would pass; "
        "or drawn from the target's whole distribution",
    ),
    Knob(
        "nodes",
        0,
        0,
        64,
        "nodes of the tree; 0: as many as the heads were calibrated for (63 for the authors' heads)",
    ),
    Knob("depth", 4, 1, 8, "most heads used, one a token ahead"),
)
