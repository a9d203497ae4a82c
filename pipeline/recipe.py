"""Reading a recipe: TOML with `extends`, overrides, and errors that name the field and the cure."""

import dataclasses
import difflib
import tomllib
import typing
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from pipeline.config import RunConfig
from pipeline.errors import ConfigError

SHIPPED = Path(__file__).parent / "recipes"
"""The recipes that come with Traduko."""

Table = dict[str, Any]


def shipped_recipes() -> dict[str, str]:
    """The recipes that come with Traduko: name, and the comment at its head."""
    heads = {path.stem: path.read_text(encoding="utf-8") for path in sorted(SHIPPED.glob("*.toml"))}
    return {name: text.splitlines()[0].removeprefix("# ") for name, text in heads.items()}


def read_recipe(recipe: str, overrides: Mapping[str, Any] | None = None) -> RunConfig:
    """The resolved recipe.

    Args:
        recipe: A shipped recipe's name, or the path of a TOML file.
        overrides: Values by dotted field name, e.g. `train.max_steps`; a table joins the recipe's.

    Raises:
        ConfigError: If the recipe cannot be found, read, or does not hold together.
    """
    return validate(merged(recipe, overrides))


def merged(recipe: str, overrides: Mapping[str, Any] | None = None) -> Table:
    """What a recipe, those it extends and the overrides say, in one table; not yet checked.

    Raises:
        ConfigError: If the recipe cannot be found or read.
    """
    table: Table = {}
    for _, over in _chain(find_recipe(recipe)):
        table = _merge(table, over)
    for field, value in (overrides or {}).items():
        _override(table, field, value)
    return table


def anchor(table: Table, folder: Path) -> None:
    """Make the local paths of a recipe, or of a part of one, absolute."""
    _anchor(table.get("download"), folder)
    for section in (table.get("vocab"), table.get("train")):
        if isinstance(section, dict) and "init_from" in section:
            section["init_from"] = _anchored(section["init_from"], folder)


def origins(recipe: str) -> dict[str, str]:
    """The file that gives each field of a recipe, by dotted name; the others are at their default.

    Raises:
        ConfigError: If the recipe cannot be found or read.
    """
    return {
        field: path.name for path, table in _chain(find_recipe(recipe)) for field in _fields(table)
    }


def parse_overrides(texts: Iterable[str]) -> dict[str, Any]:
    """`section.field=value` lines as values by field name; values in TOML or plain text.

    Raises:
        ConfigError: If one has no field or no equals sign.
    """
    parsed = {}
    for text in texts:
        field, equals, value = text.partition("=")
        if not equals or not field.strip():
            raise ConfigError(f"An override must read section.field=value, but is `{text}`.")
        parsed[field.strip()] = _value(value.strip())
    return parsed


def find_recipe(recipe: str) -> Path:
    """The file of a recipe given by name or path."""
    path = Path(recipe)
    if path.suffix == ".toml" or "/" in recipe:
        if not path.is_file():
            raise ConfigError(f"Recipe file {path} does not exist.")
        return path
    shipped = SHIPPED / f"{recipe}.toml"
    if not shipped.is_file():
        near = _nearest(recipe, shipped_recipes())
        raise ConfigError(f"No recipe is named `{recipe}`.{near}")
    return shipped


def validate(table: Table) -> RunConfig:
    """Check a whole recipe.

    Raises:
        ConfigError: With one line for each thing that is wrong.
    """
    try:
        return RunConfig.model_validate(table)
    except ValidationError as error:
        lines = [_explain(dict(fault)) for fault in error.errors(include_url=False)]
        raise ConfigError("\n".join(dict.fromkeys(lines))) from None


def _chain(path: Path, seen: tuple[Path, ...] = ()) -> list[tuple[Path, Table]]:
    """A recipe's file, last, after those that it extends; local paths made absolute."""
    path = path.resolve()
    if path in seen:
        raise ConfigError(f"Recipe {path} extends itself.")
    table = _parse(path)
    anchor(table, path.parent)
    parent = table.pop("extends", None)
    if parent is None:
        return [(path, table)]
    return [*_chain(find_recipe(_parent(path, parent)), (*seen, path)), (path, table)]


def _parse(path: Path) -> Table:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"Recipe {path} is not valid TOML: {error}") from None
    except OSError as error:
        raise ConfigError(f"Recipe {path} cannot be read: {error.strerror}.") from None


