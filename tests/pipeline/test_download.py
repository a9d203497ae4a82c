"""A corpus arrives whole and verified, or nothing of it does."""

import gzip
import hashlib
import io
import json
import re
import tarfile
from contextlib import ExitStack

import pyarrow as pa
import pytest

from pipeline.builtin.quickstart import pairs
from pipeline.config import RunConfig
from pipeline.dag import nodes
from pipeline.download import REJECTED_FILE, download
from pipeline.errors import CorpusError
from pipeline.fetching.fetched import Files
from pipeline.file_digests import FileDigests
from pipeline.reading.formats import read_corpus
from pipeline.sources import FileSource, Source
from tests.servers import Bodies, serving

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
    """Serves bytes by path; gives the address of the folder."""
    with ExitStack() as servers:

        def start(**bodies):
            return servers.enter_context(serving(Bodies, bodies=bodies)).site

        yield start


def source(src, tgt, **more):
    sides = [side if isinstance(side, dict) else str(side) for side in (src, tgt)]
    return Source.model_validate({"name": "corpus", "src": sides[0], "tgt": sides[1], **more})


@pytest.fixture
def fetched(publish, make_files):
    def fetch(*arguments, mirrors=None, progress=None, say=None, **more):
        made = source(*arguments, **more)
        fields = {"files": make_files(mirrors)} | ({"progress": progress} if progress else {})
        fields |= {"say": say} if say else {}
        aside = (REJECTED_FILE,)
        return publish("download", lambda job: download(made, job), aside=aside, **fields)

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
    with pytest.raises(CorpusError, match=rf"`{tgt}`: line 3, byte 32 is not UTF-8 \(FC"):
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


def test_rejected_rows_are_counted_told_and_kept_readable(write, fetched):
    src, tgt = write(b"a\n\x1b\xff" + b"x" * 500 + b"\nc\n", b"1\n2\n\xfd\n")
    said = []
    artifact = fetched(src, tgt, on_bad_rows="reject", num_rows=1, say=said.append)
    assert artifact.path("src").read_bytes() == src.read_bytes(), "the files' own bytes"
    counts = {key: artifact.stats[key] for key in ("rows", "rows_rejected", "rejected")}
    assert counts == {"rows": 1, "rows_rejected": 2, "rejected": {"encoding": 2}}
    assert said == [
        "Source `corpus`: 2 of 3 rows are no pairs and left out; see rejected.jsonl beside its text."
    ]
    lines = artifact.path(REJECTED_FILE).read_text("utf-8").split("\n")
    first, second, end = (json.loads(line) if line else None for line in lines)
    assert first == {
        "source": "corpus",
        "file": str(src),
        "line": 2,
        "byte": 3,
        "kind": "encoding",
        "what": "is not UTF-8 (FF: invalid start byte)",
        "raw": "\x1b\\xff" + "x" * 198,
    }
    assert (second["file"], second["line"], end) == (str(tgt), 3, None)


def test_the_record_of_rejected_rows_is_no_content(write, fetched):
    """It names files as the user knows them, and these may be moved."""
    src, tgt = write(b"a\n\xff\n", b"1\n2\n")
    here = fetched(src, tgt, on_bad_rows="reject")
    moved = [path.rename(f"{path}.moved") for path in (src, tgt)]
    assert fetched(*moved, on_bad_rows="reject").manifest.content == here.manifest.content


def test_a_source_without_faults_has_no_record_unless_it_might(write, fetched):
    stop, reject = fetched(*write()), fetched(*write(), on_bad_rows="reject")
    assert not (stop.folder / REJECTED_FILE).exists()
    assert reject.path(REJECTED_FILE).read_bytes() == b""
    assert "rejected" not in stop.stats
    assert (reject.stats["rows"], reject.stats["rows_rejected"]) == (3, 0)


@pytest.fixture
def captions(shared_data):
    """The lines of both sides of 1,014 real pairs."""
    return [
        gzip.decompress((shared_data / "multi30k" / f"val.{side}.gz").read_bytes()).split(b"\n")[
            :-1
        ]
        for side in ("en", "de")
    ]


def test_a_shift_is_said_and_recorded(write, fetched, captions):
    src, tgt = captions
    files = (b"\n".join(side) for side in (src, [b"one line too many", *tgt[:-1]]))
    said = []
    artifact = fetched(*write(*files), say=said.append)
    assert artifact.stats["drift"] == [{"first_line": 1, "last_line": 1014, "offset": 1}]
    [sentence] = said
    assert re.match(r"Source `corpus`: `.*/train.de` looks shifted against `.*/train.en`", sentence)


