"""The program's repository on the user's machine: the one file of the client that runs git.

A run's record holds untrusted data. Names reach git as whole refs of one known form, ids as hex digits alone, and git
checks bundles before any branch names their content. A working tree may hold files that an agent wrote, so git runs
without hooks, filters, fsmonitor, textconv, external diffs, submodules and network.
"""

import posixpath
import re
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from evolverpc_common.evolved_commits import ANSWERS, BRANCH, COMMIT, read_bundle
from evolverpc_common.git import Git, GitError, alternate_objects, filters_off

_GIT = "git reads it on every check-out, commit or diff"
_HOOKS = "a hook that git runs, or that a hook manager installs"
_SHELL = "a shell extension runs it when you enter the folder"
_EDITOR = "an editor or coding agent runs it when you open the folder"
_CI = "a CI service runs it when you push"
_TOOL = "an install, build or test command runs it"

_NAMES = {
    _GIT: r"\.gitattributes|\.gitmodules|\.gitconfig|\.lfsconfig",
    _HOOKS: (
        r"\.?lefthook(-local)?\.\w+|\.pre-commit-config\.yaml|\.overcommit\.yml|\.lintstagedrc.*|\.simple-git-hooks\..*"
    ),
    _SHELL: r"\.envrc|\.?mise(\.\w+)?\.toml|\.tool-versions|\.autoenv(\.zsh)?",
    _EDITOR: r"\.mcp\.json|\.exrc|\.n?vim(rc|\.lua)|\.dir-locals\.el|[^/]+\.code-workspace",
    _CI: r"\.gitlab-ci\.yml|jenkinsfile|\.travis\.yml|azure-pipelines\.yml|bitbucket-pipelines\.yml",
    _TOOL: (
        r"(gnu)?makefile|justfile|\.justfile|taskfile\.ya?ml|rakefile|cmakelists\.txt|build\.rs|build\.gradle(\.kts)?|"
        r"package\.json|\.npmrc|\.yarnrc(\.yml)?|\.pnpmfile\.cjs|setup\.(py|cfg)|pyproject\.toml|tox\.ini|noxfile\.py|"
        r"conftest\.py|pytest\.ini|sitecustomize\.py|usercustomize\.py|[^/]+\.pth|"
        r"(vite|vitest|jest|webpack|rollup|eslint|babel|next|playwright)\.config\.\w+"
    ),
}
_FOLDERS = {
    _HOOKS: r"\.husky|\.githooks|\.git-hooks|githooks",
    _SHELL: r"\.config/mise|\.mise|\.direnv",
    _EDITOR: r"\.vscode|\.idea|\.devcontainer|\.claude|\.cursor|\.gemini|\.codex|\.zed",
    _CI: r"\.github/workflows|\.github/actions|\.circleci|\.gitlab|\.buildkite",
}

_KNOWN = [
    *((reason, re.compile(rf"(?:.*/)?(?:{names})")) for reason, names in _NAMES.items()),
    *((reason, re.compile(rf"(?:.*/)?(?:{names})/.*", re.DOTALL)) for reason, names in _FOLDERS.items()),
]
_PATH = re.compile(r"[^\s'\"`;|&()<>=,:$!]+")
_COMMANDS = re.compile(
    r"alias\..*|.*\.(hookspath|fsmonitor|sshcommand|editor|pager|askpass|clean|smudge|process|command|textconv|external|"
    r"driver|cmd|helper|program|path|difffilter|attributesfile|alternaterefscommand|packobjectshook)",
    re.DOTALL,
)
"""Settings of git whose values are commands, or files and folders that git obeys."""


