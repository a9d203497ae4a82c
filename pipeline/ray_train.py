"""Training workers on Ray Train: it places, starts and restarts them; checkpoints are ours."""

import logging
import os
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray.train
import ray.train.torch
import torch
from ray.train.torch import TorchConfig, TorchTrainer

from pipeline.compute import Resources, TrainingWorker, WorkerGroup
from pipeline.errors import LostWorkersError, TradukoError

MAX_RESTARTS = 3
"""Restarts of lost workers before it is looked whether they got on meanwhile."""
GROUP_TIMEOUT_S = 600
"""A collective that hangs longer than this ends the worker group."""
WAIT_S = 0.2
GRACE_S = 20
"""How long an interrupted run waits for its workers to save. Prefect and Kubernetes allow 30."""
RESIZE_EVERY_S = 20
"""How often an elastic run looks whether the cluster has room for more workers."""
ASK_EVERY_STEPS = 20
"""How often workers ask whether a machine is about to go; asking makes them wait for each other."""
KEEP_MEMORY = {"MALLOC_TRIM_THRESHOLD_": "8000000000", "MALLOC_MMAP_THRESHOLD_": "8000000000"}
"""glibc keeps freed memory: spares some 4,000 page faults a step (339 → 319 ms). Either alone adds."""


def fit(
    worker: TrainingWorker,
    task: Any,  # noqa: ANN401 - the worker's own
    group: WorkerGroup,
) -> None:
    """Run `worker` on every worker, joined in one torch process group, to its end.

    Args:
        worker: Runs on each worker; finds its own newest checkpoint.
        task: Its argument, picklable.
        group: How many workers, with what.

    Raises:
        TradukoError: At once if the workers raised it; or if they failed in another way more than
            `MAX_RESTARTS` times; `LostWorkersError` if the last time they were lost.
        KeyboardInterrupt: If interrupted, after the workers were given time to save.
    """
    os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.5")
    logging.getLogger("ray.train").setLevel(logging.WARNING)
    # What the types do not know is of Ray Train's second version.
    trainer = TorchTrainer(
        _run_worker,  # type: ignore[arg-type]
        train_loop_config={"worker": worker, "task": task, "group": group},
        torch_config=TorchConfig(
            backend="nccl" if group.use_gpu else "gloo", timeout_s=GROUP_TIMEOUT_S
        ),
        scaling_config=ray.train.ScalingConfig(
            num_workers=group.num_workers,  # type: ignore[arg-type]
            elastic_resize_monitor_interval_s=RESIZE_EVERY_S,  # type: ignore[call-arg]
            use_gpu=group.use_gpu,
            resources_per_worker=_reserved(group.need),
        ),
        run_config=ray.train.RunConfig(
            name=uuid.uuid4().hex,  # a name seen before would resume Ray's own state
            storage_path=str(group.storage),
            failure_config=ray.train.FailureConfig(max_failures=MAX_RESTARTS),
            worker_runtime_env={"env_vars": KEEP_MEMORY},  # type: ignore[call-arg]
        ),
    )
    try:
        result = _beside(trainer.fit, group.stop_file)
    except ray.train.TrainingFailedError as error:
        raise _cause(error) from error
    refusal = result.return_value  # type: ignore[attr-defined]
    if refusal:
        raise refusal


def _reserved(need: Resources) -> dict[str, float]:
    """As Ray spells it."""
    amounts = {"CPU": need.num_cpus, "GPU": need.num_gpus, "memory": need.memory}
    return {name: amount for name, amount in amounts.items() if amount} | dict(need.custom)


def _beside(function: Callable[[], ray.train.Result], stop_file: Path) -> ray.train.Result:
    """Call a function in a thread, this one staying free to be interrupted.

    In the main thread Ray Train would take over SIGINT, and wait for workers that do not listen.
    Waits for an event: an interrupt inside `Thread.join` marks the thread as ended (CPython 3.11).
    """
    results: list[ray.train.Result] = []
    errors: list[BaseException] = []
    over = threading.Event()

    def call() -> None:
        try:
            results.append(function())
        except BaseException as error:  # noqa: BLE001 - raised again below
            errors.append(error)
        over.set()

    threading.Thread(target=call, daemon=True).start()
    try:
        while not over.wait(WAIT_S):
            pass
    except BaseException:  # Ctrl-C, or what Prefect raises at SIGTERM
        stop_file.touch()
        over.wait(GRACE_S)
        raise
    if errors:
        raise errors[0]
    return results[0]


def _run_worker(config: dict[str, Any]) -> TradukoError | None:
    """Run the worker; return what it raises that would be raised again, for Ray repeats a failure."""
    group: WorkerGroup = config["group"]
    torch.set_num_threads(group.num_threads)
    if group.use_gpu:
        torch.cuda.set_device(ray.train.torch.get_device())
    try:
        config["worker"](config["task"], _Leaving())
    except TradukoError as error:
        return error
    return None


class _Leaving:
    """Whether a machine of this run is about to go; true once."""

    def __init__(self) -> None:
        self._num_calls, self._was_told = 0, False

    def __call__(self) -> bool:
        self._num_calls += 1
        if self._was_told or self._num_calls % ASK_EVERY_STEPS:
            return False
        self._was_told = ray.train.get_preemption_info() is not None
        return self._was_told


def _cause(error: Exception) -> Exception:
    """A worker's own error for the user where there is one: the others only missed that worker."""
    failures = list(getattr(error, "worker_failures", {}).values())
    inner = [getattr(failure, "_base_exc", failure) for failure in failures]
    for cause in inner:
        if isinstance(cause, TradukoError | OSError):
            return cause
    # What a worker raises carries that. Where one is lost, the others only raise that they miss it.
    lost = [failure for failure in failures if not hasattr(failure, "_base_exc")]
    first = (lost or inner or [error])[0]
    kind = LostWorkersError if lost else TradukoError
    return kind(f"Training failed: {type(first).__name__}: {first}")
