from ...core import Family, Knob

FAMILY = Family(
    "Lossy verification",
    "Rules that let more pass than the target's distribution allows, and say what that costs.",
    place=11,
)

TYPICAL_ACCEPTANCE = (  # knobs of the rule, for every drafter
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
)
