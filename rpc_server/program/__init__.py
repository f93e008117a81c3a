"""The program's side of the server: its processes, their scheduling, and their results."""
