"""The mask on both sides, on the target only, on the draft only: the last one is wrong, and told by its
distance."""

from __future__ import annotations

import pytest

from specviz.lab import answer
from specviz.run import SessionError

from ..run.fakes import FakeLoaded

FORMAT = {"type": "regex", "regex": "[a-c]{3}-[0-9]{2,4}!"}


def test_only_the_mask_on_the_draft_alone_is_wrong():
    parts = list(answer("mask_sides", {"response_format": FORMAT, "runs": 6}, FakeLoaded(ends=True)))
    both, target, draft = parts[-1]["rows"]
    assert len(parts) == 6 and [row["runs"] for row in (both, target, draft)] == [6] * 3
    assert both["valid"] == target["valid"] == 6 and draft["valid"] < 6
    assert both["distance"] == target["distance"] == 0 and draft["distance"] > 0.3
    assert both["accepted"] / both["tried"] > target["accepted"] / target["tried"]


def test_it_stops_when_asked_and_refuses_what_is_no_format():
    assert (
        len(list(answer("mask_sides", {"response_format": FORMAT}, FakeLoaded(ends=True), lambda: True))) == 1
    )
    for payload in ({"response_format": {"type": "text"}}, {"response_format": "x"}, {"runs": 10**6}):
        with pytest.raises(SessionError):
            list(answer("mask_sides", payload, FakeLoaded(ends=True)))
