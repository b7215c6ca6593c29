from ...core import Family

FAMILY = Family("Many requests", "Several requests share each pass of the target, and what is drafted for them depends on the load.")
