"""Raises what its example names: failures of the network, failures of the program, and both at once."""

import asyncio
import errno
import io
import socket
import ssl
import urllib.error
import urllib.request

import idna

seed_candidate = {"prompt": "seed"}


class Answered(Exception):
    def __init__(self, status_code, url="https://user:secret@models.example:8443/v1?key=secret"):
        super().__init__("the model answered")
        self.status_code = status_code
        self.url = url


class Carrying(Exception):
    def __init__(self, **attributes):
        super().__init__("carries others")
        vars(self).update(attributes)


class OfALibrary(Carrying, idna.IDNAError):
    """As a client of a database raises it."""


class Unreadable(Exception):
    @property
    def status_code(self):
        raise SystemExit(3)

    response = retryable = code = status = url = status_code

    @property
    def __cause__(self):
        raise KeyError("cause")

    @property
    def __class__(self):
        raise KeyError("class")


def wrapped():
    try:
        raise Answered(503)
    except Answered as error:
        raise ValueError("no answer") from error


def wrapped_without_a_cause():
    try:
        raise Answered(429)
    except Answered:
        raise ValueError("no answer")


def hidden():
    try:
        raise Answered(503)
    except Answered:
        raise ValueError("no answer") from None


def bug_in_a_handler():
    try:
        raise Answered(503)
    except Answered:
        return {}["fallback"]


def rejected_with_an_outage_behind():
    try:
        raise Answered(503)
    except Answered as error:
        raise Answered(400) from error


def rejection_wrapped():
    try:
        raise Answered(401)
    except Answered as error:
        raise RuntimeError("the agent failed") from error


def group():
    raise ExceptionGroup("both failed", [Answered(401), Answered(529)])  # noqa: F821  the tests' Python has it


def amazon(code, status):
    response = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    raise Carrying(response=response)


def endless():
    first = error = Answered(200)
    for _ in range(100_000):
        error.__cause__ = Carrying(next=error)
        error = error.__cause__
    error.__cause__ = first
    raise first


def silent_server(request):
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        request(listening.getsockname()[1])


def urlopen(port):
    urllib.request.urlopen("http://127.0.0.1:%d" % port, timeout=0.05)


def closed_port():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        urlopen(bound.getsockname()[1])


async def own_limit():
    await asyncio.wait_for(asyncio.sleep(60), 0.01)


async def own_limit_of_a_back_off():
    async def back_off():
        try:
            raise Answered(429)
        except Answered:
            await asyncio.sleep(60)

    await asyncio.wait_for(back_off(), 0.01)


def throw(error):
    raise error


INFRASTRUCTURE = {
    "an outage": lambda: throw(Answered(503)),
    "a status of a response": lambda: throw(Carrying(response=Answered(503))),
    "wrapped": wrapped,
    "wrapped without a cause": wrapped_without_a_cause,
    "in a group": group,
    "in an attribute": lambda: throw(Carrying(attempts=[Answered(503)])),
    "in an argument": lambda: throw(RuntimeError("failed", Answered(503))),
    "a code beside headers": lambda: throw(urllib.error.HTTPError("http://a", 503, "no", {}, io.BytesIO())),
    "throttled by AWS": lambda: amazon("ThrottlingException", 400),
    "a name that is not found": lambda: throw(socket.gaierror(-2, "unknown")),
    "TLS": lambda: throw(ssl.SSLEOFError(8, "EOF")),
    "no route": lambda: throw(OSError(errno.ENETUNREACH, "unreachable")),
    "refused": closed_port,
    "refused elsewhere": lambda: throw(ConnectionRefusedError()),
    "timed out": lambda: throw(TimeoutError(110, "Connection timed out")),
    "retryable": lambda: throw(Carrying(retryable=True)),
    "a time-out of a library": lambda: silent_server(urlopen),
    "a limit that ended a back-off": own_limit_of_a_back_off,
    "a database that shuts down": lambda: throw(OfALibrary(sqlstate="57P01")),
    "a database that is lost": lambda: throw(OfALibrary(pgcode="08006")),
    "a socket that broke": lambda: throw(OfALibrary(rcvd=None, sent=None)),
    "a deployment that cools down": lambda: throw(OfALibrary(cooldown_time=60)),
}
PROGRAM = {
    "an own code": lambda: throw(Carrying(code=503)),
    "an own code beside a text": lambda: throw(Carrying(code=503, response="the model's text")),
    "a status that is no HTTP status": lambda: throw(Carrying(status=7, status_code=True)),
    "hidden": hidden,
    "not retryable": lambda: throw(Carrying(retryable=False, status_code=503)),
    "a bug in a handler": bug_in_a_handler,
    "a rejection": lambda: throw(Answered(404)),
    "a conflict": lambda: throw(Answered(409)),
    "rejected by AWS": lambda: amazon("ValidationException", 400),
    "rejected with an outage behind": rejected_with_an_outage_behind,
    "a rejection wrapped": rejection_wrapped,
    "rejected at last": lambda: throw(Carrying(errors=[Answered(503)], lastError=Answered(400))),
    "a query that is wrong": lambda: throw(OfALibrary(sqlstate="42P01")),
    "an own limit": own_limit,
    "an own time-out": lambda: throw(TimeoutError("my own limit")),
    "an endless chain": endless,
    "unreadable": lambda: throw(Unreadable("unreadable")),
}


async def run(example, candidate):
    result = (INFRASTRUCTURE | PROGRAM)[example]()
    return await result if asyncio.iscoroutine(result) else result


def score(example, output):
    return 0.0