def test_a_shift_in_one_file_is_said_of_its_sides(publish, tmp_path, captions):
    src, tgt = captions
    path = tmp_path / "my.tsv"
    path.write_bytes(b"\n".join(b"\t".join(pair) for pair in zip(src[1:], tgt, strict=False)))
    said = []
    made = Source.model_validate({"name": "corpus", "pairs": str(path)})
    publish("download", lambda job: download(made, job), say=said.append)
    assert f"the target side of `{path}` looks shifted against the source side" in said[0]


def test_what_a_format_leaves_out_is_counted(publish, tmp_path):
    path = tmp_path / "my.po"
    path.write_text('msgid ""\nmsgstr "x"\n\nmsgid "a"\nmsgstr "b"\n', encoding="utf-8")
    made = Source.model_validate({"name": "corpus", "pairs": str(path)})
    artifact = publish("download", lambda job: download(made, job))
    assert artifact.stats["rows"] == 1
    assert artifact.stats["left_out"] == {"header": 1}


def tgz(files):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return made.getvalue()


def sgm(*lines):
    segments = "".join(f'<seg id="{n}">{line}</seg>\n' for n, line in enumerate(lines, start=1))
    return f'<srcset><doc docid="a">\n{segments}</doc></srcset>\n'.encode()


TRAINING = {
    "training/europarl-v7.de-en.en": ENGLISH,
    "training/europarl-v7.de-en.de": GERMAN,
    "training/europarl-v7.fr-en.en": b"The end.\n",
    "training/europarl-v7.fr-en.fr": b"La fin.\n",
}
WMT14 = {
    "training-parallel-europarl-v7.tgz": tgz(TRAINING),
    "training-giga-fren.tar": gzip.decompress(
        tgz(
            {
                "giga-fren.release2.fixed.en.gz": gzip.compress(ENGLISH),
                "giga-fren.release2.fixed.fr.gz": gzip.compress(GERMAN),
            }
        )
    ),
    "test-full.tgz": tgz(
        {
            "test-full/newstest2014-deen-src.en.sgm": sgm("A door.", "The clock."),
            "test-full/newstest2014-deen-ref.de.sgm": sgm("Eine Tür.", "Die Uhr."),
        }
    ),
}


def members(address, src, tgt, key="url", **more):
    return [{key: str(address), "member": member, **more} for member in (src, tgt)]


@pytest.mark.parametrize(
    ("archive", "src", "tgt", "rows"),
    [
        ("training-parallel-europarl-v7.tgz", *list(TRAINING)[:2], 3),
        ("training-parallel-europarl-v7.tgz", "*/*.fr-en.en", "*/*.fr-en.fr", 1),
        ("training-giga-fren.tar", "giga-fren.*.en.gz", "giga-fren.*.fr.gz", 3),
        ("test-full.tgz", "*/newstest2014-deen-src.en.sgm", "*/newstest2014-deen-ref.de.sgm", 2),
    ],
)
def test_the_files_of_wmt14_come_out_of_their_archives(serve, fetched, archive, src, tgt, rows):
    address = f"{serve(**WMT14)}/{archive}"
    sha256 = hashlib.sha256(WMT14[archive]).hexdigest()
    artifact = fetched(*members(address, src, tgt, sha256=sha256), num_rows=rows)
    for side in ("src", "tgt"):
        told = artifact.stats[side]
        assert "*" not in told.pop("member")
        assert told == {"address": address, "bytes": len(WMT14[archive]), "sha256": sha256}
    table = pa.Table.from_batches(list(read_corpus(artifact.folder)))
    assert table.num_rows == rows


def test_an_archive_of_both_sides_is_fetched_once(fetched, tmp_path, monkeypatch):
    (tmp_path / "europarl.tgz").write_bytes(WMT14["training-parallel-europarl-v7.tgz"])
    opened = []
    real = Files.open
    monkeypatch.setattr(
        Files, "open", lambda self, *given: opened.append(given) or real(self, *given)
    )
    fetched(*members(tmp_path / "europarl.tgz", *list(TRAINING)[:2], key="path"))
    assert len(opened) == 1
    assert (tmp_path / "europarl.tgz").exists(), "a file of the user's own stays"


def test_both_sides_in_one_member_or_in_two_archives(publish, serve, fetched):
    address = serve(
        a=tgz({"x/en.txt": ENGLISH}), b=tgz({"x/de.txt": GERMAN}), c=tgz({"p.tsv": b"a\tb\n"})
    )
    src, tgt = {"url": f"{address}/a", "member": "x/*"}, {"url": f"{address}/b", "member": "x/*"}
    assert fetched(src, tgt).path("tgt").read_bytes() == GERMAN
    pairs = {"url": f"{address}/c", "member": "p.tsv"}
    made = Source.model_validate({"name": "corpus", "pairs": pairs})
    artifact = publish("download", lambda job: download(made, job))
    assert artifact.path("pairs").read_bytes() == b"a\tb\n"


