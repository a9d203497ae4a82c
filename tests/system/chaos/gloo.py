"""A cluster without Ray: worker processes that are started again when one is lost."""

import multiprocessing
import os
import threading
from multiprocessing.connection import wait

import torch
import torch.distributed as dist

from pipeline.compute import InProcess, Machine, Resources
from tests.system.chaos.training import DriverKilledError, work

MAX_STARTS = 40
POLL_S = 0.02
OUTLIVING_S = 1.0
"""How long workers go on after their driver's end. On Ray it was up to eight seconds."""


def forkserver():
    """Start processes as children of one that has torch and the stage loaded already."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["__main__", "tests.system.chaos.commit_points", "torch._dynamo"]
    )
    return context


class Gloo(InProcess):
    """Starts workers until all of a group end well.

    Args:
        processes: What starts them.
        place: Of the run.
    """

    def __init__(self, processes, place):
        self._processes, self._place = processes, place
        self.num_starts = 0

    def machines(self):
        return [Machine("here", Resources(4))]

    def train(self, worker, task, group):
        while self.num_starts < MAX_STARTS:
            self.num_starts += 1
            if self._run(task, group.num_workers):
                return
            if self._place.happened()[-1].kind == "all":
                raise DriverKilledError
        raise AssertionError("workers fail again and again")

    def _run(self, task, size):
        """Start a group; when one of its workers fails, kill the others.

        When the driver is "killed", leave them: they go on for a while.
        """
        store = self._place.notes / f"store-{self.num_starts}-{os.urandom(4).hex()}"
        workers = [
            self._processes.Process(target=_join_and_work, args=(rank, size, str(store), task))
            for rank in range(size)
        ]
        num_happened = len(self._place.happened())
        for worker in workers:
            worker.start()
        while any(worker.is_alive() for worker in workers):
            wait([worker.sentinel for worker in workers if worker.is_alive()], POLL_S)
            if (
                self._place.happened()[num_happened:]
                and self._place.happened()[-1].kind == "driver"
            ):
                threading.Timer(OUTLIVING_S, _kill, [workers]).start()
                raise DriverKilledError
            if any(worker.exitcode for worker in workers):
                _kill(workers)
        for worker in workers:
            worker.join()
        return not any(worker.exitcode for worker in workers)


def _kill(workers):
    for worker in workers:
        worker.kill()


def _join_and_work(rank, size, store, task):
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
    work(task, lambda: False)
    dist.destroy_process_group()
