"""A run's speculation under the field names that clients and dashboards of other engines read: vLLM's
``metrics.speculative_decoding``, llama.cpp's ``timings``, OpenAI's counts of predicted tokens, and the source
of each token."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..trace.events import Committed, Drafted, Event

if TYPE_CHECKING:
    from ..run.result import Result

Token = dict[str, Any]  # {"source", "draft_logprob"}


class SpeculationFields:
    """Collects the fields of one run from its events. method: its key; steps: (drafted, accepted) tokens of
    each pass that verified a draft; drafted, accepted: their sums. Tree nodes that only the drafter uses
    (probes) are not counted."""

    def __init__(self, method: str):
        self._method = method
        self.steps: list[tuple[int, int]] = []
        self.drafted = 0
        self.accepted = 0
        self._nodes: tuple[dict[str, Any], ...] = ()

    def take(self, event: Event) -> list[Token]:
        """Add the next event; return the source of each token that it commits."""
        if isinstance(event, Drafted):
            self._nodes = event.nodes
        if not isinstance(event, Committed):
            return []
        nodes, self._nodes = self._nodes, ()
        drafted = sum(not node.get("probe") for node in nodes)
        if drafted:
            self.steps.append((drafted, event.accepted))
            self.drafted += drafted
            self.accepted += event.accepted
        return _sources(nodes, event)

    def prediction(self) -> dict[str, int]:
        """Return OpenAI's ``completion_tokens_details``: accepted and rejected draft tokens."""
        return {
            "accepted_prediction_tokens": self.accepted,
            "rejected_prediction_tokens": self.drafted - self.accepted,
        }

    def vllm(self) -> dict[str, Any]:
        """Return the fields of vLLM's ``metrics.speculative_decoding``, in its detailed form."""
        longest = max((drafted for drafted, _ in self.steps), default=0)
        by_length: dict[int, list[int]] = {}
        for drafted, accepted in self.steps:
            by_length.setdefault(drafted, [0] * (drafted + 1))[accepted] += 1
        return {
            "mean_acceptance_length": 1 + self.accepted / len(self.steps) if self.steps else None,
            "draft_acceptance_rate": self.accepted / self.drafted if self.drafted else None,
            "acceptance_histogram": [
                sum(accepted == count for _, accepted in self.steps) for count in range(longest + 1)
            ],
            "acceptance_histogram_by_draft_length": {
                str(length): counts for length, counts in sorted(by_length.items())
            },
            "num_spec_steps": len(self.steps),
            "num_accepted_draft_tokens": self.accepted,
            "num_draft_tokens": self.drafted,
            "num_spec_tokens": longest,
            "per_step_accepted": [accepted for _, accepted in self.steps],
            "per_step_drafted": [drafted for drafted, _ in self.steps],
        }

    def timings(self, result: Result) -> dict[str, Any]:
        """Return llama.cpp's ``timings`` of a run so far, with the names that mlx-vlm adds."""
        cached, totals = result.reused or 0, result.totals
        drafts = {
            "draft_kind": self._method,
            "draft_rounds": len(self.steps),
            "draft_n": self.drafted,
            "draft_n_accepted": self.accepted,
        }
        return {
            "cache_n": cached,
            **_rates("prompt", max(0, len(result.prompt_ids) - cached), totals.prefill_seconds),
            **_rates("predicted", len(result.token_ids), totals.seconds),
            **(drafts if self.drafted else {}),
        }


def _rates(name: str, count: int, seconds: float) -> dict[str, Any]:
    return {
        f"{name}_n": count,
        f"{name}_ms": seconds * 1e3,
        f"{name}_per_token_ms": seconds * 1e3 / count if count else None,
        f"{name}_per_second": count / seconds if seconds else None,
    }


def _sources(nodes: tuple[dict[str, Any], ...], event: Committed) -> list[Token]:
    """Return the source of each committed token ("draft", "correction", "bonus" or "plain"), and the
    log-probability that the drafter gave a draft token, where it had one."""
    found = [_draft_token(nodes[node] if node < len(nodes) else None) for node in event.path]
    if event.kind != "accepted":
        return [*found, {"source": event.kind}]
    above = event.path[-1] if event.path else -1  # a stop text ended the run with a draft token
    last = [n for n in nodes if n["parent"] == above and n["tok"] == event.tokens[-1] and not n.get("probe")]
    return [*found, _draft_token(last[0] if last else None)]


def _draft_token(node: dict[str, Any] | None) -> Token:
    prob = None if node is None else node.get("softmax_q", node.get("q"))
    return {"source": "draft", "draft_logprob": math.log(prob) if prob else None}
