"""The live page of a run: its events, the server that the page reads them from, and the page itself."""
