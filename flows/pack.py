"""What a job takes along to a cluster: the recipe in one file, and Traduko itself. No corpora."""

import hashlib
import io
import json
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pipeline.fetching.lock import LOCK_FILE
from pipeline.recipe import SHIPPED, anchor, find_recipe, merged

PROJECT = Path(__file__).resolve().parents[1]
PACKAGES = ("flows", "infra", "pipeline", "model")
RECIPE_FILE = "recipe.toml"
LONG_AGO = (1980, 1, 1, 0, 0, 0)
"""Of every file, so that the same files make the same package."""


class Package:
    """A zipped folder: the job's working folder."""

    def __init__(self, files: Mapping[str, bytes]):
        self.content = _zipped(files)
        self.digest = hashlib.sha256(self.content).hexdigest()

    @property
    def name(self) -> str:
        """As Ray names it: by its content."""
        return f"_ray_pkg_{self.digest[:32]}.zip"


def pack(recipe: str, overrides: Mapping[str, Any]) -> Package:
    """Traduko and a resolved recipe, paths in it made absolute.

    Raises:
        ConfigError: If the recipe cannot be read.
    """
    table = merged(recipe, overrides)
    anchor(table, Path.cwd())
    files = {RECIPE_FILE: as_toml(table).encode()}
    pins = find_recipe(recipe).resolve().parent / LOCK_FILE
    if pins.parent != SHIPPED.resolve() and pins.exists():
        files[LOCK_FILE] = pins.read_bytes()
    return Package({**files, **dict(_code())})


def as_toml(table: Mapping[str, Any]) -> str:
    """A table as TOML, one line for each of its keys."""
    return "".join(f"{_key(name)} = {_value(value)}\n" for name, value in table.items())


def _value(value: object) -> str:
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_key(name)} = {_value(below)}" for name, below in value.items())
        return f"{{{inner}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, bool | str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value)  # a number, `inf` and `nan` too, or a date


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _value(name)


def _code() -> Iterator[tuple[str, bytes]]:
    """Every file of Traduko by its path."""
    for package in PACKAGES:
        for path in (PROJECT / package).rglob("*"):
            if path.is_file() and path.suffix != ".pyc":
                yield path.relative_to(PROJECT).as_posix(), path.read_bytes()


def _zipped(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, LONG_AGO)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, files[name], zipfile.ZIP_DEFLATED)
    return buffer.getvalue()
