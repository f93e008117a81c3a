"""Open a program from settings: its launcher, its pool and its description."""

import asyncio
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from evolverpc_common.files import no_such_file
from protocol import ProgramInfo
from protocol.errors import ProgramFailed
from rpc_server.jail.jail import Jail
from rpc_server.program.launcher import CommandLauncher, Launcher, PythonLauncher, find_interpreter, program_environment
from rpc_server.program.process_pool import Pool
from rpc_server.program.program import Program
from rpc_server.program.program_digest import command_identity, digest_settings
from rpc_server.program.scheduler import start_process
from rpc_server.settings import Settings, concerns

_WORKER_SETTINGS = (
    *("program", "adapter", "adapter_args", "name", "version", "concurrency"),
    *("trust_results", "model_hosts", "example_timeout_s", "max_trace_bytes", "metric", "inputs"),
)
"""Settings that the worker gets as they are."""


async def open_program(
    settings: Settings,
    *,
    digest_of: Settings | None = None,
    jail: Jail | None = None,
    make_launcher: Callable[[dict[str, Any]], Launcher] | None = None,
) -> Program:
    """Start the program and read its description. The caller closes it.

    `digest_of`: the settings that its digest covers, if it runs with others (paths of a worktree). `jail`: the jail of
    its processes. `make_launcher`: what starts it in place of processes, given the configuration of a worker.

    Raises:
        ProgramFailed: it cannot start; details `stage`, `message`, `log_tail`, `traceback`, and for Python programs
            `interpreter`, null if unknown.
    """
    try:
        stated = digest_settings(digest_of or settings, _seed_candidate(settings))
        config = _worker_config(settings, stated, jail)
        launcher = _launcher(settings, config, jail) if make_launcher is None else make_launcher(config)
        try:
            first = await start_process(launcher, settings.start_timeout_s)
            try:
                described = first.discovery.program
                identity = {"digest": described.digest, "files": described.files}
                if described.digest is None:
                    identity |= await asyncio.to_thread(command_identity, settings, stated)
                info = _info(settings, described, identity)
                size = _size(settings, launcher, is_single="refs" in first.discovery.capabilities)
                at_rest = min(size, settings.workers or _cores())
                return Pool(launcher, first, info, settings, size=size, at_rest=at_rest)
            except BaseException:
                await first.process.end(grace_s=0)
                raise
        except BaseException:
            await launcher.close()
            raise
    except ProgramFailed as error:
        raise _with_all_details(error, settings, in_process=make_launcher is not None) from error.__cause__


def _launcher(settings: Settings, config: dict[str, Any], jail: Jail | None) -> Launcher:
    env, root = program_environment(settings), settings.root.absolute()
    if settings.command is not None:
        return CommandLauncher(settings.command, root=root, env=env, jail=jail)
    return PythonLauncher(find_interpreter(settings), config, root=root, env=env, jail=jail)


def _worker_config(settings: Settings, stated: dict[str, Any], jail: Jail | None) -> dict[str, Any]:
    """Return the configuration that `rpc_server/worker/program_loading.py` reads."""
    return {
        **{name: getattr(settings, name) for name in _WORKER_SETTINGS},
        **settings.dspy.model_dump(),
        "root": str(settings.root.absolute()),
        "kind": settings.is_a,
        "seed_candidate": stated["seed_candidate"],
        "saved_program": None if settings.saved_program_json_path is None else str(settings.saved_program_json_path),
        "threads": _threads(settings),
        "prefers_forks": settings.workers is None or "concurrency" not in settings.model_fields_set,
        "digested": stated,
        "jailed": jail is not None,
    }


def _threads(settings: Settings) -> int:
    """Return how many examples a process that runs several at once takes."""
    if settings.is_a == "adapter" and "concurrency" not in settings.model_fields_set:
        return 1  # few adapters are safe in threads
    processes = settings.workers or _cores() if concerns("workers", settings.is_a) else 1
    return math.ceil(settings.concurrency / processes)


def _seed_candidate(settings: Settings) -> dict[str, str] | None:
    if not isinstance(settings.seed_candidate, Path):
        return settings.seed_candidate
    path = settings.root / settings.seed_candidate
    try:
        seed = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ProgramFailed(no_such_file(path), stage="seed_candidate") from None
    except (OSError, ValueError) as error:
        raise ProgramFailed(f"cannot read {path}: {error}", stage="seed_candidate") from None
    if not isinstance(seed, dict) or not all(isinstance(text, str) for text in seed.values()):
        raise ProgramFailed(f"{path} is not a JSON object of texts", stage="seed_candidate")
    return seed


def _size(settings: Settings, launcher: Launcher, *, is_single: bool) -> int:
    """Return one process for async functions, which share it, one for each example if it is a fork, else one a core.

    `is_single`: the program keeps what its refs name in its one process, for which some settings have no effect.
    """
    if is_single:
        if settings.workers not in (None, 1):
            raise ProgramFailed("`workers`: the program offers `refs`, so it has one process", stage="settings")
        if settings.is_a == "command" and "max_trace_bytes" in settings.model_fields_set:
            message = "`max_trace_bytes`: the program offers `refs`, so it keeps them itself"
            raise ProgramFailed(message, stage="settings")
        return 1
    if settings.workers is not None:
        return settings.workers
    if isinstance(launcher, PythonLauncher) and launcher.mode == "async":
        return 1
    is_forked = isinstance(launcher, PythonLauncher) and launcher.forks and launcher.mode == "sync"
    return settings.concurrency if is_forked else min(_cores(), settings.concurrency)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _info(settings: Settings, described: ProgramInfo, identity: dict[str, Any]) -> ProgramInfo:
    """Return the program's own description, overridden by the settings, with its identity."""
    seed = _seed_candidate(settings) or described.seed_candidate
    if seed and not described.seed_candidate:
        raise ProgramFailed("the program only scores: it has no components", stage="seed_candidate")
    if seed.keys() != described.seed_candidate.keys():
        names = ", ".join(described.seed_candidate)
        raise ProgramFailed(f"the setting's components are not the program's: {names}", stage="seed_candidate")
    return described.model_copy(
        update={
            "name": settings.name or described.name,
            "version": settings.version or described.version,
            **identity,
            "seed_candidate": seed,
        }
    )


def _with_all_details(error: ProgramFailed, settings: Settings, *, in_process: bool) -> ProgramFailed:
    for name in ("log_tail", "traceback"):
        error.details.setdefault(name, None)
    if settings.command is None and not in_process:
        error.details.setdefault("interpreter", str(find_interpreter(settings)))
    error.details["message"] = error.message
    return error
