"""Two thousand tokens in four lanes at twenty frames a second: no record lost, nodes bounded, script time a small share of wall.

    SPECVIZ_TEST_SOAK=1 python -m pytest tests/viewer/test_soak.py -s        prints its figures
"""

from __future__ import annotations

import json
import time

import pytest

from . import sample

BEAT = 0.05
SECONDS = 60


@pytest.mark.soak
@pytest.mark.parametrize("layout", ["race", "watch"])
def test_a_long_live_race(drive, settled, layout) -> None:
    records = sample.interleaved(sample.race(mode="live", tokens=2000))
    values = sample.frames(records, size=max(1, len(records) // int(SECONDS / BEAT)), window=1)

    def use(page):
        page.evaluate("(l) => board.setLayout(l)", layout)
        client = page.context.new_cdp_session(page)
        client.send("Performance.enable")
        figures = lambda: {m["name"]: m["value"] for m in client.send("Performance.getMetrics")["metrics"]}  # noqa: E731
        page.evaluate("(v) => { globalThis.values = v; globalThis.most = 0; }", values)
        before, t0 = figures(), time.perf_counter()
        page.evaluate(
            """(beat) => new Promise((done) => { let i = 0; const t = setInterval(() => {
              board.push(values[i++]);
              if (i % 20 === 0) most = Math.max(most, document.querySelectorAll('.sv *').length);
              if (i === values.length - 1) { clearInterval(t); done(); } }, beat); })""",
            BEAT * 1000,
        )
        wall, after = time.perf_counter() - t0, figures()
        settled(page)
        seen = page.evaluate("({...document.querySelector('.sv').dataset})")
        script = after["ScriptDuration"] - before["ScriptDuration"]
        layout_s = after["LayoutDuration"] + after["RecalcStyleDuration"] - before["LayoutDuration"] - before["RecalcStyleDuration"]
        nodes = page.evaluate("most")
        print(f"\n{layout}: {len(records)} records in {len(values) - 1} frames over {wall:.1f} s; script {script:.2f} s = {100 * script / wall:.1f} %, "
              f"style and layout {layout_s:.2f} s = {100 * layout_s / wall:.1f} %, all tasks {after['TaskDuration'] - before['TaskDuration']:.1f} s; "
              f"at most {nodes} elements, heap {after['JSHeapUsedSize'] / 2**20:.0f} MB")  # fmt: skip
        assert (seen["lost"], seen["gaps"], seen["records"]) == ("0", "0", str(len(records)))
        assert nodes < 5000
        page.evaluate("(v) => board.push(v)", json.dumps({"s": 10**7, "snap": True, "e": records}))
        settled(page)
        assert page.get_attribute(".sv", "data-records") == str(len(records))

    drive(use, limit=600)
