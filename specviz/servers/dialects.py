"""Differences between engines: request fields beyond the common protocol, and where an answer reports
speculation.

All engines stream OpenAI's chat completions. vLLM: token ids with each message, and at the end
``metrics.speculative_decoding`` (if started with --per-request-spec-decode-metrics). SGLang: at the end
``sglext.spec_tokens_details``; it refuses a stream with token ids. llama.cpp's llama-server: ``timings``
with ``draft_n`` and ``draft_n_accepted`` in each message; mlx-vlm: the same in the last one, with
``draft_rounds`` and ``draft_kind``. TensorRT-LLM: ``speculative_decoding`` in the last choice. None of them
reports the ids of rejected tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from .messages import ImpossibleFigure

FAMILY = "Servers"
KEY = "server:"  # before a server's name, where methods are named
MOST = 10**9  # maximum of any count that a server reports
MOST_IDS = 4096  # token ids of a message
HIGHEST_ID = 2**31 - 1


@dataclass(frozen=True)
class Drafts:
    """Draft counts of one request so far, as its server reports them. drafted, accepted: tokens; steps:
    number of passes that verified a draft; per_step: (drafted, accepted) for each of them, in order;
    histogram: {draft length: number of steps that accepted 0, 1, ... tokens}."""

    drafted: int
    accepted: int
    steps: int | None = None
    histogram: dict[int, list[int]] = field(default_factory=dict)
    per_step: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Message:
    """The content of one stream message. ids: its token ids, if reported; finish: why the answer ended;
    asked, written: prompt and answer tokens so far; drafts: draft counts; own: further figures of the
    engine; doubt: why a figure in it is impossible, as the end of a sentence."""

    text: str = ""
    ids: tuple[int, ...] | None = None
    finish: str = ""
    model: str = ""
    asked: int | None = None  # tokens of the prompt
    written: int | None = None  # tokens of the answer so far
    drafts: Drafts | None = None
    own: dict[str, float] = field(default_factory=dict)  # the server's own clock: seconds and rates by name
    doubt: str = ""


def reported_count(value: Any, what: str) -> int | None:
    """Check a reported count; return it, or None if it is missing. what: its name for the message. Raises
    ImpossibleFigure."""
    if value is None:
        return None
    if type(value) is not int or not 0 <= value <= MOST:
        raise ImpossibleFigure("count", what=what)
    return value


class OpenAI:
    """The dialect of any server with the OpenAI protocol that does not report speculation; base class of
    the other engines' dialects."""

    title = "OpenAI's protocol"
    counters: dict[str, str] = {}  # of the engine's /metrics page: its name -> this project's name
    gauges: dict[str, str] = {}
    per_step = False  # whether a message is what one pass wrote
    prefill_writes = False  # whether the first token is written by no counted step, in every version

    def ask(self, sampling: Any) -> dict[str, Any]:
        """Return the engine's own request fields for these sampling settings."""
        return {"top_k": sampling.top_k} if sampling.top_k else {}

    def read(self, message: dict[str, Any]) -> Message:
        """Return the content of a message. Impossible figures are left out and named in ``doubt``."""
        choice = message.get("choices")
        choice = choice[0] if isinstance(choice, list) and choice and isinstance(choice[0], dict) else {}
        delta = choice.get("delta")
        delta = delta if isinstance(delta, dict) else {}
        text = "".join(
            part
            for part in (delta.get("reasoning_content") or delta.get("reasoning"), delta.get("content"))
            if isinstance(part, str)
        )
        found: dict[str, Any] = {}
        doubt = ""
        for part in (self.tokens, self.usage, self.speculation):
            try:
                found |= part(message, choice)
            except ImpossibleFigure as error:
                doubt = doubt or str(error)
        finish = choice.get("finish_reason")
        model = message.get("model")
        return Message(
            text=text,
            finish=finish if isinstance(finish, str) else "",
            model=model if isinstance(model, str) else "",
            doubt=doubt,
            **found,
        )

    def tokens(self, message: dict[str, Any], choice: dict[str, Any]) -> dict[str, Any]:
        """Return the field ``ids`` of the message, if token ids are reported."""
        ids = choice.get("token_ids")
        if ids is None:
            return {}
        if (
            not isinstance(ids, list)
            or len(ids) > MOST_IDS
            or not all(type(i) is int and 0 <= i <= HIGHEST_ID for i in ids)
        ):
            raise ImpossibleFigure("ids")
        return {"ids": tuple(ids)}

    def usage(self, message: dict[str, Any], choice: dict[str, Any]) -> dict[str, Any]:
        """Return the fields ``asked`` and ``written`` of the message, if token counts are reported."""
        usage = message.get("usage")
        if not isinstance(usage, dict):
            return {}
        return {
            "asked": reported_count(usage.get("prompt_tokens"), "count of prompt tokens"),
            "written": reported_count(usage.get("completion_tokens"), "count of written tokens"),
        }

    def speculation(self, message: dict[str, Any], choice: dict[str, Any]) -> dict[str, Any]:
        """Return the field ``drafts`` of the message, if draft counts are reported."""
        return {}


