"""The size in bytes of trajectories of any type."""

import threading

from rpc_server.worker.adapters import object_size

MANY = 2**40


class Step:
    def __init__(self, text):
        self.text = text
        self.lock = threading.Lock()  # cannot be pickled


class Slotted:
    __slots__ = ("text",)

    def __init__(self, text):
        self.text = text


class Rude:
    def __sizeof__(self):
        raise KeyError("size")


def test_all_that_an_object_leads_to_is_counted():
    for make in (Step, Slotted, lambda text: {"a": [text]}, lambda text: ({text},)):
        assert 100_000 < object_size(make("x" * 100_000), MANY) < 102_000


def test_what_is_led_to_twice_is_counted_once():
    text = "x" * 100_000
    circle = [text, text]
    circle.append(circle)
    assert object_size(circle, MANY) < 101_000


def test_what_the_program_has_once_is_not_counted():
    assert object_size([Step, threading, object_size], MANY) < 1_000


def test_counting_stops_when_it_is_enough():
    assert object_size(["x" * 1000 + str(number) for number in range(1000)], 10_000) < 12_000


def test_an_object_with_a_failing_sizeof_is_counted_all_the_same():
    assert object_size([Rude()], MANY) > 0
