"""Past answers stay with the visitor who got them, and no more visitors are remembered than there is room for."""
from __future__ import annotations

from types import SimpleNamespace

from specviz.ui.engine import play
from specviz.ui.handlers import VISITORS, Handlers
from specviz.ui.limits import Ask

from ..run.fakes import FakeLoaded
from .fake import FakeBackend

LANES = (("suffix_decoding", {"caution": 0.0}), ("autoregressive", {}))


def sources(loaded, shelf):
    """Where the first lane's drafts of one run came from."""
    records = [r for batch in play(loaded, Ask("the cat sat", LANES, max_new_tokens=12, shelf=shelf), 60.0) for r in batch]
    assert not [r for r in records if r["type"] == "error"]
    return {r["data"]["source"] for r in records if r["type"] == "lens" and r["kind"] == "suffix" and r["lane"] == 0}


def test_an_answer_helps_the_same_visitor_the_next_time_and_nobody_else():
    loaded, handlers = FakeLoaded(), Handlers(FakeBackend())
    mine, other = handlers._shelf("a"), handlers._shelf("b")
    assert "answers" not in sources(loaded, mine)
    assert "answers" in sources(loaded, handlers._shelf("a"))
    assert "answers" not in sources(loaded, other)
    handlers.leave(SimpleNamespace(session_hash="a"))
    assert handlers._shelf("a") == {}


def test_visitors_are_forgotten_oldest_first():
    handlers = Handlers(FakeBackend())
    for i in range(3 * VISITORS):
        handlers._shelf(str(i))["memory"] = i
        handlers._shelf("0").setdefault("memory", 0)
    assert len(handlers.shelves) == VISITORS and handlers._shelf("0") == {"memory": 0}
    assert set(handlers.shelves) >= {str(3 * VISITORS - 1), "0"} and "1" not in handlers.shelves
