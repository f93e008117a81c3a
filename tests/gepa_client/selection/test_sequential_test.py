"""The test with several looks: its error by simulation, its chances by counting every choice of signs."""

import itertools
from collections.abc import Sequence

from gepa_client.selection.paired_acceptance import last_look

SIZES = (3, 6, 12)


def decision(differences: Sequence[float], sizes: Sequence[int], error: float) -> bool:
    """The decision on rows that are added look by look."""
    looks = (last_look(differences[:size], sizes, error).better for size in sizes)
    return next(better for better in looks if better is not None)


def test_the_error_over_all_looks_is_that_of_every_choice_of_signs() -> None:
    sizes = (0.5, 1.0, 0.25, 0.75, 1.0, 0.5, 0.25, 1.0)
    choices = [
        [size * sign for size, sign in zip(sizes, signs, strict=True)] for signs in itertools.product((1, -1), repeat=8)
    ]
    better = [decision(each, (2, 4, 6, 8), 0.2) for each in choices]
    assert 0.1 < sum(better) / len(choices) <= 0.2


def test_a_look_is_open_while_the_chance_is_above_what_is_left() -> None:
    assert last_look([1, 1, 1], SIZES, 0.2).better is True
    look = last_look([1, 1, 1], SIZES, 0.1)
    assert (look.better, look.chance, look.allowed) == (None, 0.125, 0.1)
    assert last_look([1, 1, 0], SIZES, 0.2).better is None
    assert last_look([1, 1, -1, -1, 0, 0], SIZES, 0.2).better is False