class VLLM(OpenAI):
    """The dialect of vLLM."""

    title = "vLLM"
    per_step = True
    counters = {
        "vllm:spec_decode_num_drafts_total": "steps",
        "vllm:spec_decode_num_draft_tokens_total": "drafted",
        "vllm:spec_decode_num_accepted_tokens_total": "accepted",
        "vllm:spec_decode_num_accepted_tokens_per_pos_total": "accepted_at",
    }

    def ask(self, sampling):
        return super().ask(sampling) | {"return_token_ids": True}

    def speculation(self, message, choice):
        metrics = message.get("metrics")
        found = metrics.get("speculative_decoding") if isinstance(metrics, dict) else None
        if not isinstance(found, dict):
            return {}
        by_length = found.get("acceptance_histogram_by_draft_length")
        drafts = Drafts(
            _needed(found, "num_draft_tokens"),
            _needed(found, "num_accepted_draft_tokens"),
            _needed(found, "num_spec_steps"),
            _histogram(by_length),
            _steps(found),
        )
        return {"drafts": validated_drafts(drafts, found.get("acceptance_histogram"))}


class SGLang(OpenAI):
    """The dialect of SGLang."""

    title = "SGLang"
    per_step = True
    counters = {"sglang:spec_verify_calls_total": "passes", "sglang:generation_tokens_total": "tokens"}
    gauges = {"sglang:spec_accept_length": "accepted_length", "sglang:spec_accept_rate": "acceptance_rate"}

    def ask(self, sampling):
        # A stream with return_token_ids is refused (serving_chat.py; sgl-project/sglang #37365 is open).
        return super().ask(sampling) | {"return_spec_tokens_details": True}

    def speculation(self, message, choice):
        ext = next(
            (one for one in (message.get("sglext"), choice.get("sglext")) if isinstance(one, dict)), {}
        )
        found = ext.get("spec_tokens_details")
        if not isinstance(found, dict) or not found.get("spec_verify_ct"):
            return {}
        drafts = Drafts(
            _needed(found, "spec_num_proposed_drafts"),
            _needed(found, "spec_num_correct_drafts"),
            _needed(found, "spec_verify_ct"),
        )
        return {"drafts": validated_drafts(drafts, found.get("spec_correct_drafts_histogram"))}


class LlamaCpp(OpenAI):
    """The dialect of llama-server, and of llama-cpp-python's server, which reports nothing about its
    drafts."""

    title = "llama.cpp"
    counters = {
        "llamacpp:spec_decode_num_drafts_total": "steps",
        "llamacpp:spec_decode_num_draft_tokens_total": "drafted",
        "llamacpp:spec_decode_num_accepted_tokens_total": "accepted",
        "llamacpp:spec_decode_num_accepted_tokens_per_pos_total": "accepted_at",
    }

    def ask(self, sampling):
        # The defaults of min_p and repeat_penalty of llama-server change the distribution.
        neutral = {"top_k": sampling.top_k, "min_p": 0.0, "repeat_penalty": 1.0}
        # Its seed has 32 bits, and the largest one stands for a random seed.
        return neutral | {"seed": sampling.seed % (2**32 - 1), "timings_per_token": True}

    def speculation(self, message, choice):
        found = message.get("timings")
        if not isinstance(found, dict):
            return {}
        own = {
            here: value / 1e3
            for there, here in (("prompt_ms", "prefill_seconds"), ("predicted_ms", "seconds"))
            if type(value := found.get(there, -1)) in (int, float) and 0 <= value <= MOST
        }
        written = reported_count(found.get("predicted_n"), "count of written tokens")
        out: dict[str, Any] = {"own": own, "written": written}
        drafted = reported_count(found.get("draft_n"), "count of drafted tokens")
        if drafted is not None:
            accepted = _needed(found, "draft_n_accepted")
            out["drafts"] = validated_drafts(Drafts(drafted, accepted))
        return out


class MLXVLM(LlamaCpp):
    """The dialect of mlx-vlm's server: llama.cpp's ``timings`` with the last message, and there the number of
    rounds (``draft_rounds``) and the kind of drafter (``draft_kind``). ``draft_n_accepted`` counts what a
    round accepted before the end of the answer cut it (mlx-vlm #2324)."""

    title = "mlx-vlm"
    counters: dict[str, str] = {}
    prefill_writes = True

    def ask(self, sampling):
        return OpenAI.ask(self, sampling)

    def speculation(self, message, choice):
        out = super().speculation(message, choice)
        found = message.get("timings")
        if "drafts" not in out or not isinstance(found, dict):
            return out
        steps = reported_count(found.get("draft_rounds"), "count of draft rounds")
        drafts = out["drafts"]
        if steps is not None and (steps > drafts.drafted or drafts.accepted and not steps):
            raise ImpossibleFigure("histogram_steps")
        return out | {"drafts": Drafts(drafts.drafted, drafts.accepted, steps)}


