"""A download goes on where it stopped, where that is surely the same file; proxies."""

import gzip
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from pipeline.errors import ConfigError, CorpusError, TradukoError
from pipeline.fetching.request import Patience
from tests.pipeline.fetching.misbehaving import BODY, CUT, DATED, ETAG, SHA256

REST = (f"bytes={CUT}-", '"v1"')


@pytest.mark.parametrize("validator", [ETAG, DATED, {"ETag": 'W/"weak"', **DATED}])
def test_a_broken_download_goes_on_where_it_stopped(get, site, server, ranges, validator):
    server.script = [{"cut": CUT, "validator": validator}, {"validator": validator}]
    seen = []
    assert get(f"{site}/file", on_progress=lambda *at: seen.append(at))[1] == BODY
    strong = validator.get("Last_Modified", '"v1"')
    assert ranges() == [(None, None), (f"bytes={CUT}-", strong)]
    assert server.sent == len(BODY), "no byte comes twice"
    assert seen == sorted(seen, key=lambda at: at[0]), "the count does not start again"
    assert seen[-1] == (len(BODY), len(BODY))


def test_a_later_attempt_goes_on_where_one_stopped(get, site, server, folder, ranges):
    server.script = [{"cut": CUT}, {}]
    with pytest.raises(TradukoError, match="in 1 attempts"):
        get(f"{site}/file", patience=Patience(attempts=1))
    assert (folder / "src.partial").read_bytes() == BODY[:CUT]
    assert get(f"{site}/file")[1] == BODY
    assert ranges()[1:] == [REST]


def test_a_download_that_is_stopped_can_go_on(get, site, server, ranges):
    def stop(done, total):
        if done > CUT:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        get(f"{site}/file", on_progress=stop)
    assert get(f"{site}/file")[1] == BODY
    [_, (rest, validator)] = ranges()
    assert int(rest.removeprefix("bytes=").rstrip("-")) > CUT
    assert validator == '"v1"'


