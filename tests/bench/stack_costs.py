"""What each service of `traduko up` costs: seconds until it answers, memory once it idles.

    python tests/bench/stack_costs.py [--settle SECONDS]

Services are started one after the other, so that the seconds of one are its own. Memory is the
sum over a service's processes: resident (what they share counted for each) and, on Linux,
proportional (what they share counted once).
"""

import argparse
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from flows import stack as stacks
from flows.automation import crash_zombies
from flows.environment import turn_off_reporting
from infra.stack import processes
from infra.stack.services import Service, Site, make_token, services
from infra.stack.stack import Stack

TIMEOUT_S = 600


def main() -> None:
    """Start, measure, print, stop."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--settle", type=float, default=20.0, help="seconds before memory is read")
    arguments = parser.parse_args()
    turn_off_reporting()
    print(f"load before: {os.getloadavg()}, {os.cpu_count()} CPUs")
    with tempfile.TemporaryDirectory() as folder, site_of_a_new_root(Path(folder)) as (stack, site):
        took_s = {service.name: start(stack, service) for service in services(site)}
        began = time.perf_counter()
        crash_zombies(site.exports["PREFECT_API_URL"])
        stacks.deploy(site, Path(folder))
        took_s["deployments"] = time.perf_counter() - began
        time.sleep(arguments.settle)
        show(stack, took_s)
    print(f"load after: {os.getloadavg()}")


@contextlib.contextmanager
def site_of_a_new_root(root: Path) -> Iterator[tuple[Stack, Site]]:
    """A stack on ports of its own, taken down at the end."""
    stack = stacks.stack_of(root, lambda line: print(line, file=sys.stderr))
    with stack.alone():
        began = time.perf_counter()
        stacks.make_store(root)
        print(f"MLflow's tables made in {time.perf_counter() - began:.1f} s")
        site = stacks.site_of(root, stack.prepare(stacks.SERVICE_PORTS, {}, any_port=True))
        make_token(site.token_file)
        try:
            yield stack, site
        finally:
            began = time.perf_counter()
            stack.down(tuple(reversed(stacks.SERVICES)))
            print(f"down in {time.perf_counter() - began:.1f} s")


def start(stack: Stack, service: Service) -> float:
    """Seconds until it answers."""
    began = time.perf_counter()
    with stack.up([Service(**{**vars(service), "needs": ()})], TIMEOUT_S):
        return time.perf_counter() - began


def show(stack: Stack, took_s: dict[str, float]) -> None:
    """The table, in Markdown."""
    print("| service | answers after s | processes | resident MiB | proportional MiB |")
    print("|---|---|---|---|---|")
    for name, seconds in took_s.items():
        family = processes.family(f"{stack.memory.mark}/{name}")
        resident = sum(process.memory_info().rss for process in family) / 2**20
        print(
            f"| {name} | {seconds:.1f} | {len(family) or ''} | {resident or 0:,.0f} "
            f"| {proportional(family):,.0f} |"
        )


def proportional(family: set[psutil.Process]) -> float:
    """MiB, what is shared counted once; 0 where the system does not say."""
    return sum(getattr(process.memory_full_info(), "pss", 0) for process in family) / 2**20


if __name__ == "__main__":
    main()
