"""`traduko init`: a recipe for one's own text."""

import argparse
from pathlib import Path

from flows.commands.options import Commands, command, json_option
from flows.commands.output import put, put_json
from flows.init import OwnText, write_recipe


def add(commands: Commands) -> None:
    """Add the command."""
    parser = command(
        commands,
        "init",
        _init,
        "write a recipe for your own text",
        "traduko init my.toml --src en --tgt de --train corpus.en corpus.de",
    )
    _options(parser)


def _init(arguments: argparse.Namespace) -> None:
    own = OwnText(arguments.src, arguments.tgt, arguments.train, arguments.dev, arguments.test)
    write_recipe(arguments.recipe, own, arguments.name, force=arguments.force)
    if arguments.json:
        put_json({"recipe": str(arguments.recipe)})
    else:
        put(f"{arguments.recipe} is written. Next: traduko plan {arguments.recipe}")


def _options(parser: argparse.ArgumentParser) -> None:
    json_option(parser)
    parser.add_argument("recipe", type=Path, metavar="RECIPE.toml", help="the file to write")
    parser.add_argument("--src", required=True, metavar="CODE", help="source language, e.g. en")
    parser.add_argument("--tgt", required=True, metavar="CODE", help="target language, e.g. de")
    about = {
        "train": "text to learn from",
        "dev": "a set to watch the loss on; none = held out of the text",
        "test": "a set to score; none = held out of the text",
    }
    for kind, what in about.items():
        parser.add_argument(f"--{kind}", action="append", nargs="+", type=Path, default=[], required=kind == "train", metavar="FILE", help=f"{what}: two aligned files, or one TSV or JSONL; may be given again")  # fmt: skip
    parser.add_argument("--name", metavar="NAME", help="the recipe's name; none = the file's")
    parser.add_argument("--force", action="store_true", help="write over a file that is there")
