from ...core import Family

FAMILY = Family("Parallel decoding", "The target guesses many places at once and corrects itself from pass to pass.")
