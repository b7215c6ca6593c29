from ...core import Family

FAMILY = Family(
    "Many requests", "Requests share each pass of the target; what is drafted for them depends on the load."
)
