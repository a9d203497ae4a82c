"""Options that several commands share, and what they mean."""

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from flows.run import Run, make_run, root_folder
from pipeline.artifact import Json
from pipeline.errors import ConfigError
from pipeline.recipe import parse_overrides
from pipeline.stages import STAGE_NAMES

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
"""Where a command is added."""


def command(
    commands: Commands,
    name: str,
    function: Callable[[argparse.Namespace], None],
    about: str,
    example: str,
) -> argparse.ArgumentParser:
    """A command of its own: `function` is called with what was given."""
    parser = commands.add_parser(
        name,
        help=about,
        description=f"{about[0].upper()}{about[1:]}.",
        epilog=f"example: {example}",
    )
    parser.set_defaults(command=function)
    return parser


def json_option(parser: argparse.ArgumentParser) -> None:
    """`--json`."""
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")


def root_option(parser: argparse.ArgumentParser) -> None:
    """`--root`, of commands that take no recipe."""
    parser.add_argument("--root", metavar="FOLDER", help="where artifacts live; default TRADUKO_ROOT, or ./artifacts")  # fmt: skip


def root_of(arguments: argparse.Namespace) -> Path:
    """The root that `root_option` names."""
    return root_folder(arguments.root, os.environ)


def recipe_options(parser: argparse.ArgumentParser, *, may_lack: bool = False) -> None:
    """A recipe, what it is changed to, its root, and which of its stages are meant."""
    json_option(parser)
    parser.add_argument(
        "recipe",
        metavar="RECIPE",
        nargs="?" if may_lack else None,
        help="a shipped recipe's name, or a TOML file",
    )
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help="override a field, e.g. train.max_steps=500")  # fmt: skip
    parser.add_argument("--root", metavar="FOLDER", help="where artifacts live; default TRADUKO_ROOT, the recipe's, or ./artifacts")  # fmt: skip
    parser.add_argument("--mirror", action="append", default=[], metavar="PREFIX=URI", help="serve addresses that begin with PREFIX from a folder or another address")  # fmt: skip
    selection = parser.add_mutually_exclusive_group()
    selection.add_argument("--only", choices=STAGE_NAMES, metavar="STAGE", help="build this stage alone, from artifacts that are there")  # fmt: skip
    selection.add_argument("--from", dest="start", choices=STAGE_NAMES, metavar="STAGE", help="build this stage and what follows")  # fmt: skip
    parser.add_argument("--force", action="store_true", help="rebuild what is selected, even if it is there")  # fmt: skip


def flow_parameters(arguments: argparse.Namespace) -> Json:
    """What the flow takes, as the options say it."""
    overrides = parse_overrides(arguments.set)
    mirrors = dict(map(_mirror, arguments.mirror))
    if mirrors:
        overrides["download.mirrors"] = mirrors
    return {
        "recipe": arguments.recipe,
        "set": overrides,
        "only": arguments.only,
        "start": arguments.start,
        "force": arguments.force,
        "root": arguments.root,
        "ray": getattr(arguments, "ray", None),
    }


def open_run(arguments: argparse.Namespace, say: Callable[[str], None]) -> Run:
    """The recipe on its root, as `recipe_options` name them."""
    parameters = flow_parameters(arguments)
    return make_run(
        parameters["recipe"],
        parameters["set"],
        only=parameters["only"],
        start=parameters["start"],
        force=parameters["force"],
        root=parameters["root"],
        environment=os.environ,
        say=say,
    )


def _mirror(text: str) -> tuple[str, str]:
    """PREFIX=URI; a folder is made absolute."""
    prefix, equals, uri = text.partition("=")
    if not (prefix and equals and uri):
        raise ConfigError(f"A mirror must read PREFIX=FOLDER or PREFIX=ADDRESS, but is `{text}`.")
    return prefix, uri if "://" in uri else str(Path(uri).resolve())
