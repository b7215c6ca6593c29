from ...core import Family

FAMILY = Family(
    "Draft model",
    "A small language model writes ahead and the target checks it all in one pass.",
    place=1,
    founder="speculative",
)
