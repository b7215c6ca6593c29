"""Hosts of the viewer outside Gradio: a stand-alone page that opens from file://, and a notebook display.

The viewer is plain JavaScript and one style sheet in `assets/viewer`; the files are joined in dependency
order. The page contains its trace as escaped JSON in a script block of a type that browsers do not run, and
a content security policy that allows only its own script and style, by digest."""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from .. import ASSETS, VERSION
from .files import Trace
from .schema import TraceError
from .scripts import scripts_below
from .speed import lane_times

VIEWER = ASSETS / "viewer"
HTML_TEMPLATE = '<div class="sv"></div>'

_START = """(() => {
  const data = document.getElementById("trace");
  const root = document.querySelector(".sv"), here = () => root.svApi.follow(location.hash || root.dataset.place || "");
  root.svApi = SpecVizBoard.mount(root, { trace: JSON.parse(data.textContent), options: { autoplay: AUTOPLAY } });
  here();
  addEventListener("hashchange", here);
})();
"""


# A board that a run in progress fills: it asks the page around it for live frames (docs/TRACE.md) from the number
# that it has read up to, at the start and whenever there are more.
_LIVE = """(() => {
  const root = document.querySelector(".sv");
  root.svApi = SpecVizBoard.mount(root, { options: { autoplay: false } });
  let next = 0;
  const ask = () => parent.postMessage({ specviz: next }, "*");
  addEventListener("message", ({ source, data }) => {
    if (source !== parent) return;
    if (data === "specviz.more") ask();
    if (data?.from !== next || !Array.isArray(data.lines)) return;
    next += data.lines.length;
    root.svApi.push(data.lines.join("\\n"));
  });
  ask();
})();
"""

# Unpacks a frame's page. Script and style that are added here run only if the policy names their digests.
_UNPACK = """(async () => {
  const data = Uint8Array.from(atob(document.getElementById("packed").textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([data]).stream().pipeThrough(new DecompressionStream("gzip"));
  const parts = JSON.parse(await new Response(stream).text());
  const add = (kind, text, about) => document.body.append(Object.assign(document.createElement(kind), { textContent: text }, about));
  add("style", parts.style);
  add("script", parts.trace, { type: "application/json", id: "trace" });
  add("script", parts.script);
})().catch((error) => {
  document.querySelector(".sv").textContent = `The viewer cannot be shown here: ${error.message}`;
});
"""
LONGEST_CELL = 2000  # characters of a lane's text in a table


def scripts() -> tuple[str, ...]:
    """Return the names of the viewer's scripts in dependency order, without `gradio`, which only the Gradio
    page adds."""
    return tuple(scripts_below(VIEWER, "SV|SpecViz", besides=("gradio",)))


@cache
def viewer_assets() -> tuple[str, str]:
    """Return (JavaScript, CSS) of the viewer, the same for every host."""
    try:
        parts = [(VIEWER / f"{name}.js").read_text(encoding="utf-8") for name in scripts()]
        version = f"(globalThis.SpecViz = globalThis.SpecViz || {{}}).version = {VERSION!r};"
        return "\n".join([version, *parts]), (VIEWER / "viewer.css").read_text(encoding="utf-8")
    except OSError as error:
        missing = Path(error.filename or VIEWER).name
        raise TraceError(
            f"The viewer is not whole: {missing} cannot be read in assets/viewer of the checkout.",
            "viewer.missing",
        ) from None


def gradio_parts(**options: Any) -> dict[str, str]:
    """Return `html_template` and `js_on_load` for one `gr.HTML`, and the `css` for `launch(css=...)`.

    `options` of the board: `layout` ("watch", "race"; default by the number of methods), `autoplay`,
    `plotly`, `drawer` (figures wait behind one key).
    """
    js, css = viewer_assets()
    glue = (VIEWER / "gradio.js").read_text(encoding="utf-8")
    load = f"{js}\n{glue}\nSpecVizBoard.attach(element, watch, props, {inert_json(options)});"
    return {"html_template": HTML_TEMPLATE, "js_on_load": load, "css": css}


def records_of(trace: Any) -> list[dict[str, Any]]:
    """Return the records of a trace: a `Trace` (anything with `.records`), a list of dicts, or the path of
    a file (.jsonl or .jsonl.gz). Raises TraceError for a file that is no trace."""
    if isinstance(trace, str | Path):
        return Trace.load(Path(trace)).records
    found = getattr(trace, "records", trace)
    if isinstance(found, dict | bytes) or not isinstance(found, Iterable):
        raise TypeError("A trace is a list of records, an object with .records, or a path.")
    records = list(found)
    if not records or not all(isinstance(r, dict) for r in records):
        raise ValueError("The trace holds no records.")
    return records


def to_html(
    trace: Any,
    *,
    title: str = "Speculative decoding, round by round",
    autoplay: bool = True,
    place: str = "",
    about: str = "",
) -> str:
    """Return one HTML page with the viewer and the trace. It opens from file:// without network requests.
    autoplay: play the run, else show its last round; place: where it opens if its address names no place,
    for example "#layout=watch&round=3"; about: a sentence below the title."""
    js, css = viewer_assets()
    script, style = js + "\n" + _START.replace("AUTOPLAY", inert_json(autoplay)), _PAGE_CSS + css
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; img-src data:; "
    )
    policy += "base-uri 'none'; form-action 'none'"
    said = f"<p>{html.escape(about)}</p>" if about else ""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<link rel="icon" href="data:,">\n'
        f"<title>{html.escape(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        f'<main><h1>{html.escape(title)}</h1>{said}<div class="sv alone" data-place="{html.escape(place)}"></div></main>\n'
        f'<script type="application/json" id="trace">{inert_json(records_of(trace))}</script>\n'
        f"<script>{script}</script>\n</body>\n</html>\n"
    )


