"""`traduko.lock`: what each address gave when it was fetched for the first time.

    {"files": {ADDRESS: {"bytes": N, "sha256": HEX}, …}, "version": 1}

It lies beside a user's recipe, one line a file, to be kept with that under version control. From
then on another file from an address is an error, until a person removes the address's line.
"""

import contextlib
import fcntl
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, ValidationError

from pipeline.errors import ConfigError
from pipeline.section import Section, Sha256
from pipeline.whole_file import whole_file

LOCK_FILE = "traduko.lock"


class Pin(NamedTuple):
    """What an address gave."""

    sha256: str
    size_bytes: int


class Lock:
    """The pins of the recipes in one folder, by recorded address."""

    def __init__(self, path: Path, say: Callable[[str], None]):
        """Read the lock; one that is not there pins nothing.

        Raises:
            ConfigError: If it cannot be read.
        """
        self.path = path
        self._say = say
        self._pins = _read(path)
        self._has_warned = False

    def pins(self) -> dict[str, Pin]:
        """What is pinned."""
        return dict(self._pins)

    def add(self, pins: Mapping[str, Pin]) -> None:
        """Pin what is not pinned yet. A folder that takes no files is said once, and stops nothing.

        Raises:
            ConfigError: If the lock was made unreadable meanwhile.
        """
        new = {name: pin for name, pin in pins.items() if name not in self._pins}
        if not new:
            return
        self._pins |= new
        try:
            with _alone(self.path.parent):
                _write(self.path, {**new, **_read(self.path)})  # what another run pinned stays
        except OSError as error:
            if not self._has_warned:
                self._say(
                    f"{self.path} cannot be written ({error.strerror}): what addresses without "
                    "sha256 gave is not pinned, and may be another file next time."
                )
            self._has_warned = True


class _File(Section):
    bytes: Annotated[int, Field(ge=0)]
    sha256: Sha256


class _Content(Section):
    version: Literal[1]
    files: dict[str, _File]


def _read(path: Path) -> dict[str, Pin]:
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}.") from None
    # Removing the last line, as messages ask for, leaves a comma that JSON does not allow.
    text = re.sub(r",(\s*\}\s*,\s*\"version\")", r"\1", text)
    try:
        content = _Content.model_validate_json(text)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in fault["loc"])
        raise ConfigError(
            f'{path} must be JSON like {{"files": {{ADDRESS: {{"bytes": 1, "sha256": HEX}}}}, '
            f'"version": 1}}, but {where or "it"} is not: {fault["msg"]}. Restore it, or remove it '
            "to pin again what the addresses give now."
        ) from None
    return {name: Pin(file.sha256, file.bytes) for name, file in content.files.items()}


def _write(path: Path, pins: Mapping[str, Pin]) -> None:
    """The lock, whole or not at all, and durably."""
    lines = ",\n".join(
        f"  {json.dumps(name, ensure_ascii=False)}: "
        f'{{"bytes": {pins[name].size_bytes}, "sha256": "{pins[name].sha256}"}}'
        for name in sorted(pins)
    )
    with (
        whole_file(path) as temporary,
        temporary.open("w", encoding="utf-8", newline="\n") as file,
    ):
        file.write(f'{{\n "files": {{\n{lines}\n }},\n "version": 1\n}}\n')
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One writer at a time: the folder itself is locked, so that nothing is left in it."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # not every file system has locks: a pin may come later
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
