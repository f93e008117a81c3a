"""Takes as long to import as the environment states."""

import os
import time

time.sleep(float(os.environ["IMPORT_SECONDS"]))

seed_candidate = {"prompt": "seed"}


def run(example, candidate):
    return "imported"
