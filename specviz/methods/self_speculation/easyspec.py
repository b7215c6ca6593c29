"""EasySpec: the draft's layers run side by side instead of one after the other, which blurs its states a little and would keep
several devices busy at once (Wu et al. 2502.02493). The law it draws from is the blurred one, so the text stays exact; keys and
values are made anew in order once tokens are accepted.
"""
from __future__ import annotations

from ...core import Knob, Method, Parts
from ...drafters.layers.side_by_side import LayerParallel
from ...policies import Fixed
from ...verifiers import TokenRejection


def build(kit, model: str, group: int, gamma: int) -> Parts:
    drafter = kit.target if model == "target" else kit.open("draft")
    if "fuzzy" not in drafter.provides:
        raise ValueError("the draft model cannot run its layers side by side; choose the target's own layers")
    return Parts(LayerParallel(drafter, group), Fixed(gamma), TokenRejection())


METHOD = Method(
    key="easyspec",
    title="EasySpec (layers side by side)",
    paper="Wu et al. 2025, arXiv 2502.02493",
    summary="Runs several layers of the draft at the same time on the same input: a little blurred, and right surprisingly often.",
    knobs=(
        Knob("model", "target", choices=("target", "draft"),
             help="whose layers draft; a draft of two layers has none between the first and the last, which always run as ever"),
        Knob("group", 4, 1, 8, "layers that run side by side; 1 is ordinary drafting, 5 and more blur too much"),
        Knob("gamma", 3, 1, 12, "tokens drafted a round"),
    ),
    needs=frozenset({"fuzzy"}),
    look="The first drafted token is exact; see how much later ones suffer as the group grows.",
    wins="With a deep draft model and one device a layer of the group, as in the paper.",
    loses="Here all layers share one device, so nothing is saved: this shows the blur, not the speed.",
    differs="By default the target's own layers draft, in a chain; the paper has a draft model over several devices, and "
            "a tree. The first and the last layer run as they are, as there.",
    published={"model": "draft"},
    build=build,
)
