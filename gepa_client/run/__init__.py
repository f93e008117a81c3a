"""One optimisation: its settings, its own process, GEPA inside it, and the events it tells."""
