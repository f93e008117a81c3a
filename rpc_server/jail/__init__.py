"""The jail around program processes (bubblewrap)."""
