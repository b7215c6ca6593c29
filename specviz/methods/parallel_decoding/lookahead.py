"""Lookahead decoding: the target refines a window of guesses by Jacobi iteration, collects n-grams from it,
and verifies those that start with the last token, all in one pass (Fu et al. 2402.02057)."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, window: int, ngram: int, guesses: int) -> Parts:
    from ...drafters.parallel.lookahead import Lookahead
    from ...policies import Fixed
    from ...verifiers import TokenRejection

    return Parts(Lookahead(window, ngram, guesses), Fixed(ngram - 1, guesses), TokenRejection())


METHOD = Method(
    key="lookahead",
    title="Lookahead decoding",
    paper="Fu et al. 2024, arXiv 2402.02057",
    summary="Guesses a window of future tokens at once, improves it a little each pass, and tries phrases that show up in it.",
    knobs=(
        Knob("window", 3, 1, 32, "positions ahead that are guessed in parallel (W)"),
        Knob("ngram", 3, 3, 8, "length of the phrases that are collected and tried (N)"),
        Knob("guesses", 2, 1, 32, "phrases kept, and tried, for each token (G)"),
    ),
    needs=frozenset({"tree"}),
    look="The window of guesses, which is scored and never written, and phrases of the pool that come true.",
    wins="On a GPU with compute to spare, on text with recurring phrases, without any second model.",
    loses="A pass carries some (W + G)(N - 1) tokens: on a CPU that usually costs more than it saves.",
    differs="As the authors' code, except that an n-gram accepted to its end counts in full.",
    compared="code",
    published={"window": 15, "ngram": 5, "guesses": 15},
    aliases=("lade",),
    claims=(
        Claim(
            "N-grams collected from Jacobi iterations keep more than the iterations.",
            "jacobi",
            "accepted_length",
            figure="1.64 tokens a pass",
            place="Spec-Bench's leaderboard, Vicuna-7B, greedy",
            tokens=40,
        ),
    ),
    build=build,
)
