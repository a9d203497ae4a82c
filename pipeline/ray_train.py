"""Training workers on Ray Train: it places, starts and restarts them; checkpoints are ours."""

import logging
import os
import threading
import uuid
from collections.abc import Callable
from typing import Any

import ray.train
import ray.train.torch
import torch
from ray.train.torch import TorchConfig, TorchTrainer

from pipeline.compute import WorkerGroup
from pipeline.errors import TradukoError

MAX_RESTARTS = 3
"""Restarts of lost workers before a run fails; each goes on from the newest checkpoint."""
GROUP_TIMEOUT_S = 600
"""A collective that hangs longer than this ends the worker group."""
WAIT_S = 0.2
KEEP_MEMORY = {"MALLOC_TRIM_THRESHOLD_": "8000000000", "MALLOC_MMAP_THRESHOLD_": "8000000000"}
"""glibc keeps freed memory: spares some 4,000 page faults a step (339 → 319 ms). Either alone adds."""


def fit(
    worker: Callable[[Any], None],
    task: Any,  # noqa: ANN401 - the worker's own
    group: WorkerGroup,
) -> None:
    """Run `worker(task)` on every worker, joined in one torch process group, to its end.

    Args:
        worker: Runs on each worker; finds its own newest checkpoint.
        task: Its argument, picklable.
        group: How many workers, with what.

    Raises:
        TradukoError: If the workers failed more than `MAX_RESTARTS` times.
    """
    os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.5")
    logging.getLogger("ray.train").setLevel(logging.WARNING)
    trainer = TorchTrainer(
        _run_worker,
        train_loop_config={"worker": worker, "task": task, "group": group},
        torch_config=TorchConfig(
            backend="nccl" if group.use_gpu else "gloo", timeout_s=GROUP_TIMEOUT_S
        ),
        scaling_config=ray.train.ScalingConfig(
            num_workers=group.num_workers,
            use_gpu=group.use_gpu,
            resources_per_worker={"CPU": group.num_threads, "GPU": int(group.use_gpu)},
        ),
        run_config=ray.train.RunConfig(
            name=uuid.uuid4().hex,  # a name seen before would resume Ray's own state
            storage_path=str(group.storage),
            failure_config=ray.train.FailureConfig(max_failures=MAX_RESTARTS),
            worker_runtime_env={"env_vars": KEEP_MEMORY},  # type: ignore[call-arg]  # V2 alone
        ),
    )
    try:
        _beside(trainer.fit)
    except ray.train.TrainingFailedError as error:
        raise _cause(error) from error


def _beside(function: Callable[[], Any]) -> None:
    """Call a function in a thread, this one staying free to be interrupted.

    In the main thread Ray Train would take over SIGINT, and wait for workers that do not listen.
    """
    errors: list[BaseException] = []

    def call() -> None:
        try:
            function()
        except BaseException as error:  # noqa: BLE001 - raised again below
            errors.append(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(WAIT_S)
    if errors:
        raise errors[0]


def _run_worker(config: dict[str, Any]) -> None:
    group: WorkerGroup = config["group"]
    torch.set_num_threads(group.num_threads)
    if group.use_gpu:
        torch.cuda.set_device(ray.train.torch.get_device())
    config["worker"](config["task"])


def _cause(error: Exception) -> Exception:
    """A worker's own error for the user where there is one: the others only missed that worker."""
    failures = getattr(error, "worker_failures", {}).values()
    inner = [getattr(failure, "_base_exc", failure) for failure in failures]
    for cause in inner:
        if isinstance(cause, TradukoError | OSError):
            return cause
    if inner:
        return TradukoError(f"Training failed: {type(inner[0]).__name__}: {inner[0]}")
    return TradukoError(f"Training failed: {error}")