class TensorRTLLM(OpenAI):
    """The dialect of trtllm-serve: ``speculative_decoding`` in the choice that ends the answer."""

    title = "TensorRT-LLM"

    def speculation(self, message, choice):
        found = choice.get("speculative_decoding")
        if not isinstance(found, dict) or not found.get("num_spec_steps"):
            return {}
        drafts = Drafts(
            _needed(found, "total_draft_tokens"),
            _needed(found, "total_accepted_draft_tokens"),
            _needed(found, "num_spec_steps"),
        )
        return {"drafts": validated_drafts(drafts, found.get("acceptance_histogram"))}


ENGINES: dict[str, OpenAI] = {
    "vllm": VLLM(),
    "sglang": SGLang(),
    "trtllm": TensorRTLLM(),
    "llamacpp": LlamaCpp(),
    "mlxvlm": MLXVLM(),
    "openai": OpenAI(),
}


def validated_drafts(drafts: Drafts, histogram: Any = None) -> Drafts:
    """Return the counts unchanged if they are consistent. Raises ImpossibleFigure."""
    if drafts.accepted > drafts.drafted:
        raise ImpossibleFigure("accepted")
    whole = [_counts(histogram)] if histogram is not None else []
    lines = list(drafts.histogram.values()) or whole
    if lines and drafts.steps != sum(map(sum, lines)):
        raise ImpossibleFigure("histogram_steps")
    if lines and drafts.accepted != sum(i * n for line in lines for i, n in enumerate(line)):
        raise ImpossibleFigure("histogram_accepted")
    if drafts.histogram and drafts.drafted != sum(k * sum(line) for k, line in drafts.histogram.items()):
        raise ImpossibleFigure("histogram_lengths")
    if drafts.histogram and whole and _trimmed(whole[0]) != _trimmed(_column_sums(lines)):
        raise ImpossibleFigure("histograms")
    if drafts.per_step:
        drafted, accepted = (sum(step[i] for step in drafts.per_step) for i in (0, 1))
        if (drafted, accepted, len(drafts.per_step)) != (drafts.drafted, drafts.accepted, drafts.steps):
            raise ImpossibleFigure("totals")
    if whole and not drafts.histogram:  # the length of each draft is not reported
        return Drafts(drafts.drafted, drafts.accepted, drafts.steps, {0: whole[0]}, drafts.per_step)
    return drafts


def _needed(found: dict[str, Any], name: str) -> int:
    value = reported_count(found.get(name), name)
    if value is None:
        raise ImpossibleFigure("missing", what=name)
    return value


def _counts(line: Any) -> list[int]:
    if not isinstance(line, list) or len(line) > MOST_IDS:
        raise ImpossibleFigure("histogram")
    return [reported_count(one, "histogram") or 0 for one in line]


def _column_sums(lines: list[list[int]]) -> list[int]:
    return [sum(column) for column in zip_longest(*lines, fillvalue=0)]


def _trimmed(line: list[int]) -> list[int]:
    """Return a histogram without the zeros at its end."""
    return line[: max((i + 1 for i, count in enumerate(line) if count), default=0)]


def _histogram(found: Any) -> dict[int, list[int]]:
    """Return {draft length: steps that accepted 0, 1, ...}."""
    if found is None:
        return {}
    if (
        not isinstance(found, dict)
        or len(found) > 256
        or not all(str(k).isdecimal() and len(k) < 5 for k in found)
    ):
        raise ImpossibleFigure("histogram")
    out = {int(length): _counts(line) for length, line in found.items()}
    if any(len(line) > length + 1 for length, line in out.items()):
        raise ImpossibleFigure("histogram_drafted")
    return out


def _steps(found: dict[str, Any]) -> tuple[tuple[int, int], ...]:
    """Return (drafted, accepted) of each step, if both are reported."""
    drafted, accepted = found.get("per_step_drafted"), found.get("per_step_accepted")
    if drafted is None or accepted is None:
        return ()
    if not all(isinstance(one, list) and len(one) <= 100_000 for one in (drafted, accepted)) or len(
        drafted
    ) != len(accepted):
        raise ImpossibleFigure("steps")
    pairs = tuple(
        (reported_count(d, "step") or 0, reported_count(a, "step") or 0) for d, a in zip(drafted, accepted)
    )
    if any(a > d for d, a in pairs):
        raise ImpossibleFigure("accepted")
    return pairs
