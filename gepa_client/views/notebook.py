"""The display of a run in a notebook: the frame of the terminal's, redrawn in the output of the cell."""

import io
import sys
from collections.abc import Mapping
from html import escape
from importlib import import_module
from typing import Any

from rich.console import Console

from evolverpc_common.display_text import one_line, plain
from gepa_client.evolution.candidate_names import component_texts
from gepa_client.evolution.text_diffs import Words, changed_words
from gepa_client.views.console import make_console
from gepa_client.views.live_display import WIDEST, LiveDisplay

MARKS = {"add": "ins", "del": "del"}

_PRE = '<pre style="font-family: monospace; line-height: 1.2">{code}</pre>'

_STYLE = (
    "<style>.evolverpc ins { background: #8884; text-decoration: underline } .evolverpc del { opacity: .6 } "
    ".evolverpc pre { white-space: pre-wrap }</style>"
)


def in_notebook() -> bool:
    """Return whether this is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


def page(html: str) -> str:
    """Return HTML with the style of a diff."""
    return f'<div class="evolverpc">{_STYLE}{html}</div>'


def texts_compared(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """Return every text of two candidates as one, by component: words struck through if removed, underlined if new."""
    old, new = component_texts(dict(before)), component_texts(dict(after))
    parts = []
    for name in dict.fromkeys([*old, *new]):
        words = changed_words(old.get(name, ""), new.get(name, ""))
        unchanged = "" if any(part.kind in MARKS for part in words) else ", unchanged"
        parts.append(f"<h4>{escape(one_line(name, 200))}{unchanged}</h4><pre>{''.join(map(_marked, words))}</pre>")
    return "\n".join(parts)


def _marked(words: Words) -> str:
    text, tag = escape(plain(words.text)), MARKS.get(words.kind)
    return text if tag is None else f"<{tag}>{text}</{tag}>"


def show(html: str, text: str) -> None:
    """Show HTML below the cell, or the text if the notebook shows no HTML."""
    import_module("IPython.display").display({"text/html": page(html), "text/plain": text}, raw=True)


class NotebookDisplay(LiveDisplay):
    """The frame in the output of the cell, which each drawing replaces; warnings are printed above it."""

    def __init__(self) -> None:
        super().__init__(make_console())
        self._handle: Any = None

    def _begin(self) -> None:
        self._handle = import_module("IPython.display").display(self._drawn(), raw=True, display_id=True)

    def _redraw(self) -> None:
        self._handle.update(self._drawn(), raw=True)

    def _end(self) -> None:
        if self._is_empty:
            self._handle.update({"text/plain": ""}, raw=True)
        else:
            self._redraw()

    def _drawn(self) -> dict[str, str]:
        console = Console(file=io.StringIO(), record=True, width=WIDEST, force_jupyter=False)
        console.print(self._frame())
        text = console.export_text(clear=False)
        return {"text/html": console.export_html(inline_styles=True, code_format=_PRE), "text/plain": text}
