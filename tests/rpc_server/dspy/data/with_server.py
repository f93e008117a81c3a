"""Run by our own environment: `gepa.optimize` over a server, its results as JSON on stdout.

The argument is `[[proposer, URL, options of a run], ...]`; the proposer is `gepa`, or else the server's.
"""

import json
import sys

import gepa
from codes_task import reflect

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
    return {
        "candidates": found.candidates,
        "parents": found.parents,
        "scores": found.val_aggregate_scores,
        "subscores": [list(scores.values()) for scores in found.val_subscores],
        "discovered_at": found.discovery_eval_counts,
        "metric_calls": found.total_metric_calls,
    }


print(json.dumps([run(proposer, url, options) for proposer, url, options in json.loads(sys.argv[1])]))
