"""SHA-256 of local files, remembered by path, size, mtime and inode."""

import contextlib
import json
from pathlib import Path

from pipeline.artifact import digest_file, write_json
from pipeline.errors import CorpusError


class FileDigests:
    """Hashes each local file once, until it changes. The memory is a file in the root."""

    def __init__(self, memory: Path):
        self._memory = memory
        self._known: dict[str, list[object]] = _read(memory)

    def of(self, path: Path) -> str:
        """The file's sha256.

        Raises:
            CorpusError: If there is no such file.
        """
        if not path.exists():
            raise CorpusError(f"File {path} does not exist. Check the path in the recipe.")
        if not path.is_file():
            raise CorpusError(f"{path} must be a file, but is a folder.")
        state = path.stat()
        stamp = [state.st_size, state.st_mtime_ns, state.st_ino]
        known = self._known.get(str(path))
        if known and known[:3] == stamp:
            return str(known[3])
        try:
            digest = digest_file(path)
        except OSError as error:
            raise CorpusError(f"File {path} cannot be read: {error.strerror}.") from None
        self._known[str(path)] = [*stamp, digest]
        with contextlib.suppress(OSError):  # a root that cannot be written only costs the memory
            self._memory.parent.mkdir(parents=True, exist_ok=True)
            write_json(self._memory, self._known)
        return digest


def _read(memory: Path) -> dict[str, list[object]]:
    try:
        known = json.loads(memory.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}
