from ...core import Family

FAMILY = Family(
    "Verification", "Other exact rules for what is kept: more of the same drafts passes.", place=9
)
