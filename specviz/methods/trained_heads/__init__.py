from ...core import Family

FAMILY = Family(
    "Trained heads",
    "A few layers on the target's own states guess what comes next.",
    place=5,
    founder="medusa",
)
