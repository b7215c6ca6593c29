"""Every sentence that the page makes of a run's records: boards and panels are filled with runs of every kind, all
that they say is looked at, and the browser's own record of executed code tells which sentences were never made."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from specviz.lab.recordings import library, library_trace
from specviz.trace.page import VIEWER, scripts, viewer_assets
from specviz.ui.board import panel_files
from specviz.ui.theme import PANELS

from ..browser import PATIENCE, POOL
from ..message_codes import viewer_texts
from .conftest import ANSWERS, PAGE, catalogue, panel_assets
from .runs import every_kind, rarer_kinds, steady

# Scripts whose sentences are of the records. Lenses have their own test of each note (tests/viewer/test_lens.py); the
# panels that ask the engine have one of each answer (test_tabs.py, test_lab_sets.py, test_lab_dial.py).
OF_RECORDS = frozenset(
    "board board_layout cursor headline verdict race passes notice figures batch why round inspector stage lane rail log "
    "ribbon chart distributions mask tree chain grammar_view circles answers legend transport output tokens metrics card "
    "lane_switch price timing learn_quiz lesson_sampling lesson_several lesson_pays story_scenes draft_game lab_predict "
    "lab_whatif traces_predictability learn_numbers".split()
)
ELSEWHERE = Path(__file__).parent / "sentences_elsewhere.json"  # {script: {sentence: what it needs}}
VIEWS = {
    "learn": ["start", "numbers", "draftgame", "quiz", "formula"],
    "lab": ["predict", "cost", "whatif", "hardware"],
    "traces": ["library", "take", "history", "predictability"],
}
MARK = "//@@ "
SENTENCE = re.compile(r'"(?:[^"\\\n]|\\.)*"|`(?:[^`\\]|\\.)*`')
WALK = """(views) => {
  const SKIP = "bdi, .mono, .stage, .rail, svg, .pn-text, .w, .asked, .prompt, pre, code, select, textarea, .pn-story .pn-small";
  const said = new Set(), board = api.board, wrong = [];
  const read = (root, where) => {
    const walk = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) {
      const text = walk.currentNode.data;
      if (said.has(text) || !text.trim() || walk.currentNode.parentElement.closest(SKIP)) continue;
      if (/undefined|\\bNaN\\b|Infinity|\\[object|\\{\\w+\\}/.test(text)) wrong.push(where + ": " + text.slice(0, 200));
      said.add(text);
    }
  };
  const cold = () => !(SpecViz.why.temperature(board.focus()) > 0);
  const look = (where) => {
    board.paint();
    read(board.root, where);
    const of = board.root.querySelector(".p-insp").textContent, lane = board.focus();
    if (lane?.header && cold() && /draw u|random draw (accepted|rejected)|Residual:/.test(of)) wrong.push(where + ": a draw at temperature 0");
    const tick = board.headline.same;
    if (lane?.error && !tick.hidden) wrong.push(where + ": an error beside a tick");
  };
  board.edge(1);
  for (const layout of ["race", "watch"]) {
    api.setLayout(layout);
    look(layout);
  }
  for (const lane of [...board.list()]) {
    const seen = new Set();
    for (const r of lane.rounds.slice(0, lane.committed)) {
      const kind = [r.why, r.kind, r.passes > 1, Math.min(2, r.nodes.length), r.path.length > 0, r.i === lane.committed - 1,
        ...new Set(r.tests.map((id) => r.judges.get(id).verdict))].join();
      if (seen.has(kind) || seen.size > 5) continue;
      seen.add(kind);
      for (const phase of [1, 2, 3, 4]) {
        api.goto({ lane: lane.id, round: r.i, phase });
        look(lane.id + "/" + r.i + "/" + phase);
      }
      for (const id of ["tail", ...r.nodes.slice(0, 4).map((n) => n.id)]) {
        api.goto({ lane: lane.id, round: r.i, phase: 4, node: id });
        look(lane.id + "/" + r.i + "/" + id);
      }
      if (seen.size > 1 && r.path.length) continue;
      for (const tab of [...board.inspector.tabs.children].map((b) => b.dataset.tab)) {
        api.goto({ tab });
        look(lane.id + "/" + r.i + "/" + tab);
      }
    }
  }
  const P = SpecVizPanels, lanes = P.traceLanes.lanes(api.trace());
  const text = (x, where) => {
    const box = document.createElement("p");
    box.append(...[x].flat(9));
    read(box, where);
  };
  for (const track of P.lessons.tracks) for (const step of track.steps) text(step.say(lanes), "lesson " + step.title);
  for (const l of lanes)
    for (const r of l.rounds.slice(0, 60))
      for (const j of r.raw.trials) {
        const q = { l, r, j, node: r.all[j.node] };
        for (const id of [P.quiz.beforeId(q), P.quiz.afterId(q)]) text(SpecViz.messages.say(id, { a: "", u: "", other: "" }), id);
      }
  for (const [kind, list] of Object.entries(views)) {
    panel.destroy();
    panel = SpecVizPanels.mount(document.getElementById("host"), kind, ctx);
    for (const key of list) {
      panel.show(key);
      panel.update();
      const host = document.getElementById("host");
      read(host, kind + "/" + key);
      for (let press = 0; press < (key === "draftgame" ? 20 : key === "quiz" ? 2 : 0); press++) {
        [...host.querySelectorAll(".pn-four button, .pn-ask button")].find((b) => b.checkVisibility())?.click();
        read(host, kind + "/" + key + "/" + press);
      }
    }
  }
  return [...said, ...wrong.map((x) => "WRONG " + x)];
}"""


def of_every_kind() -> dict[str, list[dict]]:
    """Records by kind of run, and every shipped recording."""
    shipped = {
        "recording " + row["name"]: [
            json.loads(line) for line in library_trace(row["name"]).splitlines() if line
        ]
        for row in library()
    }
    made = {kind: steady(records) for kind, records in every_kind().items() if not kind.startswith("shipped")}
    return made | rarer_kinds() | shipped


def sources() -> str:
    """The scripts of boards and panels, each after a line with its name."""
    files = [VIEWER / f"{name}.js" for name in scripts()] + [PANELS / f"{name}.js" for name in panel_files()]
    return "\n".join(f"{MARK}{file.stem}\n{file.read_text(encoding='utf-8')}" for file in files)


def sentences(js: str, texts: set[str]) -> list[tuple[int, str, str]]:
    """(offset, script, sentence or message identifier) of every sentence that a script writes."""
    found, parts = [], list(re.finditer(rf"^{MARK}(\S+)$", js, re.M))
    for part, after in zip(parts, [*parts[1:], None]):
        name, end = part[1], after.start() if after else len(js)
        if name == "messages":
            continue
        for match in SENTENCE.finditer(js, part.end(), end):
            words = match[0][1:-1]
            plain = re.sub(r"\$\{[^}]*\}", " ", words)
            if words in texts or (
                len(re.findall(r"[A-Za-z]{2,}", plain)) >= 3 and not re.search(r"[\[\]{}<>=#]", plain)
            ):
                found.append((match.start(), name, words))
    return found


@pytest.fixture(scope="module")
def told(browser, tmp_path_factory):
    """(all that was said, offsets of code that never ran, the page's script)."""
    js = sources()

    def go():
        page = browser.new_page()
        page.set_default_timeout(1000 * PATIENCE)
        page.emulate_media(reduced_motion="reduce")
        session = page.context.new_cdp_session(page)
        session.send("Profiler.enable")
        session.send("Profiler.startPreciseCoverage", {"callCount": False, "detailed": True})
        file = tmp_path_factory.mktemp("said") / "panel.html"
        css = "\n".join((viewer_assets()[1], panel_assets()[1]))
        file.write_text(PAGE.format(css=css, js=js), encoding="utf-8")
        page.goto(file.as_uri())
        said = {}
        for kind, records in of_every_kind().items():
            data = {"records": records, "catalogue": catalogue(), "kind": "learn", "answers": ANSWERS}
            page.evaluate("(t) => begin(t)", json.dumps(data))
            said[kind] = page.evaluate(WALK, VIEWS)
        found = session.send("Profiler.takePreciseCoverage")["result"]
        page.close()
        return said, max(found, key=lambda one: len(one["functions"]))

    said, covered = POOL.submit(go).result(timeout=4 * PATIENCE)
    return said, covered, js


def test_what_is_said_of_every_kind_of_run_is_whole_and_true(told):
    said, _, _ = told
    wrong = [f"{kind}: {line}" for kind, lines in said.items() for line in lines if line.startswith("WRONG")]
    assert wrong == [] and min(len(lines) for lines in said.values()) > 200


def test_every_sentence_of_the_records_is_made_or_has_its_own_test(told):
    _, covered, js = told
    texts = {name for name in viewer_texts() if not name.endswith(".")}
    ranges = [
        (one["startOffset"], one["endOffset"], one["count"])
        for function in covered["functions"]
        for one in function["ranges"]
    ]

    def runs(at: int) -> int:
        return min((end - start, count) for start, end, count in ranges if start <= at < end)[1]

    all_of_them = [one for one in sentences(js, texts) if one[1] in OF_RECORDS]
    never = {(name, words) for at, name, words in all_of_them if not runs(at)}
    never -= {(name, words) for at, name, words in all_of_them if runs(at)}
    listed = {
        (name, words)
        for name, found in json.loads(ELSEWHERE.read_text(encoding="utf-8")).items()
        for words in found
    }
    assert len(all_of_them) > 500
    assert sorted(never - listed) == [], "make a kind of run that says it, or name what it needs"
    written = {(name, words) for _, name, words in all_of_them}
    assert sorted(listed - written) == [], "no script says this"
