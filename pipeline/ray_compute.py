"""The compute seam on Ray: table functions on Ray Data, training on Ray Train."""

import logging
import pickle
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from pipeline.compute import ONE_CPU, Machine, OnDone, Resources, TrainingWorker, WorkerGroup
from pipeline.errors import TradukoError

T = TypeVar("T")
R = TypeVar("R")


class RayCompute:
    """Work on a Ray cluster, joined when the first work arrives.

    Args:
        connect: Joins the cluster; called before any work, and harmless when called again.
    """

    def __init__(self, connect: Callable[[], None]):
        self._connect = connect

    def map(
        self,
        function: Callable[[T], R],
        items: Sequence[T],
        on_done: OnDone | None = None,
        need: Resources = ONE_CPU,
    ) -> list[R]:
        """`function` of every item, in the items' order; one Ray task an item.

        Items and results travel pickled, so that they come back as what they were.
        """
        self._connect()
        import ray.data

        logging.getLogger("ray.data").setLevel(logging.ERROR)  # it warns of its own progress bars
        ray.data.DataContext.get_current().enable_progress_bars = False
        rows = [{"index": index} for index in range(len(items))]
        blocks = ray.data.from_items(rows, override_num_blocks=len(rows))
        data = blocks.map(
            _Apply(function, items),
            num_cpus=need.num_cpus,
            num_gpus=need.num_gpus or None,
            memory=need.memory or None,
            resources=dict(need.custom),
        )
        results: dict[int, R] = {}
        try:
            for row in data.iter_rows():
                result = pickle.loads(row["result"])  # noqa: S301 - our own task's
                if isinstance(result, _Failure):
                    raise result.error
                results[row["index"]] = result
                if on_done:
                    on_done(len(results))
        except ray.exceptions.RayError as error:
            raise _cause(error) from error
        return [results[index] for index in range(len(items))]

    def machines(self) -> list[Machine]:
        """The nodes that are alive."""
        self._connect()
        import ray

        return [
            Machine(
                f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})",
                _resources(dict(node["Resources"])),
            )
            for node in ray.nodes()  # type: ignore[no-untyped-call]
            if node["Alive"]
        ]

    def train(self, worker: TrainingWorker, task: Any, group: WorkerGroup) -> None:  # noqa: ANN401
        """Run `worker` on every worker of a group, joined in one torch process group."""
        self._connect()
        from pipeline.ray_train import fit

        fit(worker, task, group)


def _resources(amounts: dict[str, float]) -> Resources:
    """Of a node, without the names that Ray gives each by itself."""
    num_cpus, num_gpus, memory = (int(amounts.pop(name, 0)) for name in ("CPU", "GPU", "memory"))
    given = ("object_store_memory", "node:", "accelerator_type:")
    custom = {name: amounts[name] for name in amounts if not name.startswith(given)}
    return Resources(num_cpus, num_gpus, memory, custom)


class _Failure(NamedTuple):
    """What a task raised that says something to the user."""

    error: Exception


class _Apply:
    """A row's index to its item's result."""

    def __init__(self, function: Callable[[Any], Any], items: Sequence[Any]):
        self._function = function
        self._items = items

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        try:
            result = self._function(self._items[row["index"]])
        except (TradukoError, OSError) as error:
            result = _Failure(error)  # Ray Data would pass on the message, but not what it was
        return {"index": row["index"], "result": pickle.dumps(result)}


def _cause(error: Exception) -> Exception:
    """The project's own error inside one of Ray's, else one line that says what Ray says."""
    inner: BaseException | None = error
    while inner is not None:
        if isinstance(inner, TradukoError | OSError):
            return inner
        inner = getattr(inner, "cause", None) or inner.__cause__
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return TradukoError(f"Ray could not finish the work: {lines[-1]}")
