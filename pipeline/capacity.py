"""What a cluster has, and whether that is enough for what a recipe asks of it.

Ray would wait without a word for a machine that may never come.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from pipeline.compute import Compute, Machine, Resources
from pipeline.config import ComputeConfig
from pipeline.errors import ConfigError


class Share(NamedTuple):
    """What training gets of a cluster."""

    num_workers: int | tuple[int, int]
    """So many, or from a least to a most."""
    need: Resources
    """What each holds of a machine."""


def task_need(settings: ComputeConfig, stage: str) -> Resources:
    """What each task of a stage holds of a machine; of `train`, each worker, but for its GPU."""
    asked = settings.resources.of(stage)
    num_cpus = asked.num_cpus or (settings.threads_per_worker if stage == "train" else 1)
    return Resources(num_cpus, 0, int(asked.memory_gib * (1 << 30)), asked.custom)


def num_places(machines: Sequence[Machine], need: Resources) -> int:
    """How many tasks that need so much have room at once; none spans two machines."""
    return sum(machine.has.places(need) for machine in machines)


def num_gpus(compute: Compute) -> int:
    """GPUs of the whole cluster."""
    return sum(machine.has.num_gpus for machine in compute.machines())


def check_room(compute: Compute, settings: ComputeConfig, stage: str) -> None:
    """Raise if no machine of the cluster could ever run one task of a stage.

    Raises:
        ConfigError: That says what is asked for, and what each machine has.
    """
    need, machines = task_need(settings, stage), compute.machines()
    if not num_places(machines, need):
        raise ConfigError(
            f"Each task of {stage} takes {need} (`compute.resources.{stage}`), but no machine of "
            f"the cluster has that: {_listed(machines)}."
        )


def share_of(compute: Compute, settings: ComputeConfig, most_useful: int) -> Share:
    """As asked; `auto` is the largest power of two that the cluster and the plan allow.

    Raises:
        ConfigError: If the cluster as it is now can never run what is asked for.
    """
    machines = compute.machines()
    gpus = num_gpus(compute)
    if settings.accelerator == "gpu" and not gpus:
        raise ConfigError(
            "`compute.accelerator` is gpu, but the cluster has no GPU. Set it to auto or cpu, or "
            "join a cluster that has one with --ray."
        )
    use_gpu = gpus > 0 and settings.accelerator != "cpu"
    need = replace(task_need(settings, "train"), num_gpus=int(use_gpu))
    fitting = num_places(machines, need)
    if not fitting:
        raise ConfigError(
            f"Each training worker takes {need} (`compute.threads_per_worker`, "
            f"`compute.resources.train`), but no machine of the cluster has that: "
            f"{_listed(machines)}."
        )
    wanted = settings.num_workers
    if wanted == "auto":
        wanted = 1 << (min(fitting, most_useful).bit_length() - 1)
    least = wanted if isinstance(wanted, int) else wanted[0]
    if least > fitting:
        raise ConfigError(
            f"`compute.num_workers` must be at most {fitting}, for each worker takes {need} and the "
            f"cluster has {_listed(machines)}; but it is {least}."
        )
    return Share(wanted, need)


def _listed(machines: Sequence[Machine]) -> str:
    """`node1 (10.0.0.1) 2 CPUs, node2 (10.0.0.2) 8 CPUs and 1 GPU`."""
    return ", ".join(f"{machine.name} {machine.has}" for machine in machines)