class LocalCheckout:
    """The git repository that `folder` is in.

    Raises:
        GitError: there is no git, or no repository; as every method does if git fails.
    """

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise GitError(f"{folder}: no such folder")
        self._folder = folder
        self._git = Git(folder)
        self.has = self._git.has
        try:
            self.top = Path(self._git.line("rev-parse", "--show-toplevel"))
        except GitError as error:
            raise GitError(
                f"{folder} is in no git repository with files; name it with --repo PATH ({error})"
            ) from error

    def changed(self) -> list[str]:
        """Tracked files that differ from the commit that is checked out."""
        return self._git.within(settings=self._no_filters()).changed()

    def way_back(self) -> tuple[str, ...]:
        """Return what `git switch` needs to return to the present checkout: a branch, or a detached commit."""
        try:
            return (self._git.line("symbolic-ref", "--quiet", "--short", "HEAD"),)
        except GitError:
            return ("--detach", self.head())

    def head(self) -> str:
        """Return the full id of the commit that is checked out."""
        return self._git.line("rev-parse", "--verify", "HEAD")

    def make_branch(self, branch: str, commit: str, bundles: Iterable[bytes]) -> None:
        """Make the branch at the commit, which the bundles bring if it is not here; that it is there already is fine.

        Nothing is made of a commit that is not whole, and no branch is moved.
        """
        ref = _ref(branch)
        there = self._git.refs(ref).get(ref)
        if there is not None and there != commit:
            raise GitError(f"the branch {branch} is there already, at another commit ({there[:12]}): rename it first")
        _bring(self._git, commit, bundles)
        if there is None:
            self._git.update_refs([f"create {ref} {commit}"])

    def switch(self, branch: str) -> None:
        """Check the branch out without hooks and filters; git refuses rather than write over a file."""
        _ref(branch)
        self._git.within(settings=self._no_filters())("switch", "--quiet", "--no-guess", branch)

    def filtered(self, before: str, after: str) -> dict[str, str]:
        """Filter by path, of the files that differ between two commits, by the attributes of the checked-out tree."""
        paths = self._differing(before, after)
        listed = "".join(f"{path}\0" for path in paths).encode("utf-8", "surrogateescape")
        fields = self._git.fields("check-attr", "-z", "--stdin", "filter", stdin=listed)
        filters = self._no_filters()
        found = zip(fields[::3], fields[2::3], strict=True)
        return {path: name for path, name in found if f"filter.{name}.smudge" in filters}

    def run_unasked(self, before: str, after: str) -> dict[str, str]:
        """Return reasons by path, for the files that differ between two commits and that programs run by themselves.

        A file that a command in git's settings names counts too, and one that git reads its settings from. Case does
        not count, as on some file systems.
        """
        settings = self._configuration()
        named = {
            _relative(word, str(self.top)): f"your git configuration names it ({name})"
            for _, name, value in settings
            if _COMMANDS.fullmatch(name.lower())
            for word in _PATH.findall(value)
        }
        included = self._included(origin for origin, _, _ in settings)
        named |= {path.lower(): "git reads its configuration from it" for path in included}
        found = {path: _reason(path.lower(), named) for path in self._differing(before, after)}
        return {path: reason for path, reason in sorted(found.items()) if reason is not None}

    def _differing(self, before: str, after: str) -> list[str]:
        """Return the paths that differ between two commits."""
        commits = (_checked_commit(before), _checked_commit(after))
        return self._git.fields("diff-tree", "-r", "--no-renames", "--name-only", "-z", *commits)

    def _configuration(self) -> list[tuple[str, str, str]]:
        """Return the user's settings in force here: where each is set, its full name, and its value."""
        fields = self._git.fields("config", "--list", "--show-scope", "--show-origin", "-z")
        each = zip(fields[::3], fields[1::3], fields[2::3], strict=True)
        parts = [(origin, text.partition("\n")) for scope, origin, text in each if scope != "command"]
        return [(origin, name, value) for origin, (name, _, value) in parts]

    def _included(self, origins: Iterable[str]) -> list[str]:
        """Return those of the origins of settings that are files of the working tree, as paths from the top."""
        top, git_dir = self.top.resolve(), Path(self._git.line("rev-parse", "--absolute-git-dir")).resolve()
        files = {(self._folder / name.removeprefix("file:")).resolve() for name in origins if name.startswith("file:")}
        inside = (file for file in files if file.is_relative_to(top) and not file.is_relative_to(git_dir))
        return [file.relative_to(top).as_posix() for file in inside]

    def _no_filters(self) -> dict[str, str]:
        """Return settings that turn off every configured filter."""
        return filters_off(name for _, name, _ in self._configuration())

    def diff(self, before: str, after: str, bundles: Iterable[bytes]) -> str:
        """Return the unified diff between two commits, which are imported from the bundles temporarily."""
        objects = self._git.line("rev-parse", "--path-format=absolute", "--git-path", "objects")
        with tempfile.TemporaryDirectory(prefix="gepa-objects-") as folder:
            aside = self._git.within(self.top, {"GIT_OBJECT_DIRECTORY": folder, **alternate_objects(objects)})
            _bring(aside, after, bundles)
            printed = aside(
                *("diff", "--no-color", "--no-ext-diff", "--no-textconv", "--find-renames"),
                *(_checked_commit(before), _checked_commit(after), "--"),
            )
            return printed.decode("utf-8", "surrogateescape")

    def branches(self, run: str) -> dict[str, str]:
        """Return the run's branches with their commits."""
        _ref(f"evolve/{run}/0")  # which raises for any other name
        found = self._git.refs(f"refs/heads/evolve/{run}/")
        return {ref.removeprefix("refs/heads/"): commit for ref, commit in found.items()}

    def runs(self, prefix: str) -> list[str]:
        """Return the runs whose names begin with `prefix` and that have branches here, in order."""
        heads = self._git.refs("refs/heads/evolve/")
        named = {ref.removeprefix("refs/heads/evolve/").partition("/")[0] for ref in heads}
        return sorted(run for run in named if run.startswith(prefix))

    def checked_out(self) -> set[str]:
        """Return the branches that are checked out in some working tree."""
        printed, head = self._git.line("worktree", "list", "--porcelain"), "branch refs/heads/"
        return {line.removeprefix(head) for line in printed.split("\n") if line.startswith(head)}

    def delete(self, run: str, *, but: str | None) -> tuple[list[str], list[str]]:
        """Delete the run's branches, and the refs its server added beside them, atomically; keep the branch `but`.

        Returns:
            The branches that were deleted, and those that stay because they are checked out somewhere.
        """
        own = self.branches(run)
        stay = own.keys() & self.checked_out() - {but}
        gone = {branch: commit for branch, commit in own.items() if branch != but and branch not in stay}
        notes = {
            ref: value
            for ref, value in self._git.refs(f"{ANSWERS}{run}/").items()
            if f"evolve/{ref.removeprefix(ANSWERS)}" not in {but, *stay}
        }
        refs = {f"refs/heads/{branch}": commit for branch, commit in gone.items()} | notes
        self._git.update_refs(f"delete {ref} {value}" for ref, value in refs.items())
        return sorted(gone), sorted(stay)


