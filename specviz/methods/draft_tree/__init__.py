from ...core import Family

FAMILY = Family(
    "Draft tree",
    "Several continuations at once: where the first guess fails another may hold.",
    place=3,
    founder="draft_tree",
)
