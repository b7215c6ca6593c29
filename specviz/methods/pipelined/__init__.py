from ...core import Family

FAMILY = Family("Parallel", "Drafting and checking go on at the same time.", place=8, shape="grid")
