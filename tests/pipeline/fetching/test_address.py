"""What of an address is told and kept; tests of `fetch` follow them to the bytes."""

import pytest

from pipeline.fetching.address import file_name, public, recorded


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("https://host/a/b.gz", "https://host/a/b.gz"),
        ("https://user:hunter2@host:8/a?token=hunter2#hunter2", "https://host:8/a"),
        ("my corpus?.en", "my corpus?.en"),
    ],
)
def test_nothing_secret_is_told(address, told):
    assert public(address) == told


def test_addresses_that_differ_in_their_queries_stay_two():
    one, two = recorded("http://h/get?lang=en"), recorded("http://h/get?lang=de")
    assert one != two
    assert one == recorded("http://user@h/get?lang=en#part")
    assert one.partition("?")[0] == "http://h/get"
    assert recorded("http://h/get") == "http://h/get"
    assert "hunter2" not in recorded("http://h/get?token=hunter2")


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("http://h/a/train.en.gz?token=1", "train.en.gz"),
        ("data/train.en", "train.en"),
        ("http://host/", "host"),
        ("file:///a/b", "b"),
    ],
)
def test_a_file_is_called_by_the_last_part(address, name):
    assert file_name(address) == name
