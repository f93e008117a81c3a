"""`make demo`: optimize the tickets program in Python, and in TypeScript if Node is there, each behind its own server.

Further arguments are those of `evolverpc optimize`, such as `--reflection-lm openai/gpt-5`.
"""

import difflib
import itertools
import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator

from programs import HERE, NotSetUp, Run, build_typescript, optimize, serving

sys.path.insert(0, str(HERE / "python"))
import tickets

from sandbox_runtime import ServerFailed

SCORE = """The score is the share of messages that go to the right desk (1 is all), over
the test rows, which neither the proposals nor the choice of the best had."""

SHOWN = 3
"""Messages that are shown with the line that decides them now."""


def main(flags: list[str]) -> int:
    """Run, and print what changed; returns the exit status."""
    if "--help" in flags:
        print(__doc__)
        print("Those flags: evolverpc optimize --help")
        return 0
    languages, left_out = ["python"], ""
    try:
        build_typescript()
        languages.append("typescript")
    except NotSetUp as error:
        left_out = f"typescript is left out: {error}"
    runs: list[Run] = []
    for language in languages:
        print(f"\n== {language}", flush=True)
        with serving(language) as endpoint:
            runs.append(optimize(language, endpoint, ["--config", str(HERE / "run.toml"), *flags]))
    print("\n== What changed\n")
    for run in runs:
        print(run.line)
    print(SCORE)
    print(left_out or both_the_same(runs))
    print(what_changed(runs[0]))
    print(f"""
Next: .venv/bin/evolverpc watch {runs[0].folder.name}
      (each change, and why, in a browser; its report.html has the same)
      change examples/tickets/python/tickets.py, and run this again
      let a model write the prompt of a program of yours: docs/quickstart.md""")
    return 0


def both_the_same(runs: list[Run]) -> str:
    """Return whether the runs went through the same candidates."""
    same = all(run.result["candidates"] == runs[0].result["candidates"] for run in runs)
    return f"Both languages went through {'the same' if same else 'DIFFERENT'} texts."


def what_changed(run: Run) -> str:
    """Return the rules that the run ended with, marked by what is new, and messages that are right because of them."""
    seed, best = run.texts
    rules = "\n".join(
        f"  {line}"
        for line in difflib.ndiff(seed["rules"].split("\n"), best["rules"].split("\n"))
        if not line.startswith("?")
    )
    messages = "\n\n".join(itertools.islice(put_right(seed, best), SHOWN)) or "  none"
    return f"""
The rules: the first line that fits a message decides (+ new, - removed).

{rules}

Messages that the run has never seen: wrong before, right now.

{messages}"""


def put_right(seed: dict[str, str], best: dict[str, str]) -> Iterator[str]:
    """Yield messages held out that were wrong and are right now, at most one for each desk, with the reason."""
    desks = set()
    for text in (HERE / "data" / "test.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(text)
        before, now = tickets.run(row, seed), tickets.run(row, best)
        if now == row["label"] != before and now not in desks:
            desks.add(now)
            line = tickets.deciding_line(best["rules"].split("\n"), tickets.words(row["text"]))
            message = textwrap.fill(f'"{row["text"]}"', 78, initial_indent="  ", subsequent_indent="   ")
            yield f"{message}\n    before: {before or 'no desk'}, now: {now}, because of the line: {line}"


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except ServerFailed as error:
        sys.exit(f"demo: {error}")
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
    except KeyboardInterrupt:
        sys.exit(130)
