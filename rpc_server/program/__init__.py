"""The program's side of the server: its processes, and how work gets to them and back."""
