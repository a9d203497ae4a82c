import pytest

from flows.progress import Terminal, _short


@pytest.mark.parametrize(
    ("number", "shown"),
    [(0, "0"), (9999, "9999"), (12_345, "12.3k"), (1_234_567, "1.2M"), (2.5e9, "2.5G")],
)
def test_numbers_are_short(number, shown):
    assert _short(number) == shown


def test_off_a_terminal_only_lines_are_shown(capsys):
    with Terminal() as terminal:
        terminal.begin("clean")
        terminal.progress(5, 10, "rows")
        terminal.say("clean: [done]")
        terminal.end()
    shown = capsys.readouterr()
    assert shown.err == "clean: [done]\n"
    assert shown.out == ""


def test_bars_beside_each_other_come_and_go_on_a_terminal(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    with Terminal() as terminal:
        terminal.begin("download")
        with terminal.beside("one") as one, terminal.beside("two") as two:
            one(1, 2, "bytes")
            two(2, None, "bytes", "a note")
            shown = [(task.description, task.completed) for task in terminal._bars.tasks]
            assert shown == [("download", 0), ("one", 1), ("two", 2)]
        assert [task.description for task in terminal._bars.tasks] == ["download"]
