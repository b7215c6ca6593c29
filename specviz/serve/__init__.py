"""HTTP: the OpenAI-compatible endpoint, and the guard that it and the page have in front of them."""
