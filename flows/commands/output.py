"""What commands print: results to standard output, all else to standard error."""

import json
import sys

from pipeline.artifact import Json


def put(text: str) -> None:
    """A line or more of the command's result."""
    print(text)  # noqa: T201 - the command line's own output


def put_json(document: Json) -> None:
    """The one document of `--json`."""
    put(json.dumps(document))


def say(text: str) -> None:
    """A line for whoever watches."""
    print(text, file=sys.stderr)  # noqa: T201
