"""Found first on PYTHONPATH by every process of a test: each reading of the wall clock jumps by hours."""

import datetime
import random
import time

_real = time.time
_random = random.SystemRandom()  # the global generator is GEPA's
HOURS = 3600


def _jump():
    return _random.uniform(-30, 30) * HOURS if _random.random() < 0.3 else 0.0


def _time():
    return _real() + _jump()


class _Jumping(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(_time(), tz)

    @classmethod
    def utcnow(cls):
        return cls.fromtimestamp(_time(), datetime.UTC).replace(tzinfo=None)


time.time = _time
time.time_ns = lambda: int(_time() * 1e9)
datetime.datetime = _Jumping
