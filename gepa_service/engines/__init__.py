"""Where attempts at work run."""
