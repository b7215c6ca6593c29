"""Runs that come and go in one batch: each writes what it writes alone, and their forward passes are
shared."""

from __future__ import annotations

import threading

import pytest

from specviz.core import Sampling
from specviz.engine.batched_generation import BatchedGeneration
from specviz.engine.generation import Generation, generate
from specviz.loops.continuous import ContinuousBatch
from specviz.run import Session, SessionError
from specviz.run.request import GenerationRequest
from specviz.run.result import Result
from specviz.trace.events import Committed, Finished

from .fakes import FakeLoaded

REQUESTS = [
    ("the cat sat", {"max_tokens": 20}),
    ("the sea is deep", {"max_tokens": 9, "temperature": 0.8, "seed": 3}),
    (
        "write a story",
        {"max_tokens": 30, "temperature": 1.0, "seed": 5, "top_p": 0.9, "presence_penalty": 0.7},
    ),
    ("the hat", {"max_tokens": 25, "logprobs": 2, "stop": ["the"]}),
]


def results_of(method: str, requests, batch=None):
    """The answers of these requests, played in turn; with a batch one more run joins in every turn."""
    loaded = FakeLoaded(ends=True)
    late = [
        Session(loaded, method, request=GenerationRequest(**fields), batch=batch, deterministic=True).open(
            prompt
        )
        for prompt, fields in requests
    ]
    results, going = {run: Result() for run in late}, []
    while going or late:
        going += [late.pop(0)] if late else []
        for run in going:
            for event in run.turn():
                results[run].take(event)
        going = [run for run in going if not run.over]
    return [
        (r.token_ids, r.text, r.finish_reason, [round(x, 9) for x in r.logprobs or ()])
        for r in results.values()
    ]


@pytest.mark.parametrize(
    "method, greedy",
    [
        ("speculative", False),
        ("draft_tree", False),
        ("prompt_lookup", False),
        ("block_verification", False),
        ("autoregressive", False),
        ("bass", True),
        ("tetris", True),
    ],
)
def test_each_answer_is_the_one_alone_and_passes_are_shared(method, greedy):
    """greedy: a joint policy chooses draft lengths for the whole batch, and with them the draws."""
    batch = ContinuousBatch()
    requests = [(prompt, fields | ({"temperature": 0} if greedy else {})) for prompt, fields in REQUESTS]
    assert results_of(method, requests, batch) == results_of(method, requests) and batch.largest >= 3


def test_every_runs_times_add_up_on_its_own_clock():
    loaded, batch = FakeLoaded(), ContinuousBatch()
    runs = [
        Session(loaded, "speculative", request=GenerationRequest(max_tokens=20), batch=batch).open(prompt)
        for prompt, _ in REQUESTS[:2]
    ]
    events = [[], []]
    while not all(run.over for run in runs):
        for i, run in enumerate(runs):
            events[i] += run.turn()
    for run, mine in zip(runs, events):
        commits = [event for event in mine if isinstance(event, Committed)]
        assert all(a.at < b.at for a, b in zip(commits, commits[1:])) and all(
            sum(c.seconds.values()) > 0 for c in commits
        )
        assert commits[-1].at <= run.clock() and isinstance(mine[-1], Finished)


def test_a_method_with_a_loop_of_its_own_is_refused():
    with pytest.raises(SessionError) as refused:
        Session(FakeLoaded(), "pearl", batch=ContinuousBatch())
    assert refused.value.code == "method.one_prompt"


def text_of(chunks) -> str:
    return "".join(chunk.get("text", "") for part in chunks for chunk in part if chunk["index"] == 0)


def test_requests_of_several_threads_are_answered_together():
    loaded = FakeLoaded(ends=True)
    asked = [Generation(prompt, False, "speculative", {}, fields) for prompt, fields in REQUESTS]
    alone = [text_of(generate(FakeLoaded(ends=True), one, 60.0)) for one in asked]
    together = BatchedGeneration(loaded)
    texts = [""] * len(asked)
    ready = threading.Barrier(len(asked))

    def answer(i: int) -> None:
        ready.wait()
        texts[i] = text_of(together.generate(asked[i], 60.0, threading.Event()))

    threads = [threading.Thread(target=answer, args=(i,)) for i in range(len(asked))]
    [thread.start() for thread in threads]
    [thread.join(60) for thread in threads]
    assert texts == alone and together.largest > 1


def test_a_request_that_is_refused_or_left_does_not_disturb_the_others():
    together = BatchedGeneration(FakeLoaded(ends=True))
    good, bad = (
        Generation("the cat", False, "speculative", {}, fields)
        for fields in ({"max_tokens": 8}, {"max_tokens": 8, "top_p": 7})
    )
    left = together.generate(
        Generation("the sea", False, "speculative", {}, {"max_tokens": 60}), 60.0, threading.Event()
    )
    next(left)
    with pytest.raises(SessionError):
        list(together.generate(bad, 60.0, threading.Event()))
    left.close()
    assert text_of(together.generate(good, 60.0, threading.Event())) == text_of(
        generate(FakeLoaded(ends=True), good, 60.0)
    )


def test_fields_that_a_request_leaves_out_are_the_models_own_where_it_asks_for_that():
    loaded = FakeLoaded(ends=True)
    loaded.generation_defaults = {"temperature": 0.3, "top_p": 0.9}
    on = {"generation_config": True}
    for given, want in (
        (on, (0.3, 0.9)),
        (on | {"temperature": 0}, (0, 0.9)),
        (on | {"top_p": 1.0}, (0.3, 1)),
        ({}, (1, 1)),
    ):
        end = [
            chunk
            for part in generate(
                loaded, Generation("the cat", False, "speculative", {}, {"max_tokens": 2, **given}), 60.0
            )
            for chunk in part
        ][-1]
        assert GenerationRequest.from_dict(end["speculative"]["request"]).sampling == Sampling(
            want[0], 0, want[1]
        )
        assert set(end["speculative"]["from_model"]) == (
            {"temperature", "top_p"} - set(given) if given else set()
        )
