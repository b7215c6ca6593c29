"""Styles of Gradio's own widgets: black on white, one radius, one primary button. Colour is reserved for
verdicts."""

from __future__ import annotations

from pathlib import Path

from gradio.themes import Base
from gradio.themes.utils import colors, sizes

from .. import ASSETS
from ..trace.page import gradio_parts

STATIC = Path(__file__).parent / "static"
PANELS = ASSETS / "panels"
SANS = ["system-ui", "-apple-system", "Segoe UI", "Roboto", "Helvetica Neue", "Arial", "sans-serif"]
MONO = [
    "ui-monospace",
    "SF Mono",
    "Cascadia Mono",
    "Menlo",
    "Consolas",
    "Roboto Mono",
    "Liberation Mono",
    "monospace",
]
GREY = colors.Color(
    name="paper",
    c50="#fafaf9",
    c100="#f4f4f2",
    c200="#e5e5e2",
    c300="#cfd0cd",
    c400="#8d949e",
    c500="#6b7079",
    c600="#5a5f68",
    c700="#3d434d",
    c800="#262b31",
    c900="#1a1c20",
    c950="#0d0f12",
)

# role: (light, dark)
ROLES = {
    "body_background_fill": ("#fafaf9", "#0d0f12"),
    "background_fill_primary": ("#ffffff", "#14171b"),
    "background_fill_secondary": ("#f4f4f2", "#191d22"),
    "block_background_fill": ("#ffffff", "#14171b"),
    "panel_background_fill": ("#fafaf9", "#0d0f12"),
    "border_color_primary": ("#e5e5e2", "#262b31"),
    "block_border_color": ("#e5e5e2", "#262b31"),
    "body_text_color": ("#1a1c20", "#e9eaec"),
    "body_text_color_subdued": ("#5a5f68", "#a7adb6"),
    "block_label_text_color": ("#5a5f68", "#a7adb6"),
    "block_title_text_color": ("#5a5f68", "#a7adb6"),
    "block_info_text_color": ("#6b7079", "#8d949e"),
    "input_background_fill": ("#ffffff", "#14171b"),
    "input_border_color": ("#e5e5e2", "#262b31"),
    "input_border_color_focus": ("#6b7079", "#8d949e"),
    "input_placeholder_color": ("#6b7079", "#8d949e"),
    "button_primary_background_fill": ("#1a1c20", "#e9eaec"),
    "button_primary_background_fill_hover": ("#000000", "#ffffff"),
    "button_primary_border_color": ("#1a1c20", "#e9eaec"),
    "button_primary_text_color": ("#fafaf9", "#0d0f12"),
    "button_primary_text_color_hover": ("#ffffff", "#0d0f12"),
    "button_secondary_background_fill": ("#ffffff", "#14171b"),
    "button_secondary_background_fill_hover": ("#f4f4f2", "#191d22"),
    "button_secondary_border_color": ("#e5e5e2", "#262b31"),
    "button_secondary_text_color": ("#1a1c20", "#e9eaec"),
    "slider_color": ("#1a1c20", "#e9eaec"),
    "checkbox_background_color_selected": ("#1a1c20", "#e9eaec"),
    "checkbox_border_color_selected": ("#1a1c20", "#e9eaec"),
    "checkbox_border_color_focus": ("#6b7079", "#8d949e"),
}
PLAIN = {
    "block_shadow": "none",
    "block_label_shadow": "none",
    "button_primary_shadow": "none",
    "button_secondary_shadow": "none",
    "input_shadow": "none",
    "input_shadow_focus": "none",
    "block_border_width": "1px",
    "input_border_width": "1px",
    "block_radius": "8px",
    "input_radius": "8px",
    "button_large_radius": "8px",
    "button_medium_radius": "8px",
    "button_small_radius": "14px",
    "container_radius": "8px",
    "block_title_text_size": "12px",
    "block_label_text_size": "12px",
    "block_title_text_weight": "400",
    "block_label_text_weight": "400",
    "input_text_size": "14px",
    "button_large_text_size": "14px",
    "button_medium_text_size": "14px",
    "button_small_text_size": "13px",
    "button_large_text_weight": "550",
    "button_medium_text_weight": "550",
    "button_small_text_weight": "400",
    "block_padding": "10px 12px",
    "layout_gap": "12px",
    "form_gap_width": "0px",
}


def theme() -> Base:
    """Return the theme: neutral greys, radius 8, system fonts; nothing is fetched."""
    base = Base(
        primary_hue=GREY,
        secondary_hue=GREY,
        neutral_hue=GREY,
        radius_size=sizes.radius_md,
        text_size=sizes.text_md,
        font=SANS,
        font_mono=MONO,
    )
    both = {name: light for name, (light, _) in ROLES.items()} | {
        f"{name}_dark": dark for name, (_, dark) in ROLES.items()
    }
    return base.set(**both, **PLAIN)


def css() -> str:
    """Return the style sheets of viewer, panels and page as one string. Gradio prefixes every rule, which
    gives all the same specificity."""
    panels = [path.read_text(encoding="utf-8") for path in sorted(PANELS.glob("*.css"))]
    return gradio_parts()["css"] + "".join(panels) + (STATIC / "page.css").read_text(encoding="utf-8")
