from ...core import Family, Knob

FAMILY = Family(
    "Lookup",
    "Nothing to train: the text itself, earlier answers or a datastore are copied from.",
    place=4,
    founder="prompt_lookup",
    shape="copy",
)

CAUTION = Knob(
    "caution",
    1.0,
    0.0,
    4.0,
    "how much of its cost a draft must be expected to bring back; 0 drafts whenever something is found, as the paper does",
    by_time=True,
)
