"""Two thousand tokens in four lanes at twenty frames a second: no record lost, nodes bounded, script time a
small share of wall.

SPECVIZ_TEST_SOAK=1 python -m pytest tests/viewer/test_soak.py -s        prints its figures
"""

from __future__ import annotations

import json
import os
import time

import pytest

from . import sample

BEAT = 0.05
SECONDS = 60


def _meter(page, domain: str):
    """Reads the page's own figures: seconds of its thread on a processor (threadTicks), or by the clock
    (timeTicks)."""
    client = page.context.new_cdp_session(page)
    client.send("Performance.enable", {"timeDomain": domain})
    return lambda: {m["name"]: m["value"] for m in client.send("Performance.getMetrics")["metrics"]}


@pytest.mark.soak
@pytest.mark.parametrize("layout", ["race", "watch"])
def test_a_long_live_race(drive, settled, layout) -> None:
    records = sample.interleaved(sample.race(mode="live", tokens=2000))
    values = sample.frames(records, size=max(1, len(records) // int(SECONDS / BEAT)), window=1)

    def use(page):
        page.evaluate("(l) => board.setLayout(l)", layout)
        cpu, clock = _meter(page, "threadTicks"), _meter(page, "timeTicks")
        page.evaluate("(v) => { globalThis.values = v; globalThis.most = 0; }", values)
        before, t0 = (cpu(), clock()), time.perf_counter()
        page.evaluate(
            """(beat) => new Promise((done) => { let i = 0; const t = setInterval(() => {
              board.push(values[i++]);
              if (i % 20 === 0) most = Math.max(most, document.querySelectorAll('.sv *').length);
              if (i === values.length - 1) { clearInterval(t); done(); } }, beat); })""",
            BEAT * 1000,
        )
        wall, after = time.perf_counter() - t0, (cpu(), clock())
        settled(page)
        seen, nodes = page.evaluate("({...document.querySelector('.sv').dataset})"), page.evaluate("most")
        share = [{k: 100 * (z[k] - a[k]) / wall for k in a} for a, z in zip(before, after, strict=True)]
        print(
            f"\n{layout}: {len(records)} records in {len(values) - 1} frames over {wall:.1f} s; at most {nodes} elements, heap {after[0]['JSHeapUsedSize'] / 2**20:.0f} MB, load {os.getloadavg()[0]:.1f}"
        )
        for name, s in zip(
            ("of the processor's time", "of the clock, waiting for a busy machine included"),
            share,
            strict=True,
        ):
            print(
                f"  script {s['ScriptDuration']:.1f} %, style {s['RecalcStyleDuration']:.1f} %, layout {s['LayoutDuration']:.1f} %, all tasks {s['TaskDuration']:.1f} % {name}"
            )
        assert (seen["lost"], seen["gaps"], seen["records"]) == ("0", "0", str(len(records)))
        assert nodes < 5000
        page.evaluate("(v) => board.push(v)", json.dumps({"s": 10**7, "snap": True, "e": records}))
        settled(page)
        assert page.get_attribute(".sv", "data-records") == str(len(records))

    drive(use, limit=600)
