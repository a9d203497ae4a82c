"""The compute seam on Ray: table functions on Ray Data, training on Ray Train."""

import logging
import pickle
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from pipeline.compute import OnDone, TrainingWorker, WorkerGroup
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
        *,
        use_gpu: bool = False,
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
        data = blocks.map(_Apply(function, items), num_gpus=1 if use_gpu else None)
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

    def num_cpus(self) -> int:
        """CPUs of the whole cluster."""
        return self._total("CPU")

    def num_gpus(self) -> int:
        """GPUs of the whole cluster."""
        return self._total("GPU")

    def num_places(self, num_cpus: int, *, use_gpu: bool) -> int:
        """How many workers of so many CPUs, and a GPU if they use one, fit on its nodes at once."""
        self._connect()
        import ray

        places = 0
        for node in ray.nodes():  # type: ignore[no-untyped-call]
            if node["Alive"]:
                here = int(node["Resources"].get("CPU", 0)) // num_cpus
                places += min(here, int(node["Resources"].get("GPU", 0))) if use_gpu else here
        return places

    def _total(self, resource: str) -> int:
        self._connect()
        import ray

        return int(ray.cluster_resources().get(resource, 0))  # type: ignore[no-untyped-call]

    def train(self, worker: TrainingWorker, task: Any, group: WorkerGroup) -> None:  # noqa: ANN401
        """Run `worker` on every worker of a group, joined in one torch process group."""
        self._connect()
        from pipeline.ray_train import fit

        fit(worker, task, group)


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