def to_frame(trace: Any = None, *, autoplay: bool = True) -> str:
    """Return the page of ``to_html`` for a frame in a notebook, a quarter of its size: viewer and trace are
    packed with gzip. The content security policy still names the viewer's script and style by digest. trace
    None: an empty board, which shows the live frames that the page around it sends by ``postMessage``."""
    js, css = viewer_assets()
    start = _LIVE if trace is None else _START.replace("AUTOPLAY", inert_json(autoplay))
    script, style = js + "\n" + start, _PAGE_CSS + css
    records = [] if trace is None else records_of(trace)
    parts = {"script": script, "style": style, "trace": inert_json(records)}
    packed = base64.b64encode(gzip.compress(inert_json(parts).encode("utf-8"), mtime=0)).decode()
    policy = (
        f"default-src 'none'; script-src '{_digest(_UNPACK)}' '{_digest(script)}'; style-src '{_digest(style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="color-scheme" content="light dark">\n<title>specviz</title>\n</head>\n<body>\n'
        '<main><div class="sv alone"></div></main>\n'
        f'<script type="text/plain" id="packed">{packed}</script>\n<script>{_UNPACK}</script>\n</body>\n</html>\n'
    )


def lanes_table(trace: Any) -> list[dict[str, Any]]:
    """Return a row per lane of a trace, {method, tokens, passes, tokens per pass, tokens/s, text}, for
    displays without the viewer."""
    whole, rows = Trace(records_of(trace)), []
    for lane in sorted({record["lane"] for record in whole.records if record.get("type") == "header"}):
        totals = whole.totals(lane)
        tokens, passes = totals.get("tokens", 0), totals.get("rounds", 0)
        speed = lane_times(whole.records, lane).tokens_per_second()
        rows.append(
            {
                "method": str(whole.header(lane).get("method", {}).get("title", "")),
                "tokens": tokens,
                "passes": passes,
                "tokens per pass": round(tokens / passes, 2) if passes else None,
                "tokens/s": None if speed is None else round(speed, 1),
                "text": whole.text(lane),
            }
        )
    return rows


class Display:
    """A notebook display: the packed page in a sandboxed frame of its own origin, and a table of the lanes
    for programs that show no frames."""

    def __init__(self, trace: Any, height: int = 1200, autoplay: bool = True) -> None:
        records = records_of(trace)
        self.page, self.height = to_frame(records, autoplay=autoplay), int(height)
        self._rows = lanes_table(records)

    def __repr__(self) -> str:
        """Return the lanes as text."""
        return "\n".join(
            ", ".join(f"{name}: {value}" for name, value in row.items() if value is not None)
            for row in self._rows
        )

    def _repr_html_(self) -> str:
        heads = "".join(f"<th>{html.escape(name)}</th>" for name in (self._rows or [{}])[0])
        rows = "".join(
            "<tr>" + "".join(f"<td>{html.escape(_cell(value))}</td>" for value in row.values()) + "</tr>"
            for row in self._rows
        )
        table = f"<table><tr>{heads}</tr>{rows}</table>"
        return (
            frame_element(self.page, self.height, 'loading="lazy"')
            + f"<details><summary>The run as a table</summary>{table}</details>"
        )


def frame_element(page: str, height: int, attributes: str = "") -> str:
    """Return a sandboxed frame of an origin of its own that shows a page."""
    return (
        f'<iframe sandbox="allow-scripts" title="specviz trace" style="width:100%;height:{height}px;border:0" '
        f'{attributes} srcdoc="{html.escape(page, quote=True)}"></iframe>'
    )


def _cell(value: Any) -> str:
    text = "" if value is None else str(value)
    return text if len(text) <= LONGEST_CELL else text[:LONGEST_CELL] + "..."


def show(trace: Any, height: int = 1200, autoplay: bool = True) -> Display:
    """Display a trace in a notebook: `show(trace)` as the last line of a cell."""
    return Display(trace, height, autoplay)


_PAGE_CSS = (
    "html{background:#fafaf9;color:#1a1c20;color-scheme:light dark}body{margin:0}"
    "h1{margin:8px 0 4px;font:650 15px/24px system-ui,sans-serif;letter-spacing:-.01em}"
    "h1+p{margin:0 0 8px;max-width:80ch;font:14px/20px system-ui,sans-serif}"
    "main{max-width:1376px;margin:0 auto;padding:16px clamp(8px,2.4vw,32px) 48px}"
    "@media (prefers-color-scheme:dark){html{background:#0d0f12;color:#e9eaec}}\n"
)


def inert_json(value: Any) -> str:
    """Return JSON that is inert inside a script element: no tag can open or close, no line separator ends a
    string."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    # A lone surrogate has no UTF-8 form; the file could not be written.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode()
