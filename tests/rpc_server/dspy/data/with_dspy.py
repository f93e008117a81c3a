"""Run by the environment that has DSPy: `dspy.GEPA`, its results as JSON on stdout.

The argument is `[[proposer, options of a run], ...]`; the proposer is `gepa` (GEPA's default), `dspy` (untouched) or
`own` (the program's).
"""

import contextlib
import json
import sys

import dspy
from codes import Codes, Proposer, metric, reflection_lm
from codes_task import TRAIN, VAL, figures, reflect
from gepa.proposer.reflective_mutation.reflection_lm import StatelessReflectionLM


def propose(candidate, reflective_dataset, components_to_update):
    proposal, _ = StatelessReflectionLM(reflect).reflect(candidate, reflective_dataset, components_to_update)
    return proposal.new_texts


def examples(rows):
    return [dspy.Example(row).with_inputs("word") for row in rows]


def texts(program):
    return {name: predictor.signature.instructions for name, predictor in program.named_predictors()}


PROPOSERS = {
    "gepa": {"instruction_proposer": propose},
    "dspy": {"reflection_lm": reflection_lm()},
    "own": {"instruction_proposer": Proposer()},
}


def run(proposer, options):
    with contextlib.redirect_stdout(sys.stderr):  # its progress bars
        optimizer = dspy.GEPA(metric=metric, track_stats=True, num_threads=4, **PROPOSERS[proposer], **options)
        found = optimizer.compile(Codes(), trainset=examples(TRAIN), valset=examples(VAL)).detailed_results
    return figures(found, [texts(program) for program in found.candidates])


print(json.dumps([run(proposer, options) for proposer, options in json.loads(sys.argv[1])]))
