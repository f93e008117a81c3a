"""What trees cost: 19 of them against plain `git checkout-index`, git's metadata, and 19 evaluations at once.

A generated repository of 2,000 files. Making trees is measured twice: as files alone, which is what is compared, in
turn with git's own; and whole, with a program started in each. The last line is JSON.
"""

import asyncio
import contextlib
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import aiohttp

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from rpc_server.settings import Settings  # noqa: E402  the repository is not a package
from rpc_server.worktrees.environments import CommitEnvironments  # noqa: E402
from rpc_server.worktrees.instances import InstancePool  # noqa: E402
from rpc_server.worktrees.repository import UserRepository  # noqa: E402
from rpc_server.worktrees.server_folder import ServerFolder  # noqa: E402
from sandbox_runtime import running_server  # noqa: E402

FILES = 2_000
TREES = 19
ROUNDS = 3
EXAMPLE_S = 2.0
LIMITS = {"vs_checkout_index": 1.5, "metadata_mb": 10.0, "evaluations_seconds": 4.0}

PROGRAM = f"""
import os, time
from number import NUMBER

seed_candidate = {{"system": "x"}}


def run(example, candidate):
    mark = os.path.join(os.environ["TMPDIR"], "mark")
    with open(mark, "w") as file:
        file.write(str(NUMBER))
    time.sleep({EXAMPLE_S})
    with open(mark) as file:
        found = file.read()
    marks = sorted(name for name in os.listdir() if name.startswith("only"))
    return {{"number": NUMBER, "mark": found, "marks": marks, "cwd": os.getcwd(), "tmp": os.environ["TMPDIR"]}}


def score(example, output):
    return 1.0
"""


def git(folder: Path, *arguments: str) -> str:
    """Run it in the folder and return its output."""
    who = ("-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "gc.auto=0")
    return subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout


def repository_of(folder: Path) -> list[str]:
    """Make a repository of 2,000 files of 1 to 8 KB, and 20 commits beside its first that change the program."""
    dice = random.Random(0)  # noqa: S311  # for contents, not for secrets
    git(folder, "init", "--quiet", "--initial-branch=main")
    for number in range(FILES):
        file = folder / f"part{number % 40:02}" / f"file{number:04}.txt"
        file.parent.mkdir(exist_ok=True)
        file.write_text("".join(f"{dice.random()}\n" for _ in range(dice.randrange(50, 400))))
    (folder / "app.py").write_text(PROGRAM)
    (folder / "number.py").write_text("NUMBER = 0\n")
    commits = []
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "seed")
    for number in range(1, TREES + 1):
        git(folder, "checkout", "--quiet", "-b", f"evolve/bench/{number}", "main")
        (folder / "number.py").write_text(f"NUMBER = {number}\n")
        (folder / f"only{number}.txt").write_text("mine\n")
        git(folder, "add", "--all")
        git(folder, "commit", "--quiet", "--message", f"{number}")
        commits.append(git(folder, "rev-parse", "HEAD").strip())
    git(folder, "checkout", "--quiet", "main")
    return commits


def plain(repository: Path, place: Path) -> None:
    """20 times `git checkout-index` of the user's own index, one after the other."""
    for number in range(TREES):
        git(repository, "checkout-index", "--all", f"--prefix={place}/{number}/")


def ours(repository: UserRepository, commits: list[str], place: Path) -> None:
    """20 trees' files, asked for at once from as many threads as a server's event loop has."""
    with ThreadPoolExecutor(min(32, (os.cpu_count() or 1) + 4)) as threads:
        list(threads.map(lambda commit: repository.check_out(commit, place / commit / "files"), commits))


def seconds(make: Callable[[Path], None], folder: Path) -> float:
    """How long it takes in a fresh folder, whose removal is not counted."""
    place = folder / "place"
    place.mkdir()
    os.sync()
    started = time.perf_counter()
    make(place)
    took = time.perf_counter() - started
    shutil.rmtree(place)
    return took


def files_alone(folder: Path, repository: Path, commits: list[str]) -> tuple[float, float]:
    """Median seconds of 20 trees' files, ours and plain, in turn."""
    opened = UserRepository(repository)
    times: dict[str, list[float]] = {"plain": [], "ours": []}
    for number in range(ROUNDS + 1):
        makers: list[tuple[str, Callable[[Path], None]]] = [
            ("plain", lambda place: plain(repository, place)),
            ("ours", lambda place: ours(opened, commits, place)),
        ]
        for name, make in makers if number % 2 else reversed(makers):
            took = seconds(make, folder)
            if number:  # the first round warms the disk's cache
                times[name].append(took)
    return statistics.median(times["ours"]), statistics.median(times["plain"])


