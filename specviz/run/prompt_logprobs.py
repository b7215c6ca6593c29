"""Log-probabilities of a prompt's own tokens under the target."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..core import DraftTree

CHUNK = 64  # tokens in a forward pass


@torch.inference_mode()
def prompt_logprobs(
    loaded: Any, ids: list[int], top: int, cancelled: Callable[[], bool] = lambda: False
) -> list[tuple[float, list[list[float]]]]:
    """Return (log-probability, the ``top`` best [token, log-probability] pairs) of each prompt token but the
    first, under the model's own distribution. The KV cache of these passes is freed. cancelled(): asked
    before each pass; the rest is then left out."""
    kit = loaded.kit()
    target = kit.target
    target.expect(CHUNK + 1)
    out: list[tuple[float, list[list[float]]]] = []
    try:
        for start in range(1, len(ids), CHUNK):
            if cancelled():
                break
            target.sync(ids[:start])
            chunk = tuple(ids[start : start + CHUNK])
            logits = target.score(DraftTree(chunk, tuple(range(-1, len(chunk) - 1)))).logits[: len(chunk)]
            rows = (logits if logits.dtype == torch.float64 else logits.float()).log_softmax(-1)
            values, tokens = rows.topk(min(top, rows.shape[-1]))
            own = rows[torch.arange(len(chunk)), torch.tensor(chunk, device=rows.device)].tolist()
            for logprob, names, scores in zip(own, tokens.tolist(), values.tolist()):
                out.append((logprob, [[int(t), float(v)] for t, v in zip(names, scores)]))
    finally:
        kit.close()
    return out
