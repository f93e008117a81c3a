"""The process that makes, enters and reaps all sandboxes of one runtime; single-threaded, so that it may fork."""
