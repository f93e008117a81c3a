"""The supervisors of a job's containers, forked before the job process knows anything of its job."""

from collections.abc import Callable
from dataclasses import dataclass

from sandbox_runtime.backends.bubblewrap.daemon_process import Daemon, fork_daemon


@dataclass(frozen=True)
class Daemons:
    """One for the sandboxes, and one for the driver: each is used by another event loop."""

    of_sandboxes: Daemon
    of_driver: Daemon


def fork_daemons() -> Daemons | Callable[[], None]:
    """Fork both from this process, as `fork_daemon` does.

    Return them; in each of the forked processes, return what that must do as the last thing of its main program.
    """
    first = fork_daemon()
    if not isinstance(first, Daemon):
        return first
    second = fork_daemon()
    return Daemons(first, second) if isinstance(second, Daemon) else second
