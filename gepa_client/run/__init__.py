"""One optimization: its driver process, GEPA inside it, its limits, its events and its resumption."""
