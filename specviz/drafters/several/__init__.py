"""Several drafters in one round."""
