"""Certificates: does a method write what plain decoding writes, and does it follow the target's law? Asked of the real engine.

Greedy: token for token, in three states. Two forms of the same sum differ in their last bits, so where the two best logits are
closer than that noise (measured there and then) a divergence is named a near-tie; any other one is a defect.
Sampling: the first tokens of many short seeded runs against the target's own law, by a chi-square test; and how often the
first draft token is accepted, against the sum of min(p, q), which is what it must be (Leviathan et al. 2211.17192).
"""
from __future__ import annotations

import math
from collections import Counter
from contextlib import closing
from dataclasses import replace
from typing import Any, Iterator, Sequence

import torch
from torch import Tensor

from ..trace.events import Committed, Drafted, Judged
from ..models.recorded import BUCKETS
from ..core import DraftTree, Method, Sampling, State, Target
from .statistics import Acceptance, Cells, Tokens, as_normal, chi_square
from ..loops import speculate
from ..methods import catalogue
from ..zoo.text import encode_chat

PROMPTS = (
    "Tell me a short story.",
    "Repeat this sentence three times: the quick brown fox jumps over the lazy dog.",
    "What is 12 plus 30? Explain it step by step.",
)
TIE = 4  # a near-tie: the two best logits are at most this many times the noise apart
LIMIT = 4.0  # standard deviations that still pass
DEPTH = 3  # tokens whose joint law is tested


def one_bucket(loaded: Any) -> str:
    """Let everything that is opened from now on run through the largest bucket of a forward of fixed shapes, so that plain
    decoding and verification are the same sums; says which forward and which type of numbers the certificate is about."""
    numbers = loaded.facts["env"]["dtype"]
    if getattr(loaded, "forward", "eager") == "eager":
        return f"eager, {numbers}"
    loaded.rows = BUCKETS[-1]
    return f"{loaded.forward}, {numbers}, every pass in one bucket of {BUCKETS[-1]} rows"


def greedy(loaded: Any, key: str | Method, prompts: Sequence[str | list[int]] | None = None, max_new_tokens: int = 96,
           knobs: dict[str, Any] | None = None) -> dict[str, Any]:
    """Compare a method (its key, or a Method that no catalogue lists) with plain decoding of the same target at temperature 0;
    prompts are texts or token ids.

    status: "identical"; "near_tie" (it diverged where the two best logits are closer than rounding); "diverged" (a defect,
    unless the method is lossy); "unavailable". tokens: how many agreed; position and margin: of the first divergence, the gap
    of plain decoding's two best logits there. Raises ValueError for knobs that do not fit.
    """
    method = catalogue()[key] if isinstance(key, str) else key
    missing = loaded.why_not(method)
    if missing:
        return _greedy("unavailable", detail=missing)
    agreed, worst = 0, None
    with torch.inference_mode():
        for prompt in prompts or PROMPTS:
            ids = encode(loaded, prompt)
            limit = min(max_new_tokens, loaded.context - len(ids))
            plain, gaps = plain_decoding(loaded.open_target(), ids, limit, loaded.end_tokens)
            ours = _write(loaded, method, knobs, ids, limit)
            same = next((i for i, (a, b) in enumerate(zip(plain, ours)) if a != b), min(len(plain), len(ours)))
            agreed += same
            if plain != ours and (worst is None or worst["status"] == "near_tie"):
                worst = _divergence(loaded, ids + plain[:same], plain[same:], ours[same:], gaps[same:], same)
    if worst is None:
        return _greedy("identical", agreed, detail=f"{agreed} tokens equal plain decoding's.")
    if method.exactness not in ("exact", "greedy only"):
        worst["detail"] += f" The method is {method.exactness}, so it may."
    return {**worst, "tokens": agreed}


def distribution(loaded: Any, key: str | Method, prompt: str | list[int] = PROMPTS[0], samples: int = 300,
                 sampling: Sampling = Sampling(1.0), knobs: dict[str, Any] | None = None) -> dict[str, Any]:
    """Compare the law of a method's first tokens with the target's own, at a temperature above 0; seeded by ``sampling``.

    status: "pass"; "fail"; "not applicable" (the method promises no law, or the target leaves no choice); "unavailable".
    z: standard deviations by which the counts are off; samples: runs played. Raises ValueError for knobs that do not fit.
    """
    method = catalogue()[key] if isinstance(key, str) else key
    missing = loaded.why_not(method)
    if missing:
        return _probs("unavailable", detail=missing)
    if method.exactness != "exact":
        return _probs("not applicable", detail=f"{method.title} is {method.exactness}: it does not promise the target's distribution.")
    with torch.inference_mode():
        ids = encode(loaded, prompt)
        probs = NextLaw(loaded.open_target(), ids, sampling)
        cells = Cells.of(probs, samples, DEPTH, loaded.end_tokens)
        if len(cells.expected) < 2:
            return _probs("not applicable", detail="The target leaves no choice here: one continuation is all but certain.")
        counts, first = Counter(), Acceptance(probs(()), _draft_law(loaded, method, ids, sampling))
        for tokens, trial in first_tokens(loaded, method, knobs, ids, sampling, samples):
            counts[cells.find(tokens)] += 1
            first.add(trial)
    z = as_normal(*chi_square(cells.expected, counts, samples))
    if math.isinf(z):
        return _probs("fail", None, samples, "It wrote what the target never writes: a continuation of probability 0.")
    passed = abs(z) < LIMIT and abs(first.z) < LIMIT
    detail = f"{samples} runs, {len(cells.expected)} cells of the first {DEPTH} tokens: z = {z:+.1f}.{first}"
    return _probs("pass" if passed else "fail", round(z, 3), samples, detail)


