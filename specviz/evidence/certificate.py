"""Certificates of exactness on the real engine: greedy text equals plain decoding, sampled tokens follow
the target's distribution.

Greedy: token for token. Floating-point sums differ in their last bits with the shape of the pass, so a
divergence where the top two logits are closer than this noise (measured on the spot) is a near-tie; any
other divergence is a defect. Sampling: a chi-square test of the first tokens of many short seeded runs
against the target's distribution, and the acceptance rate of the first draft token against its expectation
sum(min(p, q)) (Leviathan et al. 2211.17192).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..core import DraftTree, Method, Sampling, State, Target
from ..loops import speculate
from ..methods import catalogue
from ..models.cuda_graph_capture import BUCKETS
from ..trace.events import Committed, Decided, Drafted
from .statistics import Acceptance, Cells, Tokens, chi_square, normal_score

if TYPE_CHECKING:
    from ..zoo.pair import Loaded

PROMPTS = (
    "Tell me a short story.",
    "Repeat this sentence three times: the quick brown fox jumps over the lazy dog.",
    "What is 12 plus 30? Explain it step by step.",
)
TIE = 4  # near-tie: the top two logits differ by at most this multiple of the noise
LIMIT = 4.0  # standard deviations that still pass
DEPTH = 3  # tokens whose joint distribution is tested
TEXTS = {  # details of a certificate, by identifier
    "identical": "{tokens} tokens equal plain decoding's.",
    "lossy": " The method is {exactness}, so it may.",
    "ended_before": "It stopped at token {at}, before plain decoding.",
    "ended_after": "It stopped at token {at}, after plain decoding.",
    "near_tie": "It differs at token {at}, where the top two logits are {gap:.2g} apart: no more than rounding ({noise:.1g}).",
    "diverged": "It differs at token {at}, where the top two logits are {gap:.2g} apart: far more than rounding ({noise:.1g}).",
    "not_promised": "{title} is {exactness}: it does not promise the target's distribution.",
    "no_choice": "The target leaves no choice here: one continuation has nearly all the probability.",
    "impossible": "It generated a continuation that has probability 0 under the target.",
}


def fix_bucket(loaded: Loaded) -> str:
    """Make every forward pass of a target with static shapes use the largest shape, so that plain decoding
    and verification compute the same sums. Return a description of forward pass and data type."""
    numbers = loaded.facts["env"]["dtype"]
    forward = getattr(loaded, "forward", "eager")
    if forward in ("eager", "compiled"):
        return f"{forward}, {numbers}"
    loaded.rows = BUCKETS[-1]
    return f"{loaded.forward}, {numbers}, every pass in one bucket of {BUCKETS[-1]} rows"


def greedy(
    loaded: Loaded,
    key: str | Method,
    prompts: Sequence[str | list[int]] | None = None,
    max_new_tokens: int = 96,
    knobs: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Compare a method with plain decoding of the same target at temperature 0. key: a method's key, or a
    Method; prompts: texts or token ids. Raises ValueError for invalid knobs.

    status: "identical"; "near_tie" (it diverged where the top two logits are closer than rounding errors);
    "diverged" (a defect, unless the method is lossy); "unavailable". tokens: number of equal tokens;
    position: index of the first divergence; margin: difference of plain decoding's top two logits there.
    """
    method = catalogue()[key] if isinstance(key, str) else key
    missing = loaded.unsupported_reason(method)
    if missing:
        return _greedy_result("unavailable", detail=missing)
    agreed, worst = 0, None
    with torch.inference_mode():
        for prompt in prompts or loaded.codec.prompts[: len(PROMPTS)] or PROMPTS:
            ids = encode(loaded, prompt)
            limit = min(max_new_tokens, loaded.context - len(ids))
            plain, gaps = plain_decoding(loaded.open_target(), ids, limit, loaded.end_tokens)
            ours = _write(loaded, method, knobs, ids, limit)
            same = next(
                (i for i, (a, b) in enumerate(zip(plain, ours)) if a != b), min(len(plain), len(ours))
            )
            agreed += same
            if plain != ours and (worst is None or worst["status"] == "near_tie"):
                worst = _divergence(loaded, ids + plain[:same], plain[same:], ours[same:], gaps[same:], same)
    if worst is None:
        return _greedy_result("identical", agreed, detail=TEXTS["identical"].format(tokens=agreed))
    if method.exactness not in ("exact", "greedy only"):
        worst["detail"] += TEXTS["lossy"].format(exactness=method.exactness)
    return {**worst, "tokens": agreed}