def test_a_member_that_is_missing_or_renamed_is_answered_with_what_is_there(
    serve, fetched, nothing_is_left
):
    address = f"{serve(**WMT14)}/training-parallel-europarl-v7.tgz"
    message = (
        f"`{address}` must hold `training/europarl-v8.de-en.de` (`member`), but does not. "
        "Nearest to it: `training/europarl-v7.de-en.de`, "
    )
    with pytest.raises(CorpusError, match=re.escape(message)):
        fetched(*members(address, next(iter(TRAINING)), "training/europarl-v8.de-en.de"))
    assert nothing_is_left()


def test_members_that_are_too_short_are_named_in_their_archive(serve, fetched, nothing_is_left):
    files = {"a.en": b"one\ntwo\n", "a.de": b"eins\n", "b.de": b"eins\nzwei\n"}
    address = f"{serve(a=tgz(files))}/a"
    with pytest.raises(
        CorpusError, match=rf"`{address}!a.en` has 2 lines and `{address}!a.de` has 1"
    ):
        fetched(*members(address, "a.en", "a.de"))
    with pytest.raises(CorpusError, match=r"must hold 3 pairs \(`num_rows`\), but holds 2"):
        fetched(*members(address, "a.en", "b.de"), num_rows=3)
    assert nothing_is_left()


def test_another_archive_than_was_meant_is_refused_before_it_is_opened(serve, fetched):
    address = f"{serve(a=b'no archive')}/a"
    with pytest.raises(CorpusError, match=r"must have the sha256 0{64}"):
        fetched(*members(address, "a.en", "a.de", sha256="0" * 64))


def test_an_archive_without_a_member_is_answered_with_its_files(serve, fetched, nothing_is_left):
    address = serve(**WMT14, de=GERMAN)
    message = (
        f"`{address}/training-giga-fren.tar` is an archive: `member` must name the file in it. "
        "It holds `giga-fren.release2.fixed.en.gz`, `giga-fren.release2.fixed.fr.gz`."
    )
    with pytest.raises(CorpusError, match=re.escape(message)):
        fetched(f"{address}/training-giga-fren.tar", f"{address}/de")
    assert nothing_is_left()


def test_a_file_that_is_no_archive_has_no_member(serve, fetched):
    address = serve(en=ENGLISH)
    with pytest.raises(
        CorpusError, match=rf"`{address}/en` must be a tar or zip archive to have a"
    ):
        fetched(*members(f"{address}/en", "a.en", "a.de"))


@pytest.mark.parametrize("member", ["", "/a", "a/", "a!", "!a", "a!/b", "../a", "a!../b"])
def test_a_member_must_be_a_path(member):
    with pytest.raises(ValueError, match=r"member"):
        FileSource.model_validate({"path": "a.tgz", "member": member})


def test_both_sides_must_say_the_same_of_their_archive():
    src, tgt = members("https://host/a.tgz", "a.en", "a.de", sha256="0" * 64)
    del tgt["sha256"]
    with pytest.raises(ValueError, match="name one file, and must say the same of it"):
        source(src, tgt)


def test_the_member_tells_the_format_and_is_part_of_the_fingerprint(tmp_path):
    url = "https://host/a.tgz"
    first, second = (source(*members(url, f"{n}.sgm", "b.sgm")) for n in "ac")
    assert first.layout.format == "sgm"
    pair = {"url": f"{url}?token=x.po", "member": "inner.zip!x/a?.tsv.xz"}
    assert Source.model_validate({"name": "x", "pairs": pair}).layout.format == "tsv"
    run = {"name": "x", "src": "en", "tgt": "de"}
    configs = []
    for made in (first, second):
        recipe = RunConfig.model_validate({**run, "download": {"train": [made.model_dump()]}})
        configs.append(nodes(recipe, FileDigests(tmp_path / "digests.json"))[0].short_config)
    assert configs[0]["src"] == {"url": url, "member": "a.sgm"}
    assert configs[1]["src"] == {"url": url, "member": "c.sgm"}
    same = source(*members(url, "a", "a"))
    recipe = {**run, "download": {"train": [same.model_dump()]}}
    with pytest.raises(CorpusError, match="for both sides; `src` and `tgt` must be two files"):
        nodes(RunConfig.model_validate(recipe), FileDigests(tmp_path / "digests.json"))
