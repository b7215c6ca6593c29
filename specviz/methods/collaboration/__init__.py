from ...core import Family

FAMILY = Family(
    "Collaboration",
    "A small and a large model write one text together; what comes out is no longer the target's alone.",
    place=12,
)
