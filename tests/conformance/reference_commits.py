"""The reference server's commits: a dict of files each, in place of a git repository."""

import base64
import binascii
import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any

from protocol import Candidate, JsonValue
from protocol.code import ADDED_COMPONENTS, GIT_BRANCH, added_to, commit_of, git_branch
from protocol.errors import InvalidParams, MutationRejected, UnknownCandidate
from tests.conformance.reference_program import SEED, Bad

NEW_FILE = re.compile(r"^--- /dev/null\n\+\+\+ b/(.+)\n@@ -0,0 \+1 @@\n\+(.*)\n", re.MULTILINE)
OUTSIDE = re.compile(r"(^|/)(\.\.|\.git)(/|$)", re.IGNORECASE)
BUNDLE = re.compile(r"# v2 git bundle\n((?:-[0-9a-f]{40} .*\n)*)([0-9a-f]{40}) (\S+)\n\n(.*)", re.DOTALL)

Files = dict[str, str]


@dataclass(frozen=True)
class Made:
    """A mutation that was made: what was asked, and what it was answered."""

    asked: str
    answer: dict[str, Any]


class Commits:
    """Every commit there is, and what was made under which name. Without `offered` candidates name no commit."""

    def __init__(self, bad: Bad, *, offered: bool) -> None:
        self.bad = bad
        self.offered = offered
        self.first = identified({"program.txt": "conformance\n"}, [])
        self.files: dict[str, Files] = {self.first: {"program.txt": "conformance\n"}}
        self.made: dict[str, Made] = {}

    @property
    def seed(self) -> Candidate:
        """The seed candidate: the program's own components, and those two beside them."""
        if not self.offered:
            return dict(SEED)
        added = {} if self.bad("nothing_to_add_to") else {ADDED_COMPONENTS: "{}"}
        return SEED | {GIT_BRANCH: git_branch("main", self.first)} | added

    def check(self, candidate: Candidate) -> dict[str, str]:
        """The added texts of a candidate; refuses it if its commit is unknown or one of the two is malformed."""
        if not self.offered:
            return {}
        try:
            commit = commit_of(candidate)
        except ValueError as error:
            unread = {"commit": candidate[GIT_BRANCH]} if self.bad("any_git_branch") else {}
            raise UnknownCandidate(str(error), **unread) from error
        try:
            added = added_to(candidate)
        except ValueError as error:
            if self.bad("any_added"):
                return {}
            raise UnknownCandidate(str(error)) from error
        if added.keys() - SEED and self.bad("unused_are_unknown"):
            raise UnknownCandidate(unknown=sorted(added.keys() - SEED))
        if commit is not None and commit not in self.files:
            raise UnknownCandidate(**({} if self.bad("unknown_commit_unnamed") else {"commit": commit}))
        return added

    def given(self, candidate: Candidate) -> Candidate:
        """What the program is given of a candidate."""
        if not self.offered or self.bad("gives_everything"):
            return candidate
        added = added_to(candidate)
        return {name: candidate.get(name, added.get(name, text)) for name, text in SEED.items()}

    def outline(self, params: dict[str, Any]) -> JsonValue:
        """The answer to `outline_code`."""
        files = self.files[self.at(params["candidate"])]
        return {"outline": "" if self.bad("empty_outline") else "\n".join(files)}

    def at(self, candidate: Candidate) -> str:
        return commit_of(candidate) or self.first

    def apply(self, params: dict[str, Any]) -> JsonValue:
        """The answer to `apply_mutation`: the one made before under the name, or a new commit."""
        candidate, mutation, name = params["candidate"], params["mutation"], params.get("name")
        asked = json.dumps([candidate, mutation], sort_keys=True)
        number = len(self.made) if name is None else name["number"]
        branch = f"evolve/{'server' if name is None else name['run']}/{number}"
        made = self.made.get(branch)
        if made is not None and not self.bad("makes_again"):
            if made.asked != asked and not self.bad("ignores_mutation"):
                raise InvalidParams(errors=[{"path": "name", "message": "stands for another mutation"}])
            return made.answer
        try:
            files = self.edited(candidate, mutation)
        except MutationRejected:
            if self.bad("keeps_rejected_names"):
                self.made[branch] = Made(asked, {})
            raise
        answer = self.committed(candidate, files, branch, len(self.made))
        self.made[branch] = Made(asked, answer)
        return answer

    def edited(self, candidate: Candidate, mutation: dict[str, Any]) -> Files:
        """The files of the candidate's commit, changed."""
        files = self.files[self.at(candidate)]
        if mutation.get("kind") == "merge":
            self.check(mutation["other"])
            theirs = self.files[self.at(mutation["other"])]
            return {**files} if self.bad("keeps_ours") else {**theirs, **files}
        diff = mutation.get("diff", "")
        added = dict(NEW_FILE.findall(diff))
        if any(OUTSIDE.search(path) for path in added) and not self.bad("writes_anywhere"):
            raise MutationRejected(stage="paths", reason="outside of the tree")
        if added or (self.bad("takes_empty_patches") and "@@" not in diff):
            return {**files, **added}
        if "@@" in diff and self.bad("ignores_misfits"):
            return dict(files)
        stage = "edit" if "@@" in diff else "empty"
        raise MutationRejected(stage=stage, reason="it does not apply, or changes nothing")

    def committed(self, candidate: Candidate, files: Files, branch: str, count: int) -> dict[str, Any]:
        parent = self.at(candidate)
        commit = identified(files, [parent, str(count)] if self.bad("makes_again") else [parent])
        if not self.bad("forgets_new_commits"):
            self.files[commit] = files
        changed = {path: text for path, text in files.items() if self.files[parent].get(path) != text}
        texts = SEED if self.bad("texts_of_the_seed") else {}
        held = json.dumps({"files": files, "parents": [parent]})
        bundle = f"# v2 git bundle\n-{parent} \n{commit} refs/heads/{branch}\n\n{held}"
        return {
            "candidate": candidate | texts | {GIT_BRANCH: git_branch(branch, commit)},
            "commit": commit,
            "parent": parent,
            "diff": "".join(f"--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+{text}\n" for path, text in changed.items()),
            "files": list(changed),
            "summary": "as asked",
            "branch": branch,
            "bundle": base64.b64encode(b"PACK" if self.bad("half_bundles") else bundle.encode()).decode(),
        }

    def imported(self, params: dict[str, Any]) -> JsonValue:
        """The answer to `import_commits`."""
        commits = []
        for number, text in enumerate(params.get("bundles") or []):
            try:
                commits.append(self.unbundled(text))
            except ValueError as error:
                if self.bad("any_bundle") and "lacks" not in str(error):
                    continue
                raise InvalidParams(errors=[{"path": f"bundles[{number}]", "message": str(error)}]) from error
        return {"commits": commits}

    def unbundled(self, text: str) -> str:
        try:
            bundle = BUNDLE.fullmatch(base64.b64decode(text, validate=True).decode("utf-8", "replace"))
        except binascii.Error as error:
            raise ValueError("not base64") from error
        if bundle is None:
            raise ValueError("not a bundle")
        parents, commit, _, held = bundle.groups()
        absent = {line[1:41] for line in parents.splitlines()} - self.files.keys()
        if self.bad("parents_optional") and absent:
            return commit
        if absent:
            raise ValueError(f"lacks its parents {sorted(absent)}")
        content = json.loads(held)
        self.files[commit] = content["files"]
        return commit


def identified(files: Files, parents: list[str]) -> str:
    """The id of a commit with these files and parents."""
    return hashlib.sha1(json.dumps([files, parents]).encode(), usedforsecurity=False).hexdigest()
