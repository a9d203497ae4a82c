import os
import signal
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import pipeline.ray_train
from flows.cluster import Cluster
from pipeline.compute import ONE_CPU, WorkerGroup
from pipeline.errors import CorpusError, LostWorkersError

pytestmark = [
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray"),  # Ray's code about itself
]


@pytest.fixture(scope="module")
def fit():
    """Training on a local cluster, which ends with the module."""
    cluster = Cluster(None)
    cluster.connect()
    yield pipeline.ray_train.fit
    cluster.leave()


# Workers cannot import this file: each test's worker is a function inside it, which travels whole.


def two_workers(folder):
    return WorkerGroup(2, 1, ONE_CPU, storage=folder / "ray", stop_file=folder / "stop")


def test_workers_are_one_group_with_the_threads_and_memory_they_were_promised(fit, tmp_path):
    def note(folder, is_leaving):
        rank = dist.get_rank()
        total = torch.tensor(rank + 1)
        dist.all_reduce(total)
        memory = sorted(name for name in os.environ if name.startswith("MALLOC_"))
        leaving = [is_leaving() for _ in range(25)]
        facts = [rank, dist.get_world_size(), total.item(), torch.get_num_threads(), memory]
        Path(folder, f"rank-{rank}").write_text(repr([*facts, any(leaving)]))

    fit(note, str(tmp_path), two_workers(tmp_path))
    memory = ["MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"]
    notes = [(tmp_path / f"rank-{rank}").read_text() for rank in (0, 1)]
    assert notes == [repr([rank, 2, 3, 1, memory, False]) for rank in (0, 1)]


def test_what_all_workers_refuse_comes_back_as_it_was_raised_without_a_second_try(fit, tmp_path):
    def refuse(folder, is_leaving):
        with Path(folder, "tries").open("a") as file:
            file.write(f"{dist.get_rank()}")
        raise CorpusError("Line 7 must be text, but is not.")

    with pytest.raises(CorpusError, match=r"^Line 7 must be text, but is not\.$"):
        fit(refuse, str(tmp_path), two_workers(tmp_path))
    assert sorted((tmp_path / "tries").read_text()) == ["0", "1"]


def test_one_workers_failure_is_told_as_it_was(fit, tmp_path, monkeypatch):
    def fail(folder, is_leaving):
        if dist.get_rank() == 1:
            raise OSError("the disk is full")
        time.sleep(3)  # what a worker's end does to the others comes after it
        raise RuntimeError("the other worker is gone")

    monkeypatch.setattr(pipeline.ray_train, "MAX_RESTARTS", 0)
    with pytest.raises(OSError, match=r"^the disk is full$"):
        fit(fail, str(tmp_path), two_workers(tmp_path))


def test_of_several_workers_errors_the_one_for_the_user_is_told():
    failed = Exception("Ray's own")
    failed.worker_failures = {0: RuntimeError("gone"), 1: CorpusError("Line 7 must be text.")}
    assert str(pipeline.ray_train._cause(failed)) == "Line 7 must be text."
    failed.worker_failures = {0: RuntimeError("gone")}
    assert str(pipeline.ray_train._cause(failed)) == "Training failed: RuntimeError: gone"


def test_workers_that_are_lost_again_and_again_are_told_from_a_failure(fit, tmp_path, monkeypatch):
    def die(folder, is_leaving):
        time.sleep(2)  # Ray gives up on a worker that dies before all have begun
        if dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        dist.barrier()

    monkeypatch.setattr(pipeline.ray_train, "MAX_RESTARTS", 0)
    with pytest.raises(LostWorkersError):
        fit(die, str(tmp_path), two_workers(tmp_path))


def test_a_killed_worker_is_replaced_and_training_ends(fit, tmp_path):
    def die_once(folder, is_leaving):
        rank = dist.get_rank()
        killed = Path(folder, "killed")
        if rank == 1 and not killed.exists():
            killed.touch()
            time.sleep(2)  # Ray gives up on a worker that dies before all have begun
            os.kill(os.getpid(), signal.SIGKILL)
        dist.barrier()
        Path(folder, f"done-{rank}").touch()

    fit(die_once, str(tmp_path), two_workers(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["done-0", "done-1", "killed", "ray"]
