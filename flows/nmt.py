"""The flow: a recipe's stages chained, each a Prefect task.

Prefect orchestrates; what is cached is decided by `Root.produce`. The same flow runs under
`traduko run` and under a deployment (`prefect deployment run nmt/run`).
"""

import logging
import os
import signal
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import Any, Literal, NoReturn, cast

import httpx
from prefect import flow, get_run_logger, task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE
from prefect.exceptions import MissingContextError, TerminationSignal
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import get_state_exception

from flows import temporary_server
from flows.cancellation import Cancellation
from flows.cluster import Cluster, make_ready
from flows.environment import turn_off_reporting
from flows.page import write_page
from flows.progress import Terminal
from flows.report import markdown
from flows.run import Result, Step, Workplace, document, make_run
from flows.stage_progress import StageProgress
from flows.tracking import Tracker
from pipeline.artifact import Json
from pipeline.errors import InputError, TradukoError
from pipeline.job import Progress
from pipeline.ray_compute import RayCompute
from pipeline.stages import Node

StageName = Literal[
    "download", "clean", "dedup", "vocab", "tokenize", "train", "average", "evaluate"
]
RETRY_DELAYS_S = [10.0]
"""Downloads and training workers are tried again by themselves: this is for what outlasts that."""
API_TIMEOUT_S = 5.0

_terminal: ContextVar[Terminal | None] = ContextVar("terminal", default=None)


@flow(name="nmt", flow_run_name="{recipe}")
def nmt(  # noqa: PLR0913, PLR0917 - the form that Prefect shows
    recipe: str,
    set: dict[str, Any] | None = None,  # noqa: A002 - the command line's name
    only: StageName | None = None,
    start: StageName | None = None,
    force: bool = False,
    root: str | None = None,
    ray: str | None = None,
) -> Json:
    """Build what a recipe describes; what is there already is found.

    Args:
        recipe: A shipped recipe's name (quickstart, multi30k) or the path of a TOML file.
        set: Overrides by dotted field, e.g. {"train.max_steps": 500}.
        only: Build this stage alone, from artifacts that are there.
        start: Build this stage and what follows.
        force: Rebuild what is selected, even if it is there.
        root: Where artifacts live; default TRADUKO_ROOT, the recipe's, or ./artifacts.
        ray: A running Ray cluster, auto or HOST:PORT; default a local one.
    """
    turn_off_reporting()
    display = _Display()
    run = make_run(
        recipe,
        set or {},
        only=only,
        start=start,
        force=force,
        root=root,
        environment=os.environ,
        say=display.say,
        remind=display.remind,
    )
    with (
        run.alone(),
        Tracker(run.root.folder, run.config, display.say) as tracker,
        Cluster(ray) as cluster,
    ):
        compute = RayCompute(cluster.connect)
        make_ready(cluster, compute, run)
        workplace = Workplace(compute, display, tracker, _as_task)
        results = run.execute(workplace)
        stages = {result.node.stage.name for result in results}
        if "average" in stages:  # the page of less would show too little
            write_page(run.config.name, results, run.page)
            tracker.attach(run.page.parent)
        found = document(run, results, tracker.run_id)
    create_markdown_artifact(key="traduko-run", markdown=markdown(found, results))
    return found


def run_here(parameters: Json, terminal: Terminal) -> Json:
    """Run the flow in this process, on the terminal in place of Prefect's console log.

    Raises:
        TradukoError: If an API is set for Prefect, but does not answer.
    """
    api = _require_api()
    logging.getLogger("prefect").propagate = False  # flow logs still go to the API
    token = _terminal.set(terminal)
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        with temporary_settings({PREFECT_API_URL: api}), Cancellation() as cancellation:
            heeding = nmt.with_options(on_running=[cancellation.heed])
            return cast("Json", heeding(**parameters))
    except SystemError as error:  # Ray's wrapping of what a signal raised
        if isinstance(error.__cause__, TerminationSignal | KeyboardInterrupt):
            raise KeyboardInterrupt from None
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
        _terminal.reset(token)


def _interrupt(*_: object) -> NoReturn:
    """End as after Ctrl-C: Prefect's temporary server is then stopped, not left behind.

    Prefect takes the signal while the flow runs, and passes it on to this when the flow has ended.
    """
    raise KeyboardInterrupt


def _as_task(node: Node, step: Step) -> Result:
    """One node as a task: tried again where that can help, never for wrong input."""
    as_task = task(
        name=node.name,
        retries=len(RETRY_DELAYS_S),
        retry_delay_seconds=RETRY_DELAYS_S,
        retry_condition_fn=_can_help,
        cache_policy=NO_CACHE,
        persist_result=False,
    )
    return as_task(step)()


def _can_help(_task: Any, _run: Any, state: Any) -> bool:  # noqa: ANN401 - Prefect's
    """A network or a cluster may be back; wrong input stays wrong, and so does a full disk."""
    error = get_state_exception(state)
    return isinstance(error, TradukoError) and not isinstance(error, InputError)


def _require_api() -> str:
    """The address of Prefect's API: the one that is set, or of a server for this run alone."""
    url: str | None = PREFECT_API_URL.value()
    if not url:
        return temporary_server.start()
    try:
        httpx.get(f"{url}/health", timeout=API_TIMEOUT_S)
    except httpx.HTTPError:
        raise TradukoError(
            f"Prefect's API at {url} does not answer. Start it (prefect server start), or unset "
            "PREFECT_API_URL to run without a server."
        ) from None
    return url


class _Display:
    """Lines go to the run's log, and to the terminal where there is one.

    Progress goes to the terminal's bars, and to an artifact of the stage's run.
    """

    def __init__(self) -> None:
        self._terminal = _terminal.get()
        self._artifact = StageProgress()

    def say(self, line: str) -> None:
        """One line that stays."""
        if self._terminal:
            self._terminal.say(line)
        try:
            get_run_logger().info("%s", line)
        except MissingContextError:  # said from a thread beside the run
            logging.getLogger("prefect.traduko").info("%s", line)

    def remind(self, line: str) -> None:
        """One line for a person at a terminal."""
        if self._terminal:
            self._terminal.remind(line)

    def begin(self, name: str) -> None:
        """A stage begins."""
        self._artifact.begin(name)
        if self._terminal:
            self._terminal.begin(name)

    def end(self) -> None:
        """The stage is over."""
        self._artifact.end()
        if self._terminal:
            self._terminal.end()

    def progress(self, done: float, total: float | None, unit: str, note: str = "") -> None:
        """`done` of `total` units are finished."""
        self._artifact.show(done, total, unit, note)
        if self._terminal:
            self._terminal.progress(done, total, unit, note)

    def beside(self, name: str) -> AbstractContextManager[Progress]:
        """A bar of its own, for work that goes on beside other work, in any thread."""
        return self._terminal.beside(name) if self._terminal else nullcontext(_show_nothing)


def _show_nothing(done: float, total: float | None, unit: str, note: str = "") -> None:
    """Where there is no terminal."""
