from ...core import Family, Knob
from ..lossy_verification import TYPICAL_ACCEPTANCE

FAMILY = Family(
    "Trained heads",
    "A few layers on the target's own states guess what comes next.",
    place=5,
    founder="medusa",
)
# Knobs that several heads have
GAIN = Knob(
    "gain",
    0.2,
    0.0,
    2.0,
    "a level is grown while the one before it added more than this to the expected accepted "
    "length (on a GPU always, because asking synchronises); 0, as published: while a node of it could be kept",
)
TOP_K = Knob(
    "top_k",
    2,
    1,
    10,
    "nodes of a level that go on, and children of each; the paper takes 10 on a GPU",
)
TREE_NODES = Knob(
    "nodes",
    0,
    0,
    64,
    "nodes of the tree; 0: as many as the heads were calibrated for (63 for the authors' heads)",
)
TYPICAL_KNOBS = (  # of Medusa's typical acceptance on a tree of heads
    *TYPICAL_ACCEPTANCE,
    TREE_NODES,
    Knob("depth", 4, 1, 8, "most heads used, one a token ahead"),
)
