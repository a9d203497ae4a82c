import gzip
import hashlib
import json
import re
import threading
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from pipeline.artifact import digest_file
from pipeline.checks import Checks, Pinned
from pipeline.errors import ConfigError, CorpusError, InputError, TradukoError
from pipeline.fetch import fetch
from pipeline.request import Patience
from tests.servers import serving

BODY = b"The clock strikes seven.\n" * 100_000  # a few blocks
SHA256 = hashlib.sha256(BODY).hexdigest()
HTML = b"\n <!DOCTYPE html><html><body>Please log in</body></html>"
ETAG = {"ETag": '"v1"'}
DATED = {"Last_Modified": "Sat, 01 Nov 2025 10:00:00 GMT"}
QUICK = Patience(connect_s=2, read_s=0.2, attempts=3, backoff_s=0.01, max_wait_s=0.05)


class Misbehaving(BaseHTTPRequestHandler):
    """Answers by path; `calls` counts requests, `asked` keeps their headers."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        name = self.path.split("?")[0].rsplit("/", 1)[-1]
        self.server.calls[name] += 1
        self.server.asked.append(self.headers)
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

    def answer_chunked(self):
        self.send(b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY), Transfer_Encoding="chunked")

    def answer_no_range(self):
        self.send(b"", status=416)

    def answer_file(self):
        """`script` says how each answer departs from a good server's; it breaks off after `cut`."""
        plan = self.server.script.pop(0) if self.server.script else {}
        body, cut, start = plan.get("body", BODY), plan.get("cut"), self.start_wanted(plan)
        if start == "none":
            return self.send(
                b"", 416, **plan.get("headers", {"Content_Range": f"bytes */{len(body)}"})
            )
        status, rest, place = 200, body, {}
        if start is not None:
            status, rest = 206, body[start:]
            place = {"Content_Range": f"bytes {start}-{len(body) - 1}/{len(body)}"}
        headers = place | plan.get("validator", ETAG) | plan.get("headers", {})
        self.server.sent += len(rest[:cut])
        self.send(rest[:cut], status, Content_Length=str(len(rest)), **headers)
        self.close_connection = True
        return None

    def start_wanted(self, plan):
        wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        known = plan.get("knows", [*plan.get("validator", ETAG).values(), None])
        if not wanted or plan.get("ignores_range") or self.headers["If-Range"] not in known:
            return None
        start = int(wanted[1])
        return start if start < len(plan.get("body", BODY)) else "none"

    def log_message(self, *_):
        pass


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
    assert [asked["Accept-Encoding"] for asked in server.asked] == ["identity"]


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
        fetch(str(corpus), tmp_path / "no folder" / "src")
    assert error.value.exit_code == 1


@pytest.mark.parametrize(
    ("name", "answer"),
    [("nothing", "404 Not Found"), ("forbidden", "403"), ("no-range", "416")],
)
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
        ("stall", "timed out: the server sent nothing for 0.2 s"),
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


CUT = 1_000_000
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


def test_what_fails_a_check_is_set_aside_with_the_reason(get, site, folder):
    for name, body in (("corpus.en", BODY), ("page", HTML)):
        with pytest.raises(CorpusError, match=r"What came is kept as .*set-aside/src") as error:
            get(f"{site}/{name}", "0" * 64)
        aside = folder / "set-aside"
        assert sorted(path.name for path in aside.iterdir()) == ["src", "src.why.txt"]
        assert (aside / "src").read_bytes() == body
        assert (aside / "src.why.txt").read_text().strip() in str(error.value)
        assert [path.name for path in folder.iterdir()] == ["set-aside"]


def test_a_size_known_to_be_wrong_is_refused_before_the_body(get, site, server, folder):
    for name in ("corpus.en", "file"):
        with pytest.raises(
            CorpusError, match=f"must have 9 bytes, but the server offers {len(BODY)}"
        ):
            get(f"{site}/{name}", size_bytes=9)
    server.script = [{"cut": CUT}]
    with pytest.raises(TradukoError):
        get(f"{site}/file", patience=Patience(attempts=1))
    with pytest.raises(CorpusError, match="must have 9 bytes, but the server offers"):
        get(f"{site}/file", size_bytes=9)
    assert not (folder / "set-aside").exists()


@pytest.mark.parametrize("name", ["chunked", "packed.en"])
def test_a_size_that_nobody_told_is_checked_too(get, site, name):
    assert get(f"{site}/{name}", size_bytes=len(BODY))[1] == BODY
    for size in (CUT, len(BODY) + 1):
        with pytest.raises(CorpusError, match=f"must have {size} bytes, but has"):
            get(f"{site}/{name}", size_bytes=size)


@pytest.mark.parametrize("kind", ["path", "web"])
def test_an_md5_is_checked(get, corpus, site, kind):
    address = corpus if kind == "path" else f"{site}/corpus.en"
    md5 = hashlib.md5(BODY).hexdigest()
    assert get(address, md5=md5.upper())[1] == BODY
    with pytest.raises(CorpusError, match=f"must have the md5 {'0' * 32}, but has {md5}"):
        get(address, md5="0" * 32)


def test_a_page_whose_md5_is_given_is_meant(get, site):
    assert get(f"{site}/page", md5=hashlib.md5(HTML).hexdigest())[1] == HTML


@pytest.mark.parametrize(
    "checks", [{"sha256": "0" * 64}, {"size_bytes": 9}, {"size_bytes": CUT, "name": "chunked"}]
)
def test_another_file_than_the_pinned_one_names_the_lock_and_the_line(get, site, tmp_path, checks):
    pinned = Pinned(tmp_path / "traduko.lock", "http://far.example/corpus")
    address = f"{site}/{checks.pop('name', 'corpus.en')}"
    with pytest.raises(CorpusError) as error:
        get(address, pinned=pinned, **checks)
    message = str(error.value)
    assert f"pinned in {pinned.lock}, but" in message
    assert "check the source. To accept the new file, remove the line of" in message
    assert f"`http://far.example/corpus` from {pinned.lock}." in message


def test_no_note_holds_credentials(get, site, server, folder):
    secret = site.replace("http://", "http://user:hunter2@")
    server.script = [{"cut": CUT}, {"cut": CUT}]
    with pytest.raises(TradukoError):
        get(f"{secret}/file?token=hunter2", patience=Patience(attempts=1))
    kept = json.loads((folder / "src.partial.json").read_text())
    assert kept == {"address": f"{site}/file", "validator": '"v1"', "size_bytes": len(BODY)}
    with pytest.raises(CorpusError):
        get(f"{secret}/file?token=hunter2", "0" * 64)
    assert "hunter2" not in (folder / "set-aside" / "src.why.txt").read_text()


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