def distribution(
    loaded: Loaded,
    key: str | Method,
    prompt: str | list[int] | None = None,
    samples: int = 300,
    sampling: Sampling = Sampling(1.0),
    knobs: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Compare the distribution of a method's first tokens with the target's at a temperature above 0. The
    seeds come from ``sampling``. Raises ValueError for invalid knobs.

    status: "pass"; "fail"; "not applicable" (the method is not exact, or the target has only one possible
    token); "unavailable". z: deviation of the counts in standard deviations; samples: number of runs.
    """
    method = catalogue()[key] if isinstance(key, str) else key
    missing = loaded.unsupported_reason(method)
    if missing:
        return _distribution_result("unavailable", detail=missing)
    if method.exactness != "exact":
        return _distribution_result(
            "not applicable",
            detail=TEXTS["not_promised"].format(title=method.title, exactness=method.exactness),
        )
    with torch.inference_mode():
        ids = encode(loaded, prompt or (*loaded.codec.prompts, *PROMPTS)[0])
        probs = NextTokenDistribution(loaded.open_target(), ids, sampling)
        cells = Cells.build(probs, samples, DEPTH, loaded.end_tokens)
        if len(cells.expected) < 2:
            return _distribution_result("not applicable", detail=TEXTS["no_choice"])
        counts, first = Counter(), Acceptance(probs(()), _draft_distribution(loaded, method, ids, sampling))
        for tokens, trial in first_tokens(loaded, method, knobs, ids, sampling, samples):
            counts[cells.find(tokens)] += 1
            first.add(trial)
    z = normal_score(*chi_square(cells.expected, counts, samples))
    if math.isinf(z):
        return _distribution_result("fail", None, samples, TEXTS["impossible"])
    passed = abs(z) < LIMIT and abs(first.z) < LIMIT
    detail = f"{samples} runs, {len(cells.expected)} cells of the first {DEPTH} tokens: z = {z:+.1f}.{first}"
    return _distribution_result("pass" if passed else "fail", round(z, 3), samples, detail)


def plain_decoding(
    target: Target, prompt: list[int], limit: int, stop=frozenset()
) -> tuple[list[int], list[float]]:
    """Return (the target's greedy tokens, computed with one pass per token, and the difference of the top
    two logits at each)."""
    tokens, gaps = list(prompt), []
    target.capture(frozenset())
    while len(gaps) < limit and not (gaps and tokens[-1] in stop):
        row = next_logits(target, tokens)
        best = row.float().topk(2).values
        gaps.append(float(best[0] - best[1]))
        tokens.append(int(row.argmax()))
    return tokens[len(prompt) :], gaps


class NextTokenDistribution:
    """The target's next-token distribution: calling it with a few further tokens returns the distribution
    [vocab] after the prompt and them."""

    def __init__(self, target: Target, prompt: list[int], sampling: Sampling):
        self._target = target
        self._prompt = prompt
        self._sampling = sampling
        target.capture(frozenset())

    def __call__(self, more: Tokens) -> Tensor:
        return self._sampling.probs(next_logits(self._target, self._prompt + list(more)))


def next_logits(target: Target, tokens: list[int]) -> Tensor:
    """Return the logits [vocab] of the token after a text."""
    target.sync(tokens)
    return target.score(DraftTree()).logits[0]


def _write(loaded, method: Method, knobs, ids: list[int], limit: int) -> list[int]:
    kit = loaded.kit()
    parts = method.build(kit, **method.read_knobs(knobs or {}))
    state = State(list(ids), Sampling(0.0), limit=limit, stop=loaded.end_tokens)
    for _ in (parts.loop or speculate)(parts, kit.target, state):
        pass
    return state.tokens[len(ids) :]


def first_tokens(loaded, method, knobs, ids, sampling, samples) -> Generator[tuple[Tokens, dict | None]]:
    """Run a method many times. Yield for each run its first tokens, and the decision about the first draft
    node (None without a draft)."""
    kit = loaded.kit()
    parts = method.build(kit, **method.read_knobs(knobs or {}))
    for run in range(samples):
        state = State(
            list(ids),
            replace(sampling, seed=1_000_003 * sampling.seed + run),
            limit=loaded.context - len(ids),
            stop=loaded.end_tokens,
        )
        nodes: tuple[dict[str, Any], ...] = ()
        trial = None
        with closing((parts.loop or speculate)(parts, kit.target, state)) as events:
            for event in events:
                if isinstance(event, Drafted):
                    nodes = event.nodes
                elif isinstance(event, Decided) and event.round == 0:
                    trial = next(
                        ({**t, "tok": next(iter(nodes))["tok"]} for t in event.decisions if t["node"] == 0),
                        None,
                    )
                elif isinstance(event, Committed) and len(state.tokens) - len(ids) >= DEPTH:
                    break
        yield tuple(state.tokens[len(ids) : len(ids) + DEPTH]), trial


def _draft_distribution(loaded, method: Method, ids: list[int], sampling: Sampling) -> Tensor | None:
    return (
        NextTokenDistribution(loaded.kit().open("draft"), ids, sampling)(())
        if "draft" in method.needs
        else None
    )


def _divergence(loaded, tokens, plain, ours, gaps, at: int) -> dict[str, Any]:
    """Classify the divergence of two texts after ``tokens``; plain, ours, gaps: from there on."""
    if not plain or not ours:
        return _greedy_result(
            "diverged", position=at, detail=TEXTS["ended_before" if plain else "ended_after"].format(at=at)
        )
    rounding = logit_noise(loaded.open_target(), tokens)
    tie = gaps[0] <= TIE * rounding
    return _greedy_result(
        "near_tie" if tie else "diverged",
        position=at,
        margin=gaps[0],
        detail=TEXTS["near_tie" if tie else "diverged"].format(at=at, gap=gaps[0], noise=rounding),
    )


def logit_noise(target: Target, tokens: list[int]) -> float:
    """Return how much the logits after ``tokens`` vary with the number of tokens in the forward pass."""
    target.capture(frozenset())
    rows = [next_logits(target, tokens).float()]
    for count in (1, 3, 7):
        if len(tokens) > count:
            target.sync(tokens[:-count])
            rows.append(target.score(DraftTree.chain(tokens[-count:])).logits[-1].float())
    return max(float((row - rows[0]).abs().max()) for row in rows)


def encode(loaded, prompt: str | list[int]) -> list[int]:
    """Return the token ids of a prompt in the chat template; ids are returned unchanged."""
    return (
        loaded.codec.encode([{"role": "user", "content": prompt}], False)
        if isinstance(prompt, str)
        else list(prompt)
    )


def _greedy_result(
    status: str, tokens: int = 0, position: int | None = None, margin: float | None = None, detail: str = ""
) -> dict[str, Any]:
    return {"status": status, "tokens": tokens, "position": position, "margin": margin, "detail": detail}


def _distribution_result(
    status: str, z: float | None = None, samples: int = 0, detail: str = ""
) -> dict[str, Any]:
    return {"status": status, "z": z, "samples": samples, "detail": detail}
