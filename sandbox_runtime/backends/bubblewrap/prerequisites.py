"""Check whether bubblewrap can be used on this machine, and explain what to do if it cannot."""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from sandbox_runtime.api.sandbox import RuntimeUnavailable

_INSTALL = "`apt install bubblewrap` (Debian, Ubuntu), `dnf install bubblewrap` (Fedora)"
_TRIAL_S = 20.0
_SWITCHES = (
    ("user/max_user_namespaces", "0", "sysctl -w user.max_user_namespaces=15000"),
    ("kernel/unprivileged_userns_clone", "0", "sysctl -w kernel.unprivileged_userns_clone=1"),
    (
        "kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile for bwrap with `userns,`",
    ),
)


def bubblewrap(trial_user: int | None) -> str:
    """Return the path of a bubblewrap that works here, tried as `trial_user` if one is given. Blocks.

    Raises:
        RuntimeUnavailable: the message names what is missing, and how to get it.
    """
    if sys.platform != "linux":
        raise RuntimeUnavailable(
            "bubblewrap needs Linux; here give `sandbox` docker, modal or process (isolates nothing)"
        )
    found = shutil.which("bwrap")
    if found is None:
        raise RuntimeUnavailable(
            f"bubblewrap is not installed: {_INSTALL}; or give `sandbox` docker, if Docker runs here"
        )
    if trial_user is not None and shutil.which("setpriv", path=os.defpath) is None:
        raise RuntimeUnavailable("root needs setpriv, to give each sandbox a user of its own: install util-linux")
    if not hasattr(os, "pidfd_open") or tuple(map(int, platform.release().split("-")[0].split(".")[:2])) < (5, 9):
        raise RuntimeUnavailable(f"Linux 5.9 or later is needed, this is {platform.release()}")
    path = str(Path(found).resolve())
    namespaces = ("--unshare-all", "--unshare-user", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev")
    try:
        trial = subprocess.run(  # noqa: S603  no shell
            (path, *namespaces, "--size", "65536", "--tmpfs", "/tmp", "true"),  # noqa: S108  of the trial
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TRIAL_S,
            check=False,
            cwd="/",
            user=trial_user,
            group=trial_user,
            extra_groups=None if trial_user is None else [],
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RuntimeUnavailable(f"{path} cannot be run: {error}") from None
    stderr = trial.stderr.decode("utf-8", "replace").strip()
    if "nknown option" in stderr:
        raise RuntimeUnavailable(f"bubblewrap 0.7 or later is needed, {path} is older ({stderr}): {_INSTALL}")
    if trial.returncode != 0:
        raise RuntimeUnavailable("\n".join([f"bubblewrap cannot make a sandbox here: {stderr}", *_advice()]))
    return path


def _advice() -> Iterator[str]:
    """Yield what turns user namespaces off here."""
    for name, off, command in _SWITCHES:
        setting = Path("/proc/sys") / name
        if setting.exists() and setting.read_text().strip() == off:
            yield f"unprivileged user namespaces are switched off by {name.replace('/', '.')}={off}; as root: {command}"
    if Path("/.dockerenv").exists() or Path("/run/.containerenv").exists():
        yield "in a container they need a seccomp profile that allows unshare, clone and mount, and an unmasked /proc"
