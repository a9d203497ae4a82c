"""`traduko`: the command line.

Exit codes: 0 done, 1 failed, 2 wrong input, 130 interrupted.
"""

import argparse
import errno
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from flows.environment import turn_off_reporting
from flows.progress import Terminal
from flows.run import (
    Run,
    cached_results,
    check_selection,
    document,
    is_done,
    line,
    make_run,
)
from pipeline.artifact import Json, check_writable
from pipeline.dag import STAGE_NAMES, Planned, flatten
from pipeline.errors import ConfigError, TradukoError
from pipeline.recipe import origins, parse_overrides, read_recipe, shipped_recipes

INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    arguments = _parser().parse_args(argv)
    turn_off_reporting()
    command: Callable[[argparse.Namespace], None] = arguments.command
    try:
        command(arguments)
    except TradukoError as error:
        return _fail(arguments, str(error), error.kind, error.exit_code)
    except OSError as error:
        return _fail(arguments, _explain(error), "failed", 1)
    except KeyboardInterrupt:
        return _fail(
            arguments, "Interrupted. Run the same command to go on.", "interrupted", INTERRUPTED
        )
    return 0


def _run(arguments: argparse.Namespace) -> None:
    with Terminal() as display:
        run = _make_run(arguments, display.say)
        planned = run.plan()
        if is_done(planned, run.selection):  # answer at once: no engine is started
            results = cached_results(planned)
            run.settle(results)
            for result in results:
                display.say(line(result))
            found = document(run, results)
        else:
            check_selection(planned, run.selection)
            check_writable(run.root.folder)
            from flows.nmt import run_here

            found = run_here(_flow_parameters(arguments), display)
    _print(json.dumps(found) if arguments.json else "\n".join(_score_lines(found)))


def _plan(arguments: argparse.Namespace) -> None:
    planned = _make_run(arguments, _say).plan()
    if arguments.json:
        _print(json.dumps({"stages": [_planned_document(step) for step in planned]}))
    else:
        _print("\n".join(_plan_line(step) for step in planned))


def _translate(arguments: argparse.Namespace) -> None:
    from flows.translate import find_model, open_model, translate
    from model.config import SearchConfig

    model = arguments.model
    bundle = open_model(Path(model) if model else find_model(_make_run(arguments, _say)))
    search = SearchConfig(beam_size=arguments.beam_size, length_penalty=arguments.length_penalty)
    files = [Path(name) for name in arguments.files]
    with Terminal() as terminal:
        try:
            translate(bundle, files, sys.stdout.buffer, search, terminal)
        except BrokenPipeError:  # whoever reads has enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _init(arguments: argparse.Namespace) -> None:
    from flows.init import OwnText, write_recipe

    own = OwnText(arguments.src, arguments.tgt, arguments.train, arguments.dev, arguments.test)
    write_recipe(arguments.recipe, own, arguments.name, force=arguments.force)
    if arguments.json:
        _print(json.dumps({"recipe": str(arguments.recipe)}))
    else:
        _print(f"{arguments.recipe} is written. Next: traduko plan {arguments.recipe}")


def _recipes(arguments: argparse.Namespace) -> None:
    if arguments.show:
        config = read_recipe(arguments.show).model_dump(mode="json", exclude_none=True)
        given = origins(arguments.show)
        lines = [
            f"{f'{key} = {json.dumps(value, ensure_ascii=False)}':<48} # {given.get(key, 'default')}"
            for key, value in flatten(config).items()
        ]
        _print(json.dumps(config) if arguments.json else "\n".join(lines))
        return
    recipes = shipped_recipes()
    lines = [f"{name:<16} {about}" for name, about in recipes.items()]
    _print(json.dumps({"recipes": recipes}) if arguments.json else "\n".join(lines))


def _flow_parameters(arguments: argparse.Namespace) -> Json:
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


def _make_run(arguments: argparse.Namespace, say: Callable[[str], None]) -> Run:
    parameters = _flow_parameters(arguments)
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


def _score_lines(found: Json) -> list[str]:
    """The closing summary: every score with its interval and signature, and the model."""
    lines = [""]
    for name, metrics in found["scores"].items():
        for metric, score in metrics.items():
            if score:
                interval = f"[{score['low']:.1f}, {score['high']:.1f}]"
                lines.append(
                    f"{name:<20} {metric:<6} {score['score']:>6.2f} {interval:<14} "
                    f"{score['signature']}"
                )
    return [*lines, f"model: {found['model']}"] if found["model"] else lines


def _planned_document(step: Planned) -> Json:
    return {
        "stage": step.node.stage.name,
        "source": step.node.source.name if step.node.source else None,
        "fingerprint": step.fingerprint,
        "status": step.status,
        "reason": step.reason,
    }


