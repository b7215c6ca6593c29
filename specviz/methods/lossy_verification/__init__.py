from ...core import Family

FAMILY = Family(
    "Lossy verification",
    "Rules that let more pass than the target's distribution allows, and say what that costs.",
    place=11,
)
