"""A run on a Ray cluster as a job of it, watched from here.

The job takes Traduko's own code along, so that the cluster's machines need only what it depends on,
and the run is of the version that the user has. It outlives whoever watches.
"""

import json
import os
import shlex
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from flows.environment import NO_REPORTING
from flows.jobs import LOOPBACK, JobInfo, Jobs, SilentError
from flows.pack import RECIPE_FILE, pack
from pipeline.artifact import Json
from pipeline.errors import InputError, TradukoError

POLL_S = 2.0
SILENCE_S = 60.0
"""How long the API may be silent before a follower gives up."""
STOP_S = 60
"""How long a stopped job may take to save what it has. Ray's own three seconds are too few."""
SERVERS = ("MLFLOW_TRACKING_URI", "PREFECT_API_URL")
STOPPED, INTERRUPTED = "STOPPED", 130
KINDS = {2: "input", INTERRUPTED: "interrupted"}


class Work(NamedTuple):
    """What a job is to do."""

    recipe: str
    """Name or file."""
    name: str
    """What the recipe calls itself."""
    overrides: Mapping[str, Any]
    root: str
    options: list[str]
    """More of `traduko run`: which stages, and how."""
    as_json: bool
    """Whether it ends with one JSON document."""
    python: str | None
    """Of the cluster; none = as here, else the first on its path."""


class EndedError(TradukoError):
    """A job came to its end, but not to its goal."""

    def __init__(self, message: str, exit_code: int):
        super().__init__(message)
        self.exit_code = exit_code
        self.kind = KINDS.get(exit_code, "failed")


def start(jobs: Jobs, work: Work, say: Callable[[str], None]) -> str:
    """Start a job, or find the one that does this work already; its name.

    Raises:
        InputError: If another job builds the same recipe in the same root in another way.
        TradukoError: If the cluster does not take it.
    """
    if jobs.ray_version != version("ray"):
        say(
            f"The cluster has Ray {jobs.ray_version}, here is {version('ray')}: it runs with its own."
        )
    package = pack(work.recipe, work.overrides)
    metadata = {
        "recipe": work.name,
        "root": work.root,
        "package": package.digest,
        "options": shlex.join(work.options),
    }
    at_work = _same_place(jobs, metadata)
    if at_work:
        if at_work.metadata != metadata:
            raise InputError(
                f"Job {at_work.id} builds `{work.name}` in {work.root} already, from another recipe "
                f"or with other options. Follow it (--follow {at_work.id}) or stop it "
                f"(--stop {at_work.id})."
            )
        say(f"Job {at_work.id} does this already.")
        return at_work.id
    job = f"{work.name}-{uuid.uuid4().hex[:6]}"
    jobs.submit(job, _command(work), package, _environment(jobs), metadata)
    return job


def follow(jobs: Jobs, job: str, put: Callable[[str], None]) -> None:
    """Show a job's log, from its beginning and to its end.

    Raises:
        EndedError: If the job failed or was stopped, with the exit code of its command.
        TradukoError: If the cluster stopped answering.
    """
    jobs.info(job)  # an unknown one is told at once
    shown, answered_at = 0, time.monotonic()
    while True:
        try:
            found = jobs.info(job)  # before the log, so that of a job that is over all is shown
            log = jobs.log(job)
        except SilentError:
            if time.monotonic() - answered_at > SILENCE_S:
                raise _lost(jobs, job) from None
        else:
            answered_at = time.monotonic()
            end = len(log) if found.is_over else log.rfind("\n") + 1
            for line in log[shown:end].splitlines():
                put(line)
            shown = max(shown, end)
            if found.is_over:
                return _check_end(found)
        time.sleep(POLL_S)


def stop(jobs: Jobs, job: str) -> JobInfo:
    """Ask a job to end, and wait until it has.

    Raises:
        InputError: If there is none of that name.
        TradukoError: If it does not end in time.
    """
    jobs.stop(job)
    until = time.monotonic() + STOP_S + 10
    while not (found := jobs.info(job)).is_over:
        if time.monotonic() > until:
            raise TradukoError(f"Job {job} was asked to stop, but is still {found.status.lower()}.")
        time.sleep(POLL_S / 4)
    return found


def how_to_go_on(jobs: Jobs, job: str) -> str:
    """How to follow and to stop a job."""
    here = f"traduko submit --ray {jobs.address}"
    return f"Follow it: {here} --follow {job}\nStop it: {here} --stop {job}"


def document_in(lines: list[str]) -> Json | None:
    """The one document that a job with `--json` wrote."""
    for line in reversed(lines):
        if line.startswith("{"):
            try:
                found = json.loads(line)
            except ValueError:
                continue
            if isinstance(found, dict):
                return found
    return None


def _same_place(jobs: Jobs, metadata: Json) -> JobInfo | None:
    """The job at work on the same recipe and root."""
    for found in jobs.all():
        place = {name: found.metadata.get(name) for name in ("recipe", "root")}
        if not found.is_over and place == {name: metadata[name] for name in place}:
            return found
    return None


def _command(work: Work) -> str:
    """A shell's line. This Python is taken if it is there: on one machine, or in the same image."""
    pythons = [work.python] if work.python else [sys.executable, "python3", "python"]
    found = " || ".join(f"command -v {shlex.quote(python)}" for python in pythons)
    arguments = ["run", RECIPE_FILE, "--root", work.root, "--ray", "auto", *work.options]
    arguments += ["--json"] * work.as_json
    return f'exec "$({found})" -m flows.cli {shlex.join(arguments)}'


def _environment(jobs: Jobs) -> dict[str, str]:
    """Variables of the job: servers too, but this machine's own only where the cluster is here."""
    servers = {name: os.environ[name] for name in SERVERS if os.environ.get(name)}
    seen = {
        name: url
        for name, url in servers.items()
        if jobs.is_local or urlsplit(url).hostname not in LOOPBACK
    }
    return {**NO_REPORTING, **seen, "RAY_JOB_STOP_WAIT_TIME_S": str(STOP_S)}


def _check_end(found: JobInfo) -> None:
    if found.status == "SUCCEEDED":
        return
    if found.status == STOPPED:
        raise EndedError(f"Job {found.id} was stopped. Submit it again to go on.", INTERRUPTED)
    if found.exit_code is None:
        lines = found.message.strip().splitlines() or ["no reason given"]
        raise EndedError(f"Job {found.id} could not begin: {lines[-1][:500]}", 1)
    code = found.exit_code if found.exit_code in {2, INTERRUPTED} else 1
    raise EndedError(f"Job {found.id} ended with exit code {found.exit_code}.", code)


def _lost(jobs: Jobs, job: str) -> TradukoError:
    return TradukoError(
        f"The Ray cluster at {jobs.address} has not answered for {SILENCE_S:.0f} s. What is "
        f"finished is kept; if the cluster is still there, so is job {job}.\n{how_to_go_on(jobs, job)}"
    )
