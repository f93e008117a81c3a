"""Has modules named like the worker's own, and like some of the standard library."""

import queue

import frames
import functions
import hosts
import serving

seed_candidate = {"prompt": "seed"}


def run(example, candidate):
    import sys

    ours = [name for name in sys.modules if name.partition(".")[0] in ("rpc_server", "protocol", "main", "bootstrap")]
    return {
        "theirs": [module.MINE for module in (frames, functions, hosts, queue, serving)],
        "ours": ours,
        "worker_folder_on_path": any("rpc_server" in entry for entry in sys.path),
        "name": __name__,
    }
