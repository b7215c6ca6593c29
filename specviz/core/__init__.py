"""The types every other package builds on: sampling, random streams, draft tree, state, parts, the round,
methods.

Imports torch and the standard library only."""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .budget import Budget, Step, StopBelowProbability, never_stop
    from .draft_steps import DraftSteps, ForwardPass, UnbatchedCall, run_alone
    from .lazy_scalars import (
        LazyScalar,
        is_on_device,
        lazy_ints,
        plain,
        read,
        select_rows,
        to_device,
        token_tensor,
    )
    from .logits_processors import (
        BadWords,
        Context,
        LogitBias,
        LogitsProcessor,
        MinTokens,
        Penalties,
        Processors,
        TokenMask,
    )
    from .method import AS_PUBLISHED, COMPARED, EXACTNESS, Family, Kit, Knob, Method, Trained
    from .parts import (
        CapableTarget,
        Decision,
        Drafter,
        DraftingModel,
        EarlyLayers,
        IncompatibleVerifier,
        JointPolicy,
        Outcome,
        Parts,
        Policy,
        Scores,
        ScoringModel,
        SkippingTarget,
        Target,
        TrainableTarget,
        Verdict,
        Verifier,
        compatible_verifiers,
        has_nan,
    )
    from .round import BrokenModel, Proposal, clip, conclude, open_run, play, propose, within
    from .sampling import (
        InvalidDistribution,
        RandomStreams,
        Sampling,
        SingleStream,
        argmax_tokens,
        check_distributions,
    )
    from .state import Clock, Costs, FixedCosts, State, common_prefix_length
    from .tree import (
        CHOSEN,
        IID,
        WITHOUT_REPLACEMENT,
        DeviceTopology,
        DraftTree,
        HiddenInput,
        Origin,
        TreeBuilder,
    )

__all__ = [
    "AS_PUBLISHED",
    "BadWords",
    "BrokenModel",
    "Budget",
    "CHOSEN",
    "COMPARED",
    "CapableTarget",
    "Clock",
    "Context",
    "Costs",
    "Decision",
    "DeviceTopology",
    "DraftSteps",
    "DraftTree",
    "Drafter",
    "DraftingModel",
    "EXACTNESS",
    "EarlyLayers",
    "HiddenInput",
    "Family",
    "FixedCosts",
    "ForwardPass",
    "IID",
    "IncompatibleVerifier",
    "InvalidDistribution",
    "JointPolicy",
    "Kit",
    "Knob",
    "LazyScalar",
    "LogitBias",
    "LogitsProcessor",
    "Method",
    "MinTokens",
    "Origin",
    "Outcome",
    "Parts",
    "Penalties",
    "Policy",
    "Processors",
    "Proposal",
    "RandomStreams",
    "Sampling",
    "Scores",
    "ScoringModel",
    "SingleStream",
    "SkippingTarget",
    "State",
    "Step",
    "StopBelowProbability",
    "Target",
    "TokenMask",
    "TrainableTarget",
    "Trained",
    "TreeBuilder",
    "UnbatchedCall",
    "Verdict",
    "Verifier",
    "WITHOUT_REPLACEMENT",
    "argmax_tokens",
    "check_distributions",
    "clip",
    "common_prefix_length",
    "compatible_verifiers",
    "conclude",
    "has_nan",
    "is_on_device",
    "lazy_ints",
    "never_stop",
    "open_run",
    "plain",
    "play",
    "propose",
    "read",
    "run_alone",
    "select_rows",
    "to_device",
    "token_tensor",
    "within",
]

_MODULES = (
    "method",
    "budget",
    "parts",
    "draft_labels",
    "draft_steps",
    "lazy_scalars",
    "tree",
    "sampling",
    "state",
    "round",
    "logits_processors",
)  # light ones first


def __getattr__(name: str) -> Any:
    """Import a name on first use (PEP 562), so that the catalogue of methods can be read without torch."""
    if not name.startswith("_") and find_spec(f"{__name__}.{name}"):
        return import_module(f".{name}", __name__)
    for module in () if name.startswith("_") else _MODULES:
        found = vars(import_module(f".{module}", __name__))
        if name in found:
            return globals().setdefault(name, found[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
