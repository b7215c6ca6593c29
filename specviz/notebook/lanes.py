"""Run methods side by side on one prompt and record them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..methods import catalogue
from ..run import Session, race
from ..run.machine import Machine
from ..run.request import GenerationRequest
from ..trace.recorder import Recorder
from ..zoo import load

Records = list[dict[str, Any]]
TOP = 8  # best tokens of each distribution that a trace keeps


def method_keys(methods: str | Sequence[str], plain: bool) -> list[str]:
    """Return the methods' keys in order, without duplicates. plain: add plain decoding as the last one."""
    keys = [methods] if isinstance(methods, str) else list(methods)
    baseline = next(iter(catalogue()))
    keys = list(dict.fromkeys(keys))
    return [*(key for key in keys if key != baseline), baseline] if plain else keys


def run_lanes(
    prompt: str | list[dict[str, str]],
    keys: Sequence[str],
    *,
    target: str | None = None,
    draft: str | None = None,
    device: str = "auto",
    max_new_tokens: int = 96,
    temperature: float = 0.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 0,
    knobs: Mapping[str, Mapping[str, Any]] | None = None,
    repeats: int = 1,
    request: Mapping[str, Any] | None = None,
) -> Iterator[Records]:
    """Run methods side by side; yield the trace records of each event. knobs: {method: {knob: value}};
    request: further fields of a GenerationRequest, which replace the arguments. Raises SessionError or
    ZooError."""
    loaded = load(target, draft, device)
    own = {
        "max_tokens": (max_new_tokens, None),
        "temperature": (temperature, 0.0),
        "top_k": (top_k, 0),
        "top_p": (top_p, 1.0),
        "seed": (seed, 0),
    }
    fields = {name: value for name, (value, usual) in own.items() if value != usual} | dict(request or {})
    asked = GenerationRequest.for_model(fields, loaded)
    sessions = [Session(loaded, key, dict((knobs or {}).get(key, {})), request=asked) for key in keys]
    recorders, machine = (
        [Recorder(lane, loaded.token_bytes, loaded.token_bytes.special) for lane in range(len(keys))],
        Machine(loaded),
    )
    for lane, event in race(
        sessions, prompt, asked.max_tokens, repeats=repeats, machine=machine, top_k_saved=TOP
    ):
        if event is not None:
            yield [record for one in machine.follow(lane, event) for record in recorders[lane].take(one)]
