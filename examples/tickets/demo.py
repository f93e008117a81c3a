"""`make demo`: optimise the tickets program in Python and in TypeScript, each behind its own server.

Further arguments are those of `gepa-client optimize`, such as `--reflection-lm openai/gpt-5`.
"""

import subprocess
import sys
import time
from pathlib import Path

from programs import HERE, LANGUAGES, NotSetUp, Run, build_typescript, optimize, serving

from sandbox_runtime import ServerFailed


def main(flags: list[str]) -> int:
    """Run both; returns the exit status."""
    if "--help" in flags:
        print(__doc__)
        print("Those flags: gepa-client optimize --help")
        return 0
    build_typescript()
    stamp = time.strftime("%Y%m%d-%H%M%S")
    runs: list[Run] = []
    for language in LANGUAGES:
        print(f"\n== {language}", flush=True)
        with serving(language) as endpoint:
            folder = Path("runs") / f"{stamp}-demo-{language}"
            runs.append(optimize(language, endpoint, folder, ["--config", str(HERE / "run.toml"), *flags]))
    same = runs[0].result["candidates"] == runs[1].result["candidates"]
    print("\nBoth languages went through the same texts." if same else "")
    print(
        f"Next: open {runs[0].folder / 'report.html'}, or change examples/tickets/python/tickets.py and run this again."
    )
    for run in runs:
        print(run.line)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (NotSetUp, ServerFailed) as error:
        sys.exit(f"demo: {error}")
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
    except KeyboardInterrupt:
        sys.exit(130)
