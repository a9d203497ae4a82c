import os

import pytest

from pipeline import file_digests
from pipeline.artifact import digest_file
from pipeline.errors import CorpusError
from pipeline.file_digests import FileDigests


@pytest.fixture
def hashed(monkeypatch):
    """Paths that were really hashed."""
    hashed = []

    def note(path):
        hashed.append(path)
        return digest_file(path)

    monkeypatch.setattr(file_digests, "digest_file", note)
    return hashed


def test_a_file_is_hashed_once_until_it_changes(tmp_path, hashed):
    path, memory = tmp_path / "corpus", tmp_path / "root" / "digests.json"
    path.write_text("abc")
    first = FileDigests(memory).of(path)
    assert FileDigests(memory).of(path) == first == digest_file(path)
    assert hashed == [path]
    path.write_text("abd")
    os.utime(path, ns=(1, 1))
    assert FileDigests(memory).of(path) == digest_file(path) != first
    assert hashed == [path, path]


def test_a_damaged_or_unwritable_memory_only_costs_time(tmp_path, hashed):
    path = tmp_path / "corpus"
    path.write_text("abc")
    (tmp_path / "damaged.json").write_text("[1")
    (tmp_path / "file").write_text("")
    for memory in (tmp_path / "damaged.json", tmp_path / "file" / "digests.json"):
        assert FileDigests(memory).of(path) == digest_file(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(CorpusError, match=r"File .*nothing does not exist. Check the path"):
        FileDigests(tmp_path / "memory").of(tmp_path / "nothing")
