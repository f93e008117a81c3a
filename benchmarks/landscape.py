"""The program of the simulated landscape: a candidate is a list of skills, one for each group of rows.

A row belongs to a group and has a difficulty, both fixed by its number; a candidate solves it with a chance that grows
with its skill in the group. Whether it does is a digest of the candidate's text and the row, so that it is the same
each time; in rows with `noisy` it is drawn anew each time. A proposal changes the skill of a group in which a row of
the minibatch failed, by as much for the worse as for the better once its side effects on other groups are counted.
"""

import hashlib
import math
import random
import re
from statistics import NormalDist

GROUPS = 6
SLOPE = 2.0  # of the chance to solve a row, as a logistic function of skill less difficulty
START = (-0.2, -0.5, -0.8, -1.1, -0.6, -0.4)  # the seed's skills; difficulties are standard normal
CHANGE = (0.3, 0.8)  # of the skill in a group that failed: mean and standard deviation
SIDE_CHANCE = 0.25  # that a proposal changes another group too
SIDE_CHANGE = (-0.2, 0.5)

FEEDBACK = re.compile(r"failed in group (\d+)")

seed_candidate = {"skills": " ".join(f"{skill:.3f}" for skill in START)}
component_descriptions = {"skills": "One number for each group of rows, higher is better."}
version = "1"

_draws: dict[bytes, int] = {}


def row(world, number, *, noisy=False):
    """Return the data of one row; rows of another `world` have other difficulties and other luck."""
    return {"world": world, "row": number, **({"noisy": True} if noisy else {})}


def run(example, candidate):
    """Return whether the candidate solves the row, as `solved` or `failed in group N`."""
    group, difficulty = place(example)
    chance = solves(skills_of(candidate)[group], difficulty)
    key = _digest(candidate["skills"], example["world"], example["row"])
    if example.get("noisy"):
        _draws[key] = _draws.get(key, 0) + 1
        key = _digest(key.hex(), _draws[key])
    return "solved" if _fraction(key) < chance else f"failed in group {group}"


def score(example, output):
    """Return 1 or 0, and the output as feedback."""
    del example
    return int(output == "solved"), output


def propose_new_texts(candidate, reflective_dataset, components_to_update):
    """Change the skill in a group that failed, and sometimes others."""
    records = reflective_dataset.get("skills", [])
    draw = random.Random(_digest(candidate["skills"], *(str(record["Inputs"]) for record in records)))  # noqa: S311
    feedback = [FEEDBACK.search(str(record["Feedback"])) for record in records]
    failed = [int(match.group(1)) for match in feedback if match] or list(range(GROUPS))
    target = draw.choice(failed)
    skills = skills_of(candidate)
    for group in range(GROUPS):
        if group == target:
            skills[group] += draw.gauss(*CHANGE)
        elif draw.random() < SIDE_CHANCE:
            skills[group] += draw.gauss(*SIDE_CHANGE)
    return dict.fromkeys(components_to_update, " ".join(f"{skill:.3f}" for skill in skills))


def quality(candidate):
    """Return the expected score over all rows there could be."""
    return sum(_chance_in_group(skill) for skill in skills_of(candidate)) / GROUPS


def skills_of(candidate):
    """Return the candidate's numbers."""
    return [float(skill) for skill in candidate["skills"].split()]


def place(example):
    """Return the row's group and difficulty."""
    key = _digest("row", example["world"], example["row"])
    share = _fraction(key)
    return key[-1] % GROUPS, NormalDist().inv_cdf(min(max(share, 1e-9), 1 - 1e-9))


def solves(skill, difficulty):
    """Return the chance to solve a row."""
    return 1 / (1 + math.exp(-SLOPE * (skill - difficulty)))


def _chance_in_group(skill):
    points = 200
    return sum(solves(skill, NormalDist().inv_cdf((at + 0.5) / points)) for at in range(points)) / points


def _digest(*parts):
    return hashlib.blake2b("\0".join(map(str, parts)).encode(), digest_size=16).digest()


def _fraction(key):
    return int.from_bytes(key[:7], "big") / 2**56
