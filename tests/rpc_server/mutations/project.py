"""A user's repository with a small program in it, things beside it that must stay as they are, and their digest."""

import hashlib
import os
import stat
import subprocess
from pathlib import Path

APP = '''\
"""Answer with the greeting."""

from texts import TEXTS

seed_candidate = dict(TEXTS)


def run(example, candidate):
    return candidate["greeting"]


def score(example, output):
    return 1.0
'''

FILES: dict[str, str | bytes] = {
    "app.py": APP,
    "texts.py": 'TEXTS = {"greeting": "hello"}\n',
    "notes/one.txt": "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\nten\n",
    "notes/dos.txt": "one\r\ntwo\r\nthree\r\n",
    "notes/latin.txt": b"caf\xe9\n",
    "tools/run.sh": "#!/bin/sh\necho ran\n",
    "data/blob.bin": bytes(range(256)) * 4,
    "secrets/key.txt": "key\n",
    ".gitignore": "*.log\n__pycache__/\ncache/\n",
    ".gitattributes": "*.bin binary\n",
}


class Project:
    """`folder` is the repository; `beside` is what nothing may touch."""

    def __init__(self, place: Path, files: dict[str, str | bytes] = FILES, *, links: bool = False) -> None:
        self.folder = place / "project"
        self.beside = place / "beside"
        self.beside.mkdir(parents=True)
        (self.beside / "canary.txt").write_text("sings\n")
        self.folder.mkdir()
        self.git("init", "--quiet", "--initial-branch=main")
        self.write(files)
        if links:
            (self.folder / "tools/run.sh").chmod(0o755)
            (self.folder / "notes/link.txt").symlink_to("one.txt")
            (self.folder / "inner").symlink_to("notes")
        self.first = self.commit("The first")
        (self.folder / "uncommitted.txt").write_text("mine\n")

    def git(self, *arguments: str, **options: object) -> str:
        who = ["-c", "user.name=User", "-c", "user.email=user@example.org"]
        done = subprocess.run(
            ["git", *who, *arguments], cwd=self.folder, check=True, capture_output=True, text=True, **options
        )  # type: ignore[call-overload]
        return str(done.stdout).strip()

    def write(self, files: dict[str, str | bytes]) -> None:
        for name, content in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())

    def commit(self, message: str) -> str:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", message)
        return self.git("rev-parse", "HEAD")

    def branches(self) -> dict[str, str]:
        """Everything that mutations made: commit or blob by ref."""
        lines = self.git("for-each-ref", "--format=%(refname) %(objectname)", "refs/heads/evolve", "refs/evolverpc")
        return dict(line.split(" ") for line in lines.splitlines())

    def digest(self) -> str:
        """Of everything of the user's but objects, the refs that mutations make, and what Python caches of `.venv`."""
        digest = hashlib.sha256()
        for top in (self.folder, self.beside):
            for path in sorted(Path(folder, name) for folder, _, names in os.walk(top) for name in names):
                inside = path.relative_to(top).as_posix()
                if inside.startswith((".git/objects", ".git/refs/heads/evolve", ".git/refs/evolverpc")):
                    continue
                if inside.startswith(".venv/") and "__pycache__" in path.parts:
                    continue
                status = path.lstat()
                content = os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes()
                digest.update(f"{inside} {stat.S_IMODE(status.st_mode):o} {len(content)}\n".encode(errors="replace"))
                digest.update(content)
        return digest.hexdigest()
