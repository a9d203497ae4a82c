import multiprocessing
import os

import pytest
import torch
import torch.distributed as dist

from model.checkpoint import CheckpointError
from model.workers import Workers


def values_of(rank):
    return torch.randn(12, generator=torch.Generator().manual_seed(rank)) * 10.0**rank


def fail(kind):
    raise kind("the reason")


def work(rank, size, folder):
    """Check in each of several processes what every exchange gives."""
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=size
    )
    workers = Workers.here(8)
    assert workers == Workers(rank, size)

    values = values_of(rank)
    workers.sum_in_tree(values)
    first, second, third, fourth = map(values_of, range(size))
    assert torch.equal(values, (first + second) + (third + fourth))

    gathered = workers.gather(torch.full((2, 3), rank))
    assert gathered.shape == (size, 2, 3)
    assert gathered[:, 0, 0].tolist() == list(range(size))

    values = values_of(rank)
    workers.copy_from_first(values)
    assert torch.equal(values, values_of(0))

    assert workers.ask_first(lambda: rank) == 0
    for kind in (CheckpointError, OSError):
        with pytest.raises(kind, match="the reason"):
            workers.ask_first(lambda kind=kind: fail(kind))
    workers.wait_for_all()

    few = Workers.here(2)
    assert (few is None) == (rank >= 2)
    if few:
        assert few.gather(torch.tensor(rank)).tolist() == [0, 1]
        values = values_of(rank)
        few.sum_in_tree(values)
        assert torch.equal(values, first + second)
    dist.destroy_process_group()


def test_every_exchange_gives_all_workers_the_same(tmp_path):
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["model.trainer"])
    children = [context.Process(target=work, args=(rank, 4, str(tmp_path))) for rank in range(4)]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
    assert [child.exitcode for child in children] == [0] * 4


def test_a_worker_alone_exchanges_nothing():
    workers = Workers.here(4)
    assert workers == Workers(0, 1)
    values = torch.arange(3)
    workers.sum_in_tree(values)
    workers.copy_from_first(values)
    workers.wait_for_all()
    assert values.tolist() == [0, 1, 2]
    assert workers.gather(values).tolist() == [[0, 1, 2]]
    assert workers.ask_first(lambda: 5) == 5
    with pytest.raises(CheckpointError, match="the reason"):
        workers.ask_first(lambda: fail(CheckpointError))
