"""A stack's memory: whole or as none, changed by one command at a time."""

import threading

from infra.stack import state
from infra.stack.state import Started, State

SAID: list[str] = []


def test_what_is_written_is_read(tmp_path):
    memory = State(
        mark="m",
        ports={"ray": 5},
        services={"ray": Started(pid=7, started_at="2026-01-01T00:00:00+00:00")},
        scratch="/tmp/x",
    )
    state.write(tmp_path, memory)
    assert state.read(tmp_path, SAID.append) == memory


def test_nothing_is_remembered_at_first_and_after_forgetting(tmp_path):
    assert state.read(tmp_path, SAID.append).services == {}
    state.write(tmp_path, state.fresh(tmp_path))
    state.forget(tmp_path)
    state.forget(tmp_path)
    assert not (tmp_path / state.STATE_FILE).exists()


def test_a_damaged_file_loses_no_process(tmp_path):
    said = []
    (tmp_path / state.STATE_FILE).write_bytes(b'{"mark": "m", "ports"\xff')
    assert state.read(tmp_path, said.append).mark == state.fresh(tmp_path).mark
    assert "is damaged" in said[0]


def test_folders_have_marks_of_their_own(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert state.fresh(tmp_path / "a").mark != state.fresh(tmp_path / "b").mark
    assert state.fresh(tmp_path / "a").mark == state.fresh(tmp_path / "b" / ".." / "a").mark


def test_a_second_command_says_that_it_waits_and_then_goes_on(tmp_path):
    said, done = [], threading.Event()

    def second():
        with state.alone(tmp_path, said.append):
            done.set()

    with state.alone(tmp_path, said.append):
        thread = threading.Thread(target=second)
        thread.start()
        assert not done.wait(0.3)
    thread.join(10)
    assert done.is_set()
    assert said == ["Another command works on this stack; waiting for it."]


def test_the_folder_is_this_users_alone(tmp_path):
    with state.alone(tmp_path / "stack", SAID.append):
        assert (tmp_path / "stack").stat().st_mode & 0o077 == 0
