"""Let the code of a small program evolve: a bug and a slow design, in Python or in TypeScript.

    python examples/repeats/evolve.py python --reflection-lm anthropic/claude-sonnet-4-5

It copies the program into a git repository of its own, starts `evolverpc serve` beside it and optimises it. Further
arguments are those of `evolverpc optimize`. Claude mutates the code, so ANTHROPIC_API_KEY must be set; with
`--agent-command COMMAND` any other agent does.
"""

import json
import os
import random
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from sandbox_runtime import ServerFailed, running_server

HERE = Path(__file__).resolve().parent
BIN = Path(sys.executable).parent
LANGUAGES = ("python", "typescript")
PACKAGE = "file:../../../clients/typescript"
WORDS = [
    *("apple", "bird", "cloud", "desk", "east", "fish", "glass", "hill", "iron", "jump"),
    *("kite", "lamp", "moon", "north", "oak", "paper", "queen", "river", "stone", "tree"),
]
LONG = 16_000
"""Words of a text that the seed's design is too slow for."""

OPTIMIZE = (
    *("--evolve", "code", "--max-metric-calls", "200", "--target-score", "1.0", "--reflection-minibatch-size", "3"),
    *("--candidate-selection-strategy", "current_best", "--check", "off"),
)


class NotSetUp(Exception):
    """Something is missing; the message has the command that installs it."""


def prepare(language: str, folder: Path) -> Path:
    """A git repository in `folder` with the program on branch `main`, and the rows beside it; the repository."""
    repository = folder / "repeats"
    shutil.copytree(HERE / language, repository, ignore=shutil.ignore_patterns("node_modules", "dist", "__pycache__"))
    if language == "typescript":
        _install(repository)
    for split, seed, size in (("train", 1, 3), ("val", 2, 3)):
        rows = examples(random.Random(seed), size)  # noqa: S311  # rows, not secrets
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    _git(repository, "init", "--quiet", "--initial-branch", "main")
    _git(repository, "add", "--all")
    author = ("-c", "user.name=Example", "-c", "user.email=example@example.invalid")
    _git(repository, *author, "commit", "--quiet", "--message", "The program as it was found")
    return repository


def examples(rng: random.Random, size: int) -> list[dict[str, str]]:
    """Rows `{id, text, answer}`: a third plain, a third with capitals and punctuation, a third very long."""
    rows = []
    for at in range(size):
        first, *others = rng.sample(WORDS, 8)
        middle = others if at % 3 != 2 else [f"w{number}" for number in range(LONG)]
        again = f"{first.capitalize()}," if at % 3 == 1 else first
        rows.append({"id": f"r{at}", "text": " ".join([first, *middle, again, middle[0]]), "answer": first})
    return rows


def server_command(agent_command: str | None = None) -> list[str]:
    """`evolverpc serve` for a repository that `prepare` made: the settings are in its gepa.toml."""
    agent = [] if agent_command is None else ["--agent-command", agent_command]
    return [str(BIN / "gepa-server"), *agent]


def main(arguments: Sequence[str]) -> int:
    """Prepare, serve, optimise; returns the exit status."""
    if not arguments or arguments[0] not in LANGUAGES or "--help" in arguments:
        print(__doc__)
        return 0 if "--help" in arguments else 2
    language, *flags = arguments
    agent = None
    if "--agent-command" in flags[:-1]:
        at = flags.index("--agent-command")
        agent, flags = flags[at + 1], [*flags[:at], *flags[at + 2 :]]
    if agent is None and not {"ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN"} & os.environ.keys():
        raise NotSetUp("set ANTHROPIC_API_KEY, or name another agent: --agent-command 'my-agent --yes'")
    folder = Path(tempfile.mkdtemp(prefix="repeats-"))
    repository = prepare(language, folder)
    print(f"The program is in {repository}", flush=True)
    with running_server(server_command(agent), cwd=repository) as endpoint:
        rows = ["--trainset", str(folder / "train.jsonl"), "--valset", str(folder / "val.jsonl")]
        command = [str(BIN / "gepa-client"), "optimize", endpoint.url, *OPTIMIZE, *rows, *flags]
        environment = {**os.environ, "GEPA_TOKEN": endpoint.token}
        status = subprocess.run(command, env=environment, check=False).returncode  # noqa: S603  our own command
    print("What was changed, and why: evolverpc branches last")
    print(f"The best of it: evolverpc branches last --check-out --repo {shlex.quote(str(repository))}")
    return status


def _install(repository: Path) -> None:
    manifest = repository / "package.json"
    package = HERE.parents[1] / "clients" / "typescript"
    npm = shutil.which("npm")
    if npm is None or not (package / "dist" / "index.js").is_file():
        raise NotSetUp("Node, npm and the TypeScript package are needed: make setup")
    manifest.write_text(manifest.read_text().replace(PACKAGE, f"file:{package}"))
    quiet = ("--no-audit", "--no-fund", "--no-update-notifier", "--no-progress", "--loglevel=error")
    _run((npm, "install", "--install-links", *quiet), repository)


def _git(repository: Path, *arguments: str) -> None:
    _run(("git", *arguments), repository)


def _run(command: Sequence[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, check=False)  # noqa: S603  a fixed command
    if done.returncode != 0:
        raise NotSetUp(f"`{shlex.join(command)}` failed in {folder}")


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (NotSetUp, ServerFailed) as error:
        sys.exit(f"evolve: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
