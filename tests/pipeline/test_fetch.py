import gzip
import hashlib
import re
import threading
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from pipeline.artifact import digest_file
from pipeline.errors import CorpusError, InputError, TradukoError
from pipeline.fetch import Patience, fetch

BODY = b"The clock strikes seven.\n" * 100_000  # a few blocks
SHA256 = hashlib.sha256(BODY).hexdigest()
HTML = b"\n <!DOCTYPE html><html><body>Please log in</body></html>"
QUICK = Patience(connect_s=2, read_s=0.2, attempts=3, backoff_s=0.01, max_wait_s=0.05)


class Misbehaving(BaseHTTPRequestHandler):
    """Answers by path; `calls` counts requests, `accepted` keeps the encodings asked for."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        name = self.path.split("?")[0].rsplit("/", 1)[-1]
        self.server.calls[name] += 1
        self.server.accepted.append(self.headers["Accept-Encoding"])
        getattr(self, f"answer_{re.sub(r'[^a-z]', '_', name)}", self.answer_missing)()

    def send(self, body, status=200, **headers):
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key.replace("_", "-"), value)
        if not {"Content_Length", "Transfer_Encoding"} & headers.keys():
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def answer_missing(self):
        self.send(b"<html>not here</html>", status=404)

    def answer_corpus_en(self):
        self.send(BODY)

    def answer_forbidden(self):
        self.send(b"", status=403)

    def answer_busy(self):
        self.send(b"", 503) if self.server.calls["busy"] < 3 else self.send(BODY)

    def answer_patient(self):
        if self.server.calls["patient"] == 1:
            return self.send(b"", 429, Retry_After=self.server.retry_after)
        return self.send(BODY)

    def answer_broken(self):
        self.send(b"", status=500)

    def answer_short(self):
        self.send(BODY[:1000], Content_Length=str(len(BODY)))
        self.close_connection = True

    def answer_short_once(self):
        if self.server.calls["short-once"] == 1:
            return self.answer_short()
        return self.send(BODY)

    def answer_chunks(self):
        self.send(b"5\r\nhello\r\n", Transfer_Encoding="chunked")  # the last chunk never comes
        self.close_connection = True

    def answer_loop(self):
        self.send(b"", status=302, Location="/loop")

    def answer_moved(self):
        self.send(b"", status=301, Location="/corpus.en")

    def answer_to_file(self):
        self.send(b"", status=302, Location="file:///etc/hostname")

    def answer_stall(self):
        self.send(BODY[:10], Content_Length=str(len(BODY)))
        self.server.released.wait(5)

    def answer_packed_en(self):
        self.send(gzip.compress(BODY), Content_Encoding="gzip")

    def answer_packed_en_gz(self):
        self.send(gzip.compress(BODY, mtime=0), Content_Encoding="gzip")

    def answer_brotli(self):
        self.send(b"\x0b\x02\x80", Content_Encoding="br")

    def answer_page(self):
        self.send(HTML)

    def log_message(self, *_):
        pass


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def server():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Misbehaving)
    server.calls, server.accepted, server.retry_after = Counter(), [], "0"
    server.released = threading.Event()
    server.handle_error = lambda *_: None  # a client that gives up is what some tests are about
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.released.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def site(server):
    return f"http://127.0.0.1:{server.server_port}"


@pytest.fixture
def get(tmp_path):
    folder = tmp_path / "attempt"
    folder.mkdir()

    def get(address, sha256=None, mirrors=(), on_progress=None, patience=QUICK):
        target = folder / "src"
        try:
            fetched = fetch(str(address), target, sha256, dict(mirrors), on_progress, patience)
        except TradukoError:
            assert list(folder.iterdir()) == [], "a failure leaves something"
            raise
        assert [path.name for path in folder.iterdir()] == ["src"]
        assert fetched.size_bytes == target.stat().st_size
        assert fetched.sha256 == digest_file(target)
        body = target.read_bytes()
        target.unlink()
        return fetched, body

    return get


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "my corpus.en"
    path.write_bytes(BODY)
    return path


def test_a_path_is_copied_and_its_hash_is_the_bytes(get, corpus):
    fetched, body = get(corpus)
    assert (body, fetched.sha256, fetched.address) == (BODY, SHA256, str(corpus))


@pytest.mark.parametrize("host", ["", "localhost"])
def test_a_file_address_is_a_quoted_path(get, corpus, host):
    _, body = get(corpus.as_uri().replace("file://", f"file://{host}"))
    assert body == BODY


def test_an_empty_file_is_a_file(get, tmp_path):
    (tmp_path / "empty").touch()
    assert get(tmp_path / "empty")[1] == b""


def test_a_web_address_is_downloaded_as_it_is(get, site, server):
    fetched, body = get(f"{site}/corpus.en", SHA256.upper())
    assert (body, fetched.sha256, fetched.address) == (BODY, SHA256, f"{site}/corpus.en")
    assert server.accepted == ["identity"]


@pytest.mark.parametrize("kind", ["path", "web"])
def test_progress_grows_to_the_size(get, corpus, site, kind):
    seen = []
    get(corpus if kind == "path" else f"{site}/corpus.en", on_progress=lambda *at: seen.append(at))
    assert seen[-1] == (len(BODY), len(BODY))
    assert seen == sorted(seen)
    assert len(seen) > 1


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("nowhere/corpus.en", "`nowhere/corpus.en` does not exist"),
        ("/dev/null", "`/dev/null` is no regular file"),
        ("ftp://host/x", "must be a path, or begin with `http://`, `https://` or `file:///`"),
        ("file://elsewhere/x", "must be a path, or begin with"),
        ("http://[::1/x", "cannot be read: check its host name and port"),
        ("http://host:port/x", "no address"),
    ],
)
def test_what_is_no_file_is_named(get, address, message):
    with pytest.raises(CorpusError, match=re.escape(message)):
        get(address)


def test_a_folder_is_not_a_file(get, tmp_path):
    with pytest.raises(CorpusError, match="must be a file, but is a folder"):
        get(tmp_path)


def test_an_unreadable_file_is_named(get, corpus, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.open", refuse)
    with pytest.raises(CorpusError, match=r"cannot be opened: Permission denied. Make it readable"):
        get(corpus)


@pytest.mark.parametrize("kind", ["path", "web"])
def test_a_wrong_sha256_names_both_and_the_file(get, corpus, site, kind):
    with pytest.raises(CorpusError) as error:
        get(corpus if kind == "path" else f"{site}/corpus.en", "0" * 64)
    message = str(error.value)
    assert "0" * 64 in message
    assert SHA256 in message
    assert "corpus.en" in message
    assert "correct the sha256" in message


def test_a_disk_error_is_no_fault_of_the_input(get, corpus, tmp_path):
    with pytest.raises(TradukoError, match="could not be written: No such file or dir") as error:
        fetch(str(corpus), tmp_path / "no folder" / "src", None, {})
    assert error.value.exit_code == 1


@pytest.mark.parametrize(("name", "answer"), [("nothing", "404 Not Found"), ("forbidden", "403")])
def test_a_refusal_is_wrong_input_and_not_repeated(get, site, server, name, answer):
    with pytest.raises(CorpusError, match=f"must be a file, but the server answers {answer}"):
        get(f"{site}/{name}")
    assert server.calls[name] == 1


@pytest.mark.parametrize("name", ["busy", "short-once", "patient"])
def test_what_may_pass_is_tried_again(get, site, server, name):
    assert get(f"{site}/{name}", SHA256)[1] == BODY
    assert server.calls[name] > 1


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("broken", "500"),
        ("short", "peer closed connection"),
        ("chunks", "peer closed connection"),
        ("stall", "timed out"),
    ],
)
def test_what_does_not_pass_is_the_servers_fault(get, site, server, name, reason):
    with pytest.raises(TradukoError, match=f"could not be fetched in 3 attempts: .*{reason}") as e:
        get(f"{site}/{name}")
    assert not isinstance(e.value, InputError)
    assert server.calls[name] == 3


def test_nobody_listening_is_a_network_error(get, server):
    server.shutdown()
    server.server_close()
    with pytest.raises(TradukoError, match=r"in 3 attempts: .*refused") as error:
        get(f"http://127.0.0.1:{server.server_port}/corpus.en")
    assert error.value.exit_code == 1


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_retry_after_is_waited_for_up_to_a_cap(get, site, server, form):
    later = datetime.now(UTC) + timedelta(seconds=100)
    server.retry_after = "100" if form == "seconds" else format_datetime(later, usegmt=True)
    started = time.perf_counter()
    get(f"{site}/patient", patience=Patience(attempts=2, backoff_s=0, max_wait_s=0.3))
    assert 0.3 <= time.perf_counter() - started < 3


def test_a_nonsense_retry_after_is_ignored(get, site, server):
    server.retry_after = "soon"
    assert get(f"{site}/patient")[1] == BODY


def test_redirects_are_followed_but_not_for_ever(get, site, server):
    assert get(f"{site}/moved")[1] == BODY
    with pytest.raises(CorpusError, match="led to more than 10 other addresses"):
        get(f"{site}/loop")
    assert server.calls["loop"] == 11


def test_a_redirect_does_not_reach_local_files(get, site, server):
    with pytest.raises(CorpusError, match=r"leads to one, that can be fetched by http\(s\)"):
        get(f"{site}/to-file")
    assert server.calls["to-file"] == 1


def test_packing_that_nobody_asked_for_is_undone(get, site):
    assert get(f"{site}/packed.en")[1] == BODY


def test_a_gzip_file_stays_one_whatever_the_server_calls_it(get, site):
    assert get(f"{site}/packed.en.gz")[1] == gzip.compress(BODY, mtime=0)


def test_an_encoding_that_cannot_be_undone_is_named(get, site):
    with pytest.raises(CorpusError, match="comes encoded as `br`"):
        get(f"{site}/brotli")


def test_a_web_page_is_no_corpus(get, site):
    with pytest.raises(CorpusError, match=r"must be a corpus, but is a web page \(HTML\)"):
        get(f"{site}/page")
    with pytest.raises(CorpusError, match=r"must have the sha256 .* It is a web page\."):
        get(f"{site}/page", SHA256)
    assert get(f"{site}/page", hashlib.sha256(HTML).hexdigest())[1] == HTML


def test_a_local_file_may_begin_like_a_web_page(get, tmp_path):
    (tmp_path / "tags.en").write_bytes(HTML)
    assert get(tmp_path / "tags.en")[1] == HTML


def test_the_longest_prefix_chooses_the_mirror(get, site, corpus):
    mirrors = {
        "http://far.example/": "/nowhere",
        "http://far.example/deep/": str(corpus.parent),
        "http://far.example/dee": "/nowhere",
    }
    fetched, body = get("http://far.example/deep/my%20corpus.en?token=1", SHA256, mirrors)
    assert (body, fetched.address) == (BODY, str(corpus))


@pytest.mark.parametrize("prefix", ["http://far.example/", "http://far.example"])
@pytest.mark.parametrize("end", ["", "/"])
def test_a_mirror_may_be_a_host_a_folder_or_relative(get, site, corpus, monkeypatch, prefix, end):
    monkeypatch.chdir(corpus.parent.parent)
    (corpus.parent / "corpus.en").write_bytes(BODY)
    for mirror in (site, corpus.parent.as_uri(), str(corpus.parent), corpus.parent.name):
        assert get("http://far.example/corpus.en", mirrors={prefix: mirror + end})[1] == BODY


def test_a_prefix_may_be_a_whole_address_or_end_inside_a_name(get, corpus):
    address = "http://far.example/my-corpus.en"
    assert get(address, mirrors={address: str(corpus)})[1] == BODY
    assert get(address, mirrors={"http://far.example/my-": f"{corpus.parent}/my "})[1] == BODY


def test_a_mirror_does_not_lift_the_checksum(get, corpus):
    with pytest.raises(CorpusError, match="must have the sha256"):
        get("http://far.example/x", "1" * 64, {"http://far.example/x": str(corpus)})


def test_no_message_and_no_result_holds_credentials(get, site):
    secret = site.replace("http://", "http://user:hunter2@")
    assert get(f"{secret}/corpus.en?token=hunter2#hunter2")[0].address == f"{site}/corpus.en"
    for name in ("nothing", "broken", "short", "stall", "loop", "to-file", "page", "brotli"):
        with pytest.raises(TradukoError) as error:
            get(f"{secret}/{name}?token=hunter2")
        assert "hunter2" not in str(error.value)
        assert f"{site}/{name}" in str(error.value)


def test_proxies_come_from_the_environment(get, site, server, monkeypatch):
    monkeypatch.setenv("http_proxy", site)
    assert get("http://far.invalid/corpus.en")[1] == BODY
