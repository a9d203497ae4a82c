"""A file is there whole, or not at all."""

import pytest

from pipeline.artifact import write_json
from pipeline.whole_file import whole_file


def test_the_name_appears_when_the_body_ends(tmp_path):
    path = tmp_path / "rows"
    with whole_file(path) as partial:
        partial.write_text("half")
        assert not path.exists()
        partial.write_text("whole")
    assert path.read_text() == "whole"
    assert [each.name for each in tmp_path.iterdir()] == ["rows"]


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_a_body_that_fails_leaves_what_was_there_and_nothing_else(tmp_path, error):
    path, scratch = tmp_path / "rows", tmp_path / "scratch"
    scratch.mkdir()
    path.write_text("before")
    for place in (None, scratch):
        with pytest.raises(error):
            write_and_fail(path, place, error)
    assert path.read_text() == "before"
    assert list(scratch.iterdir()) == []
    assert sorted(each.name for each in tmp_path.iterdir()) == ["rows", "scratch"]


def write_and_fail(path, scratch, error):
    with whole_file(path, scratch) as partial:
        partial.write_text("half")
        raise error


def test_json_that_cannot_be_written_leaves_nothing(tmp_path):
    with pytest.raises(TypeError):
        write_json(tmp_path / "stats.json", {"rows": [1, 2], "what": object()})
    assert list(tmp_path.iterdir()) == []
