"""`traduko translate`: lines in, as many lines out."""

import argparse
import os
import sys
from pathlib import Path

from flows.commands.options import Commands, command, open_run
from flows.commands.output import say
from flows.progress import Terminal


def add(commands: Commands) -> None:
    """Add the command."""
    parser = command(
        commands,
        "translate",
        _translate,
        "translate lines of files or of standard input",
        "traduko translate --recipe quickstart < english.txt > german.txt",
    )
    _options(parser)


def _translate(arguments: argparse.Namespace) -> None:
    from flows.translate import find_model, open_model, translate
    from model.config import SearchConfig

    model = arguments.model
    bundle = open_model(Path(model) if model else find_model(open_run(arguments, say)))
    search = SearchConfig(beam_size=arguments.beam_size, length_penalty=arguments.length_penalty)
    files = [Path(name) for name in arguments.files]
    with Terminal() as terminal:
        try:
            translate(bundle, files, sys.stdout.buffer, search, terminal)
        except BrokenPipeError:  # whoever reads has enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _options(parser: argparse.ArgumentParser) -> None:
    model = parser.add_mutually_exclusive_group(required=True)
    model.add_argument("--recipe", metavar="RECIPE", help="take the model that this recipe gave")
    model.add_argument("--model", metavar="FOLDER", help="take the model in this folder")
    parser.add_argument("files", nargs="*", metavar="FILE", help="text, one sentence a line; none = standard input")  # fmt: skip
    parser.add_argument("--beam-size", type=int, default=4, metavar="N", help="hypotheses followed at once; 1 is greedy")  # fmt: skip
    parser.add_argument("--length-penalty", type=float, default=0.6, metavar="ALPHA", help="the higher, the longer the translations")  # fmt: skip
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help="an override that the recipe was run with")  # fmt: skip
    parser.add_argument("--root", metavar="FOLDER", help="where artifacts live")
    parser.set_defaults(mirror=[], only=None, start=None, force=False)