def _parent(path: Path, parent: object) -> str:
    """The recipe that the one in `path` extends: a name, or a file relative to it."""
    if not isinstance(parent, str):
        raise ConfigError(f"`extends` in {path} must name a recipe, but is {parent!r}.")
    return str(path.parent / parent) if parent.endswith(".toml") else parent


def _fields(table: Table, prefix: str = "") -> Iterator[str]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _fields(value, f"{prefix}{name}.")
        else:
            yield prefix + name


def _anchor(download: object, folder: Path) -> None:
    """Make local paths relative to the recipe that names them."""
    if not isinstance(download, dict):
        return
    for name, sources in download.items():
        if name == "mirrors" and isinstance(sources, dict):
            download[name] = {prefix: _anchored(uri, folder) for prefix, uri in sources.items()}
        for source in sources if isinstance(sources, list) else []:
            for side in ("src", "tgt", "pairs"):
                if isinstance(source, dict) and side in source:
                    source[side] = _anchored(source[side], folder)


def _anchored(side: object, folder: Path) -> object:
    if isinstance(side, str) and "://" not in side:
        return str((folder / side).resolve())
    if isinstance(side, dict) and isinstance(side.get("path"), str):
        return {**side, "path": str((folder / side["path"]).resolve())}
    return side


def _merge(base: Table, over: Mapping[str, Any]) -> Table:
    """`over` on top of `base`: tables merge, everything else is replaced."""
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        both = isinstance(below, dict) and isinstance(value, dict)
        merged[key] = _merge(typing.cast("Table", below), value) if both else value
    return merged


def _override(table: Table, field: str, value: Any) -> None:  # noqa: ANN401 - any TOML value
    *sections, name = field.split(".")
    for section in sections:
        below = table.setdefault(section, {})
        if not isinstance(below, dict):
            raise ConfigError(f"`{field}` cannot be overridden: `{section}` is no section.")
        table = below
    table.update(_merge(table, {name: value}))


def _value(text: str) -> Any:  # noqa: ANN401 - any TOML value
    """A TOML value; what is not one is plain text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _explain(fault: dict[str, Any]) -> str:
    """One line for one fault that pydantic found."""
    place = [str(part) for part in fault["loc"] if not _is_union_branch(str(part))]
    field = ".".join(place)
    if fault["type"] in {"extra_forbidden", "unexpected_keyword_argument"}:
        near = _nearest(place[-1], _fields_at(place[:-1]), prefix=place[:-1])
        return f"`{field}` is not a field of a recipe.{near}"
    if fault["type"] == "missing":
        return f"`{field}` is missing: every recipe must give it."
    message = fault["msg"].removeprefix("Value error, ").removeprefix("Input ").rstrip(".")
    message = message.replace("should", "must", 1)
    if fault["type"] == "value_error":
        return f"{'In `' + field + '`: ' if field else ''}{message}."
    return f"`{field}` {message}, but is {fault['input']!r}."


def _is_union_branch(part: str) -> bool:
    """Pydantic names the tried type as if it were a field: constrained-int, literal['auto']."""
    return "[" in part or "-" in part


def _nearest(name: str, names: Iterable[str], prefix: Iterable[str] = ()) -> str:
    names = list(names)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if near:
        return f" Did you mean `{'.'.join([*prefix, near[0]])}`?"
    return f" There are: {', '.join(names)}." if names else ""


def _fields_at(place: list[str]) -> list[str]:
    """Names of the fields of the section at `place`, as far as it can be followed."""
    section: Any = RunConfig
    for name in place:
        if not name.isdigit():
            section = _section_type(_annotations(section).get(name))
    return list(_annotations(section))


def _annotations(section: Any) -> dict[str, Any]:  # noqa: ANN401 - a section's class
    if isinstance(section, type) and issubclass(section, BaseModel):
        return {name: field.annotation for name, field in section.model_fields.items()}
    if isinstance(section, type) and dataclasses.is_dataclass(section):
        return {field.name: field.type for field in dataclasses.fields(section)}
    return {}


def _section_type(annotation: Any) -> Any:  # noqa: ANN401 - a type expression
    """The section inside `Section | None` or `list[Section]`."""
    for inner in typing.get_args(annotation):
        if _annotations(inner):
            return inner
    return annotation
