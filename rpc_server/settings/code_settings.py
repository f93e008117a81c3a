"""Settings about code that evolves: trees of the program's commits, mutations, and the agents that make them."""

from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, Field, model_validator

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]

_FOR_MUTATIONS = (
    *("agent_command", "agent_model", "agent_tools", "agent_max_turns", "agent_max_cost_usd"),
    *(
        "agent_timeout_s",
        "check_command",
        "check_timeout_s",
        "allow",
        "deny",
        "allow_tests",
        "max_diff_bytes",
        "max_mutations",
        "push",
    ),
)
_FOR_TREES = ("build_command", "build_timeout_s", "links", "max_trees", "tree_dir")
_FOR_CLAUDE = ("agent_model", "agent_tools", "agent_max_turns", "agent_max_cost_usd")


class CodeSettings(BaseModel):
    """How the program's repository is used; all of it at rest unless `trees` or `allow_mutations` is set."""

    trees: bool = False  # candidates name the commit that runs, in `git_branch`
    allow_mutations: bool = False  # clients may have the code changed; means `trees` too
    # trees
    max_trees: Annotated[int, Field(ge=1)] = 20  # commits ready to run at once, besides mutations' own
    tree_dir: Path | None = None  # where they are; the user's cache folder when not given
    links: tuple[str, ...] = ()  # untracked files and folders of `root` that every tree gets a link to
    build_command: tuple[str, ...] | None = None  # run in each new tree before its program starts
    build_timeout_s: Seconds = 600.0
    # what a mutation must be like
    allow: tuple[str, ...] = ("**",)  # globs of paths, from the repository's top, that may change
    deny: tuple[str, ...] = ()  # globs of paths that may not
    allow_tests: bool = False  # with `check_command`: tests, and what configures or runs them, may change too
    max_diff_bytes: Annotated[int, Field(ge=1)] = 256 * 2**10
    check_command: tuple[str, ...] | None = None  # tests, lint: must exit with 0 in the changed tree
    check_timeout_s: Seconds = 300.0
    max_mutations: Annotated[int, Field(ge=1)] = 8  # under way at the same time; more wait
    push: str | None = None  # name of the remote that finished branches are pushed to
    # who makes it
    agent_command: tuple[str, ...] | None = None  # gets the task on stdin, in the tree; Claude when not given
    agent_model: str | None = None
    agent_tools: tuple[str, ...] = ("Read", "Edit", "Write", "Glob", "Grep", "Bash")
    agent_max_turns: Annotated[int, Field(ge=1)] = 60
    agent_max_cost_usd: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    agent_timeout_s: Seconds = 1200.0

    @property
    def has_trees(self) -> bool:
        """Whether candidates name commits."""
        return self.trees or self.allow_mutations

    @model_validator(mode="after")
    def _no_code_in_vain(self) -> Self:
        """Refuse what was said about code where nothing would heed it."""
        said = self.model_fields_set
        for names, needed, there in (
            (_FOR_MUTATIONS, "allow_mutations", self.allow_mutations),
            (_FOR_TREES, "trees", self.has_trees),
        ):
            for name in names:
                if name in said and not there:
                    raise ValueError(f"`{name}` means nothing without `{needed}`")
        for name, needed, command in (
            ("build_timeout_s", "build_command", self.build_command),
            ("check_timeout_s", "check_command", self.check_command),
            ("allow_tests", "check_command", self.check_command),
        ):
            if name in said and command is None:
                raise ValueError(f"`{name}` means nothing without `{needed}`")
        for name, command, instead in (
            ("agent_command", self.agent_command, " for Claude"),
            ("build_command", self.build_command, ""),
            ("check_command", self.check_command, ""),
        ):
            if command is not None and (not command or not command[0].strip()):
                raise ValueError(f"`{name}` is empty: name a command, or leave it out{instead}")
        for name in _FOR_CLAUDE:
            if name in said and self.agent_command is not None:
                raise ValueError(f"`{name}` is for the agent that is built in, and `agent_command` names another")
        return self
