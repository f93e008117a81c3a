"""The folder of a service on one machine: its databases and its master key, for one `up` at a time."""

import contextlib
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from evolverpc_common.files import lock_if_free
from gepa_service.cli.service_parts import ConfigurationError

PRIVATE = 0o700
OTHERS = 0o077


@dataclass(frozen=True)
class DataFolder:
    """The files of a service. `path`: absolute."""

    path: Path

    @property
    def ignored(self) -> Path:
        """Keeps the folder out of a git repository that it is in."""
        return self.path / ".gitignore"

    @property
    def records(self) -> Path:
        """The database of tenants, jobs and versions."""
        return self.path / "records.db"

    @property
    def journals(self) -> Path:
        """The store of runs."""
        return self.path / "journals.db"

    @property
    def master_key(self) -> Path:
        """The master key."""
        return self.path / "master.key"

    @property
    def work(self) -> Path:
        """The folder of jobs."""
        return self.path / "work"


@contextlib.contextmanager
def opened_folder(path: Path) -> Iterator[DataFolder]:
    """Create the folder if it is absent, readable by its owner alone, and hold it while the block runs.

    Raises:
        ConfigurationError: it cannot be used, others may read it, or another process holds it.
    """
    folder = DataFolder(path.absolute())
    try:
        folder.path.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        if not folder.ignored.exists():
            folder.ignored.write_text("*\n")
        mode = stat.S_IMODE(folder.path.stat().st_mode)
        if mode & OTHERS:
            raise ConfigurationError(f"{path} may be read by others (mode {mode:03o}): chmod 700 {path}")
        if folder.records.exists() and not folder.master_key.exists():
            raise ConfigurationError(
                f"{folder.master_key} is missing, and secrets in {path} were encrypted by it: put it back, "
                "or give another --data"
            )
        with lock_if_free(folder.path / "lock") as is_free:
            if not is_free:
                raise ConfigurationError(f"a service runs in {path} already: end it, or give another --data")
            yield folder
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be used: {error.strerror or error}") from None
