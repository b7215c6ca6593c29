"""The order of the page's scripts, derived from what they read."""

from __future__ import annotations

import pytest

from specviz import ASSETS
from specviz.trace.scripts import ScriptOrderError, in_dependency_order, provided_and_needed, scripts_below

from ..message_codes import refuses

ROOMS = {"viewer": "SV|SpecViz", "panels": "P|SpecVizPanels"}


def test_each_stands_behind_what_it_reads_whatever_order_they_come_in() -> None:
    texts = {"a": "SV.a = SV.c.x;", "b": "SpecViz.b = 1;", "c": "SV.c = SV.b + SV.b;", "d": "SV.d = SV.a;"}
    want = ["b", "c", "a", "d"]
    assert (
        in_dependency_order(texts, "SV|SpecViz")
        == want
        == in_dependency_order(dict(reversed(texts.items())), "SV|SpecViz")
    )


def test_a_comparison_or_a_comment_provides_and_needs_nothing() -> None:
    assert provided_and_needed("/* SV.x = 1, SV.y */ if (SV.z === 2) SV.own = 3;", "SV") == ({"own"}, {"z"})


def test_several_may_add_to_one_name_and_a_reader_waits_for_all() -> None:
    add = "(P.views = P.views || {}).%s = 1;"
    assert in_dependency_order({"a": "P.mount = P.views;", "b": add % "b", "c": add % "c"}, "P") == [
        "b",
        "c",
        "a",
    ]


def test_a_circle_is_reported_with_its_members() -> None:
    with refuses(ScriptOrderError, "scripts.circle"):
        in_dependency_order({"a": "SV.a = SV.b;", "b": "SV.b = SV.a;", "c": "SV.c = 1;"}, "SV")


def test_a_name_that_nobody_provides_is_reported_with_its_reader() -> None:
    with refuses(ScriptOrderError, "scripts.lost", "a.js", "nowhere"):
        in_dependency_order({"a": "SV.a = SV.nowhere;"}, "SV")


@pytest.mark.parametrize("room", ROOMS)
def test_the_pages_scripts_have_an_order(room: str) -> None:
    order = scripts_below(ASSETS / room, ROOMS[room], besides=("gradio",))
    provided: set[str] = set()
    for name in order:
        own, needed = provided_and_needed(
            (ASSETS / room / f"{name}.js").read_text(encoding="utf-8"), ROOMS[room]
        )
        assert needed <= provided, name
        provided |= own


def test_the_panels_read_only_what_the_viewer_provides() -> None:
    viewer = set().union(
        *(
            provided_and_needed(p.read_text(encoding="utf-8"), "SV")[0]
            for p in (ASSETS / "viewer").rglob("*.js")
        )
    )
    read = set().union(
        *(
            provided_and_needed(p.read_text(encoding="utf-8"), "SpecViz")[1]
            for p in (ASSETS / "panels").glob("*.js")
        )
    )
    assert read and read <= viewer


def test_a_script_with_what_it_needs_and_no_others(tmp_path):
    for name, text in {"a": "P.a = 1;", "b": "P.b = P.a;", "c": "P.c = P.b;", "d": "P.d = P.a;"}.items():
        (tmp_path / f"{name}.js").write_text(text)
    assert scripts_below(tmp_path, "P", only="c") == ["a", "b", "c"]
    assert scripts_below(tmp_path, "P", only="d") == ["a", "d"]
