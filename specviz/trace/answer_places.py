"""How well drafting works along an answer: counts for each stretch of 64 tokens.

A drafter trained on short texts may fall behind as the answer grows (Test-Time Speculation, 2605.09329), which
one mean over the answer hides. A round counts for the stretch in which its first token stands.
"""

from __future__ import annotations

from typing import Any

STRETCH = 64  # tokens
MOST = 16  # stretches; all later tokens are one more
COUNTS = 4  # passes, tokens, tried and accepted draft tokens

Places = list[list[int]]  # [[passes, tokens, tried, accepted], ...]


def add_round(places: Places, at: int, counts: tuple[int, int, int, int]) -> None:
    """Add the counts of a round whose first token is token ``at`` of the answer."""
    place = min(at // STRETCH, MOST)
    while len(places) <= place:
        places.append([0] * COUNTS)
    for i, count in enumerate(counts):
        places[place][i] += count


def added(one: Places, other: Places) -> Places:
    """Return the sums of two answers' counts."""
    longer = max(len(one), len(other))
    rows = (
        [places[i] if i < len(places) else [0] * COUNTS for places in (one, other)] for i in range(longer)
    )
    return [[a + b for a, b in zip(*pair)] for pair in rows]


def place_figures(places: Places) -> list[dict[str, Any]]:
    """Return for each stretch its first token, the passes in it, the mean accepted length (tokens a pass) and
    the acceptance rate; None where nothing was counted."""
    return [
        {
            "from": i * STRETCH,
            "passes": passes,
            "mean_accepted_length": tokens / passes if passes else None,
            "acceptance_rate": accepted / tried if tried else None,
        }
        for i, (passes, tokens, tried, accepted) in enumerate(places)
    ]


def lengths_by_place(places: Places) -> dict[str, float | None]:
    """Return the mean accepted length of each stretch under the name "0+", "64+", ..., as columns of a
    table."""
    return {f"{row['from']}+": row["mean_accepted_length"] for row in place_figures(places)}
