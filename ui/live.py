"""HTML components that change in place: the page's script patches them instead of replacing them.

Gradio would replace the whole content on every update, which loses text selection, open sections, scroll position
and a plot's zoom. A component made here hands its value to a named painter of `assets/trinity.js`.
"""

from __future__ import annotations

import json
from typing import Any, Literal

import gradio as gr

Painter = Literal["html", "bars", "heat"]


def figures(value: dict[str, Any]) -> str:
    """A dict from `ui.plots` as a live component's value.

    Text, because the page patches a generator's outputs in place: an object in use would be changed under us.
    """
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def live(painter: Painter, elem_id: str, value: str = "", **options: Any) -> gr.HTML:
    """An HTML component whose value `painter` draws: markup for "html", else the text of `figures`."""
    return gr.HTML(
        value=value,
        elem_id=elem_id,
        html_template='<div class="tr-hold"></div>',
        js_on_load=f"window.trinity.mount({painter!r}, element, props, watch, trigger, 'pick');",
        apply_default_css=False,
        **options,
    )
