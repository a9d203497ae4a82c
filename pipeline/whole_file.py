"""A file is there whole, or not at all."""

import contextlib
import uuid
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def whole_file(path: Path, scratch: Path | None = None) -> Iterator[Path]:
    """A name to write a file under, which becomes `path` once it is whole: a task may run twice.

    What was written is removed if the body fails. What a killed process leaves is in `scratch`, on
    the same disk; none = the file's own folder.
    """
    partial_path = (scratch or path.parent) / f"{path.name}.{uuid.uuid4().hex}"
    try:
        yield partial_path
        partial_path.replace(path)
    except BaseException:
        partial_path.unlink(missing_ok=True)
        raise
