"""Joining Ray: a local cluster sized to the machine, or one that is there."""

import logging
import os
import signal
import threading
import uuid
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flows.environment import turn_off_reporting
from flows.run import Run
from pipeline.capacity import check_room, share_of
from pipeline.compute import Compute
from pipeline.config import ComputeConfig, Reservation, StageResources
from pipeline.errors import ConfigError, TradukoError

OBJECT_STORE_BYTES = 200 << 20
"""Of a local cluster: only small notes pass through it, rows go by files."""
ASK_EVERY_S = 3.0
LOST_AFTER_S = 30.0
"""How long a cluster may be silent before a run gives it up. Ray ends the process after 60."""
PROBE_TIMEOUT_S = 60.0
"""How long the nodes of a cluster may take to look into the root."""


class Cluster:
    """A Ray cluster, joined at the first use and left at the end.

    Args:
        address: None for a local one; `auto` or HOST:PORT for one that runs.
    """

    def __init__(self, address: str | None):
        self._address = address
        self._joined = False
        self._watch: _Watch | None = None

    def connect(self) -> None:
        """Join; nothing happens when already joined.

        Raises:
            TradukoError: If the cluster cannot be reached, does not let us in, or has other versions.
        """
        if self._joined:
            return
        turn_off_reporting()
        if self._address:
            from flows.ray_gcs import admit

            place = admit(self._address)
            self._join(place, address=place)
            self._watch = _Watch(place)
        else:
            # None of its ports needs to be known, and no dashboard looks at it.
            self._join(
                "this machine",
                address="local",
                include_dashboard=False,
                object_store_memory=OBJECT_STORE_BYTES,
            )

    @property
    def is_remote(self) -> bool:
        """Whether it may have other machines than this."""
        return self._address is not None

    def check_root(self, root: Path) -> None:
        """Make sure that every node sees the root.

        Raises:
            ConfigError: If a node does not see it, or cannot write there, naming the node.
            TradukoError: If a node does not answer, or cannot run Traduko.
        """
        self.connect()
        mark = root / "work" / f"probe-{uuid.uuid4().hex}"
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()
        try:
            answers = _ask_every_node(str(mark))
        finally:
            mark.unlink(missing_ok=True)
        for node, answer in sorted(answers):
            if answer:
                raise _unfit(root, node, answer)

    def _join(self, where: str, **options: Any) -> None:  # noqa: ANN401 - of ray.init
        import ray

        on_termination = signal.getsignal(signal.SIGTERM)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ray.init(log_to_driver=False, logging_level=logging.ERROR, **options)
        except (ConnectionError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
            said = " ".join(str(error).split())
            raise TradukoError(f"Ray cannot be joined at {where}: {said}") from None
        self._joined = True
        if threading.current_thread() is threading.main_thread():
            # Ray puts a handler there that aborts the process.
            signal.signal(signal.SIGTERM, on_termination or signal.SIG_DFL)

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        """Leave.

        Raises:
            TradukoError: In place of what the cluster's silence raised.
        """
        lost = self._watch.lost if self._watch else None
        self.leave()
        if lost and error:
            raise lost from None

    def leave(self) -> None:
        """Leave; a local cluster ends."""
        if self._watch:
            self._watch.end()
        if self._joined:
            import ray

            ray.shutdown()
            self._joined = False


def make_ready(cluster: Cluster, compute: Compute, run: Run) -> None:
    """Refuse before the first stage what the cluster would fail at in a later one.

    Raises:
        ConfigError: If not all nodes see the root, or training asks for more than there is.
        TradukoError: If the cluster cannot be reached, or a node cannot take part.
    """
    steps = [step.node.stage.name for step in run.plan() if step.status != "cached"]
    to_build = run.selection.stages.intersection(steps)
    if cluster.is_remote and to_build:
        cluster.check_root(run.root.folder)
    asked = run.config.compute
    if "train" in to_build and (cluster.is_remote or asked != ComputeConfig()):
        share_of(compute, asked, run.config.train.micro_batches_per_step)
    for stage in sorted(to_build.intersection(StageResources.model_fields) - {"train"}):
        if cluster.is_remote or asked.resources.of(stage) != Reservation():
            check_room(compute, asked, stage)


class _Watch:
    """Interrupts the run when its cluster has been silent too long."""

    def __init__(self, place: str):
        self.lost: TradukoError | None = None
        self._place = place
        self._over = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def end(self) -> None:
        """The run is over."""
        self._over.set()

    def _watch(self) -> None:
        silent_s = 0.0
        while not self._over.wait(ASK_EVERY_S):
            silent_s = 0.0 if self._answers() else silent_s + ASK_EVERY_S
            if silent_s >= LOST_AFTER_S:
                self.lost = TradukoError(
                    f"The Ray cluster at {self._place} has not answered for {LOST_AFTER_S:.0f} s. "
                    "What is finished is kept: once the cluster is back, the same command goes on."
                )
                os.kill(os.getpid(), signal.SIGINT)
                return

    def _answers(self) -> bool:
        from flows.ray_gcs import ask
        from flows.ray_token import find_token

        try:
            ask(self._place, find_token())
        except TradukoError:
            return False
        except PermissionError:
            return True  # it is there
        return True


def _ask_every_node(mark: str) -> list[tuple[str, str]]:
    """Each node's host, and what is amiss there: empty, or what it says."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    look = ray.remote(num_cpus=0, max_retries=0)(_looker())
    asked = {}
    for node in ray.nodes():  # type: ignore[no-untyped-call]
        if node["Alive"]:
            pinned = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            name = f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})"
            asked[look.options(scheduling_strategy=pinned).remote(mark)] = name
    ray.wait(list(asked), num_returns=len(asked), timeout=PROBE_TIMEOUT_S)
    return [(name, _answer(reference)) for reference, name in asked.items()]


def _answer(reference: Any) -> str:  # noqa: ANN401 - Ray's
    import ray

    try:
        return str(ray.get(reference, timeout=0))
    except ray.exceptions.GetTimeoutError:
        return f"it has not answered within {PROBE_TIMEOUT_S:.0f} s"
    except ray.exceptions.RayError as error:
        return " ".join(str(error).split())[-300:]


def _looker() -> Callable[[str], str]:
    """A function that travels whole, for the node may lack this module."""

    def look(mark: str) -> str:
        import importlib.util
        import os

        if not os.path.exists(mark):  # noqa: PTH110 - few imports: it runs in a fresh process
            return "unseen"
        if not os.access(os.path.dirname(mark), os.W_OK):  # noqa: PTH120
            return "unwritable"
        missing = [name for name in ("pipeline", "model") if not importlib.util.find_spec(name)]
        return "without " + " and ".join(missing) if missing else ""

    return look


def _unfit(root: Path, node: str, answer: str) -> TradukoError:
    """Why a node cannot take part."""
    if answer in {"unseen", "unwritable"}:
        how = "does not see it" if answer == "unseen" else "may not write there"
        return ConfigError(
            f"The root {root} must be a folder that all nodes of the cluster share, but node {node} "
            f"{how}. Mount it there, or name another with --root."
        )
    if answer.startswith("without"):
        return TradukoError(
            f"Node {node} of the cluster cannot import Traduko. Install it there, or start the run "
            "with `traduko submit`, which takes it along."
        )
    return TradukoError(f"Node {node} of the cluster cannot take part: {answer}.")
