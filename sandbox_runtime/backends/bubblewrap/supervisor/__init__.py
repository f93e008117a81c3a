"""The daemon that makes, enters and reaps all containers of one runtime; single-threaded, so that it may fork."""
