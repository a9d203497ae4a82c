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
