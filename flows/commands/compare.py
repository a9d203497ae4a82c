"""`traduko compare`: is one system better than another, or is it chance?"""

import argparse
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from flows.commands.options import Commands, command, json_option
from flows.commands.output import put, put_json, say
from flows.run import make_run
from pipeline.artifact import Json
from pipeline.errors import InputError
from pipeline.recipe import shipped_recipes

if TYPE_CHECKING:
    from pipeline.scoring.compare import System


def add(commands: Commands) -> None:
    """Add the command."""
    parser = command(
        commands,
        "compare",
        _compare,
        "compare systems on the same test sets, with significance tests",
        "traduko compare artifacts/evaluate/0123456789abcdef my.toml  or  "
        "traduko compare --reference ref.de --tgt de base.de new.de",
    )
    json_option(parser)
    parser.add_argument("systems", nargs="+", metavar="SYSTEM", help="the baseline, then others: a folder that `evaluate` made, a recipe, or with --reference a file of translations")  # fmt: skip
    parser.add_argument("--reference", type=Path, metavar="FILE", help="the references of files of translations, a line each")  # fmt: skip
    parser.add_argument("--source", type=Path, metavar="FILE", help="their sources, to be shown")
    parser.add_argument("--tgt", metavar="CODE", help="their language, which tells BLEU's tokenizer")  # fmt: skip
    parser.add_argument("--test", metavar="NAME", help="the one test set to compare; none = all")
    parser.add_argument("--sentences", type=int, default=5, metavar="N", help="how many of the sentences that differ most to show; default 5")  # fmt: skip
    parser.add_argument("--root", metavar="FOLDER", help="where the artifacts of recipes live")


def _compare(arguments: argparse.Namespace) -> None:
    from pipeline.scoring.compare import compare

    names = arguments.systems
    if len(names) < 2 or len(set(names)) < len(names):
        raise InputError("`compare` needs two or more different systems, the baseline first.")
    systems = [_of_test(_open(name, arguments), arguments.test) for name in names]
    found = compare(systems, max(0, arguments.sentences))
    if arguments.json:
        put_json(found)
    else:
        put("\n".join(_lines(found)))


def _open(name: str, arguments: argparse.Namespace) -> "System":
    """A system, told by what its name is: a folder, a recipe or a file."""
    from pipeline.scoring.compare import read_evaluated, read_files
    from pipeline.scoring.metrics import Kind, tokenizer_for

    path = Path(name)
    if path.is_dir():
        return read_evaluated(name, path)
    if path.suffix == ".toml" or name in shipped_recipes():
        return read_evaluated(name, _evaluated(name, arguments.root))
    if not (arguments.reference and arguments.tgt):
        raise InputError(
            f"`{name}` is neither a folder nor a recipe; a file of translations needs --reference "
            "and --tgt."
        )
    kind = Kind(arguments.tgt, tokenizer_for(arguments.tgt))
    test = arguments.test or arguments.reference.stem
    return read_files(path, arguments.reference, arguments.source, kind, test)


def _evaluated(recipe: str, root: str | None) -> Path:
    run = make_run(recipe, {}, root=root, environment=os.environ, say=say)
    for step in run.plan():
        if step.node.stage.name == "evaluate" and step.artifact:
            return step.artifact.folder
    raise InputError(
        f"Recipe `{recipe}` is not evaluated in {run.root.folder}: run `traduko run {recipe}` first."
    )


def _of_test(system: "System", test: str | None) -> "System":
    if test is None:
        return system
    if test not in system.sets:
        raise InputError(
            f"{system.name} has no test set `{test}`; it has {', '.join(system.sets)}."
        )
    return replace(system, sets={test: system.sets[test]})


def _lines(found: Json) -> list[str]:
    lines = []
    for test, compared in found["sets"].items():
        lines += ["", f"{test}: {compared['sentences']:,} sentences"]
        for metric in compared["metrics"].values():
            lines += [
                "",
                f"  {metric['label']}  {metric['signature']}",
                *map(_row, metric["systems"]),
            ]
        for differing in compared["differ_most"]:
            lines += _sentence(found["systems"][0], differing)
    tests = f"{found['bootstrap_samples']:,} resamples, {found['randomisation_trials']:,} trials"
    return [*lines, "", f"p: of no difference to the first system ({tests}, seed {found['seed']})"]


def _row(scored: Json) -> str:
    shown = f"    {scored['score']:>6.2f} [{scored['low']:.1f}, {scored['high']:.1f}]"
    if "difference" in scored:
        shown += (
            f"  {scored['difference']:>+6.2f}  bootstrap p {scored['p_bootstrap']:.4f}"
            f"  randomisation p {scored['p_randomisation']:.4f}"
        )
    else:
        shown += "  baseline".ljust(52)
    return f"{shown}  {scored['system']}"


def _sentence(baseline: str, differing: Json) -> list[str]:
    named = {
        f"{baseline} (chrF2 {differing['baseline']['chrf2']})": differing["baseline"]["hypothesis"],
        f"{differing['system']} (chrF2 {differing['other']['chrf2']})": differing["other"][
            "hypothesis"
        ],
    }
    texts = {"source": differing["src"], "reference": differing["ref"], **named}
    shown = [f"    {name}: {text}" for name, text in texts.items() if text is not None]
    return ["", f"  line {differing['line']}", *shown]
