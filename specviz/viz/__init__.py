"""The viewer as text: the assets a page serves, a stand-alone page for one trace, a notebook display."""

from .html import HTML_TEMPLATE, gradio_parts, records_of, show, to_html, viewer_assets

__all__ = ["HTML_TEMPLATE", "gradio_parts", "records_of", "show", "to_html", "viewer_assets"]
