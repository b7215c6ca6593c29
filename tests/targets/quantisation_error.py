"""Error of a quantised forward pass against the float one on the same texts: KL divergence and agreement of
the argmax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from specviz.core import DraftTree
from specviz.core.errors import InvalidUse

ROWS = 64  # positions scored in one forward pass


class QuantisationError(NamedTuple):
    """Deviation of a quantised model from its reference.

    kl: mean KL divergence from the reference in nats per token; agreement: share of positions with the same
    argmax; positions: number of positions compared.
    """

    kl: float
    agreement: float
    positions: int


def quantisation_error(
    reference: Any, quantised: Any, texts: Sequence[tuple[Sequence[int], int]]
) -> QuantisationError:
    """Compare two models of the same checkpoint by their next-token distributions at every position of the
    texts from ``start`` on.

    texts: pairs (tokens, start) with 0 < start < len(tokens). Raises InvalidUse (a ValueError) if there is
    no position to compare.
    """
    kl = same = positions = 0
    for tokens, start in texts:
        targets = [model.open() for model in (reference, quantised)]
        for i in range(start, len(tokens), ROWS):
            tree = DraftTree.chain(tuple(tokens[i : i + ROWS - 1]))
            rows = min(ROWS, len(tokens) - i)
            for target in targets:
                target.sync(tokens[:i])
            ours, theirs = (target.score(tree).logits[:rows].double().log_softmax(-1) for target in targets)
            kl += float((ours.exp() * (ours - theirs)).sum())
            same += int((ours.argmax(-1) == theirs.argmax(-1)).sum())
            positions += rows
        for target in targets:
            target.close()
    if not positions:
        raise InvalidUse("no position to compare", "quantisation.no_position")
    return QuantisationError(kl / positions, same / positions, positions)
