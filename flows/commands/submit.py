"""`traduko submit`: run a recipe as a job of a Ray cluster, and watch it from here."""

import argparse
import os

from flows.commands.options import Commands, command, flow_parameters, recipe_options
from flows.commands.output import put, put_json, say
from flows.jobs import Jobs
from flows.run import root_folder
from flows.submit import EndedError, Work, document_in, follow, how_to_go_on, start, stop
from pipeline.errors import ConfigError
from pipeline.recipe import read_recipe


def add(commands: Commands) -> None:
    """Add the command."""
    parser = command(
        commands,
        "submit",
        _submit,
        "run a recipe as a job of a Ray cluster, and show its log",
        "traduko submit quickstart --ray http://head:8265 --root /shared/artifacts",
    )
    recipe_options(parser, may_lack=True)
    parser.add_argument("--ray", metavar="URL", help="the cluster's dashboard, http://HOST:8265; default RAY_API_SERVER_ADDRESS")  # fmt: skip
    parser.add_argument("--python", metavar="COMMAND", help="the cluster's Python with Traduko's packages; default this one's path, else python3")  # fmt: skip
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--detach", action="store_true", help="start the job and leave it")
    what.add_argument("--follow", metavar="JOB", help="show the log of a job to its end")
    what.add_argument("--stop", metavar="JOB", help="let a job save what it has, and end it")


def _submit(arguments: argparse.Namespace) -> None:
    if bool(arguments.recipe) == bool(arguments.follow or arguments.stop):
        raise ConfigError("Give either a RECIPE, or a job with --follow or --stop.")
    address = arguments.ray or os.environ.get("RAY_API_SERVER_ADDRESS")
    if not address:
        raise ConfigError("Name the cluster's dashboard: --ray http://HOST:8265.")
    work = _work(arguments) if arguments.recipe else None
    jobs = Jobs(address)
    if arguments.stop:
        _stop(jobs, arguments)
        return
    job = start(jobs, work, say) if work else arguments.follow
    how = how_to_go_on(jobs, job)
    arguments.on_interrupt = f"Job {job} goes on.\n{how}"
    if arguments.detach:
        _told(arguments, job, "started", how)
        return
    say(f"Job {job}")
    _follow(jobs, job, as_json=arguments.json)


def _work(arguments: argparse.Namespace) -> Work:
    """What is asked for, checked as far as it can be here.

    Raises:
        ConfigError: If the recipe is wrong, or no root is named.
    """
    overrides = flow_parameters(arguments)["set"]
    config = read_recipe(arguments.recipe, overrides)
    if not (arguments.root or os.environ.get("TRADUKO_ROOT") or config.root):
        raise ConfigError(
            "A job on a cluster needs a root that all its machines see: --root /shared/folder, "
            "TRADUKO_ROOT, or `root` in the recipe."
        )
    options = ["--force"] * arguments.force
    for option, stage in (("--only", arguments.only), ("--from", arguments.start)):
        options += [option, stage] if stage else []
    root = root_folder(arguments.root, os.environ, config.root)
    return Work(
        arguments.recipe,
        config.name,
        overrides,
        str(root),
        options,
        arguments.json,
        arguments.python,
    )


def _follow(jobs: Jobs, job: str, *, as_json: bool) -> None:
    if not as_json:
        follow(jobs, job, put)
        return
    lines: list[str] = []

    def keep(line: str) -> None:
        lines.append(line)
        if not line.startswith("{"):
            say(line)

    try:
        follow(jobs, job, keep)
    except EndedError as ended:
        told = (document_in(lines) or {}).get("error")
        raise EndedError(told["message"], ended.exit_code) if told else ended from None
    put_json(document_in(lines) or {"job": job, "status": "succeeded"})


def _stop(jobs: Jobs, arguments: argparse.Namespace) -> None:
    found = stop(jobs, arguments.stop)
    _told(arguments, found.id, found.status.lower(), "")


def _told(arguments: argparse.Namespace, job: str, status: str, how: str) -> None:
    if arguments.json:
        put_json({"job": job, "status": status})
    else:
        put(f"Job {job} {'is ' if status == 'stopped' else ''}{status}.\n{how}".rstrip())
