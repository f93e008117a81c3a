"""Writing what others rely on."""

import contextlib
import glob
import sys
from pathlib import Path

from registry import attempt, files


def can_write(paths):
    for path in paths:
        with contextlib.suppress(OSError), open(path, "ab"):
            return path
    return None


@attempt
def write_our_code(example):
    ours = [
        path for path in files(".py") if "/rpc_server/" in path or "/protocol/" in path or "/sandbox_runtime/" in path
    ]
    standard = [path for entry in sys.path[1:] for path in glob.glob(entry + "/*.py")]
    return can_write([*ours, *standard])


def git_folders():
    found = []
    here = Path.cwd()
    for folder in (here, *here.parents):
        found += [path for path in (folder / ".git", folder / "program" / ".git") if path.exists()]
    return found


@attempt
def write_git_hooks(example):
    for git in git_folders():
        with contextlib.suppress(OSError):
            hooks = git / "hooks"
            hooks.mkdir(exist_ok=True)
            hook = hooks / "post-checkout"
            hook.write_text("#!/bin/sh\nexit 1\n")
            return hook
    return None


@attempt
def write_git_config(example):
    return can_write([git / name for git in git_folders() for name in ("config", "HEAD", "index")])


@attempt
def write_server_state(example):
    return can_write([path for path in files("") if "/.cache/" in path or "/state/" in path or "/trees/" in path])


@attempt
def write_the_journal(example):
    return can_write([example["journal"]])
