"""Checks of a machine: the bounds of each verdict, and that this one passes."""

import os
import shutil
import socket
from types import SimpleNamespace

import pytest

from infra.doctor import machine

GIB = 1 << 30


@pytest.mark.parametrize(
    ("version", "verdict"), [("3.11.0", "ok"), ("3.10.9", "mend"), ("3.14.1", "ok")]
)
def test_python_must_be_of_the_required_range(version, verdict):
    found = machine.python(">=3.11", version)
    assert found.verdict == verdict
    assert found.found == version


def test_this_environment_is_as_pyproject_asks():
    assert machine.this_python().verdict == "ok"
    assert machine.own_packages().verdict == "ok", machine.own_packages().found


def test_missing_and_old_packages_are_named_with_what_must_hold():
    found = machine.packages(
        ["no-such-package>=1", "httpx>=999", "numpy>=1; extra == 'dev'", "ray[data]>=2"]
    )
    assert found.verdict == "mend"
    assert "no-such-package is missing" in found.found
    assert "but must be >=999" in found.found
    assert "numpy" not in found.found
    assert "ray" not in found.found
    assert found.advice.startswith("pip install")


@pytest.mark.parametrize(
    ("free", "verdict"), [(0.9, "mend"), (1.0, "note"), (9.9, "note"), (10.0, "ok")]
)
def test_room_on_the_disk(monkeypatch, tmp_path, free, verdict):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free * GIB))
    found = machine.disk(tmp_path / "not" / "there")
    assert found.verdict == verdict
    assert (found.advice == "") == (verdict == "ok")


@pytest.mark.parametrize(
    ("free", "verdict"), [(0.9, "mend"), (1.0, "note"), (3.9, "note"), (4.0, "ok")]
)
def test_free_memory(free, verdict):
    assert machine.memory(int(free * GIB)).verdict == verdict


def test_a_containers_limit_counts_where_it_is_less(monkeypatch, tmp_path):
    limit, use = tmp_path / "max", tmp_path / "current"
    monkeypatch.setattr(machine, "CONTAINER_LIMIT", limit)
    monkeypatch.setattr(machine, "CONTAINER_USE", use)
    whole = machine.free_memory_bytes()
    limit.write_text("1000000\n")
    use.write_text("400000\n")
    assert machine.free_memory_bytes() == 600_000 < whole
    limit.write_text("max\n")
    assert machine.free_memory_bytes() > 600_000


@pytest.mark.parametrize(("size", "verdict"), [(64 << 20, "note"), (1 << 30, "ok")])
def test_shared_memory_holds_the_object_store(monkeypatch, tmp_path, size, verdict):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(total=size))
    assert machine.shared_memory(tmp_path).verdict == verdict


def test_a_system_without_shared_memory_needs_none(tmp_path):
    assert machine.shared_memory(tmp_path / "none").verdict == "ok"


def test_a_driver_that_torch_cannot_use_is_told(monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert machine.gpu().verdict == "ok"
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    assert machine.gpu().verdict == "mend"


def test_taken_ports_are_told_with_their_holder_unless_they_are_our_own():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        found = machine.ports({"ray": port}, ())
        assert found.verdict == "note"
        assert f"{port} (ray)" in found.found
        assert f"pid {os.getpid()}" in found.found
        assert machine.ports({"ray": port}, [port]).verdict == "ok"


def test_a_root_need_not_be_there_to_be_writable(tmp_path):
    root = tmp_path / "a" / "b"
    assert machine.writable(root).verdict == "ok"
    assert not root.exists()


def test_a_root_that_takes_no_files_is_told():
    found = machine.writable(machine.Path("/proc/traduko"))
    assert found.verdict == "mend"
    assert "--root" in found.advice
