"""What a cluster can run; tests/pipeline/test_train.py holds what `train` makes of it."""

import pytest

from pipeline.capacity import Share, share_of
from pipeline.compute import InProcess
from pipeline.config import ComputeConfig
from pipeline.errors import ConfigError


class Machines(InProcess):
    """A cluster of machines with so many CPUs and GPUs each."""

    def __init__(self, *machines):
        self._machines = machines

    def num_cpus(self):
        return sum(cpus for cpus, _ in self._machines)

    def num_gpus(self):
        return sum(gpus for _, gpus in self._machines)

    def num_places(self, num_cpus, *, use_gpu):
        return sum(min(c // num_cpus, g if use_gpu else c) for c, g in self._machines)


def share(compute, **settings):
    return share_of(compute, ComputeConfig.model_validate(settings), 8)


def test_a_worker_fits_on_one_machine_or_not_at_all():
    four_of_two = Machines(*[(2, 0)] * 4)
    assert share(four_of_two, threads_per_worker=2) == Share(4, use_gpu=False)
    with pytest.raises(
        ConfigError, match=r"must be at most 2, the CPUs of the largest machine .* 4"
    ):
        share(four_of_two, threads_per_worker=4)
    with pytest.raises(
        ConfigError, match=r"must be at most 2, for the cluster has 6 CPUs and 0 GPU"
    ):
        share(Machines((3, 0), (3, 0)), threads_per_worker=2, num_workers=4)


def test_gpus_count_where_they_are():
    assert share(Machines((1, 4), (8, 0))) == Share(1, use_gpu=True)
    with pytest.raises(ConfigError, match=r"a machine with a CPU and a GPU to spare"):
        share(Machines((0, 1), (8, 0)))


def test_a_head_that_runs_no_work_offers_none():
    assert share(Machines((0, 0), (1, 0), (1, 0))) == Share(2, use_gpu=False)
    with pytest.raises(ConfigError, match="but the cluster has none"):
        share(Machines((0, 0)))
