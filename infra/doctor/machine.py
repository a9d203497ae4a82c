"""Checks of this machine: Python, packages, disk, memory, shared memory, GPUs, ports."""

import importlib.metadata
import os
import platform
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import psutil
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from infra.doctor.finding import Finding
from infra.stack.ports import holder, is_free
from infra.stack.services import OBJECT_STORE_BYTES

DISTRIBUTION = "traduko"
GIB = 1 << 30
DISK_LEAST_GIB, DISK_AMPLE_GIB = 1.0, 10.0
MEMORY_LEAST_GIB, MEMORY_AMPLE_GIB = 1.0, 4.0
"""Of what is free. The stack takes about 2 GiB, a local Ray with two workers about 1.5."""
CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")
CONTAINER_USE = Path("/sys/fs/cgroup/memory.current")
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - its size is asked for


def python(required: str, version: str) -> Finding:
    """Whether this Python is one that Traduko runs on."""
    if SpecifierSet(required).contains(version):
        return Finding("python", "ok", version)
    return Finding(
        "python", "mend", version, f"Python {required} is needed: make the environment with it."
    )


def this_python() -> Finding:
    """`python` of the one that runs."""
    required = importlib.metadata.metadata(DISTRIBUTION)["Requires-Python"]
    return python(required, platform.python_version())


def packages(requirements: Iterable[str]) -> Finding:
    """Whether what is needed is installed, in versions that fit."""
    wrong = [found for each in requirements if (found := _misfit(Requirement(each)))]
    if wrong:
        return Finding(
            "packages", "mend", "; ".join(wrong), "pip install --constraint constraints.txt -e ."
        )
    return Finding("packages", "ok", "all within their ranges")


def own_packages() -> Finding:
    """`packages` of Traduko, its extras aside."""
    return packages(importlib.metadata.requires(DISTRIBUTION) or ())


def disk(folder: Path) -> Finding:
    """Whether the disk of a folder has room, be the folder there or not."""
    usage = shutil.disk_usage(_existing(folder))
    free = usage.free / GIB
    found = f"{free:.1f} GiB free at {folder}"
    if free < DISK_LEAST_GIB:
        return Finding("disk", "mend", found, "Free some, or choose another disk with --root.")
    if free < DISK_AMPLE_GIB:
        return Finding("disk", "note", found, "A corpus of millions of rows needs more.")
    return Finding("disk", "ok", found)


def memory(free_bytes: int) -> Finding:
    """Whether so much memory is enough."""
    free = free_bytes / GIB
    found = f"{free:.1f} GiB free"
    if free < MEMORY_LEAST_GIB:
        return Finding("memory", "mend", found, "End other programs, or give the container more.")
    if free < MEMORY_AMPLE_GIB:
        return Finding(
            "memory", "note", found, "`traduko run` works; the stack of `traduko up` may be tight."
        )
    return Finding("memory", "ok", found)


def free_memory_bytes() -> int:
    """What the machine has free, or the container if that is less."""
    free = int(psutil.virtual_memory().available)
    try:
        limit, used = (path.read_text().strip() for path in (CONTAINER_LIMIT, CONTAINER_USE))
        return min(free, max(int(limit) - int(used), 0))
    except (OSError, ValueError):  # no container, or `max`: no limit
        return free


def shared_memory(folder: Path = SHARED_MEMORY) -> Finding:
    """Whether Ray's object store fits into shared memory."""
    if not folder.is_dir():
        return Finding("shared memory", "ok", "this system has no /dev/shm; Ray needs none")
    size = shutil.disk_usage(folder).total
    found = f"{size / 2**20:,.0f} MiB in {folder}"
    if size < 2 * OBJECT_STORE_BYTES:
        return Finding(
            "shared memory",
            "note",
            found,
            "Ray uses files instead, which is slower; of a container: docker run --shm-size=1g.",
        )
    return Finding("shared memory", "ok", found)


def gpu() -> Finding:
    """What torch can compute on."""
    import torch  # noqa: PLC0415 - takes seconds

    if torch.cuda.is_available():
        devices = [
            torch.cuda.get_device_properties(each) for each in range(torch.cuda.device_count())
        ]
        names = [f"{each.name} ({each.total_memory / GIB:.0f} GiB)" for each in devices]
        return Finding("gpu", "ok", ", ".join(names))
    if shutil.which("nvidia-smi"):
        return Finding(
            "gpu",
            "mend",
            f"an NVIDIA driver is there, but torch {torch.__version__} cannot use it",
            "Install the build of torch for that driver's CUDA, or update the driver.",
        )
    return Finding("gpu", "ok", "none; training uses CPUs")


def ports(wanted: Mapping[str, int], own: Iterable[int]) -> Finding:
    """Whether `traduko up` finds its ports free; those its own services hold count as free."""
    held = set(own)
    taken = [
        f"{port} ({name}) by {holder(port)}"
        for name, port in wanted.items()
        if port not in held and not is_free(port)
    ]
    if taken:
        return Finding(
            "ports", "note", "taken: " + ", ".join(taken), "traduko up --any-port takes others."
        )
    return Finding("ports", "ok", "those of `traduko up` are free, or its own")


def writable(root: Path) -> Finding:
    """Whether the root takes files; it need not be there yet."""
    folder = _existing(root)
    try:
        with tempfile.TemporaryFile(dir=folder):
            return Finding("root", "ok", f"{root} can be written")
    except OSError as error:
        return Finding(
            "root", "mend", f"{folder} takes no files: {error.strerror}", "Choose another: --root."
        )


def _misfit(requirement: Requirement) -> str:
    """What is wrong with what is installed of it; nothing where it fits or is not asked for."""
    if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
        return ""
    try:
        version = importlib.metadata.version(requirement.name)
    except importlib.metadata.PackageNotFoundError:
        return f"{requirement.name} is missing"
    if not requirement.specifier.contains(version, prereleases=True):
        return f"{requirement.name} is {version}, but must be {requirement.specifier}"
    return "; ".join(_missing_parts(requirement))


def _missing_parts(requirement: Requirement) -> Iterator[str]:
    """Of the extras that are asked for, what is not installed."""
    for text in importlib.metadata.requires(requirement.name) or ():
        part = Requirement(text)
        if part.marker and any(
            part.marker.evaluate({"extra": each}) for each in requirement.extras
        ):
            try:
                importlib.metadata.version(part.name)
            except importlib.metadata.PackageNotFoundError:
                yield f"{part.name} of {requirement.name}'s extras is missing"


def _existing(folder: Path) -> Path:
    """The folder, or the nearest above it that is there."""
    while not folder.exists():
        folder = folder.parent
    return folder if os.access(folder, os.X_OK) else folder.parent
