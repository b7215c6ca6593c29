"""Requirements that a method may declare (``Method.needs``), each with a wording for the method picker and
for the message that explains why a method cannot run on a target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .errors import InvalidUse


@dataclass(frozen=True)
class Need:
    """The wording of one requirement of methods.

    words: for the picker, empty if every model here meets it; missing: the end of a message, with
    placeholders {need} and {name}.
    """

    words: str = ""
    missing: str = (
        "needs a target that offers {need!r}, which {name} does not; choose one of the Llama family"
    )


_LAYERS = "needs a target that can {what}, which {name} cannot; choose one of the Llama family"

NEEDS = {  # by the part of a need before its colon
    "draft": Need(
        "a small draft model",
        "needs a draft model: choose one with --draft, or a target that is paired with one",
    ),
    "middle": Need(
        "a smaller model", "needs a draft model: choose one with --draft, or a target that is paired with one"
    ),
    "middle:half": Need(
        "", "needs a draft model of the Llama family with the vocabulary of {name}: choose one with --draft"
    ),
    "small": Need(
        "a third, tiny model",
        "needs a draft model for the draft model; `python -m specviz.training draft --size small --ship` "
        "trains one for the embedded pair",
    ),
    "other_draft": Need(
        "a draft model with another vocabulary",
        "needs a draft model with a tokenizer of its own, trained for {name}; `python -m specviz.training other_draft "
        "--ship --target NAME` trains one for an embedded target",
    ),
    "tree": Need(
        "a model that reads a tree in one pass",
        "needs a target that can score a tree of drafts; {name} runs chains only",
    ),
    "head": Need("a trained head"),
    "store": Need("a library of text"),
    "server": Need("the owner's server, and your prompt goes there"),
    "rewind": Need("", "needs a target whose cache can be rewound; that of {name} cannot"),
    "early": Need("an early exit", _LAYERS.replace("{what}", "stop after some of its layers")),
    "partial_cache": Need("", _LAYERS.replace("{what}", "draft from a part of its own keys and values")),
    "skip": Need("layers that can be left out", _LAYERS.replace("{what}", "leave layers out")),
    "sublayers": Need("", _LAYERS.replace("{what}", "run single layers on given states")),
    "layer_parallel": Need("layers side by side"),
    "draft_path": Need(
        "", _LAYERS.replace("{what}", "run draft tokens with other matrices over its own keys and values")
    ),
    "experts": Need(
        "a target with sparse experts",
        "needs a target with sparse experts, such as Llama-specviz-blockffn; {name} has none",
    ),
    "tap": Need("the model's hidden states"),
    "codebook": Need(
        "a target that paints with a codebook of patches",
        "needs a target whose tokens are entries of a codebook, such as specviz-pictures; {name} writes text",
    ),
    "scales": Need(
        "a target that paints scale by scale",
        "needs a target that paints a picture scale by scale, such as specviz-scales; "
        "{name} writes one token after another",
    ),
    "state": Need(
        "a target with states instead of keys and values",
        "needs a target whose layers carry states that show {need!r}, such as "
        "Llama-specviz-mamba or Llama-specviz-linear; {name} has other ones",
    ),
    "sequence": Need(
        "", "needs a target that writes one token after another; {name} paints a whole scale in one pass"
    ),
    "input": Need(
        "a target that reads a picture",
        "needs a target that reads a picture before the prompt, such as specviz-vision; {name} "
        "reads text alone",
    ),
    "output": Need("", "needs a target that writes text, which {name} does not"),
}


def needs_in_words(needs: frozenset[str]) -> list[str]:
    """Return the needs in words, without duplicates."""
    kinds = sorted({name.split(":")[0] for name in needs if ":" in name or name != "head"})
    return [NEEDS[kind].words for kind in kinds if kind in NEEDS and NEEDS[kind].words]


def output_kind(needs: frozenset[str]) -> str:
    """Return what a method with these needs can write: "text", "pictures" or "any"."""
    return "pictures" if needs & {"codebook", "scales"} else "text" if "output:text" in needs else "any"


def input_kind(needs: frozenset[str]) -> str:
    """Return what a method with these needs reads: "text and a picture", or "text"."""
    return "text and a picture" if "input:picture" in needs else "text"


def missing_reason(need: str, name: str) -> str:
    """Return why a target of this name does not meet a need, as the end of a message."""
    return NEEDS.get(need, NEEDS.get(need.split(":")[0], Need())).missing.format(need=need, name=name)


DRAFT_LACKS = {  # by the capability of a draft model that a method uses
    "learning": "cannot be trained while it drafts: choose a draft of the Llama family with --draft",
    "layer_parallel": "cannot run its layers side by side: choose another draft with --draft, or the target's own layers",
}


def require_of_draft(model: Any, capability: str) -> None:
    """Raise InvalidUse unless a draft model has the capability."""
    if capability not in model.capabilities:
        raise InvalidUse(
            f"the draft model {getattr(model, 'name', '')} {DRAFT_LACKS[capability]}", "draft.capability"
        )
