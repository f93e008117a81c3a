"""A Docker daemon for tests, in a mount namespace in which the folders of the tests are hidden."""

import contextlib
import io
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from sandbox_runtime.backends.docker.backend import base_name
from sandbox_runtime.backends.docker.container import LABEL
from sandbox_runtime.backends.docker.docker_command import run_docker
from sandbox_runtime.backends.image_setup import PROGRAM, SERVER_PYTHON

UP_S = 60.0
HIDDEN = ("/root", "/home", "/work", "/tmp")  # noqa: S108  hidden from the daemon
TOOLS = (
    *("dash", "sh", "cat", "ls", "mkdir", "sleep", "setsid", "wc", "grep", "env", "pwd", "tar", "id", "true", "touch"),
    *("rm", "ln", "cp", "chmod", "head", "ps", "kill", "mount", "unshare", "find", "du"),
)


def no_daemon() -> str | None:
    """What a daemon of the tests needs that is not here, and how to get it."""
    if shutil.which("dockerd") is None or shutil.which("docker") is None:
        return "docker: needs the daemon (apt-get install docker.io)"
    if os.geteuid() != 0:
        return "docker: needs root, to start a daemon"
    return None


def containers() -> list[str]:
    """Every container of the backend that the daemon has, also one that has ended."""
    return run_docker("ps", "--all", "--quiet", "--filter", f"label={LABEL}").split()


@contextlib.contextmanager
def running_daemon() -> Iterator[str]:
    """Run a daemon, and yield its `DOCKER_HOST`."""
    folder = Path(tempfile.mkdtemp(prefix="evdocker", dir="/var/tmp"))
    hide = " && ".join(f"{{ [ ! -d {path} ] || mount -t tmpfs none {path}; }}" for path in HIDDEN)
    daemon = (
        *("dockerd", "--iptables=false", "--ip6tables=false", "--bridge=none", "--storage-driver", "overlay2"),
        *("--data-root", str(folder / "data"), "--exec-root", str(folder / "exec")),
        *("--pidfile", str(folder / "pid"), "--host", f"unix://{folder}/s"),
    )
    log = (folder / "log").open("wb")
    process = subprocess.Popen(
        (
            "unshare",
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-ec",
            f'{hide} && exec setpriv --pdeathsig TERM "$@"',
            "sh",
            *daemon,
        ),
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + UP_S
        while subprocess.run(("docker", "--host", f"unix://{folder}/s", "version"), capture_output=True).returncode:
            assert process.poll() is None and time.monotonic() < deadline, (folder / "log").read_text()
            time.sleep(0.1)
        yield f"unix://{folder}/s"
    finally:
        process.terminate()
        process.wait(UP_S)
        log.close()
        shutil.rmtree(folder, ignore_errors=True)


def import_base() -> None:
    """Give the daemon an image with this Python and some tools, in place of the one that is built from the internet."""
    subprocess.run(
        ("docker", "import", "-", base_name()), input=_root(), check=True, stdout=subprocess.DEVNULL, timeout=120
    )


def _root() -> bytes:
    interpreter = Path(os.path.realpath(sys.executable))
    library = Path(sysconfig.get_path("stdlib"))
    left_out = {"site-packages", "test", "tests", "idlelib", "ensurepip", "tkinter", "__pycache__", "lib2to3"}
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:

        def add(path: Path, name: str) -> None:
            for parent in reversed(Path(name).parents[:-1]):  # without an entry of their own only root could enter them
                _folder(archive, str(parent), 0o755)
            if name not in archive.getnames():
                archive.add(path, name, filter=lambda one: None if Path(one.name).name in left_out else one)

        for folder in ("bin", "lib", "lib64"):
            _link(archive, folder, f"usr/{folder}")
        tools = [Path(os.path.realpath(found)) for tool in TOOLS if (found := shutil.which(tool, path="/usr/bin:/bin"))]
        for tool in TOOLS:
            if found := shutil.which(tool, path="/usr/bin:/bin"):
                add(Path(os.path.realpath(found)), f"usr/bin/{tool}")
        add(interpreter, str(interpreter)[1:])
        add(library, str(library)[1:])
        for needed in sorted(_libraries([interpreter, *tools, *library.glob("lib-dynload/*.so")])):
            name = str(needed)
            add(Path(os.path.realpath(needed)), f"usr{name}" if name.startswith("/lib") else name[1:])
        _folder(archive, "opt", 0o755)
        _folder(archive, str(Path(SERVER_PYTHON).parents[1])[1:], 0o755)
        _folder(archive, str(Path(SERVER_PYTHON).parent)[1:], 0o755)
        _link(archive, SERVER_PYTHON, str(interpreter))
        for folder in ("workspace", "tmp", "proc", "dev", "sys", "etc", PROGRAM):
            _folder(archive, folder.lstrip("/"), 0o777)
    return written.getvalue()


def _folder(archive: tarfile.TarFile, name: str, mode: int) -> None:
    if name in archive.getnames():
        return
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = tarfile.DIRTYPE, mode
    archive.addfile(entry)


def _link(archive: tarfile.TarFile, name: str, target: str) -> None:
    entry = tarfile.TarInfo(name.lstrip("/"))
    entry.type, entry.linkname = tarfile.SYMTYPE, target
    archive.addfile(entry)


def _libraries(programs: Iterable[Path]) -> set[Path]:
    """The shared libraries that programs need, by the paths at which the loader looks for them."""
    printed = subprocess.run(("ldd", *map(str, programs)), capture_output=True, text=True, check=False).stdout
    words = {word for line in printed.splitlines() if line.startswith("\t") for word in line.split()}
    return {Path(word) for word in words if word.startswith("/")}
