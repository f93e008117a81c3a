"""Build the documentation from `docs/` into `site/`, with warnings as errors.

`python scripts/site.py` needs the packages of the extra `docs`. mermaid's script, which draws the diagrams in the
browser, is downloaded from npm once and kept in `.venv`; `--without-diagrams` builds without it, as a check of pages.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MERMAID = "12.3.0"
MERMAID_SHA256 = "336df803d87a38b70a01e736e666c8f7601d2ce42f5e47c8fafe5d721074b9a3"
BUILD = "import gc, sys; gc.disable(); from sphinx.cmd.build import main; sys.exit(main(sys.argv[1:]))"
"""Runs sphinx, a fifth faster than `python -m sphinx`: looking for garbage finds little in it."""


def mermaid() -> Path:
    """Return mermaid's script, downloaded if it is not there yet."""
    kept = Path(sys.prefix) / f"mermaid-{MERMAID}.min.js"
    if kept.exists():
        return kept
    with tempfile.TemporaryDirectory() as folder:
        command = ("npm", "pack", f"mermaid@{MERMAID}", "--silent", "--pack-destination", folder)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603
        with tarfile.open(Path(folder) / f"mermaid-{MERMAID}.tgz") as archive:
            file = archive.extractfile("package/dist/mermaid.min.js")
            script = file.read() if file else b""
    if hashlib.sha256(script).hexdigest() != MERMAID_SHA256:
        raise SystemExit(f"mermaid {MERMAID} from npm is not the file that scripts/site.py expects")
    kept.write_bytes(script)
    return kept


def main(arguments: list[str]) -> int:
    """Build; return the exit status."""
    site = ROOT / "site"
    shutil.rmtree(site, ignore_errors=True)
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    if "--without-diagrams" not in arguments:
        script = mermaid()
        environment["EVOLVERPC_DOCS_MERMAID"] = "1"
    with tempfile.TemporaryDirectory() as doctrees:
        command = (
            sys.executable,
            "-c",
            BUILD,
            "-W",
            "--keep-going",
            "-q",
            "-d",
            doctrees,
            "-b",
            "html",
            "docs",
            str(site),
        )
        status = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode  # noqa: S603
    if status == 0 and "--without-diagrams" not in arguments:
        shutil.copyfile(script, site / "_static" / "mermaid.min.js")
    if status == 0:
        print(f"The site is in {site.relative_to(ROOT)}/: open site/index.html")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