def _plan_line(step: Planned) -> str:
    status = {"cached": "cached", "run": "will run", "depends": "depends", "damaged": "damaged"}
    return f"{step.node.name:<26} {status[step.status]:<10} {step.reason}".rstrip()


def _print(text: str) -> None:
    print(text)  # noqa: T201 - the command line's own output


def _say(text: str) -> None:
    print(text, file=sys.stderr)  # noqa: T201


def _explain(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    if error.errno == errno.ENOSPC:
        return (
            f"{where}no space is left on the disk. Free some, or choose another one with --root; "
            "then the same command goes on."
        )
    return f"{where}{error.strerror or error}"


def _fail(arguments: argparse.Namespace, message: str, kind: str, code: int) -> int:
    if getattr(arguments, "json", False):
        _print(json.dumps({"error": {"kind": kind, "message": message}}))
    _say(f"traduko: {message}")
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="traduko", description="Parallel text in, a scored translation model out."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _init_options(
        _command(
            commands,
            "init",
            _init,
            "write a recipe for your own text",
            "traduko init my.toml --src en --tgt de --train corpus.en corpus.de",
        )
    )
    run = _command(
        commands,
        "run",
        _run,
        "build what a recipe describes",
        "traduko run quickstart --set train.max_steps=500",
    )
    _recipe_options(run)
    run.add_argument(
        "--ray", metavar="ADDRESS", help="a running Ray cluster: auto or HOST:PORT; none = local"
    )
    plan = _command(
        commands,
        "plan",
        _plan,
        "say which stages would run, and why",
        "traduko plan quickstart --set clean.max_words=40",
    )
    _recipe_options(plan)
    _translate_options(
        _command(
            commands,
            "translate",
            _translate,
            "translate lines of files or of standard input",
            "traduko translate --recipe quickstart < english.txt > german.txt",
        )
    )
    recipes = _command(
        commands,
        "recipes",
        _recipes,
        "list the recipes that come with Traduko, or show one resolved",
        "traduko recipes show quickstart",
    )
    _json_option(recipes)
    verbs = recipes.add_subparsers(metavar="show RECIPE")
    show = verbs.add_parser("show", help="print one, resolved")
    show.add_argument("show", metavar="RECIPE")
    recipes.set_defaults(show=None)
    return parser


def _command(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    function: Callable[[argparse.Namespace], None],
    about: str,
    example: str,
) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        name,
        help=about,
        description=f"{about[0].upper()}{about[1:]}.",
        epilog=f"example: {example}",
    )
    parser.set_defaults(command=function)
    return parser


def _json_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")


def _recipe_options(parser: argparse.ArgumentParser) -> None:
    _json_option(parser)
    parser.add_argument("recipe", metavar="RECIPE", help="a shipped recipe's name, or a TOML file")
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help="override a field, e.g. train.max_steps=500")  # fmt: skip
    parser.add_argument("--root", metavar="FOLDER", help="where artifacts live; default TRADUKO_ROOT, the recipe's, or ./artifacts")  # fmt: skip
    parser.add_argument("--mirror", action="append", default=[], metavar="PREFIX=URI", help="serve addresses that begin with PREFIX from a folder or another address")  # fmt: skip
    selection = parser.add_mutually_exclusive_group()
    selection.add_argument("--only", choices=STAGE_NAMES, metavar="STAGE", help="build this stage alone, from artifacts that are there")  # fmt: skip
    selection.add_argument("--from", dest="start", choices=STAGE_NAMES, metavar="STAGE", help="build this stage and what follows")  # fmt: skip
    parser.add_argument("--force", action="store_true", help="rebuild what is selected, even if it is there")  # fmt: skip


def _init_options(parser: argparse.ArgumentParser) -> None:
    _json_option(parser)
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


def _translate_options(parser: argparse.ArgumentParser) -> None:
    model = parser.add_mutually_exclusive_group(required=True)
    model.add_argument("--recipe", metavar="RECIPE", help="take the model that this recipe gave")
    model.add_argument("--model", metavar="FOLDER", help="take the model in this folder")
    parser.add_argument("files", nargs="*", metavar="FILE", help="text, one sentence a line; none = standard input")  # fmt: skip
    parser.add_argument("--beam-size", type=int, default=4, metavar="N", help="hypotheses followed at once; 1 is greedy")  # fmt: skip
    parser.add_argument("--length-penalty", type=float, default=0.6, metavar="ALPHA", help="the higher, the longer the translations")  # fmt: skip
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help="an override that the recipe was run with")  # fmt: skip
    parser.add_argument("--root", metavar="FOLDER", help="where artifacts live")
    parser.set_defaults(mirror=[], only=None, start=None, force=False)


if __name__ == "__main__":
    sys.exit(main())
