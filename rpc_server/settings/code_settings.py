"""Settings about code that evolves: worktrees of the program's commits, mutations, and the agents that make them."""

import shlex
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from evolverpc_common.settings.definition import SettingsGroup, constant, setting

Seconds = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]

_FOR_MUTATIONS = (
    *("agent_command", "agent_model", "agent_max_cost_usd", "agent_timeout_s"),
    *("check_command", "allow", "deny", "allow_tests", "push"),
)
_FOR_TREES = ("links", "tree_dir")
_FOR_CLAUDE = ("agent_model", "agent_max_cost_usd")


class CodeChangeSettings(SettingsGroup, title="Code"):
    """How the program's repository is used; unused unless `trees` or `allow_mutations` is set."""

    allow_mutations: bool = setting(
        False, "Let clients have the program's code changed, on branches of its repository.", everyday=True
    )
    trees: bool = setting(False, "Run candidates from the commit that they name, each in its own files.")
    check_command: tuple[str, ...] | None = setting(
        None, "Tests or lint that a mutation must pass: exit status 0 in the changed files.", parse=shlex.split
    )
    check_timeout_s: Seconds = constant(300.0, "Seconds for check_command.")
    build_command: tuple[str, ...] | None = setting(
        None,
        "Command to run in the program's folder before it starts, of each commit if code evolves.",
        parse=shlex.split,
    )
    build_timeout_s: Seconds = constant(600.0, "Seconds for build_command.")
    allow: tuple[str, ...] = setting(
        ("**",), "Glob of paths in the repository that mutations may change; repeatable.", metavar="GLOB"
    )
    deny: tuple[str, ...] = setting((), "Glob of paths that mutations may not change; repeatable.", metavar="GLOB")
    allow_tests: bool = setting(False, "Let mutations change tests, and what configures or runs check_command.")
    push: str | None = setting(None, "Git remote that finished branches are pushed to.", metavar="REMOTE")
    agent_command: tuple[str, ...] | None = setting(
        None, "Coding agent: reads the task on stdin, edits the files.", parse=shlex.split, shown="Claude, built in"
    )
    agent_model: str | None = setting(None, "Model of the built-in agent.", metavar="NAME", shown="Claude's own")
    agent_max_cost_usd: Annotated[float, Field(gt=0)] | None = setting(
        None, "US dollars that the built-in agent may spend on one mutation.", shown="no limit"
    )
    agent_timeout_s: Seconds = setting(1200.0, "Seconds that an agent may take for one mutation.")
    agent_max_turns: Count = constant(60, "Turns of the built-in agent for one mutation.")
    agent_tools: tuple[str, ...] = constant(
        ("Read", "Edit", "Write", "Glob", "Grep", "Bash"),
        "Tool that the built-in agent may use.",
    )
    max_mutations: Count = constant(8, "Mutations at the same time; more wait.")
    max_diff_bytes: Count = constant(256 * 2**10, "Bytes of a mutation's diff.")
    max_trees: Count = constant(20, "Commits that are ready to run at the same time, besides mutations' own.")
    tree_dir: Path | None = setting(
        None, "Folder for the files of commits.", rare=True, shown="the user's cache folder"
    )
    links: tuple[str, ...] = setting(
        (), "Untracked file or folder that each commit's files get a link to; repeatable.", metavar="PATH", rare=True
    )

    @property
    def has_trees(self) -> bool:
        """Whether candidates name commits."""
        return self.trees or self.allow_mutations

    @model_validator(mode="after")
    def _check_code(self) -> Self:
        given = self.model_fields_set
        for names, needed, there in (
            (_FOR_MUTATIONS, "allow_mutations", self.allow_mutations),
            (_FOR_TREES, "trees", self.has_trees),
        ):
            for name in names:
                if name in given and not there:
                    raise ValueError(f"`{name}` needs `{needed}`")
        if "allow_tests" in given and self.check_command is None:
            raise ValueError("`allow_tests` needs `check_command`")
        for name, command, instead in (
            ("agent_command", self.agent_command, " for Claude"),
            ("build_command", self.build_command, ""),
            ("check_command", self.check_command, ""),
        ):
            if command is not None and (not command or not command[0].strip()):
                raise ValueError(f"`{name}` is empty: name a command, or leave it out{instead}")
        for name in _FOR_CLAUDE:
            if name in given and self.agent_command is not None:
                raise ValueError(f"`{name}` is for the built-in agent, but `agent_command` names another")
        return self
