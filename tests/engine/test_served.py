"""The page's run with a server among its lanes: numbered as asked for, beside local lanes that go on when
it dies."""

from __future__ import annotations

from specviz.engine.engine import Engine, run_lanes
from specviz.engine.limits import read_request
from specviz.lab.compare import lanes_of
from specviz.trace.files import check
from specviz.ui.chat import lane_answers, same_text
from specviz.zoo import load

from ..servers.fake import Fake
from ..servers.test_stream import answers


def test_a_servers_lane_stands_among_the_local_ones(at_home, monkeypatch):
    fake = Fake(answers())
    monkeypatch.setenv("SPECVIZ_SERVERS", f"vllm={fake.url}/vllm#m,openai={fake.url}/nowhere#m")
    try:
        engine, loaded = Engine(), load()
        ask = read_request(
            engine.cards,
            prompt="the cat",
            methods=["server:openai", "speculative", "server:vllm"],
            max_new_tokens=12,
            repeats=2,
        )
        records = [
            record for told in run_lanes(loaded, ask, 60.0) if isinstance(told, list) for record in told
        ]
    finally:
        fake.close()
    check(records)
    heads = {r["lane"]: (r["method"]["title"], r["clock"]) for r in records if r["type"] == "header"}
    assert heads == {
        0: ("openai", "client"),
        1: ("Speculative decoding", "engine"),
        2: ("vllm", "client"),
        3: ("Plain decoding", "engine"),
    }
    ends = {r["lane"]: r["finish"] for r in records if r["type"] == "done"}
    assert ends == {0: "error", 1: "length", 2: "stop", 3: "length"}
    assert {lane["key"] for lane in lanes_of(records)} == {
        "speculative",
        "autoregressive",
    }  # who is compared with whom
    said = {one.key: one for one in lane_answers(records)}
    assert said["server:vllm"].text == "One two three four five six" and same_text(
        [said["speculative"], said["autoregressive"]]
    )
    assert not any(r["type"] == "vocab" for r in records if r["lane"] in (0, 2)) and fake.url not in str(
        records
    )
    assert [
        card for card in next(engine.answer("catalogue", {}, None, 1.0)) if card["family"] == "Servers"
    ] == []
