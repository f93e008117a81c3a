"""A hostile optimizer that plants links in the folder of its results, for the process outside to follow.

They lead to the files `private/` beside the folders of jobs. It then reports that its run is complete.
"""

import json
import os
import sys
from pathlib import Path

sys.stdin.readline()
job = Path(os.environ["GEPA_STORE_TOKEN_FILE"]).parents[1]
private = job.parents[1] / "private"
for name, target in {
    "run.log": "master.key",
    "connections.jsonl": "master.key",
    "report.html": "master.key",
    "artifacts": "folder",
}.items():
    for folder in (job / "results", Path("/workspace"), job):
        try:
            (folder / name).unlink(missing_ok=True)
            (folder / name).symlink_to(private / target)
        except OSError as error:
            print(folder, name, error, file=sys.stderr)
print("a line of the driver", file=sys.stderr, flush=True)
print(json.dumps({"event": "finished", "status": "completed", "metric_calls": 0}), flush=True)
