"""`traduko run`: build what a recipe describes."""

import argparse
import contextlib
import sys

from flows.commands.options import Commands, command, flow_parameters, open_run, recipe_options
from flows.commands.output import put, put_json
from flows.progress import Terminal
from flows.run import cached_results, check_selection, document, is_done, line
from pipeline.artifact import Json, check_writable


def add(commands: Commands) -> None:
    """Add the command."""
    parser = command(
        commands,
        "run",
        _run,
        "build what a recipe describes",
        "traduko run quickstart --set train.max_steps=500",
    )
    recipe_options(parser)
    parser.add_argument(
        "--ray", metavar="ADDRESS", help="a running Ray cluster: auto or HOST:PORT; none = local"
    )


def _run(arguments: argparse.Namespace) -> None:
    with Terminal() as display:
        run = open_run(arguments, display.say)
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

            with contextlib.redirect_stdout(sys.stderr):  # Ray tells there of nodes that are gone
                found = run_here(flow_parameters(arguments), display)
    if arguments.json:
        put_json(found)
    else:
        put("\n".join(_score_lines(found)))


def _score_lines(found: Json) -> list[str]:
    """The closing summary: every score with its label, interval and signature, and the model."""
    lines = [""]
    for name, metrics in found["scores"].items():
        for score in metrics.values():
            if score:
                interval = f"[{score['low']:.1f}, {score['high']:.1f}]"
                lines.append(
                    f"{name:<20} {score['label']:<24} {score['score']:>6.2f} {interval:<14} "
                    f"{score['signature']}"
                )
    lines += [f"{what}: {found[what]}" for what in ("model", "report") if found[what]]
    return lines
