"""Write files so that a reader sees the old content or the new content, never a part."""

import os
from pathlib import Path


def replace_file(path: Path, content: str | bytes, *, mode: int = 0o666) -> None:
    """Write a file under a temporary name and rename it to `path`. One process writes a given file at a time.

    Text is written in UTF-8; characters that UTF-8 cannot encode become escapes. `mode`: permissions of the new file,
    reduced by the umask.

    Raises:
        OSError: the file cannot be written; `path` is unchanged.
    """
    data = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
    draft = path.with_name(f".{path.name}.new")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb") as file:
        file.write(data)
    draft.replace(path)
