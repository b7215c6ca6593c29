"""Streaming endpoints for programs that run methods, with the limits and the frames of the page."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from functools import cached_property
from typing import Any, cast

import gradio as gr
from gradio.events import api

from ..engine.backend import Backend
from ..engine.cards import card_data
from ..engine.limits import BASELINE, RunQueue, read_request
from ..engine.loading import Loader
from ..engine.messages import Refused
from ..engine.stream import LiveRun, json_for_html
from ..lab.compare import compare, lanes_of
from ..serve.http_guard import visitor
from .chat import lane_answers, same_text
from .lab_questions import LabQuestions


class Api:
    """The endpoints for programs: run, compare, methods."""

    def __init__(self, backend: Backend, run_queue: RunQueue, loader: Loader):
        self._backend = backend
        self._run_queue = run_queue
        self._loader = loader
        self._desk = LabQuestions(backend, run_queue, loader)

    def register(self) -> None:
        """Add the endpoints to the Blocks under construction."""
        api(self.run, api_name="run", concurrency_limit=None)
        api(self.compare, api_name="compare", concurrency_limit=None)
        api(self.methods, api_name="methods", concurrency_limit=None)
        api(
            self._desk.ask, api_name="ask", concurrency_limit=None, api_visibility="undocumented"
        )  # for the page's own panels

    async def run(
        self,
        prompt: str,
        methods: list = ["speculative"],  # noqa: B006
        max_new_tokens: int = 128,
        temperature: float = 0.0,
        top_p: float = 1.0,
        seed: int = 0,
        knobs: dict = {},  # noqa: B006
        system: str = "",
        messages: list = [],  # noqa: B006
        target: str = "",
        repeats: int = 1,
        deterministic: bool = False,
        predicted: str = "",
        draft: str = "",
        prompts: int = 1,
        generation: dict = {},  # noqa: B006
        request: gr.Request = cast(Any, None),
    ) -> AsyncIterator[str]:
        """Decode a prompt with several methods side by side; plain decoding is always recorded as the last
        lane.

        prompt: text, at most 4,000 characters. methods: names as /methods lists them, four at most; a
        method may come again with other knobs, as {"method": name, "knobs": {knob: value}}. max_new_tokens:
        1 to 512. temperature: 0 to 2. top_p: above 0 to 1. knobs: {method: {knob: value}}. messages:
        earlier turns, [{"role": "user" or "assistant", "content": text}]. target: a model's name from
        models.yaml, or empty. predicted: a text that the answer is expected to be like, at most 4,000
        characters; predicted_output drafts from it. draft: a draft model of models.yaml with the target's
        tokenizer, "none", or empty for the one that goes with the target. repeats: 1 to 5; above 1 each
        method is run again after the race, in a shuffled order, and the totals of its "done" record hold
        "repeats". deterministic: timing measurements are ignored when drafting, storing weights and
        choosing threads, so the same seed gives the same run on one machine; the models are loaded once
        more for it. prompts: 1 to 8; above 1 each lane decodes so many prompts at once, this one and others
        of the benchmark, in shared passes. generation: further fields of the request by vLLM's names: n (1
        to 4 answers, at most 10 of all lanes; answer i has seed + i and lanes of its own), top_k, min_p,
        repetition_penalty, presence_penalty, frequency_penalty, logit_bias, bad_words, min_tokens,
        ignore_eos, logprobs, stop, stop_token_ids, response_format, tools, tool_choice, enable_thinking,
        and generation_config; an unknown one is refused by its name. Yields frames, each as one line of
        JSON: {"s": number, "e": [records of the trace]}; the last one has "snap": true and carries every
        record. A line and not an object, because a stream of objects travels as patches, which the client
        library sometimes fails to apply.
        """
        try:
            asked = await asyncio.to_thread(
                read_request,
                self._backend.cards,
                prompt=prompt,
                methods=methods,
                knobs=knobs,
                max_new_tokens=max_new_tokens,
                temperature=temperature,
                top_p=top_p,
                seed=seed,
                system=system,
                turns=messages,
                target=target,
                repeats=repeats,
                deterministic=deterministic,
                predicted=predicted,
                draft=draft,
                prompts=prompts,
                generation=generation,
            )
        except Refused as why:
            raise _error(str(why)) from None
        live = LiveRun(self._backend, self._run_queue, asked, 0, visitor(request), self._loader)
        async with aclosing(live.stream()) as frames:
            async for frame in frames:
                status = frame.get("status", {})
                if status.get("state") == "error" and not live.frames.records:
                    raise _error(status["text"])
                yield json_for_html(frame)

    async def compare(
        self,
        prompt: str,
        methods: list = ["speculative"],  # noqa: B006
        max_new_tokens: int = 64,
        temperature: float = 0.0,
        seed: int = 0,
        repeats: int = 3,
        target: str = "",
        request: gr.Request = cast(Any, None),
    ) -> dict:
        """Compare methods of speculative decoding on a prompt: how fast each is here, and whether the
        difference is more than noise.

        prompt: text, at most 4,000 characters. methods: names as /methods lists them, four at most; plain
        decoding is always measured too. max_new_tokens: 1 to 512. temperature: 0 to 2. repeats: 1 to 5 runs
        of each. target: a model's name, or empty. A method may come again with other knobs, as {"method":
        name, "knobs": {knob: value}}. Returns {sentence, winner, text, same_text, rows: [{lane, key, title,
        knobs, tokens_per_second, low, high, walltime_speedup, speedup_low, speedup_high, named, replaced, passes,
        runs, block_efficiency, acceptance_rate}]}, fastest first; winner is the first row's key, null where the
        difference is noise. A speed-up comes with its interval; it is null where the times say too little.
        replaced of passes: interrupted passes that count as the lane's usual one.
        """
        records: list[dict] = []
        async for line in self.run(
            prompt,
            methods,
            max_new_tokens,
            temperature,
            1.0,
            seed,
            target=target,
            repeats=repeats,
            request=request,
        ):
            frame = json.loads(line)
            records = frame["e"] if frame.get("snap") else records
            if frame.get("status", {}).get("state") == "error":
                raise _error(frame["status"]["text"])
        answers = lane_answers(records)
        found = compare(lanes_of(records), BASELINE)
        totals = {r["lane"]: r["totals"] for r in records if r["type"] == "done"}
        for row in found["rows"]:
            row |= _figures(totals[row["lane"]])
        return {**found, "text": answers[-1].text if answers else "", "same_text": same_text(answers)}

    def methods(self) -> list[dict]:
        """Return every method: key, title, family, summary, exactness, knobs, and the rest of its card."""
        return self._methods

    @cached_property
    def _methods(self) -> list[dict]:
        return [card_data(card) for card in self._backend.cards.values()]


def _error(sentence: str) -> gr.Error:
    """Return a refusal as an answer, so that the server logs no traceback."""
    return gr.Error(sentence, print_exception=False)


def _figures(totals: dict[str, Any]) -> dict[str, float | None]:
    """Return metrics as trace.metrics defines them, from a trace's totals."""

    def ratio(a: str, b: str) -> float | None:
        return totals[a] / totals[b] if totals.get(b) else None

    return {"block_efficiency": ratio("tokens", "rounds"), "acceptance_rate": ratio("accepted", "tried")}
