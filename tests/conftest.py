"""What holds for every test."""

import signal

# A shell starts its background jobs deaf to Ctrl-C, which they pass on; the commands under test are to hear it.
signal.signal(signal.SIGINT, signal.default_int_handler)
