"""`traduko recipes`: what comes with Traduko."""

import argparse
import json

from flows.commands.options import Commands, command, json_option
from flows.commands.output import put, put_json
from pipeline.recipe import origins, read_recipe, shipped_recipes
from pipeline.stages import flatten


def add(commands: Commands) -> None:
    """Add the command."""
    parser = command(
        commands,
        "recipes",
        _recipes,
        "list the recipes that come with Traduko, or show one resolved",
        "traduko recipes show quickstart",
    )
    json_option(parser)
    verbs = parser.add_subparsers(metavar="show RECIPE")
    show = verbs.add_parser("show", help="print one, resolved")
    show.add_argument("show", metavar="RECIPE")
    parser.set_defaults(show=None)


def _recipes(arguments: argparse.Namespace) -> None:
    if arguments.show:
        _show(arguments.show, as_json=arguments.json)
        return
    recipes = shipped_recipes()
    if arguments.json:
        put_json({"recipes": recipes})
    else:
        put("\n".join(f"{name:<16} {about}" for name, about in recipes.items()))


def _show(recipe: str, *, as_json: bool) -> None:
    config = read_recipe(recipe).model_dump(mode="json", exclude_none=True)
    if as_json:
        put_json(config)
        return
    given = origins(recipe)
    for key, value in flatten(config).items():
        setting = f"{key} = {json.dumps(value, ensure_ascii=False)}"
        put(f"{setting:<48} # {given.get(key, 'default')}")
