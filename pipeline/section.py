"""What every section of a recipe is: frozen, without unknown keys, its fields keyed or not."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=80)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
AtLeastOne = Annotated[int, Field(ge=1)]


class Unkeyed:
    """Marks a field that does not determine a result."""


class Section(BaseModel):
    """A part of a recipe."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True
    )


def keyed(config: BaseModel, *, defaults: bool = False) -> dict[str, Any]:
    """The fields that determine a result, as JSON values.

    Fields at their default are left out unless `defaults`, so that a new field invalidates nothing.
    """
    values = config.model_dump(mode="json", exclude_defaults=not defaults)
    _drop_unkeyed(config, values)
    return values


def _drop_unkeyed(config: BaseModel, values: dict[str, Any]) -> None:
    """Take out the fields that do not count, and the sections that they leave empty."""
    for name in list(values):
        section = getattr(config, name)
        if isinstance(section, BaseModel):
            _drop_unkeyed(section, values[name])
        if Unkeyed in type(config).model_fields[name].metadata or values[name] == {}:
            del values[name]
