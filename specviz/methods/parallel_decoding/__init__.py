from ...core import Family

FAMILY = Family(
    "Parallel decoding",
    "The target guesses many positions at once and corrects itself from pass to pass.",
    place=7,
    founder="jacobi",
    shape="grid",
)
