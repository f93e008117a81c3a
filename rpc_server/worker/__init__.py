"""The reference stdio program for Python: runs user code in the user's own interpreter, standard library only."""

__all__: "list[str]" = []  # nothing here is for importing; `bootstrap.py` is started by its path