async def whole(folder: Path, repository: Path, commits: list[str]) -> tuple[float, float]:
    """Seconds until 20 commits, asked for at once, run, and the megabytes that are not the commits' files."""
    before = size_of(repository / ".git")
    settings = Settings(
        root=repository, program="app.py", trees=True, max_trees=TREES, workers=1, python=Path(sys.executable)
    )
    opened = UserRepository(repository)
    state = ServerFolder(folder / "state")
    state.open()
    trees = InstancePool(
        opened, settings, state, CommitEnvironments(opened, settings, opened.head()[1], folder / "cache")
    )

    async def at(commit: str) -> None:
        async with trees.acquire(commit) as ready:
            ready.running()

    try:
        started = time.perf_counter()
        await asyncio.gather(*(at(commit) for commit in commits))
        took = time.perf_counter() - started
        files = sum(size_of(tree / "files", skip="__pycache__") for tree in (state.folder / "trees").iterdir())
        written = size_of(state.folder, skip="__pycache__") - files + size_of(repository / ".git") - before
    finally:
        await trees.close()
        state.close()
    return took, written / 1e6


def size_of(folder: Path, skip: str = "") -> int:
    """Bytes of all files in it."""
    return sum(
        (Path(top) / name).lstat().st_size
        for top, _, names in os.walk(folder)
        if not skip or skip not in top
        for name in names
    )


async def at_once(url: str, token: str, commits: list[str]) -> float:
    """Seconds of one example for each of 20 candidates, all asked for at once of a warm server."""
    async with aiohttp.ClientSession(
        headers={"Authorization": f"Bearer {token}"},
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=300),
    ) as session:

        async def call(method: str, params: dict[str, Any]) -> Any:
            request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            async with session.post(url, json=request) as response:
                answer = await response.json()
                if "result" not in answer:
                    raise SystemExit(f"{method}: {answer}")
                return answer["result"]

        seed = (await call("discover", {}))["program"]["seed_candidate"]

        async def evaluated(number: int) -> Any:
            candidate = {**seed, "git_branch": f"evolve/bench/{number}@{commits[number - 1]}"}
            results = (await call("evaluate", {"candidate": candidate, "batch": [{"id": "0", "data": {}}]}))["results"]
            if results[0]["status"] != "ok":
                raise SystemExit(f"a failed example: {str(results[0])[:500]}")
            return results[0]["output"]

        numbers = range(1, TREES + 1)
        await asyncio.gather(*map(evaluated, numbers))
        started = time.perf_counter()
        outputs = await asyncio.gather(*map(evaluated, numbers))
        took = time.perf_counter() - started
    for number, output in zip(numbers, outputs, strict=True):
        if (output["number"], output["mark"], output["marks"]) != (number, str(number), [f"only{number}.txt"]):
            raise SystemExit(f"candidate {number} saw another's files: {output}")
    for name in ("cwd", "tmp"):
        if len({output[name] for output in outputs}) != TREES:
            raise SystemExit(f"two candidates had the same {name}")
    return took


@contextlib.contextmanager
def workplace() -> Iterator[Path]:
    """Yield a temporary folder and remove it at the end."""
    folder = Path(tempfile.mkdtemp(prefix="gepa-bench-trees-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def main() -> int:
    """Measure, print, end with the line of JSON; 1 where a limit is missed."""
    with workplace() as folder:
        repository = folder / "repository"
        repository.mkdir()
        commits = repository_of(repository)
        mine, plain_s = files_alone(folder, repository, commits)
        print(f"{TREES} trees of {FILES} files: ours {mine:.2f} s, git checkout-index {plain_s:.2f} s", flush=True)
        ready_s, metadata_mb = asyncio.run(whole(folder, repository, commits))
        print(f"ready to run in {ready_s:.2f} s; {metadata_mb:.2f} MB beside the files", flush=True)
        server = [
            *(
                str(Path(sys.executable).with_name("gepa-server")),
                "--trees",
                "--no-jail",
                "--program",
                "app.py",
                "--workers",
                "1",
            ),
            *("--concurrency", str(TREES)),
            *("--tree-dir", str(folder / "served"), "--python", sys.executable),
        ]
        with running_server(server, cwd=repository) as endpoint:
            took = asyncio.run(at_once(endpoint.url, endpoint.token, commits))
        print(f"{TREES} examples of {EXAMPLE_S:g} s at once: {took:.2f} s", flush=True)
        if git(repository, "status", "--porcelain"):
            raise SystemExit("the user's folder was changed")
    figures = {
        "trees": TREES,
        "files": FILES,
        "ours_seconds": round(mine, 3),
        "checkout_index_seconds": round(plain_s, 3),
        "vs_checkout_index": round(mine / plain_s, 3),
        "ready_seconds": round(ready_s, 3),
        "metadata_mb": round(metadata_mb, 3),
        "example_seconds": EXAMPLE_S,
        "evaluations_seconds": round(took, 3),
    }
    print(json.dumps({**figures, "limits": LIMITS}))
    return int(any(figures[key] > limit for key, limit in LIMITS.items()))


if __name__ == "__main__":
    sys.exit(main())
