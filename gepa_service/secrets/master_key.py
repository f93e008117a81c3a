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
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

KEY_BYTES = 32
COMMAND_S = 30.0
"""How long a command may take to print the key."""

FILE_VARIABLE = "GEPA_SERVICE_MASTER_KEY_FILE"
VARIABLE = "GEPA_SERVICE_MASTER_KEY"
COMMAND_VARIABLE = "GEPA_SERVICE_MASTER_KEY_COMMAND"
SHELL = "/bin/sh"
METRICS = "metrics"
"""The purpose of the key, in hex digits, by which a collector reads the figures of the service."""


class MasterKeyError(Exception):
    """There is no usable master key, or it is not the one that the database was written with."""


@dataclass(frozen=True)
class MasterKey:
    """One key. `name`: derived from it, stored beside what it encrypts; it reveals nothing of the key."""

    value: bytes = field(repr=False)

    @property
    def name(self) -> str:
        """Return 12 hex digits that name the key."""
        return self.derived("master key name").hex()[:12]

    def derived(self, purpose: str) -> bytes:
        """Return the key of one purpose: who has it learns nothing of the master key."""
        return hmac.digest(self.value, f"evolverpc {purpose} 1".encode(), hashlib.sha256)


def master_keys(environment: Mapping[str, str]) -> tuple[MasterKey, ...]:
    """Return the keys from where the environment names, the present one first: a file, a variable or a command.

    Raises:
        MasterKeyError: it names none or several, or there is no usable key; the message holds no part of a key.
    """
    named = [name for name in (FILE_VARIABLE, VARIABLE, COMMAND_VARIABLE) if environment.get(name)]
    if len(named) != 1:
        given = " and ".join(named) or "none of them is set"
        raise MasterKeyError(f"set one of {FILE_VARIABLE}, {VARIABLE} and {COMMAND_VARIABLE}: {given}")
    value = environment[named[0]]
    if named == [FILE_VARIABLE]:
        return parse_keys(_file(Path(value)), value)
    if named == [COMMAND_VARIABLE]:
        return parse_keys(_printed(value), f"what {SHELL} prints")
    return parse_keys(value.encode("utf-8", "surrogateescape"), VARIABLE)


def _file(path: Path) -> bytes:
    """Return what a file holds that its owner alone may read."""
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if mode & 0o077:
                raise MasterKeyError(f"{path} may be read by others (mode {mode:03o}): chmod 600 {path}")
            return file.read()
    except OSError as error:
        raise MasterKeyError(f"the master key in {path} cannot be read: {error.strerror}") from error


def _printed(command: str) -> bytes:
    """Return what a command prints: it lets a key management service decrypt the keys."""
    try:
        done = subprocess.run([SHELL, "-c", command], capture_output=True, timeout=COMMAND_S, check=False)  # noqa: S603
    except subprocess.TimeoutExpired:
        raise MasterKeyError(f"the command of {COMMAND_VARIABLE} printed no master key in {COMMAND_S:.0f} s") from None
    except (OSError, ValueError) as error:
        raise MasterKeyError(
            f"the command of {COMMAND_VARIABLE}, which prints the master key, cannot be started: {error}"
        ) from error
    if done.returncode:
        raise MasterKeyError(
            f"the command of {COMMAND_VARIABLE}, which prints the master key, ended with status {done.returncode}"
        )
    return done.stdout


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


def create_key_file(path: Path) -> None:
    """Write a new key, readable by its owner, to a file that is not there yet. One process at a time calls this.

    Raises:
        MasterKeyError: the file cannot be written.
    """
    if path.exists():
        return
    draft = path.with_name(f".{path.name}.new")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(base64.b64encode(secrets.token_bytes(KEY_BYTES)) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        draft.rename(path)
    except OSError as error:
        raise MasterKeyError(f"no master key can be written to {path}: {error.strerror}") from error
