"""The jail: bubblewrap around each program process and each command, which can write to its own folder only.

Everything else is read-only, but for a `/tmp` of its own; the folders of other commits and of the server are hidden.
Processes see no others, cannot regain privileges, and end with the jail's first. The network is the server's.
"""

import asyncio
import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from evolverpc_common.settings.sources import SettingsError

TMP = Path("/tmp")  # noqa: S108  # a folder that each jail has its own of
"""The folder for temporary files, inside."""

TMP_BYTES = 512 * 2**20
"""Bytes of a jail's `/tmp` and of its `/dev/shm`, at most; see `_tmp_bytes`."""

TMP_INODES = 2**17
"""Files and folders in a jail's `/tmp` and `/dev/shm` together; each takes about 1 KiB of the kernel's memory."""

_TMP_SHARE = 8

PROCESSES = max(512, 64 * (os.cpu_count() or 1))
"""Processes and threads of one jail, if the kernel counts them separately (Linux 5.14)."""

NICENESS = 10
"""Added to the niceness of jailed processes, so that the server stays responsive."""

_HIDING_BYTES = 64 * 1024
_TRIAL_S = 30.0
_JAIL_INIT = Path(__file__).with_name("jail_init.py")
_JAIL_TMP = Path(__file__).with_name("jail_tmp.py")
_CHECKOUT = Path(__file__).resolve().parents[2]
_PACKAGES = tuple(
    _CHECKOUT / name for name in ("protocol", "rpc_server", "gepa_client", "sandbox_runtime", "evolverpc_common")
)
_OTHER_TMPS = (Path("/var/tmp"), Path("/run"))  # noqa: S108  # hidden
_NEEDED_OF_RUN = (Path("/run/systemd/resolve"), Path("/run/current-system"))
"""Targets of `/etc` and `PATH` on some systems."""

