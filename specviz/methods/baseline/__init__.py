from ...core import Family

FAMILY = Family(
    "Baseline", "Plain decoding: one token a pass of the target. Everything is measured against it."
)
