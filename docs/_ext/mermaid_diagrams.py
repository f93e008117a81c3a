"""Turn `mermaid` fences into elements that mermaid's script, a file of the site, draws in the browser."""

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class MermaidDiagram(SphinxDirective):
    """A fenced block of the language `mermaid`."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return the diagram's source as preformatted text."""
        source = "\n".join(self.content).replace("&", "&amp;").replace("<", "&lt;")
        return [nodes.raw("", f'<pre class="mermaid">{source}</pre>', format="html")]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("mermaid", MermaidDiagram)
    return {"parallel_read_safe": True}
