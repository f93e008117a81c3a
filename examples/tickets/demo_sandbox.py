"""`make demo-sandbox`: optimise the tickets program over 20 bubblewrap sandboxes, and once without any.

Further arguments are those of `evolverpc optimize`. What is committed is what runs: uncommitted changes are left out.
"""

import asyncio
import subprocess
import sys
import time

from programs import HERE, optimize, optimize_in_sandboxes, serving

from sandbox_runtime import SandboxError, ServerFailed
from sandbox_runtime.backends import open_runtime
from sandbox_runtime.source import ClientSandbox, Source

SANDBOXES = 20


async def seconds_to_ready() -> list[float]:
    """How long 20 sandboxes, asked for at once, take to answer: the first time, and the second."""
    took = []
    async with open_runtime("bubblewrap") as runtime:
        source = Source(str(HERE / "python"))
        await ClientSandbox(runtime, source, on_progress=lambda words: print(words, flush=True)).prepare()
        for _ in range(2):
            boxes = [ClientSandbox(runtime, source, name=f"demo-{number}") for number in range(SANDBOXES)]
            began = time.monotonic()
            await asyncio.gather(*(box.start() for box in boxes))
            took.append(time.monotonic() - began)
            await asyncio.gather(*(box.close() for box in boxes))
    return took


def main(flags: list[str]) -> int:
    """Run both; returns the exit status."""
    if "--help" in flags:
        print(__doc__)
        print("Those flags: evolverpc optimize --help")
        return 0
    cold, warm = asyncio.run(seconds_to_ready())
    print(f"{SANDBOXES} sandboxes were ready in {cold:.1f} s, and in {warm:.1f} s the second time.", flush=True)
    settings = ["--config", str(HERE / "run.toml"), *flags]
    print("\n== without sandboxes", flush=True)
    with serving("python") as endpoint:
        plain = optimize("python", endpoint, settings)
    print(f"\n== over {SANDBOXES} sandboxes", flush=True)
    sandboxed = optimize_in_sandboxes(SANDBOXES, settings)
    same = all(plain.result[key] == sandboxed.result[key] for key in ("candidates", "parents", "total_metric_calls"))
    print(f"\nThe result is {'the same' if same else 'NOT the same'} as without sandboxes.")
    print(
        f"Next: open {sandboxed.folder / 'report.html'}, or change examples/tickets/python/tickets.py, commit it, "
        "and run this again."
    )
    for run in (plain, sandboxed):
        print(run.line)
    return int(not same)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (SandboxError, ServerFailed) as error:
        sys.exit(f"demo-sandbox: {error}")
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
    except KeyboardInterrupt:
        sys.exit(130)
