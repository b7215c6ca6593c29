"""How a draft node was produced, which decides which verifiers accept it without bias."""

CHOSEN = "chosen"  # a node chosen without a draw, such as the top-1 token
IID = "iid"  # drawn independently from a distribution
WITHOUT_REPLACEMENT = "without_replacement"  # drawn among siblings without replacement
