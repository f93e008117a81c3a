"""What is printed: on the terminal, in a notebook, as JSON lines."""
