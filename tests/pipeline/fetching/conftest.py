"""What the tests of downloads share."""

import threading
from collections import Counter

import pytest

from pipeline.artifact import digest_file
from pipeline.fetching.checks import Checks
from pipeline.fetching.fetch import fetch
from tests.pipeline.fetching.misbehaving import BODY, QUICK, Misbehaving
from tests.servers import serving


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def server():
    released = threading.Event()
    with serving(
        Misbehaving,
        calls=Counter(),
        asked=[],
        retry_after="0",
        script=[],
        sent=0,
        released=released,
    ) as server:
        yield server
        released.set()


@pytest.fixture
def site(server):
    return server.site


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def get(folder):
    target = folder / "src"

    def get(address, sha256=None, mirrors=(), on_progress=None, patience=QUICK, **checks):
        wanted = Checks(sha256, **checks)
        try:
            fetched = fetch(str(address), target, wanted, dict(mirrors), on_progress, patience)
        except BaseException:
            assert not target.exists(), "a failure leaves something"
            raise
        assert [path.name for path in folder.iterdir() if path.is_file()] == ["src"]
        assert (fetched.path, fetched.size_bytes) == (target, target.stat().st_size)
        assert fetched.sha256 == digest_file(target)
        body = target.read_bytes()
        target.unlink()
        return fetched, body

    return get


@pytest.fixture
def ranges(server):
    """What was asked for: the header `Range`, and the condition on it."""
    return lambda: [(asked["Range"], asked["If-Range"]) for asked in server.asked]


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "my corpus.en"
    path.write_bytes(BODY)
    return path
