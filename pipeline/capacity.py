"""How many training workers a cluster can run at once, and whether that is enough."""

from typing import NamedTuple

from pipeline.compute import Compute
from pipeline.config import ComputeConfig
from pipeline.errors import ConfigError


class Share(NamedTuple):
    """What training gets of a cluster."""

    num_workers: int | tuple[int, int]
    """So many, or from a least to a most."""
    use_gpu: bool
    """Whether each has a GPU to itself."""


def share_of(compute: Compute, settings: ComputeConfig, most_useful: int) -> Share:
    """As asked; `auto` is the largest power of two that the cluster and the plan allow.

    Raises:
        ConfigError: If the cluster as it is now can never run what is asked for: Ray would wait
            without a word.
    """
    gpus, threads = compute.num_gpus(), settings.threads_per_worker
    if settings.accelerator == "gpu" and not gpus:
        raise ConfigError(
            "`compute.accelerator` is gpu, but the cluster has no GPU. Set it to auto or cpu, or "
            "join a cluster that has one with --ray."
        )
    use_gpu = gpus > 0 and settings.accelerator != "cpu"
    fitting = compute.num_places(threads, use_gpu=use_gpu)
    if not fitting:
        raise _no_node(compute, threads, use_gpu=use_gpu)
    wanted = settings.num_workers
    if wanted == "auto":
        wanted = 1 << (min(fitting, most_useful).bit_length() - 1)
    least = wanted if isinstance(wanted, int) else wanted[0]
    if least > fitting:
        raise ConfigError(
            f"`compute.num_workers` must be at most {fitting}, for the cluster has "
            f"{compute.num_cpus()} CPUs and {gpus} GPUs and each worker takes "
            f"`compute.threads_per_worker` = {threads}; but it is {least}."
        )
    return Share(wanted, use_gpu)


def _no_node(compute: Compute, threads: int, *, use_gpu: bool) -> ConfigError:
    most = threads
    while most and not compute.num_places(most, use_gpu=use_gpu):
        most -= 1
    if not most:
        return ConfigError(
            "Training needs a machine with a CPU"
            f"{' and a GPU' if use_gpu else ''} to spare for it, but the cluster has none."
        )
    return ConfigError(
        f"`compute.threads_per_worker` must be at most {most}, the CPUs of the largest machine of "
        f"the cluster, but is {threads}."
    )
