"""Run by our own environment: `gepa.optimize` over a server, its results as JSON on stdout.

The argument is `[[proposer, URL, options of a run], ...]`; the proposer is `gepa`, or else the server's.
"""

import json
import sys

import gepa
from codes_task import figures, reflect

from gepa_client import ConcurrentReflection, RemoteAdapter


class Silent:
    def log(self, message):
        pass


def run(proposer, url, options):
    with RemoteAdapter(url) as adapter:
        found = gepa.optimize(
            seed_candidate=adapter.seed_candidate,
            trainset=adapter.dataset("train"),
            valset=adapter.dataset("val"),
            adapter=adapter,
            reflection_strategy=ConcurrentReflection(reflect) if proposer == "gepa" else None,
            callbacks=adapter.callbacks,
            logger=Silent(),
            **options,
        )
    return figures(found, found.candidates)


print(json.dumps([run(proposer, url, options) for proposer, url, options in json.loads(sys.argv[1])]))
