"""The error of an unusable checkpoint."""


class ModelError(ValueError):
    """A checkpoint cannot be used; the message is one sentence for a person."""
