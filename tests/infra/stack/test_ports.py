"""Ports: free or held, by whom, and which others are taken."""

import os
import socket
from contextlib import contextmanager

import pytest

from infra.stack.ports import choose, free_port, holder, is_free, parse
from pipeline.errors import ConfigError, TradukoError


@contextmanager
def listening(address="127.0.0.1"):
    with socket.socket() as listener:
        listener.bind((address, 0))
        listener.listen()
        yield listener.getsockname()[1]


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
def test_a_port_that_somebody_listens_on_is_not_free(address):
    with listening(address) as port:
        assert not is_free(port)
    assert is_free(port)


def test_the_holder_is_named_by_pid_and_command():
    with listening() as port:
        found = holder(port)
    assert found.pid == os.getpid()
    assert "python" in str(found) or "pytest" in str(found)
    assert f"(pid {os.getpid()})" in str(found)


def test_wanted_ports_are_taken_where_they_are_free():
    port = free_port(())
    assert choose({"a": port}, {}, any_port=False) == {"a": port}


def test_a_taken_port_is_refused_with_its_holder_and_what_to_do():
    with (
        listening() as port,
        pytest.raises(TradukoError, match=rf"Port {port} for a is taken by .*pid {os.getpid()}.*"),
    ):
        choose({"a": port}, {}, any_port=False)


def test_all_taken_ports_are_told_at_once():
    with listening() as one, listening() as two, pytest.raises(TradukoError) as caught:
        choose({"a": one, "b": two}, {}, any_port=False)
    assert str(one) in str(caught.value)
    assert str(two) in str(caught.value)
    assert "--port NAME=PORT" in str(caught.value)
    assert "--any-port" in str(caught.value)


def test_another_port_is_taken_when_asked():
    with listening() as port:
        chosen = choose({"a": port}, {}, any_port=True)
    assert chosen["a"] != port


def test_what_runs_keeps_its_port():
    with listening() as port:
        assert choose({"a": 1}, {"a": port}, any_port=False) == {"a": port}


def test_no_two_names_share_a_port():
    port = free_port(())
    with pytest.raises(TradukoError, match="taken by a of this stack"):
        choose({"a": port, "b": port}, {}, any_port=False)
    assert len(set(choose({"a": port, "b": port}, {}, any_port=True).values())) == 2


def test_ports_are_read_from_options():
    assert parse(["a=1", "b=65535"], ["a", "b"]) == {"a": 1, "b": 65535}


@pytest.mark.parametrize("setting", ["c=5", "a", "a=", "a=x", "a=0", "a=65536", "a=-1", "=5"])
def test_wrong_port_options_are_refused(setting):
    with pytest.raises(ConfigError, match="must read NAME=PORT, NAME one of a, b"):
        parse([setting], ["a", "b"])
