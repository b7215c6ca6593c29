"""What a user writes, checked as a user's own project is: pyright, strict."""

from pathlib import Path

import specviz
from specviz import (
    GenerationRequest,
    Result,
    RunFailed,
    Sampling,
    Session,
    SessionError,
    Trace,
    TraceError,
    ZooError,
    catalogue,
    collect,
    load,
    race,
    watch,
)
from specviz.trace.events import Committed


def answer(prompt: str) -> Result:
    loaded = load("Llama-specviz-16M", device="cpu")
    session = Session(loaded, "speculative", {"gamma": 4}, Sampling(temperature=0.7, seed=1))
    for event in session.run(prompt, 20):
        if isinstance(event, Committed):
            print(event.round, event.kind, len(event.tokens))
    request = GenerationRequest(max_tokens=20, stop=("\n",))
    result = collect(Session(loaded, "sam_decoding", request=request).run(prompt))
    print(result.text, len(result.token_ids), result.metrics()["block_efficiency"])
    for lane, event in race([Session(loaded, key) for key in ("speculative", "autoregressive")], prompt, 8):
        print(lane, event)
    return result


def board(prompt: str) -> list[int]:
    shown = watch(prompt, ["speculative", "sam_decoding"], live=False, max_new_tokens=8)
    shown.save("run.jsonl")
    return shown.trace.lanes


def titles() -> list[str]:
    return [method.title for method in catalogue().values() if method.exactness == "exact"]


def read(path: Path) -> str:
    try:
        trace = Trace.load(path)
        trace.save(path.with_suffix(".jsonl.gz"))
    except TraceError as error:
        return error.code
    return trace.text() + str(trace.totals()["tokens"])


def main() -> None:
    try:
        answer("Hello.")
    except (SessionError, ZooError, RunFailed) as error:
        print(error)
    print(specviz.__version__, *titles())
