"""A file program in a folder below the root: both are searched for modules."""

import beside
import frames

seed_candidate = {"prompt": "seed"}


def run(example, candidate):
    return [beside.MINE, frames.MINE, __name__]
