"""A run whose code evolved, as a store keeps it, with a real repository and the bundles of its commits."""

import base64
import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import orjson

from gepa_client.journal.entries import EVENTS, SEARCH, CandidateRecord, Entry, Row
from gepa_client.journal.run_events import Decision
from gepa_client.journal.store import open_store
from protocol.code import ADDED_COMPONENTS, GIT_BRANCH, added_components, git_branch
from tests.gepa_client.example_records import NASTY
from tests.gepa_client.stored_run import RUN_ID, Made, decisions, entry_of

PROGRAM = "def answer(text):\n    return text\n"
AUTHOR = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "Test"), ("EMAIL", "test@example.invalid"), ("DATE", "2026-01-02T03:04:05Z"))
}


def git(folder: Path, *arguments: str, given: bytes | None = None) -> str:
    """Return what git prints, independent of the configuration of the user."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment = {**kept, **AUTHOR, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    command = ["git", "-C", str(folder), *arguments]
    ended = subprocess.run(command, env=environment, input=given, capture_output=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr.decode()
    return ended.stdout.decode("utf-8", "replace")


def new_repository(folder: Path) -> str:
    """A repository with one commit on `main`; its id."""
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet", "--initial-branch", "main")
    (folder / "program.py").write_text(PROGRAM)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "The program as it was found")
    return git(folder, "rev-parse", "HEAD").strip()


@dataclass
class StoredCode:
    """Builds a run of four changes: 1 kept, 3 (from 1) kept and the best, 4 (from 1) dropped, 6 rejected.

    `also`: further executable files of the best change, content by path. `events`: what follows its candidates.

    They are made in a server's repository; `user` is a clone from before them, as on the machine of a user.
    """

    folder: Path
    run_id: str = RUN_ID
    status: str = "completed"
    texts_evolved: bool = False
    also: dict[str, str] = field(default_factory=dict)
    events: Sequence[Decision] = ()
    seed: str = field(init=False)
    commits: dict[int, str] = field(default_factory=dict, init=False)
    _entries: dict[int, dict[str, Any]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.server = self.folder / "server"
        self.user = self.folder / "user"
        self.seed = new_repository(self.server)
        git(self.folder, "clone", "--quiet", str(self.server), str(self.user))
        self._change(1, self.seed, "print it twice\nand mean it", PROGRAM.replace("return text", "return text + text"))
        louder = PROGRAM.replace("return text", "return (text + text).upper()")
        self._change(3, self.commits[1], "print it louder", louder, self.also)
        self._change(4, self.commits[1], "be silent", "\udce9\n")  # no UTF-8
        self._entries[6] = self._asked("delete the tests", self.seed) | {
            "rejected": {"stage": "paths", "reason": f"tests/ may not change {NASTY}", "diff": "--- a/x\n+++ b/x\n"}
        }

    def branch(self, number: int) -> str:
        return f"evolve/{self.run_id}/{number}"

    def applied(self, number: int) -> dict[str, Any]:
        """What the server answered to the change of this number."""
        found: dict[str, Any] = self._entries[number]["applied"]
        return found

    def into(self, store: Path) -> None:
        """Write it into the store at this path."""
        made = Made(run_id=self.run_id, status=self.status)
        scores = {0: 0.25, 1: 0.5, 2: 0.75}
        run = made.run()
        texts = {0: (self.seed, "main"), 1: (self.commits[1], self.branch(1)), 2: (self.commits[3], self.branch(3))}
        rows: list[Row] = [row for row in made.rows() if isinstance(row, Entry) and row.part == "start"]
        rows += [
            Entry(SEARCH, number, "mutation", f"m{number}", f"mutate {number}", orjson.dumps(answer))
            for number, answer in self._entries.items()
        ]
        pool = [
            CandidateRecord(
                index=index,
                texts={
                    "rules": "louder" if self.texts_evolved and index == 2 else "",
                    GIT_BRANCH: git_branch(branch, commit),
                    ADDED_COMPONENTS: added_components({}),
                },
                parents=[index - 1] if index else [],
                iteration=index,
                number=index * 2,
                score=scores[index],
                scores={},
                metric_calls=index * 6,
            )
            for index, (commit, branch) in texts.items()
        ]
        with closing(open_store(str(store))) as opened:
            later = enumerate(self.events, len(pool))
            added = [entry_of(EVENTS, number, each.event, "", each.model_dump()) for number, each in later]
            opened.create(run, [*rows, *decisions(pool), *added])

    def _asked(self, request: str, parent: str) -> dict[str, Any]:
        return {"kind": "change_request", "request": request, "parent": parent}

    def _change(
        self, number: int, parent: str, request: str, text: str, also: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        branch = self.branch(number)
        committer = f"{AUTHOR['GIT_COMMITTER_NAME']} <{AUTHOR['GIT_COMMITTER_EMAIL']}> 1767323045 +0000"
        made = f"commit refs/heads/{branch}\ncommitter {committer}\ndata <<END\n{request}\nEND\nfrom {parent}\n"
        for mode, path, content in (("644", "program.py", text), *(("755", *each) for each in also.items())):
            made += f"M {mode} inline {path}\ndata <<END\n{content}END\n"
        git(self.server, "fast-import", "--quiet", given=made.encode("utf-8", "surrogateescape"))
        commit = git(self.server, "rev-parse", branch).strip()
        git(self.server, "bundle", "create", "--quiet", "bundle", f"{parent}..{branch}")
        bundle = base64.b64encode((self.server / "bundle").read_bytes()).decode()
        (self.server / "bundle").unlink()
        self.commits[number] = commit
        self._entries[number] = self._asked(request, parent) | {
            "applied": {
                "candidate": {},
                "commit": commit,
                "parent": parent,
                "diff": git(self.server, "diff", parent, commit),
                "files": ["program.py"],
                "summary": f"as asked: {request}",
                "branch": branch,
                "bundle": bundle,
            }
        }
