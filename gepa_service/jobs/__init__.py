"""Jobs: their queue, the worker that claims them, and the processes that run them."""
