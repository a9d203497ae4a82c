"""`traduko`: the command line.

Exit codes: 0 done, 1 failed, 2 wrong input, 130 interrupted.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from flows.run import Result, Run, scores
from flows.progress import Display
from pipeline.artifact import Json, Root
from pipeline.config import RunConfig
from pipeline.dag import STAGE_NAMES, Planned, Selection, flatten
from pipeline.errors import ConfigError, TradukoError
from pipeline.recipe import read_recipe, shipped_recipes

INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    arguments = _parser().parse_args(argv)
    command: Callable[[argparse.Namespace], None] = arguments.command
    try:
        command(arguments)
    except TradukoError as error:
        return _fail(arguments, str(error), error.kind, error.exit_code)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _fail(arguments, f"{where}{error.strerror or error}", "failed", 1)
    except KeyboardInterrupt:
        return _fail(
            arguments, "Interrupted. Run the same command to go on.", "interrupted", INTERRUPTED
        )
    return 0


def _run(arguments: argparse.Namespace) -> None:
    from flows.cluster import Cluster
    from pipeline.ray_compute import RayCompute

    with Display() as display:
        run = _make_run(arguments, display.say)
        cluster = Cluster(arguments.ray)
        try:
            results = run.execute(RayCompute(cluster.connect), display)
        finally:
            cluster.leave()
    if arguments.json:
        _print(json.dumps(_document(run, results)))
    else:
        _print("\n".join(_score_lines(results)))


def _plan(arguments: argparse.Namespace) -> None:
    run = _make_run(arguments, lambda line: print(line, file=sys.stderr))  # noqa: T201
    planned = run.plan()
    if arguments.json:
        _print(json.dumps({"stages": [_planned_document(step) for step in planned]}))
    else:
        _print("\n".join(_plan_line(step) for step in planned))


def _recipes(arguments: argparse.Namespace) -> None:
    if arguments.show:
        config = read_recipe(arguments.show).model_dump(mode="json", exclude_none=True)
        lines = [f"{key} = {json.dumps(value)}" for key, value in flatten(config).items()]
        _print(json.dumps(config) if arguments.json else "\n".join(lines))
        return
    recipes = shipped_recipes()
    lines = [f"{name:<16} {about}" for name, about in recipes.items()]
    _print(json.dumps({"recipes": recipes}) if arguments.json else "\n".join(lines))


def _make_run(arguments: argparse.Namespace, say: Callable[[str], None]) -> Run:
    config = read_recipe(arguments.recipe, arguments.set, dict(map(_mirror, arguments.mirror)))
    selection = Selection.of(arguments.only, arguments.start, force=arguments.force)
    return Run(config, Root(_root(arguments, config), say), selection)


def _root(arguments: argparse.Namespace, config: RunConfig) -> Path:
    named = arguments.root or os.environ.get("TRADUKO_ROOT") or config.root or "artifacts"
    return Path(named).expanduser().resolve()


def _mirror(text: str) -> tuple[str, str]:
    """PREFIX=URI; a folder is made absolute."""
    prefix, equals, uri = text.partition("=")
    if not (prefix and equals and uri):
        raise ConfigError(f"A mirror must read PREFIX=FOLDER or PREFIX=ADDRESS, but is `{text}`.")
    return prefix, uri if "://" in uri else str(Path(uri).resolve())


def _document(run: Run, results: Sequence[Result]) -> Json:
    models = [result for result in results if result.node.stage.name == "average"]
    return {
        "recipe": run.config.name,
        "root": str(run.root.folder),
        "stages": [
            {
                "stage": result.node.stage.name,
                "source": result.node.source.name if result.node.source else None,
                "fingerprint": result.artifact.manifest.fingerprint,
                "folder": str(result.artifact.folder),
                "cached": result.cached,
                "took_s": round(result.took_s, 3),
                "stats": result.artifact.stats,
            }
            for result in results
        ],
        "scores": scores(results),
        "model": str(models[0].artifact.folder) if models else None,
        "report": None,
        "mlflow_run_id": None,
    }


def _score_lines(results: Sequence[Result]) -> list[str]:
    """The closing summary: every score with its interval and signature, and the model."""
    lines = [""]
    for name, metrics in scores(results).items():
        for metric, found in metrics.items():
            if found:
                interval = f"[{found['low']:.1f}, {found['high']:.1f}]"
                lines.append(
                    f"{name:<20} {metric:<6} {found['score']:>6.2f} {interval:<14} "
                    f"{found['signature']}"
                )
    models = [result for result in results if result.node.stage.name == "average"]
    return [*lines, *(f"model: {result.artifact.folder}" for result in models)]


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


def _fail(arguments: argparse.Namespace, message: str, kind: str, code: int) -> int:
    if getattr(arguments, "json", False):
        _print(json.dumps({"error": {"kind": kind, "message": message}}))
    print(f"traduko: {message}", file=sys.stderr)  # noqa: T201
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="traduko", description="Parallel text in, a scored translation model out."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
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
    recipes = _command(
        commands,
        "recipes",
        _recipes,
        "list the recipes that come with Traduko, or show one resolved",
        "traduko recipes show quickstart",
    )
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
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")
    return parser


def _recipe_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recipe", metavar="RECIPE", help="a shipped recipe's name, or a TOML file")
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help="override a field, e.g. train.max_steps=500")  # fmt: skip
    parser.add_argument("--root", metavar="FOLDER", help="where artifacts live; default TRADUKO_ROOT, the recipe's, or ./artifacts")  # fmt: skip
    parser.add_argument("--mirror", action="append", default=[], metavar="PREFIX=URI", help="serve addresses that begin with PREFIX from a folder or another address")  # fmt: skip
    selection = parser.add_mutually_exclusive_group()
    selection.add_argument("--only", choices=STAGE_NAMES, metavar="STAGE", help="build this stage alone, from artifacts that are there")  # fmt: skip
    selection.add_argument("--from", dest="start", choices=STAGE_NAMES, metavar="STAGE", help="build this stage and what follows")  # fmt: skip
    parser.add_argument("--force", action="store_true", help="rebuild what is selected, even if it is there")  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
