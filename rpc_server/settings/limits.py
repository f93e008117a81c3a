"""What a server bears: of what its settings allow and what its program said of itself, the smaller."""

from protocol import Limits
from rpc_server.settings.settings import Settings


def within(program: Limits, settings: Settings) -> Limits:
    """The program's own limits inside those of the settings, with what the server adds. Doing it twice changes nothing.

    `program.max_concurrency`: in all of its processes together.
    """
    most = program.max_concurrency
    deadlines = [limit for limit in (settings.example_timeout_s, program.example_timeout_s) if limit is not None]
    return Limits(
        max_concurrency=most if settings.max_concurrency is None else min(most, settings.max_concurrency),
        max_batch_size=min(program.max_batch_size, settings.max_batch_size),
        max_request_bytes=min(program.max_request_bytes, settings.max_request_bytes),
        example_timeout_s=min(deadlines, default=None),
        max_batch_entries=settings.max_batch_entries,
        whole_batches=program.whole_batches,
        abandon_after_s=settings.abandon_after_s,
        keep_answers_s=settings.keep_answers_s,
        max_result_bytes=min(settings.max_result_bytes, program.max_result_bytes or settings.max_result_bytes),
    )
