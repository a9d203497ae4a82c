"""A corpus arrives whole and verified, or nothing of it does."""

import gzip
import hashlib
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from pipeline.builtin.quickstart import pairs
from pipeline.config import Source
from pipeline.download import download
from pipeline.errors import CorpusError

ENGLISH = b"The clock strikes seven.\r\n\r\nA door.\n"
GERMAN = "Die Uhr schlägt sieben.\n\nEine Tür.".encode()


@pytest.fixture
def write(tmp_path):
    def write_files(src=ENGLISH, tgt=GERMAN, ending=""):
        paths = tmp_path / f"train.en{ending}", tmp_path / f"train.de{ending}"
        for path, body in zip(paths, (src, tgt), strict=True):
            path.write_bytes(gzip.compress(body) if ending else body)
        return paths

    return write_files


@pytest.fixture
def serve():
    """Serves bytes by path, whatever the query is; gives the address of the folder."""
    servers = []

    def start(**bodies):
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                body = bodies[self.path.split("?")[0].strip("/")]
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def source(src, tgt, **more):
    sides = [side if isinstance(side, dict) else str(side) for side in (src, tgt)]
    return Source.model_validate({"name": "corpus", "src": sides[0], "tgt": sides[1], **more})


@pytest.fixture
def fetched(publish):
    def fetch(*arguments, mirrors=None, progress=None, **more):
        made = source(*arguments, **more)
        fields = {"mirrors": mirrors or {}} | ({"progress": progress} if progress else {})
        return publish("download", lambda job: download(made, job), **fields)

    return fetch


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_local_files_are_copied_byte_for_byte(write, fetched, ending):
    src, tgt = write(ending=ending)
    artifact = fetched(src, tgt, num_rows=3)
    assert artifact.path("src").read_bytes() == src.read_bytes()
    assert artifact.path("tgt").read_bytes() == tgt.read_bytes()
    assert artifact.stats == {
        side: {
            "address": str(path),
            "bytes": path.stat().st_size,
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        }
        for side, path in (("src", src), ("tgt", tgt))
    } | {"rows": 3}


def test_addresses_give_the_bytes_that_the_server_sends(serve, fetched):
    address = serve(en=ENGLISH, de=GERMAN)
    sha256 = hashlib.sha256(ENGLISH).hexdigest()
    artifact = fetched({"url": f"{address}/en", "sha256": sha256}, f"{address}/de")
    assert artifact.path("src").read_bytes() == ENGLISH
    assert artifact.path("tgt").read_bytes() == GERMAN
    assert artifact.stats["tgt"]["address"] == f"{address}/de"


def test_a_mirror_serves_what_begins_with_its_prefix(write, fetched):
    src, _ = write()
    mirrors = {"https://far.example/data/": str(src.parent)}
    artifact = fetched(
        "https://far.example/data/train.en", "https://far.example/data/train.de", mirrors=mirrors
    )
    assert artifact.path("src").read_bytes() == ENGLISH
    assert artifact.stats["src"]["address"] == str(src)


def test_a_builtin_corpus_is_written_line_by_line(publish):
    made = Source.model_validate({"name": "own", "builtin": {"split": "train", "num_train": 50}})
    artifact = publish("download", lambda job: download(made, job))
    src, tgt = (artifact.path(side).read_text("utf-8").split("\n") for side in ("src", "tgt"))
    assert list(zip(src, tgt, strict=True)) == [*pairs("train", 50), ("", "")]
    assert artifact.stats == {"builtin": "quickstart", "split": "train", "rows": 50}


def test_another_sha256_is_refused(write, fetched, nothing_is_left):
    src, tgt = write()
    with pytest.raises(CorpusError, match=rf"{src}.*sha256"):
        fetched({"path": str(src), "sha256": "0" * 64}, tgt)
    assert nothing_is_left()


def test_another_number_of_pairs_than_the_recipe_says_is_refused(write, fetched, nothing_is_left):
    message = r"Source `corpus` must hold 4 pairs \(`num_rows`\), but holds 3\."
    with pytest.raises(CorpusError, match=message):
        fetched(*write(), num_rows=4)
    assert nothing_is_left()


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_unequal_files_are_named_by_where_they_came_from(write, fetched, nothing_is_left, ending):
    src, tgt = write(b"one\ntwo\n", b"eins\nzwei\ndrei\n", ending)
    message = f"`{src}` has 2 lines and `{tgt}` has 3."
    with pytest.raises(CorpusError, match=re.escape(message)):
        fetched(src, tgt)
    assert nothing_is_left()


def test_unequal_downloads_are_named_by_their_addresses(serve, fetched, nothing_is_left):
    address = serve(en=b"one\ntwo\n", de=b"eins\n")
    message = f"`{address}/en` has 2 lines and `{address}/de` has 1."
    with pytest.raises(CorpusError, match=re.escape(message)):
        fetched(f"{address}/en", f"{address}/de")
    assert nothing_is_left()


def test_what_is_not_utf8_is_named_by_file_line_and_byte(write, fetched, nothing_is_left):
    src, tgt = write(tgt=GERMAN.replace(b"\xc3\xbc", b"\xfc"))
    with pytest.raises(CorpusError, match=rf"`{tgt}` must be UTF-8.*line 3, byte 32: FC"):
        fetched(src, tgt)
    assert nothing_is_left()


def test_empty_files_are_no_corpus(write, fetched, nothing_is_left):
    with pytest.raises(CorpusError, match="are empty: there are no pairs"):
        fetched(*write(b"", b""))
    assert nothing_is_left()


def test_no_credentials_are_told_or_kept(serve, fetched):
    address = serve(en=ENGLISH, de=GERMAN, short=b"one\n")
    notes = []
    english = f"{address}/en?token=secret"
    kept = fetched(english, f"{address}/de?secret", progress=lambda *told: notes.append(told))
    assert "secret" not in str(kept.stats)
    assert "en" in str(notes)
    assert "secret" not in str(notes)
    with pytest.raises(CorpusError, match=r"/en` has 3 lines and `.*/short` has 1") as error:
        fetched(english, f"{address}/short?secret")
    assert "secret" not in str(error.value)
