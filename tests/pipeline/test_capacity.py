"""What a cluster can run; tests/pipeline/test_train.py holds what `train` makes of it."""

import pytest

from pipeline.capacity import check_room, num_places, share_of
from pipeline.compute import InProcess, Machine, Resources
from pipeline.config import ComputeConfig
from pipeline.errors import ConfigError

GIB = 1 << 30


class Machines(InProcess):
    """A cluster of machines."""

    def __init__(self, *machines):
        self._machines = [Machine(f"n{number}", has) for number, has in enumerate(machines)]

    def machines(self):
        return self._machines


def cluster(*cpus_and_gpus):
    return Machines(*(Resources(*each) for each in cpus_and_gpus))


def share(compute, **settings):
    found = share_of(compute, ComputeConfig.model_validate(settings), 8)
    return found.num_workers, found.need.num_gpus


def test_a_worker_fits_on_one_machine_or_not_at_all():
    four_of_two = cluster(*[(2, 0)] * 4)
    assert share(four_of_two, threads_per_worker=2) == (4, 0)
    with pytest.raises(ConfigError, match=r"takes 4 CPUs .* has that: n0 2 CPUs, n1 2 CPUs, "):
        share(four_of_two, threads_per_worker=4)
    with pytest.raises(
        ConfigError, match=r"must be at most 2, for each .* has n0 3 CPUs, n1 3 CPUs; but it is 4"
    ):
        share(cluster((3, 0), (3, 0)), threads_per_worker=2, num_workers=4)


def test_gpus_count_where_they_are():
    assert share(cluster((1, 4), (8, 0))) == (1, 1)
    with pytest.raises(ConfigError, match=r"takes 1 CPU and 1 GPU .* n0 0 CPUs and 1 GPU, n1 8 CP"):
        share(cluster((0, 1), (8, 0)))


def test_a_head_that_runs_no_work_offers_none():
    assert share(cluster((0, 0), (1, 0), (1, 0))) == (2, 0)
    with pytest.raises(ConfigError, match="no machine of the cluster has that: n0 0 CPUs"):
        share(cluster((0, 0)))


@pytest.mark.parametrize(
    ("need", "expected"),
    [
        (Resources(1), 12),
        (Resources(3), 3),
        (Resources(1, memory=3 * GIB), 7),
        (Resources(1, custom={"highmem": 0.5}), 6),
        (Resources(1, 1, 4 * GIB, {"highmem": 1}), 2),
        (Resources(1, custom={"lowmem": 1}), 0),
        (Resources(1, memory=17 * GIB), 0),
        (Resources(0, custom={"highmem": 1}), 3),
    ],
)
def test_a_task_has_room_where_all_that_it_takes_is_left(need, expected):
    has = [Resources(4, 0, 8 * GIB), Resources(8, 2, 16 * GIB, {"highmem": 3})]
    assert num_places([Machine("one host", each) for each in has], need) == expected


def resources(**stages):
    return ComputeConfig.model_validate({"resources": stages})


def test_what_a_worker_reserves_counts_too():
    machines = Machines(Resources(8, 0, 8 * GIB), Resources(8, 0, 4 * GIB, {"fast": 2}))
    asked = resources(train={"num_cpus": 2, "memory_gib": 1.5})
    found = share_of(machines, asked, 64)
    assert (found.num_workers, found.need) == (4, Resources(2, 0, 3 * GIB // 2))
    found = share_of(machines, resources(train={"custom": {"fast": 1}}), 64)
    assert (found.num_workers, found.need) == (2, Resources(1, custom={"fast": 1}))


@pytest.mark.parametrize("stage", ["clean", "dedup", "tokenize", "evaluate"])
@pytest.mark.parametrize(
    ("reserved", "told"),
    [
        ({"num_cpus": 3}, "takes 3 CPUs"),
        ({"memory_gib": 64}, "takes 1 CPU and 64 GiB of memory"),
        ({"num_cpus": 2, "memory_gib": 7.5, "custom": {"big": 1}}, "2 CPUs, 7.5 GiB of memory and"),
    ],
)
def test_a_task_that_no_machine_could_ever_run_is_refused(stage, reserved, told):
    machines = Machines(Resources(2, 0, 8 * GIB), Resources(0, 4, 100 * GIB, {"big": 1}))
    check_room(machines, ComputeConfig(), stage)
    with pytest.raises(ConfigError) as error:
        check_room(machines, resources(**{stage: reserved}), stage)
    assert told in str(error.value)
    assert f"`compute.resources.{stage}`" in str(error.value)
    assert "n0 2 CPUs and 8 GiB of memory, n1 0 CPUs, 4 GPUs, 100 GiB" in str(error.value)
