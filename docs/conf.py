"""The site's configuration: Sphinx reads the Markdown of this folder with MyST; `make docs` builds it into `site/`."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "EvolveRPC"
author = "The EvolveRPC authors"
copyright = author  # noqa: A001  the name that Sphinx reads
extensions = ["myst_parser", "sphinx_copybutton", "mermaid_diagrams", "command_reference", "api_reference", "llms_txt"]
exclude_patterns = ["_ext"]
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
myst_fence_as_directive = ["mermaid"]
suppress_warnings = ["misc.highlighting_failure"]  # JSON and Go excerpts with an ellipsis in them
copybutton_prompt_text = "$ "

html_theme = "furo"
html_title = "EvolveRPC"
html_static_path = ["_static"]
html_js_files = ["mermaid.min.js", "start_mermaid.js"] if os.environ.get("EVOLVERPC_DOCS_MERMAID") else []
html_show_sphinx = False
html_copy_source = False