def plain_decoding(target: Target, prompt: list[int], limit: int, stop=frozenset()) -> tuple[list[int], list[float]]:
    """The target's own greedy tokens, one forward each, and the gap between its two best logits at each."""
    tokens, gaps = list(prompt), []
    target.capture(frozenset())
    while len(gaps) < limit and not (gaps and tokens[-1] in stop):
        row = _next(target, tokens)
        best = row.float().topk(2).values
        gaps.append(float(best[0] - best[1]))
        tokens.append(int(row.argmax()))
    return tokens[len(prompt):], gaps


class NextLaw:
    """The target's law of the next token after the prompt and a few more tokens."""

    def __init__(self, target: Target, prompt: list[int], sampling: Sampling):
        self._target, self._prompt, self._sampling = target, prompt, sampling
        target.capture(frozenset())

    def __call__(self, more: Tokens) -> Tensor:
        return self._sampling.probs(_next(self._target, self._prompt + list(more)))


def _next(target: Target, tokens: list[int]) -> Tensor:
    target.sync(tokens)
    return target.score(DraftTree()).logits[0]


def _write(loaded, method: Method, knobs, ids: list[int], limit: int) -> list[int]:
    kit = loaded.kit()
    parts = method.build(kit, **method.read_knobs(knobs or {}))
    state = State(list(ids), Sampling(0.0), limit=limit, stop=loaded.end_tokens)
    for _ in (parts.loop or speculate)(parts, kit.target, state):
        pass
    return state.tokens[len(ids):]


def first_tokens(loaded, method, knobs, ids, sampling, samples) -> Iterator[tuple[Tokens, dict | None]]:
    """The first tokens of many runs, and each one's trial of the first node that was drafted."""
    kit = loaded.kit()
    parts = method.build(kit, **method.read_knobs(knobs or {}))
    for run in range(samples):
        state = State(list(ids), replace(sampling, seed=1_000_003 * sampling.seed + run), limit=loaded.context - len(ids),
                      stop=loaded.end_tokens)
        nodes, trial = (), None
        with closing((parts.loop or speculate)(parts, kit.target, state)) as events:
            for event in events:
                if isinstance(event, Drafted):
                    nodes = event.nodes
                elif isinstance(event, Judged) and event.round == 0:
                    trial = next(({**t, "tok": nodes[0]["tok"]} for t in event.trials if t["node"] == 0), None)
                elif isinstance(event, Committed) and len(state.tokens) - len(ids) >= DEPTH:
                    break
        yield tuple(state.tokens[len(ids):len(ids) + DEPTH]), trial


def _draft_law(loaded, method: Method, ids: list[int], sampling: Sampling) -> Tensor | None:
    return NextLaw(loaded.kit().open("draft"), ids, sampling)(()) if "draft" in method.needs else None


def _divergence(loaded, tokens, plain, ours, gaps, at: int) -> dict[str, Any]:
    """What became of two texts that part after ``tokens``; plain, ours, gaps: from there on."""
    if not plain or not ours:
        return _greedy("diverged", position=at, detail=f"It stopped at token {at}, {'before' if plain else 'after'} plain decoding.")
    noise = _noise(loaded.open_target(), tokens)
    tie = gaps[0] <= TIE * noise
    words = "no more than rounding moves them" if tie else "far more than rounding moves them"
    return _greedy("near_tie" if tie else "diverged", position=at, margin=gaps[0],
                   detail=f"It parts at token {at}, where the two best logits are {gaps[0]:.2g} apart: {words} ({noise:.1g}).")


def _noise(target: Target, tokens: list[int]) -> float:
    """How much the logits after ``tokens`` depend on how many rows are computed together."""
    target.capture(frozenset())
    rows = [_next(target, tokens).float()]
    for count in (1, 3, 7):
        if len(tokens) > count:
            target.sync(tokens[:-count])
            rows.append(target.score(DraftTree.chain(tokens[-count:])).logits[-1].float())
    return max(float((row - rows[0]).abs().max()) for row in rows)


def encode(loaded, prompt: str | list[int]) -> list[int]:
    return encode_chat(loaded.tokenizer, [{"role": "user", "content": prompt}]) if isinstance(prompt, str) else list(prompt)


def _greedy(status: str, tokens: int = 0, position: int | None = None, margin: float | None = None, detail: str = "") -> dict[str, Any]:
    return {"status": status, "tokens": tokens, "position": position, "margin": margin, "detail": detail}


def _probs(status: str, z: float | None = None, samples: int = 0, detail: str = "") -> dict[str, Any]:
    return {"status": status, "z": z, "samples": samples, "detail": detail}
