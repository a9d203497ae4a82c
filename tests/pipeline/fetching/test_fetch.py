"""A file is fetched whole and right, or it is said why not."""

import gzip
import hashlib
import json
import re
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from pipeline.errors import CorpusError, InputError, TradukoError
from pipeline.fetching.checks import Pinned
from pipeline.fetching.fetch import fetch
from pipeline.fetching.request import Patience
from tests.pipeline.fetching.misbehaving import BODY, CUT, HTML, SHA256


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
