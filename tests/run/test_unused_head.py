"""A head of which nothing is accepted in 64 tries may be another model's: the run, the command line and the
page ask so."""

import pytest

from specviz.cli.messages import TEXTS
from specviz.core import Drafter, DraftTree, Method, Parts
from specviz.engine.stream import _outcome
from specviz.policies import Fixed
from specviz.run.result import collect
from specviz.run.session import Session
from specviz.run.single_run import UNUSED
from specviz.trace.events import Finished
from specviz.verifiers import TokenRejection

from .fakes import FakeLoaded

PROMPT = "the cat sat on the mat"


class Scripted(Drafter):
    """Drafts one token a round: the right one in some rounds, in all others one that is wrong."""

    def __init__(self, answer, right):
        self.answer = answer
        self.right = right
        self.round = 0

    def propose(self, state, budget):
        at, self.round = len(state.tokens) - len(self.prompt), self.round + 1
        token = self.answer[at]
        return DraftTree.chain((token if self.round in self.right else (token + 1) % 200,))

    def start(self, state, target, prefill):
        self.prompt = list(state.tokens)


def events_of(n, right, needs):
    plain = collect(Session(FakeLoaded(), "autoregressive").run(PROMPT, n + 2))
    method = Method(
        "scripted",
        "Scripted",
        "",
        "",
        lambda kit: Parts(Scripted(plain.token_ids, right), Fixed(1), TokenRejection()),
        needs=needs,
    )
    loaded = FakeLoaded()
    loaded.unsupported_reason = lambda method: None
    return list(Session(loaded, method).run(PROMPT, n))


@pytest.mark.parametrize(
    "n, right, needs, asked",
    [
        (UNUSED + 1, (), {"head:eagle"}, True),
        (UNUSED - 8, (), {"head:eagle"}, False),
        (UNUSED + 8, (60,), {"head:eagle"}, False),
        (UNUSED + 1, (), {"draft:eagle"}, True),
        (UNUSED + 1, (), {"draft"}, False),
    ],
)
def test_a_head_that_is_never_right_is_asked_about(n, right, needs, asked):
    events = events_of(n, right, frozenset(needs))
    totals = next(event.totals for event in events if isinstance(event, Finished))
    assert ("head_unused" in totals) is asked and (not asked or totals["head_unused"]["kinds"] == ["eagle"])
    result = collect(events)
    assert bool(result.head_unused) is asked is ("head_unused" in result.record())
    done = {"type": "done", "lane": 0, "finish": "length", "totals": totals}
    status = _outcome([{"type": "header", "lane": 0, "method": {"title": "Scripted"}}, done], False)
    assert (status.get("code") == "run.head_unused") is asked
    if asked:
        assert TEXTS["run.head_unused"].format(target="t", **result.head_unused)
