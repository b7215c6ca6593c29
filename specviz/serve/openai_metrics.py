"""Counts of the OpenAI-compatible endpoint as a Prometheus page, under vLLM's names, so that its dashboards
show this server."""

from __future__ import annotations

from collections import Counter
from typing import Any

SECONDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 120.0, 600.0)
TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000)
POSITIONS = 64  # draft positions that are counted one by one
COUNTERS = {
    "prompt_tokens": "Prompt tokens.",
    "generation_tokens": "Generated tokens.",
    "request_success": "Answers, by why they ended.",
    "prefix_cache_queries": "Prompt tokens that were looked up in the KV caches of earlier requests.",
    "prefix_cache_hits": "Prompt tokens found there.",
    "spec_decode_num_drafts": "Drafts that were verified.",
    "spec_decode_num_draft_tokens": "Draft tokens.",
    "spec_decode_num_accepted_tokens": "Accepted draft tokens.",
    "spec_decode_num_accepted_tokens_per_pos": "Accepted draft tokens by position in the draft.",
}
HISTOGRAMS = {
    "time_to_first_token_seconds": (SECONDS, "From the request's arrival to its first text."),
    "e2e_request_latency_seconds": (SECONDS, "From the request's arrival to its end."),
    "request_queue_time_seconds": (SECONDS, "Time in the queue, loading included."),
    "request_prefill_time_seconds": (SECONDS, "Time of the prefill."),
    "request_decode_time_seconds": (SECONDS, "Time after the prefill."),
    "request_time_per_output_token_seconds": (SECONDS, "Time after the prefill, per token."),
    "request_prompt_tokens": (TOKENS, "Tokens of a prompt."),
    "request_generation_tokens": (TOKENS, "Tokens of an answer."),
}


class ApiMetrics:
    """Counts of all requests since the server began. running, waiting: requests now."""

    def __init__(self):
        self.running = 0
        self.waiting = 0
        self._counts: Counter[tuple[str, str]] = Counter()  # (name, labels) -> count
        self._observed: dict[tuple[str, str], list[float]] = {}  # -> count of each bucket and above, sum

    def observe(self, name: str, model: str, value: float) -> None:
        """Add a value to a histogram."""
        bounds = HISTOGRAMS[name][0]
        row = self._observed.setdefault((name, _labels(model)), [0.0] * (len(bounds) + 2))
        row[sum(bound < value for bound in bounds)] += 1
        row[-1] += value

    def answered(self, model: str, chunk: dict[str, Any], reason: str) -> None:
        """Add an answer: its last chunk of generation.generate, and why it ended."""
        usage, timings, drafts = chunk["usage"], chunk["timings"], chunk["metrics"]["speculative_decoding"]
        counts = {
            "prompt_tokens": usage["prompt_tokens"],
            "generation_tokens": usage["completion_tokens"],
            "prefix_cache_queries": usage["prompt_tokens"],
            "prefix_cache_hits": usage["cached_tokens"],
            "spec_decode_num_drafts": drafts["num_spec_steps"],
            "spec_decode_num_draft_tokens": drafts["num_draft_tokens"],
            "spec_decode_num_accepted_tokens": drafts["num_accepted_draft_tokens"],
        }
        for name, count in counts.items():
            self._counts[name, _labels(model)] += count
        self._counts["request_success", _labels(model, finished_reason=reason)] += 1
        accepted = drafts["per_step_accepted"]
        for place in range(min(POSITIONS, max(accepted, default=0))):
            reached = sum(count > place for count in accepted)
            self._counts["spec_decode_num_accepted_tokens_per_pos", _labels(model, position=place)] += reached
        self.observe("request_prefill_time_seconds", model, timings["prompt_ms"] / 1e3)
        self.observe("request_decode_time_seconds", model, timings["predicted_ms"] / 1e3)
        if timings["predicted_n"]:
            each = timings["predicted_per_token_ms"] / 1e3
            self.observe("request_time_per_output_token_seconds", model, each)
        self.observe("request_prompt_tokens", model, usage["prompt_tokens"])
        self.observe("request_generation_tokens", model, usage["completion_tokens"])

    def page(self, model: str) -> str:
        """Return the page in Prometheus' text format. model: the name at which the gauges stand."""
        lines = []
        for name, about, value in (
            ("num_requests_running", "Requests that are being answered.", self.running),
            ("num_requests_waiting", "Requests that wait.", self.waiting),
        ):
            lines += [*_head(name, about, "gauge"), f"vllm:{name}{{{_labels(model)}}} {value}"]
        for name, about in COUNTERS.items():
            lines += _head(f"{name}_total", about, "counter")
            lines += [
                f"vllm:{name}_total{{{labels}}} {count}"
                for (known, labels), count in sorted(self._counts.items())
                if known == name
            ]
        for name, (bounds, about) in HISTOGRAMS.items():
            lines += _head(name, about, "histogram")
            for (known, labels), row in sorted(self._observed.items()):
                lines += _histogram(name, labels, bounds, row) if known == name else []
        return "\n".join(lines) + "\n"


def _head(name: str, about: str, kind: str) -> list[str]:
    return [f"# HELP vllm:{name} {about}", f"# TYPE vllm:{name} {kind}"]


def _histogram(name: str, labels: str, bounds: tuple[float, ...], row: list[float]) -> list[str]:
    so_far, lines = 0.0, []
    for bound, count in zip((*bounds, "+Inf"), row):
        so_far += count
        lines.append(f'vllm:{name}_bucket{{{labels},le="{bound}"}} {so_far:.0f}')
    return [*lines, f"vllm:{name}_sum{{{labels}}} {row[-1]}", f"vllm:{name}_count{{{labels}}} {so_far:.0f}"]


def _labels(model: str, **more: Any) -> str:
    given = {"engine": 0, "model_name": model, **more}
    return ",".join(f'{name}="{_escaped(str(value))}"' for name, value in given.items())


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
