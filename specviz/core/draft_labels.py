"""How a draft node was produced, which decides which verifiers accept it without bias."""

CHOSEN, IID, WITHOUT_REPLACEMENT = "chosen", "iid", "without_replacement"
