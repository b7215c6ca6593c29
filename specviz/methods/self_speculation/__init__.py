from ...core import Family

FAMILY = Family(
    "Self-speculation",
    "The target drafts for itself with fewer of its own layers.",
    place=6,
    founder="layerskip",
    shape="layers",
)
