"""Cut a round's events at the token that completes a stop string."""

from __future__ import annotations

from dataclasses import replace

from ..trace.events import Committed, Decided, Drafted, Event


def cut_round(events: list[Event], count: int) -> list[Event]:
    """Return a round's events as if the round had ended with its ``count``-th token. That token becomes the
    last one, and nodes below it count as skipped."""
    committed = events[-1]
    assert isinstance(committed, Committed)  # it ends a round
    if count >= len(committed.tokens):
        return events
    gone = set(committed.path[count:])
    path = committed.path[: count - 1]
    nodes = next((e.nodes for e in events if isinstance(e, Drafted)), ())
    below = gone | {n["id"] for n in nodes if n["parent"] in gone or n["parent"] == committed.path[count - 1]}
    skip = {"rule": "", "p": None, "q": None, "a": None, "u": None, "verdict": "skipped"}
    removed = len(committed.tokens) - count
    kv = {
        **committed.kv,
        "after": committed.kv["after"] - removed,
        "dropped": committed.kv["dropped"] + removed,
    }
    out: list[Event] = []
    for event in events[:-1]:
        if isinstance(event, Decided):
            event = replace(
                event,
                decisions=tuple(
                    {"node": t["node"], **skip} if t["node"] in below else t for t in event.decisions
                ),
            )
        out.append(event)
    logprobs, tops = (
        None if values is None else values[:count] for values in (committed.logprobs, committed.top_logprobs)
    )
    return [
        *out,
        replace(
            committed,
            path=path,
            tokens=committed.tokens[:count],
            kind="accepted",
            tail_prob=None,
            tail_top=None,
            kv=kv,
            softmax_p=None,
            softmax_top=None,
            logprobs=logprobs,
            top_logprobs=tops,
        ),
    ]