def _bring(git: Git, commit: str, bundles: Iterable[bytes]) -> None:
    """Take over a commit from bundles, parents first, without branches, if git finds nothing wrong with any part."""
    for bundle in () if git.has(commit) else bundles:
        given = read_bundle(bundle, git.has)
        if not all(map(git.has, given.heads.values())):
            git("index-pack", "--stdin", "--fix-thin", "--strict", stdin=given.pack)
    if not git.has(commit):
        raise GitError(
            f"the commit {commit[:12]} is not here, and the record has no bundle that holds it: "
            "it is in the repository of the server that made it"
        )


def holds_commit(folder: Path, commit: str) -> bool:
    """Whether `folder` is in a git repository that has the commit."""
    try:
        return LocalCheckout(folder).has(commit)
    except GitError:
        return False


def _ref(branch: str) -> str:
    if BRANCH.fullmatch(branch) is None:
        raise GitError(f"{branch!r:.120} is not a branch of a run: evolve/RUN/NUMBER")
    return f"refs/heads/{branch}"


def _checked_commit(commit: str) -> str:
    if COMMIT.fullmatch(commit) is None:
        raise GitError(f"{commit!r:.80} is not the full id of a commit")
    return commit


def _relative(word: str, top: str) -> str:
    return posixpath.normpath(word.removeprefix(f"{top}/")).lower()


def _reason(path: str, named: Mapping[str, str]) -> str | None:
    above = path
    while above:
        if above in named:
            return named[above]
        above = posixpath.dirname(above)
    return next((reason for reason, pattern in _KNOWN if pattern.fullmatch(path)), None)
