"""Labels for how a draft node was produced (sampled independently, without replacement, chosen, ...).
Verifiers list the labels that they verify without bias."""

CHOSEN = "chosen"  # a node chosen without a draw, such as the top-1 token
IID = "iid"  # drawn independently from a distribution
WITHOUT_REPLACEMENT = "without_replacement"  # drawn among siblings without replacement
