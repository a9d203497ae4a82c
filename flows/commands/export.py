"""`traduko export`: a model for another engine."""

import argparse
from pathlib import Path

from flows.commands.options import Commands, command, json_option, open_run
from flows.commands.output import put, put_json, say


def add(commands: Commands) -> None:
    """Add the command."""
    parser = command(
        commands,
        "export",
        _export,
        "write a model for CTranslate2",
        "traduko export --recipe quickstart --output exported --quantization int8",
    )
    json_option(parser)
    model = parser.add_mutually_exclusive_group(required=True)
    model.add_argument("--recipe", metavar="RECIPE", help="take the model that this recipe gave")
    model.add_argument("--model", metavar="MODEL", help="take the model in this folder, or one of MLflow: models:/NAME@ALIAS")  # fmt: skip
    parser.add_argument("--format", choices=("ctranslate2",), default="ctranslate2", help="whose; needs the extra `traduko[export]`")  # fmt: skip
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER", help="a new or empty folder")  # fmt: skip
    parser.add_argument("--quantization", choices=("int8", "int16", "float16", "bfloat16"), help="number format of the weights; none = fp32")  # fmt: skip
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help="an override that the recipe was run with")  # fmt: skip
    parser.add_argument("--root", metavar="FOLDER", help="where artifacts live")
    parser.set_defaults(mirror=[], only=None, start=None, force=False)


def _export(arguments: argparse.Namespace) -> None:
    from flows.models import find_folder, recipe_folder
    from pipeline.translating.export import export_ctranslate2
    from pipeline.translating.translator import model_folder

    if arguments.model:
        folder = find_folder(arguments.model, Path(arguments.root) if arguments.root else None)
    else:
        folder = recipe_folder(open_run(arguments, say))
    about = export_ctranslate2(model_folder(folder), arguments.output, arguments.quantization)
    if arguments.json:
        put_json({"folder": str(arguments.output), **about})
    else:
        put(f"{arguments.output} is written. Next: traduko translate --model {arguments.output}")
