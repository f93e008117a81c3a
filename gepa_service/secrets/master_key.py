"""The master key of a service: from a file, the environment, or a command, such as one of a key management service.

It encrypts the keys of tenants and signs, through a derived key, the tokens of jobs. While it is replaced, several keys
are listed: the first encrypts, all of them decrypt.
"""

import base64
import binascii
import hashlib
import hmac
import os
import secrets
import stat
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

KEY_BYTES = 32
COMMAND_S = 30.0
"""How long a command may take to print the key."""

FILE_VARIABLE = "GEPA_SERVICE_MASTER_KEY_FILE"
VARIABLE = "GEPA_SERVICE_MASTER_KEY"
COMMAND_VARIABLE = "GEPA_SERVICE_MASTER_KEY_COMMAND"


class MasterKeyError(Exception):
    """There is no usable master key, or it is not the one that the database was written with."""


@dataclass(frozen=True)
class MasterKey:
    """One key. `name`: derived from it, stored beside what it encrypts; it reveals nothing of the key."""

    value: bytes = field(repr=False)

    @property
    def name(self) -> str:
        """Return 12 hex digits that name the key."""
        return hmac.digest(self.value, b"evolverpc master key name 1", hashlib.sha256).hex()[:12]


class MasterKeySource(Protocol):
    """Where the master key comes from."""

    def read(self) -> tuple[MasterKey, ...]:
        """Return the keys, the present one first. Raises `MasterKeyError`."""
        ...


@dataclass(frozen=True)
class FileSource:
    """A file with one key a line, readable by its owner alone."""

    path: Path

    def read(self) -> tuple[MasterKey, ...]:
        """Return the keys. Raises `MasterKeyError`, also if others may read the file."""
        try:
            with self.path.open("rb") as file:
                mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
                if mode & 0o077:
                    raise MasterKeyError(f"{self.path} may be read by others (mode {mode:03o}): chmod 600 {self.path}")
                return parse_keys(file.read(), str(self.path))
        except OSError as error:
            raise MasterKeyError(f"the master key in {self.path} cannot be read: {error.strerror}") from error


@dataclass(frozen=True)
class EnvironmentSource:
    """A variable of the environment, with one key a line."""

    environment: Mapping[str, str] = field(repr=False)
    variable: str = VARIABLE

    def read(self) -> tuple[MasterKey, ...]:
        """Return the keys. Raises `MasterKeyError`."""
        text = self.environment.get(self.variable)
        if text is None:
            raise MasterKeyError(f"there is no variable {self.variable}")
        return parse_keys(text.encode("utf-8", "surrogateescape"), self.variable)


@dataclass(frozen=True)
class CommandSource:
    """A command that prints the keys, one a line: it lets a key management service decrypt them."""

    command: Sequence[str]

    def read(self) -> tuple[MasterKey, ...]:
        """Return the keys. Raises `MasterKeyError`; the message holds nothing that the command printed."""
        name = self.command[0]
        try:
            done = subprocess.run(self.command, capture_output=True, timeout=COMMAND_S, check=False)  # noqa: S603
        except subprocess.TimeoutExpired:
            raise MasterKeyError(f"{name} printed no master key in {COMMAND_S:.0f} s") from None
        except (OSError, ValueError) as error:
            raise MasterKeyError(f"{name}, which prints the master key, cannot be started: {error}") from error
        if done.returncode:
            raise MasterKeyError(f"{name}, which prints the master key, ended with status {done.returncode}")
        return parse_keys(done.stdout, f"what {name} prints")


def parse_keys(text: bytes, where: str) -> tuple[MasterKey, ...]:
    """Return the keys of a text: one a line, 32 bytes in base64. Raises `MasterKeyError`, which quotes nothing."""
    keys = []
    for line in text.split():
        try:
            value = base64.b64decode(line, validate=True)
        except (binascii.Error, ValueError):
            value = b""
        if len(value) != KEY_BYTES:
            raise MasterKeyError(
                f"{where} holds no master key: {KEY_BYTES} bytes in base64, as `openssl rand -base64 32` prints them"
            )
        keys.append(MasterKey(value))
    if not keys:
        raise MasterKeyError(f"{where} is empty: write a master key there, as `openssl rand -base64 32` prints it")
    return tuple(keys)


def source_of(environment: Mapping[str, str]) -> MasterKeySource:
    """Return the source that the environment names. Raises `MasterKeyError` if it names none or several."""
    named = [name for name in (FILE_VARIABLE, VARIABLE, COMMAND_VARIABLE) if environment.get(name)]
    match named:
        case ["GEPA_SERVICE_MASTER_KEY_FILE"]:
            return FileSource(Path(environment[FILE_VARIABLE]))
        case ["GEPA_SERVICE_MASTER_KEY"]:
            return EnvironmentSource(environment)
        case ["GEPA_SERVICE_MASTER_KEY_COMMAND"]:
            return CommandSource(("/bin/sh", "-c", environment[COMMAND_VARIABLE]))
    given = " and ".join(named) or "none of them is set"
    raise MasterKeyError(f"set one of {FILE_VARIABLE}, {VARIABLE} and {COMMAND_VARIABLE}: {given}")


def create_key_file(path: Path) -> bool:
    """Write a new key to a file that does not exist yet, readable by its owner; return whether it was written.

    Raises:
        MasterKeyError: the file cannot be written.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(base64.b64encode(secrets.token_bytes(KEY_BYTES)) + b"\n")
                file.flush()
                os.fsync(file.fileno())
            os.link(draft, path)  # of two processes at once, one creates it, whole
        except FileExistsError:
            return False
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise MasterKeyError(f"no master key can be written to {path}: {error.strerror}") from error
    return True
