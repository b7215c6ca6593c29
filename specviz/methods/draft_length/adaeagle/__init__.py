"""AdaEAGLE: a small network predicts the length of EAGLE's chain from the target's last hidden state,
before anything is drafted (Zhang et al. 2412.18910). The length depends on the committed text only, so the
output stays exact."""

from __future__ import annotations

from ....core import Knob, Method, Parts, Trained
from ....core.claim import Claim


def build(kit, most: int, least: int, longer: bool, sure: float) -> Parts:
    import torch

    from ....drafters.heads.features import FeatureDrafter
    from ....drafters.model.chain import DraftChain
    from ....policies import PredictedLength
    from ....verifiers import TokenRejection

    compiled = kit.head("adaeagle")
    drafter = FeatureDrafter(kit.head("eagle"), DraftChain)
    target = kit.target

    def predict(state) -> float | None:
        before = drafter.model.before
        if before is None:
            return None
        with torch.inference_mode():
            return float(compiled(target.embed([state.tokens[-2]])[0], before))

    return Parts(drafter, PredictedLength(predict, most, sure if longer else None, least), TokenRejection())


METHOD = Method(
    key="adaeagle",
    title="AdaEAGLE",
    paper="Zhang et al. 2024, arXiv 2412.18910",
    summary="EAGLE's chain, as long as a small network expects it to hold, which it tells from the target's state before "
    "drafting begins.",
    knobs=(
        Knob("most", 8, 1, 20, "longest draft; the paper does not publish its own"),
        Knob("least", 0, 0, 8, "shortest draft; the paper's is none"),
        Knob(
            "longer",
            False,
            help="go on beyond the prediction while the draft is sure: stop where both say so (AdaEAGLE-DDD)",
        ),
        Knob(
            "sure",
            -0.6,
            -10.0,
            0.0,
            "with longer: a token's log-probability below which the draft is not sure",
        ),
    ),
    needs=frozenset({"head:adaeagle", "head:eagle", "tap:final", "embed", "head"}),
    look="The length asked for each round, beside what was accepted; where the text is open it asks for nothing.",
    wins="Where rounds differ much: it saves the drafts that would fail, without asking after every token.",
    loses="A good fixed length is hard to beat: the paper gains one or two parts in a hundred over the best one.",
    differs="Input, loss and rule are the paper's. The width of its layers, the weight of a draft that is too short and the longest "
    "draft are not published; ours are chosen here.",
    compared="formula",
    aliases=("adaeagle", "LDLP", "adaptive draft length"),
    trains=(
        Trained(
            "adaeagle",
            "A network that predicts from the target's last hidden state how long an EAGLE chain should be.",
            "specviz.models.draft_length",
            after="eagle",
        ),
    ),
    claims=(
        Claim(
            "A predicted length discards fewer draft tokens than a fixed one.",
            "adaeagle",
            "discarded",
            figure="64.4 tokens/s, 63.7 with the best fixed length",
            place="full text of 2412.18910, mean of six sets",
            baseline_knobs={"least": 4, "most": 4},
        ),
    ),
    build=build,
)
