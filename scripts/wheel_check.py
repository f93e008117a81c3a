"""Build the wheel and use it as users do: the server in one clean environment, the client in another.

The server's environment must hold no part of the client (no gepa, no litellm), and the other way round.
"""

import os
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from sandbox_runtime import running_server  # noqa: E402  a script finds the checkout by itself

EXPECTED = (
    "protocol/schema/v1.json",
    "protocol/conformance/core.json",
    "protocol/py.typed",
    "rpc_server/worker/main.py",
    "rpc_server/cli/conformance_program.py",
    "gepa_client/py.typed",
    "gepa_client/page/dist/index.html",
    "gepa_client/page/dist/page.css",
    "gepa_client/page/dist/page.js",
    "gepa_service/api/page/dist/index.html",
    "gepa_service/api/page/dist/page.css",
    "gepa_service/api/page/dist/page.js",
    "sandbox_runtime/py.typed",
    "evolverpc_common/py.typed",
    "evolverpc/py.typed",
)
FOREIGN = {"server": ("gepa", "litellm"), "client": ("jsonrpcserver", "modal", "claude_agent_sdk")}


UV = Path(sys.executable).parent / "uv"


def run(*command: str | Path, env: dict[str, str] | None = None, cwd: Path | None = None) -> str:
    """Run a command and return its output; a failure ends the check with it."""
    done = subprocess.run(  # noqa: S603  commands of this file
        [str(part) for part in command],
        env={**os.environ, **(env or {})},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode != 0:
        sys.exit(f"wheel: {command} ended with status {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return done.stdout


def built(folder: Path) -> Path:
    """Build the wheel from the checkout and return its path."""
    run(UV, "build", "--wheel", "--out-dir", folder, ROOT)
    (wheel,) = folder.glob("*.whl")
    inside = set(zipfile.ZipFile(wheel).namelist())
    missing = [name for name in EXPECTED if name not in inside]
    stray = sorted(
        {name.split("/")[0] for name in inside}
        - {"protocol", "rpc_server", "gepa_client", "gepa_service", "sandbox_runtime", "evolverpc_common", "evolverpc"}
    )
    if missing or [name for name in stray if not name.endswith(".dist-info")]:
        sys.exit(f"wheel: it lacks {missing}, and holds {stray}")
    return wheel


def installed(wheel: Path, extra: str, folder: Path) -> Path:
    """Make a clean environment with the wheel and one of its extras; return its `bin`."""
    venv.create(folder)
    python = folder / "bin" / "python"
    run(UV, "pip", "install", "--python", python, "--constraint", ROOT / "constraints.txt", f"{wheel}[{extra}]")
    for name in FOREIGN[extra]:
        seen = run(python, "-I", "-c", f"import importlib.util as u; print(u.find_spec({name!r}))").strip()
        if seen != "None":
            sys.exit(f"wheel: the extra [{extra}] brings {name}")
    return folder / "bin"


def main() -> int:
    """Check everything; returns the exit status."""
    with tempfile.TemporaryDirectory(prefix="wheel-check-") as temporary:
        folder = Path(temporary)
        wheel = built(folder)
        server, client = (installed(wheel, extra, folder / extra) for extra in ("server", "client"))
        tickets = ROOT / "examples" / "tickets"
        program = tickets / "python" / "tickets.py"
        with running_server([str(server / "gepa-server"), "--program", str(program)], cwd=folder) as endpoint:
            settings = ("--config", tickets / "run.toml", "--max-metric-calls", "400", "--output", folder / "run")
            optimized = run(
                client / "evolverpc",
                "optimize",
                endpoint.url,
                *settings,
                env={"GEPA_TOKEN": endpoint.token},
                cwd=folder,
            )
        with running_server([str(server / "gepa-server"), "--conformance"], cwd=folder) as endpoint:
            checked = run(
                client / "evolverpc",
                *("conformance", endpoint.url, "--only", "core", "--only", "jsonrpc"),
                env={"GEPA_TOKEN": endpoint.token},
                cwd=folder,
            )
    print(optimized.strip().splitlines()[-1])
    print(checked.strip().splitlines()[-1])
    return 0


if __name__ == "__main__":
    sys.exit(main())
