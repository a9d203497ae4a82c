"""Files that appear whole and last, or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipeline.errors import TradukoError


def publish(partial: Path, target: Path) -> None:
    """Gives a finished file its name, and makes both last.

    Raises:
        TradukoError: If the disk does not take it.
    """
    with disk_errors(target):
        partial.replace(target)
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # the new name too survives a power cut
        finally:
            os.close(folder)


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Tells what the disk refused as a TradukoError that names the file."""
    try:
        yield
    except OSError as error:
        raise TradukoError(
            f"`{path}` could not be written: {error.strerror}. Make room or check the disk."
        ) from error