def test_patience_begins_anew_with_new_bytes_alone(get, site, server):
    server.script = [{"cut": len(BODY) // 10}] * 20
    assert get(f"{site}/file", patience=Patience(attempts=2, backoff_s=0))[1] == BODY
    assert server.calls["file"] == 10
    server.script = [{"cut": CUT, "validator": {}}] * 20
    with pytest.raises(TradukoError, match="in 3 attempts"):
        get(f"{site}/file")


def test_a_server_may_send_a_part_at_a_time(get, site, server):
    parts = [(start, min(start + 999_999, len(BODY) - 1)) for start in (1, 1_000_001, 2_000_001)]
    server.script = [{"cut": 1}] + [
        {
            "body": BODY[: last + 1],
            "headers": {"Content_Range": f"bytes {first}-{last}/{len(BODY)}"},
        }
        for first, last in parts
    ]
    assert get(f"{site}/file")[1] == BODY


@pytest.mark.parametrize("validator", [{}, {"ETag": 'W/"weak"'}])
def test_without_a_validator_only_a_known_sha256_lets_it_go_on(
    get, site, server, ranges, validator
):
    for sha256, asked in ((None, (None, None)), (SHA256, (f"bytes={CUT}-", None))):
        server.script = [{"cut": CUT, "validator": validator}, {"validator": validator}]
        assert get(f"{site}/file", sha256)[1] == BODY
        assert ranges()[-1] == asked


def test_a_validator_goes_to_its_own_server_alone(get, site, server, ranges):
    other = site.replace("127.0.0.1", "localhost")
    for sha256, asked in ((None, (None, None)), (SHA256, (f"bytes={CUT}-", None))):
        server.script = [{"cut": CUT}, {}]
        with pytest.raises(TradukoError):
            get(f"{site}/file", sha256, patience=Patience(attempts=1))
        assert get(f"{site}/file", sha256, mirrors={site: other})[1] == BODY
        assert ranges()[-1] == asked


OTHER = BODY.replace(b"seven", b"eight")


@pytest.mark.parametrize(
    "second",
    [
        {"validator": {"ETag": '"v2"'}},
        {"ignores_range": True},
        {"validator": {"ETag": '"v2"'}, "knows": ['"v1"']},
        {"headers": {"Content_Range": f"bytes {CUT}-{len(BODY)}/{len(BODY) + 1}"}},
        {"headers": {"Content_Range": f"bytes 0-{len(BODY) - 1}/{len(BODY)}"}},
        {"headers": {"Content_Range": "nonsense"}},
        {"headers": {"Content_Encoding": "gzip"}},
    ],
    ids=["changed", "no ranges", "ignores If-Range", "size", "place", "nonsense", "packed"],
)
def test_what_does_not_fit_is_fetched_from_the_start(get, site, server, second):
    server.script = [{"cut": CUT}, {"body": OTHER, **second}, {"body": OTHER}]
    assert get(f"{site}/file")[1] == OTHER


def test_a_partial_file_that_is_whole_already_is_taken(get, site, server, folder, ranges):
    server.script = [{"cut": CUT}]
    with pytest.raises(TradukoError):
        get(f"{site}/file", patience=Patience(attempts=1))
    (folder / "src.partial").write_bytes(BODY)
    sent = server.sent
    assert get(f"{site}/file")[1] == BODY
    assert server.sent == sent
    assert ranges()[-1] == (f"bytes={len(BODY)}-", '"v1"')


@pytest.mark.parametrize(
    ("size", "answer"),
    [
        (len(BODY) + 5, {}),
        (len(BODY) + 5, {"headers": {}}),
        (len(BODY), {"headers": {"Content_Range": f"bytes */{len(BODY) + 1}"}}),
        (len(BODY), {"headers": {"ETag": '"v2"'}}),
    ],
)
def test_a_partial_file_of_another_size_is_fetched_from_the_start(
    get, site, server, folder, size, answer
):
    server.script = [{"cut": CUT}, answer]
    with pytest.raises(TradukoError):
        get(f"{site}/file", patience=Patience(attempts=1))
    (folder / "src.partial").write_bytes(bytes(size))
    assert get(f"{site}/file")[1] == BODY


def test_a_joined_file_with_the_wrong_sha256_is_fetched_once_more(get, site, server):
    server.script = [{"body": OTHER, "cut": CUT}]
    assert get(f"{site}/file", SHA256)[1] == BODY
    assert server.sent == CUT + len(BODY) - CUT + len(BODY)
    server.script = [{"body": OTHER, "cut": CUT}] + [{"body": OTHER}] * 5
    before = server.calls["file"]
    with pytest.raises(CorpusError, match="must have the sha256"):
        get(f"{site}/file", SHA256)
    assert server.calls["file"] - before == 3


def test_what_was_unpacked_on_the_way_cannot_go_on(get, site, server, ranges):
    packed = {"body": gzip.compress(BODY, 0), "headers": {"Content_Encoding": "gzip"}}
    server.script = [{**packed, "cut": CUT}]
    assert get(f"{site}/file")[1] == BODY
    assert ranges() == [(None, None)] * 2


def test_a_file_that_does_not_end_is_not_taken_to_its_end(get, site, folder):
    with pytest.raises(CorpusError, match=r"must have 1000 bytes, but has \d+ or more"):
        get(f"{site}/chunked", size_bytes=1000)
    assert 1000 < (folder / "set-aside" / "src").stat().st_size < len(BODY) / 2


def test_an_unreadable_note_counts_as_none(get, site, server, folder, ranges):
    (folder / "src.partial").write_bytes(BODY[:CUT])
    for note in ("", "[]", '{"address": 1}'):
        (folder / "src.partial.json").write_text(note)
        assert get(f"{site}/file")[1] == BODY
        assert ranges()[-1] == (None, None)


class Proxy(BaseHTTPRequestHandler):
    """Serves every site; asks who is there."""

    def do_GET(self):
        self.server.asked.append((self.path, self.headers["Proxy-Authorization"]))
        is_known = self.headers["Proxy-Authorization"] is not None
        self.send_response(200 if is_known else 407)
        self.send_header("Content-Length", str(len(BODY) * is_known))
        self.end_headers()
        self.wfile.write(BODY * is_known)

    def do_CONNECT(self):
        self.do_GET()

    def log_message(self, *_):
        pass


@pytest.fixture
def proxy():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    server.asked = []
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_proxies_come_from_the_environment(get, site, proxy, monkeypatch):
    monkeypatch.setenv("http_proxy", f"http://user:hunter2@127.0.0.1:{proxy.server_port}")
    fetched, body = get("http://far.invalid/corpus.en?token=1")
    assert (body, fetched.address) == (BODY, "http://far.invalid/corpus.en")
    assert proxy.asked == [("http://far.invalid/corpus.en?token=1", "Basic dXNlcjpodW50ZXIy")]
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert get(f"{site}/corpus.en")[1] == BODY
    assert len(proxy.asked) == 1


@pytest.mark.parametrize(
    ("scheme", "variable", "message"),
    [
        ("http", "http://127.0.0.1:{port}", "the server answers 407"),
        ("https", "http://127.0.0.1:{port}", "in 3 attempts: 407"),
        ("http", "http://user:hunter2@127.0.0.1:9", "refused"),
        ("http", "gopher://user:hunter2@127.0.0.1:9", "A proxy named in the environment"),
        ("http", "http://user:hunter2@127.0.0.1:many", "A proxy named in the environment"),
    ],
)
def test_what_is_wrong_with_a_proxy_is_said_without_its_password(
    get, proxy, monkeypatch, scheme, variable, message
):
    monkeypatch.setenv(f"{scheme}_proxy", variable.format(port=proxy.server_port))
    with pytest.raises(TradukoError, match=message) as error:
        get(f"{scheme}://far.invalid/corpus.en")
    assert "hunter2" not in str(error.value)
    assert isinstance(error.value, ConfigError) == ("environment" in message)
