"""Run by an environment that has DSPy and our packages: `evolverpc.optimize`, its results as JSON in the last line.

The argument is `[[proposer, options of a run], ...]`; the proposer is `dspy` or `own`, as in `with_dspy.py`.
"""

import json
import sys

import dspy
from codes import Codes, Proposer, metric, reflection_lm
from codes_task import TRAIN, VAL

import evolverpc

PROPOSERS = {"dspy": {"reflection_lm": reflection_lm()}, "own": {"instruction_proposer": Proposer()}}


def examples(rows):
    return [dspy.Example(row).with_inputs("word") for row in rows]


def run(proposer, options):
    program = {"student": Codes(), "metric": metric, **PROPOSERS[proposer]}
    rows = {"trainset": examples(TRAIN), "valset": examples(VAL)}
    result = evolverpc.optimize(program, **rows, past_perfect=True, check="off", **options)
    return json.loads((result.output / "result.json").read_text())["candidates"]


print(json.dumps([run(proposer, options) for proposer, options in json.loads(sys.argv[1])]))
