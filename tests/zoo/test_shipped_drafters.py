"""Every drafter with weights of ours that ships for an embedded target: the engine accepts what it drafts,
which weights that were mixed up, cut short or trained for another target would not bring about. How much of
it stands in docs/trained.md."""

from __future__ import annotations

from functools import cache

import pytest

from specviz import Sampling, Session, load
from specviz.evidence.benchmark import CatalogueRunner
from specviz.methods import catalogue
from specviz.zoo import forget
from specviz.zoo.registry import register

PROMPTS = (
    "Copy this text:\nThe owl slept under the green bench. It was late, and the garden was quiet.",
    "Tell me a short story about a fox and a lantern.",
    "Write a Python function that returns True if n is even.",
)
TARGETS = [
    entry.name
    for entry in register().entries.values()
    if entry.role == "target" and entry.path and entry.path.is_dir()
]
WITH_TRAINED = {
    entry.target for entry in register().entries.values() if entry.kind
}  # others have an ordinary draft model at most
WIDE = {"Llama-specviz-16M", "SmolLM2-135M-Instruct"}  # text, keys and values, a draft model
pytestmark = pytest.mark.thorough


@cache
def drafting(target: str) -> list[str]:
    """Exact methods that draft with trained weights of their own and are available on this target."""
    loaded = load(target)
    return [
        key
        for key, method in catalogue().items()
        if method.exactness == "exact"
        and not loaded.unsupported_reason(method)
        and any(need.startswith(("head:", "draft:")) for need in method.needs)
    ]


PARTS = 5  # of a target's methods, so that several workers share them


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize(
    "target", [name for name in TARGETS if name in WITH_TRAINED and not name.endswith("-float")]
)
def test_what_ships_drafts(target, part):
    """In at least one of twenty passes something is accepted."""
    loaded, poor = load(target), {}
    for key in drafting(target)[part::PARTS]:
        drafts = CatalogueRunner(Session(loaded, key, None, Sampling(0.0)))
        totals = [drafts(prompt, Sampling(0.0), 48).totals for prompt in loaded.codec.prompts[:3] or PROMPTS]
        written, passes = (sum(getattr(one, count) for one in totals) for count in ("tokens", "rounds"))
        if written < 1.05 * passes:
            poor[key] = round(written / passes, 3)
    assert drafting(target) and not poor
    forget()


@pytest.mark.parametrize("target", sorted(WITH_TRAINED & set(TARGETS)))
def test_all_trained_weights_of_a_target_serve_a_method_on_it(target):
    """Also those that stand on another head: where that one leaves, they serve nothing."""
    loaded = load(target)
    served = {
        need.partition(":")[2]
        for method in catalogue().values()
        if not loaded.unsupported_reason(method)
        for need in method.needs
    }
    kinds = {
        entry.kind
        for entry in register().entries.values()
        if entry.target == target and entry.kind and entry.path
    }
    assert kinds and kinds <= served
    forget()


@pytest.mark.parametrize("target", [name for name in TARGETS if not name.endswith("-float")])
def test_whatever_is_offered_runs(target):
    """Also what needs a datastore: one that was made for other weights, or that is only known on the
    machine where it was made, stops a run that the page has offered."""
    loaded, stopped = load(target), {}
    prompt = PROMPTS[0] if "output:text" in loaded.capabilities else "a red heart"
    offered = [key for key, method in catalogue().items() if not loaded.unsupported_reason(method)]
    for key in offered:
        try:
            assert CatalogueRunner(Session(loaded, key, None, Sampling(0.0)))(
                prompt, Sampling(0.0), 8
            ).token_ids
        except Exception as error:  # every one that does not run is named, whatever the reason
            stopped[key] = str(error)
    assert not stopped
    assert len(offered) > (80 if target in WIDE else 1)
    forget()
