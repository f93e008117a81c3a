"""The entry point of the process of one optimization: `python -P -m gepa_service.jobs.optimization_main`.

Its order is on stdin, how it ended is on stdout. The end of stdin, which also follows the death of the process that
started it, stops the work as SIGTERM does. What is printed goes to the log.
"""

import gc
import os
import signal
import sys

from gepa_service.jobs.process_entry import follow_stdin, opened_messages


def main() -> None:
    """Carry out one order, and end this process."""
    messages = opened_messages()
    gc.disable()  # it takes a sixth of the imports' time

    from gepa_client.sandboxing.session import signals_interrupt
    from gepa_service.jobs.ended_by import ENDING, STOPPED, ended_by
    from gepa_service.jobs.optimization import optimize
    from gepa_service.jobs.work_order import OptimizeOrder

    gc.enable()
    order = OptimizeOrder.model_validate_json(sys.stdin.buffer.readline())
    os.environ.update(order.secrets)
    follow_stdin(lambda _line: None, lambda: os.kill(os.getpid(), signal.SIGTERM))
    try:
        with signals_interrupt():
            ended = optimize(order)
    except KeyboardInterrupt:
        ended = STOPPED
    except ENDING as error:
        ended = ended_by(error)
    messages.write(ended.model_dump_json().encode() + b"\n")
    messages.flush()
    sys.stderr.flush()
    os._exit(0)  # threads of libraries may not keep the process of ended work


if __name__ == "__main__":
    main()