_NAMESPACES = (
    *("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
    *("--disable-userns", "--die-with-parent", "--cap-drop", "ALL"),
)
_ROOT = ("--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev")
_MACHINE_ENTRIES = ("sys", "sysrq-trigger", "irq", "bus", "acpi", "scsi", "fs", "driver", "mtrr", "latency_stats")
"""Entries of `/proc` that are not processes: root of a server run by root could write there."""

_CACHES = {"UV_CACHE_DIR": "uv", "npm_config_cache": "npm", "DSPY_CACHEDIR": "dspy"}
"""Variables of programs that need a cache, by default in the home folder."""

_PR_SET_DUMPABLE = 4
_ADVICE = (
    "allow user namespaces (sysctl kernel.unprivileged_userns_clone=1, user.max_user_namespaces above 0, no AppArmor "
    "profile against them; in a container one that may mount /proc), or turn `jail` off"
)


@dataclass(frozen=True)
class JailFactory:
    """The common settings of all jails of a server.

    `hidden`: folders that are not visible but for what a jail needs. `secrets`: files that are unreadable inside.
    `readable`: folders that are visible even below a folder for temporary files.
    """

    bwrap: str
    hidden: tuple[Path, ...] = ()
    secrets: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()

    def extend(self, *, hidden: Iterable[Path] = (), readable: Iterable[Path] = ()) -> "JailFactory":
        """Return a copy with more of both."""
        return replace(self, hidden=(*self.hidden, *hidden), readable=(*self.readable, *readable))

    def jail(self, *writable: Path, readable: Iterable[Path] = (), read_only: Iterable[Path] = ()) -> "Jail":
        """Return a jail whose processes may write to these folders.

        `read_only`: paths in them that may not be written. `readable`: more hidden paths that may be read.
        """
        return Jail(self, tuple(map(_real, writable)), tuple(map(_real, readable)), tuple(map(_real, read_only)))


@dataclass(frozen=True)
class Jail:
    """A jail with its writable folders; every wrapped command runs in one of its own."""

    factory: JailFactory
    writable: tuple[Path, ...]
    readable: tuple[Path, ...]
    read_only: tuple[Path, ...]

    def wrap(
        self, command: Sequence[str], *, folder: Path, environment: Mapping[str, str], niceness: int = NICENESS
    ) -> tuple[str, ...]:
        """Return the command that runs `command` inside, in `folder`; `environment`: its environment.

        Its exit status is the command's, 128 + signal if that killed it, 127 if it cannot be started. Descriptors are
        inherited.
        """
        caches = {name: str(TMP / "cache" / folder) for name, folder in _CACHES.items() if name not in environment}
        # Descriptors 0 to 2 are held by bubblewrap too, until it ends: with the command.
        return (
            *(sys.executable, "-I", "-S", str(_JAIL_TMP), str(TMP_INODES), "--"),
            *(self.factory.bwrap, *_NAMESPACES, *_ROOT),
            *("--size", str(_tmp_bytes()), "--tmpfs", "/dev/shm", "--remount-ro", "/dev"),  # noqa: S108  # the jail's own
            *(word for name in _MACHINE_ENTRIES for word in ("--ro-bind-try", f"/proc/{name}", f"/proc/{name}")),
            *self._mounts(command, environment),
            *("--setenv", "TMPDIR", str(TMP)),
            *(word for name, value in caches.items() for word in ("--setenv", name, value)),
            *("--chdir", str(_real(folder)), "--"),
            *(sys.executable, "-I", "-S", str(_JAIL_INIT), str(PROCESSES), str(niceness), "--", *command),
        )

    def _mounts(self, command: Sequence[str], environment: Mapping[str, str]) -> list[str]:
        """Return the mounts in order: each may cover earlier ones."""
        covered = _unique(map(_real, (TMP, Path(tempfile.gettempdir()), *_OTHER_TMPS)))
        needed = _unique(map(_real, (*self.factory.readable, *_server_folders(), *_named_paths(command, environment))))
        hidden = _outermost(map(_real, self.factory.hidden))
        others = [folder for folder in _outermost(covered) if folder != covered[0] and folder not in hidden]
        others = [folder for folder in others if not _is_below_one_of(folder, hidden)]
        words = ["--size", str(_tmp_bytes()), "--tmpfs", str(covered[0])]
        for folder in others:
            words += _hide(folder)
        for path in sorted(needed, key=lambda path: len(path.parts)):
            if _is_below_one_of(path, covered):
                words += ["--ro-bind-try", str(path), str(path)]
        for path in _NEEDED_OF_RUN:
            words += ["--ro-bind-try", str(path), str(path)]
        for folder in hidden:
            words += _hide(folder)
        for path in self.readable:
            words += ["--ro-bind", str(path), str(path)]
        writable = [path for path in self.writable if not any(path.is_relative_to(own) for own in _PACKAGES)]
        for path in writable:
            words += ["--bind", str(path), str(path)]
        for folder in (*others, *hidden):
            words += _hide(folder) if folder not in writable and _is_below_one_of(folder, writable) else []
        for path in _unique((*self.read_only, *_server_folders())):
            words += ["--ro-bind", str(path), str(path)] if _is_below_one_of(path, writable) and path.exists() else []
        for path in map(_real, self.factory.secrets):
            words += ["--ro-bind", os.devnull, str(path)] if path.exists() else []
        for folder in (*others, *hidden):
            words += ["--remount-ro", str(folder)] if folder.is_dir() else []
        return words


def create_jails(*, secrets: Iterable[Path] = (), readable: Iterable[Path] = ()) -> JailFactory:
    """Return a factory that has not been tried: see `check_jail`, if nothing starts.

    Raises:
        SettingsError: no jail is possible here; what is missing, and what to do.
    """
    if not sys.platform.startswith("linux"):
        raise SettingsError("`jail` needs Linux, whose namespaces it is made of: turn it off here")
    if not TMP.is_dir():
        raise SettingsError(f"`jail` needs a folder {TMP}, where bubblewrap begins")
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise SettingsError(
            "`jail` needs bubblewrap, and no bwrap is on PATH: on Debian and Ubuntu, apt install bubblewrap"
        )
    return JailFactory(bwrap, secrets=tuple(secrets), readable=tuple(readable))


async def check_jail(jails: JailFactory) -> None:
    """Try a jail.

    Raises:
        SettingsError: none can be made here; why, and what to do.
    """
    trial = jails.jail().wrap(("true",), folder=Path("/"), environment=os.environ)
    problem = await asyncio.to_thread(_try_command, trial)
    if problem is not None:
        raise SettingsError(f"`jail`: bubblewrap (0.8 or newer) cannot make one here: {problem}; {_ADVICE}")


def protect_memory() -> None:
    """Deny other processes of this user access to this one's memory, descriptors and environment."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_DUMPABLE)")


def _try_command(command: Sequence[str]) -> str | None:
    """Return why the command fails; None if it succeeds."""
    try:
        done = subprocess.run(  # noqa: S603  # ours
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TRIAL_S, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    if done.returncode == 0:
        return None
    return " ".join(done.stderr.decode(errors="replace").split()) or f"it exited with status {done.returncode}"


def _tmp_bytes() -> int:
    """Return the bytes of a jail's `/tmp` and of its `/dev/shm`.

    Both are memory, which in a sandbox the server needs too.
    """
    disk = os.statvfs(tempfile.gettempdir())
    return min(TMP_BYTES, disk.f_blocks * disk.f_frsize // _TMP_SHARE)


def _hide(folder: Path) -> list[str]:
    return ["--size", str(_HIDING_BYTES), "--tmpfs", str(folder)] if folder.is_dir() else []


def _server_folders() -> tuple[Path, ...]:
    return (*_PACKAGES, Path(sys.prefix), Path(sys.base_prefix))


def _named_paths(command: Sequence[str], environment: Mapping[str, str]) -> list[Path]:
    """Return the paths that the command's words, and variables that lead to programs, name."""
    listed = [
        environment.get(name, "").split(os.pathsep) for name in ("PATH", "PYTHONPATH", "VIRTUAL_ENV", "NODE_PATH")
    ]
    words = [*command, *(word for words in listed for word in words)]
    found = [Path(word) for word in words if word.startswith(os.sep) and os.path.exists(word)]  # noqa: PTH110  # any text
    return [_with_what_it_needs(path) for path in found]


def _with_what_it_needs(path: Path) -> Path:
    """Return the Python environment of a file in its `bin`, or the Node package that contains it.

    For another link, return its folder.
    """
    folder = path if path.is_dir() else path.parent
    if (folder.parent / "pyvenv.cfg").is_file():
        return folder.parent
    package = next((parent for parent in (folder, *folder.parents) if (parent / "package.json").is_file()), None)
    if package is not None:
        return package
    return folder if path.is_symlink() else path


def _is_below_one_of(path: Path, folders: Iterable[Path]) -> bool:
    return any(path != folder and path.is_relative_to(folder) for folder in folders)


def _outermost(folders: Iterable[Path]) -> tuple[Path, ...]:
    found = _unique(folders)
    return tuple(folder for folder in found if not _is_below_one_of(folder, found))


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _unique(paths: Iterable[Path]) -> tuple[Path, ...]:
    return tuple(dict.fromkeys(paths))
