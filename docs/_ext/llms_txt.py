"""Write `llms.txt` (see llmstxt.org) and each page's Markdown into the site, for readers that are programs."""

import re
from pathlib import Path

import api_reference
import command_reference
from sphinx.application import Sphinx

SUMMARY = (
    "Run GEPA on any program in any language: a JSON-RPC server beside the program, the optimizer in another process."
)


def write(app: Sphinx, failure: Exception | None) -> None:
    """Copy the pages' sources beside their HTML and list them with their titles."""
    if failure is not None or app.builder.format != "html":
        return
    lines = [f"# {app.config.project}", "", f"> {SUMMARY}", "", "## Pages", ""]
    for name in sorted(app.env.found_docs, key=lambda page: ("decisions/" in page, page)):
        source, target = Path(app.env.doc2path(name)), Path(app.outdir) / f"{name}.md"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_expanded(source), encoding="utf-8")
        lines.append(f"- [{app.env.titles[name].astext()}]({name}.md)")
    (Path(app.outdir) / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _expanded(source: Path) -> str:
    """Return a page's Markdown with what its directives insert."""
    text = source.read_text(encoding="utf-8")
    text = re.sub(r":::\{command-reference\} (\S+)\n:::", lambda found: command_reference.markdown(found[1]), text)
    text = re.sub(r":::\{api-reference\} (\S+)\n:::", lambda found: api_reference.markdown(found[1]), text)
    return re.sub(
        r"# \w+\n\n```\{include\} (\S+)\n.*?```",
        lambda found: (source.parent / found[1]).read_text("utf-8"),
        text,
        flags=re.DOTALL,
    )


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the step after the build."""
    app.connect("build-finished", write)
    return {"parallel_read_safe": True}
