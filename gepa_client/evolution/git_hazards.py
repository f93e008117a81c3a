"""Names the files of a change that programs run though the user does not name them: git, shells, editors, tools."""

import posixpath
import re
from collections.abc import Iterable, Mapping

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


def run_unasked(
    paths: Iterable[str], configuration: Iterable[tuple[str, str]], included: Iterable[str], top: str
) -> dict[str, str]:
    """Return reasons by path, for those of `paths` that programs run or obey though the user does not name them.

    `paths` and `included`, the files that git reads its configuration from, are relative to `top`, the absolute path of
    the working tree. `configuration`: git's settings, as names and values; a file that a command in them names counts
    too. Case does not count, as on some file systems.
    """
    named = {
        _relative(word, top): f"your git configuration names it ({name})"
        for name, value in configuration
        if _COMMANDS.fullmatch(name.lower())
        for word in _PATH.findall(value)
    }
    named |= {path.lower(): "git reads its configuration from it" for path in included}
    found = {path: _reason(path.lower(), named) for path in paths}
    return {path: reason for path, reason in sorted(found.items()) if reason is not None}


def _relative(word: str, top: str) -> str:
    return posixpath.normpath(word.removeprefix(f"{top}/")).lower()


def _reason(path: str, named: Mapping[str, str]) -> str | None:
    above = path
    while above:
        if above in named:
            return named[above]
        above = posixpath.dirname(above)
    return next((reason for reason, pattern in _KNOWN if pattern.fullmatch(path)), None)
