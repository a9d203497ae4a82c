import bz2
import csv
import gzip
import hashlib
import io
import lzma
import os
import re
import stat
import tarfile
import tempfile
import tracemalloc
import warnings
import zipfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import CorpusError, TradukoError
from pipeline.fetching import zip as zips
from pipeline.fetching.archives import Limits, extract_all, first_members, is_archive

EN, DE = b"The clock strikes.\n" * 20, b"Die Uhr.\n" * 20
FILES = {"corpus/train.en": EN, "corpus/train.de": DE, "corpus/README": b"Read me.\n"}


def tar(files, **fields):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, data in dict(files).items() if isinstance(files, dict) else files:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            for field, value in fields.get(name, {}).items():
                setattr(info, field, value)
            archive.addfile(info, io.BytesIO(data))
    return made.getvalue()


def zipped(files, method=zipfile.ZIP_DEFLATED):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of duplicate names
        for name, data in files.items() if isinstance(files, dict) else files:
            archive.writestr(name, data)
    return made.getvalue()


def zstd(data):
    return pa.Codec("zstd").compress(data).to_pybytes()


MAKE = {
    "tar": tar,
    "tgz": lambda files: gzip.compress(tar(files)),
    "tbz2": lambda files: bz2.compress(tar(files)),
    "txz": lambda files: lzma.compress(tar(files)),
    "tar.zst": lambda files: zstd(tar(files)),
    "zip": zipped,
}
by_kind = pytest.mark.parametrize("kind", MAKE)


@pytest.fixture
def take(tmp_path):
    """Takes members out of an archive; whatever happens, nothing else is written."""

    def run(content, *members, name="archive", **options):
        archive, folder = tmp_path / name, tmp_path / "out"
        folder.mkdir(exist_ok=True)
        archive.write_bytes(content)
        targets = {member: folder / str(number) for number, member in enumerate(members)}
        try:
            found = extract_all(archive, targets, **options)
        except Exception:
            assert list(folder.iterdir()) == []
            raise
        finally:
            assert sorted(tmp_path.iterdir()) == sorted([archive, folder])
        assert sorted(folder.iterdir()) == sorted(targets.values())
        taken = [targets[member].read_bytes() for member in members]
        assert [found[member].size_bytes for member in members] == list(map(len, taken))
        for target in targets.values():
            target.unlink()
        return taken

    return run


@by_kind
@pytest.mark.parametrize("name", ["archive.zip", "archive.tgz", "archive"])
def test_members_come_out_of_every_kind_whatever_its_name(take, kind, name):
    content = MAKE[kind](FILES)
    assert take(content, "corpus/train.en", "corpus/train.de", name=name) == [EN, DE]


def test_what_was_taken_is_told(tmp_path):
    (tmp_path / "archive").write_bytes(tar(FILES))
    found = extract_all(tmp_path / "archive", {"corpus/*.en": tmp_path / "src"})["corpus/*.en"]
    assert found.member == "corpus/train.en"
    assert found.sha256 == hashlib.sha256(EN).hexdigest()
    assert found.size_bytes == len(EN)


@pytest.mark.parametrize(
    ("pattern", "is_found"),
    [
        ("corpus/train.en", True),
        ("./corpus/train.en", True),
        ("*/*.en", True),
        ("corpus/train.[e]n", True),
        ("corpus/tr?in.en", True),
        ("*.en", False),
        ("*", False),
        ("**/train.en", True),
        ("train.en", False),
        ("corpus/TRAIN.en", False),
        ("corpus", False),
    ],
)
@pytest.mark.parametrize("prefix", ["", "./", "././"])
def test_a_pattern_matches_the_whole_path_part_by_part(take, pattern, is_found, prefix):
    content = tar({prefix + name: data for name, data in FILES.items()})
    if is_found:
        assert take(content, pattern) == [EN]
    else:
        with pytest.raises(CorpusError, match=r"must hold `.*` \(`member`\), but does not"):
            take(content, pattern)


def test_a_missing_member_is_answered_with_the_nearest_ones(take):
    with pytest.raises(CorpusError) as error:
        take(tar(FILES), "training/train.en")
    assert str(error.value).endswith(
        "/archive` must hold `training/train.en` (`member`), but does not. Nearest to it: "
        "`corpus/train.en`, `corpus/train.de`."
    )
    with pytest.raises(CorpusError, match=r"It holds: `a/0`, `a/1`, `a/2`, `a/3`, `a/4`\."):
        take(tar({f"a/{number}": b"" for number in range(9)}), "zzz")
    with pytest.raises(CorpusError, match="It is empty"):
        take(zipped({}), "a")


def test_a_pattern_must_match_one_file(take):
    message = (
        r"must hold one file `corpus/train\.\*` .*, but holds `corpus/train.en` and `corpus/tr"
    )
    with pytest.raises(CorpusError, match=message):
        take(tar(FILES), "corpus/train.*")
    with pytest.raises(CorpusError, match=r"must be one of the files wanted, but is `c.*` and `\*"):
        take(tar(FILES), "corpus/train.en", "*/*.en")


@pytest.mark.parametrize("make", [tar, zipped])
@pytest.mark.parametrize("again", ["a.en", "./a.en", ".//a.en"])
def test_a_member_that_is_there_twice_is_refused(take, make, again):
    files = [("a.en", b"1"), ("a.de", b"2"), (again, b"3")]
    with pytest.raises(CorpusError, match=r"must hold `a.en` once, but does twice"):
        take(make(files), "a.en", "a.de")
    assert take(make(files), "a.de") == [b"2"], "what nobody wants may be there twice"


def test_a_link_or_a_device_is_no_text(take):
    for fields, kind in (
        ({"type": tarfile.SYMTYPE, "linkname": "y"}, "symbolic link"),
        ({"type": tarfile.LNKTYPE, "linkname": "y"}, "hard link"),
        ({"type": tarfile.CHRTYPE}, "device"),
    ):
        content = tar({"x": b"", "y": b"text"}, x=fields)
        with pytest.raises(CorpusError, match=f"`x` must be a regular file, but is a {kind}"):
            take(content, "x")
        assert take(content, "y") == [b"text"], "what nobody wants may be a link"
    link = zipfile.ZipInfo("x")
    link.create_system, link.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
    with pytest.raises(CorpusError, match="`x` must be a regular file, but is a symbolic link"):
        take(zipped([(link, "/etc/hostname")]), "x")


@pytest.mark.parametrize("make", [tar, zipped])
@pytest.mark.parametrize(
    "path",
    [
        "../evil",
        "a/../../evil",
        "a/..",
        "/evil",
        "//evil",
        "..\\evil",
        "\\evil",
        "C:\\evil",
        "c:/x",
    ],
)
def test_a_path_that_leads_out_damns_the_archive(take, make, path):
    with pytest.raises(CorpusError, match=r"is not safe to unpack: the path .* leads out of it"):
        take(make({**FILES, path: b"evil"}), "corpus/train.en")


@pytest.mark.parametrize(
    ("kind", "target", "leads_out"),
    [
        (tarfile.SYMTYPE, "train.en", False),
        (tarfile.SYMTYPE, "../corpus/train.en", False),
        (tarfile.SYMTYPE, "../../x", True),
        (tarfile.SYMTYPE, "/etc/hostname", True),
        (tarfile.LNKTYPE, "corpus/train.en", False),
        (tarfile.LNKTYPE, "../x", True),
        (tarfile.LNKTYPE, "/x", True),
    ],
)
def test_a_link_that_leads_out_damns_the_archive(take, kind, target, leads_out):
    link = {"corpus/link": {"type": kind, "linkname": target}}
    content = tar({**FILES, "corpus/link": b""}, **link)
    if leads_out:
        with pytest.raises(CorpusError, match=r"link `corpus/link` leads to .*, outside of it"):
            take(content, "corpus/train.en")
    else:
        assert take(content, "corpus/train.en") == [EN]


def test_names_are_told_without_what_a_terminal_might_obey(take):
    odd = {"corpus/\x1b[31m\n\u202e.en": b"", "-rf": b"", "corpus/Grüße.en": b""}
    with pytest.raises(CorpusError) as error:
        take(tar(odd), "corpus/train.en")
    assert r"`corpus/\x1b[31m\n\u202e.en`" in str(error.value)
    assert "`corpus/Grüße.en`" in str(error.value)
    with pytest.raises(CorpusError, match="holds a name of more than 4,096 characters"):
        take(tar({"x" * 5000: b""}), "x")


@by_kind
def test_archives_in_the_archive_are_opened(take, kind):
    inner = MAKE[kind]({"deep/a.en": EN, "deep/a.de": DE})
    middle = MAKE[kind]({"inner.bin": inner})
    content = tar({"x/middle.bin": middle, "y.en": b"y"})
    members = ["x/*.bin!inner.*!*/a.en", "x/*.bin!inner.*!*/a.de", "y.en"]
    assert take(content, *members) == [EN, DE, b"y"]
    with pytest.raises(CorpusError, match=r"archive!x/middle.bin` must hold `b` .*: `inner.bin`"):
        take(content, "x/middle.bin!b")


def test_a_nested_member_is_named_with_its_archives(tmp_path):
    content = tar({"x/inner.tgz": MAKE["tgz"](FILES)})
    (tmp_path / "archive").write_bytes(content)
    found = extract_all(tmp_path / "archive", {"x/*.tgz!corpus/train.en": tmp_path / "src"})[
        "x/*.tgz!corpus/train.en"
    ]
    assert found.member == "x/inner.tgz!corpus/train.en"


def test_a_packed_member_stays_packed(take):
    packed = gzip.compress(EN)
    assert take(tar({"giga.en.gz": packed}), "giga.en.gz") == [packed]


@pytest.mark.parametrize(
    "content", [b"", EN, gzip.compress(EN, mtime=0), gzip.compress(zipped(FILES), mtime=0)]
)
def test_what_is_no_archive_is_told(take, tmp_path, content):
    with pytest.raises(
        CorpusError, match=r"must be a tar or zip archive to have a `member`, but is"
    ):
        take(content, "a")
    assert not is_archive(tmp_path / "archive")


@by_kind
def test_files_of_an_archive_are_listed(tmp_path, kind):
    (tmp_path / "archive").write_bytes(MAKE[kind](FILES))
    assert is_archive(tmp_path / "archive")
    assert first_members(tmp_path / "archive", 9) == list(FILES)
    assert first_members(tmp_path / "archive", 2) == list(FILES)[:2]


@by_kind
def test_an_archive_that_is_cut_anywhere_is_refused(take, kind):
    whole = MAKE[kind](FILES)
    if kind == "tar":  # after the last member stand 1,024 zeros or more
        whole = whole[: len(whole.rstrip(b"\0")) + 500]
    ends = sorted(
        {*range(0, len(whole), 1 + len(whole) // 150), *range(len(whole) - 30, len(whole))}
    )
    for end in ends:
        with pytest.raises(CorpusError):
            take(whole[:end], "corpus/train.en")


def test_a_changed_byte_of_a_zip_archive_is_found(take):
    whole = zipped(FILES)
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 0x11
        try:
            taken = take(bytes(changed), "corpus/train.en")
        except CorpusError:
            continue
        assert taken == [EN]


BOMB = b"\0" * 20_000_000


@pytest.mark.parametrize("kind", sorted(set(MAKE) - {"tar"}))
@pytest.mark.parametrize("is_nested", [False, True])
def test_a_bomb_is_refused_before_it_fills_disk_or_memory(take, tmp_path, kind, is_nested):
    content = bomb = MAKE[kind]({"train.en": BOMB, "train.de": b""})
    member = "train.en"
    if is_nested:
        content, member = tar({"inner": bomb}), "inner!train.en"
    sizes = []
    tracemalloc.start()
    try:
        with pytest.raises(CorpusError, match="must unpack to at most 100 times its size, but do"):
            take(content, member, on_progress=lambda *_: sizes.append(on_disk(tmp_path / "out")))
        assert tracemalloc.get_traced_memory()[1] < 2**25
    finally:
        tracemalloc.stop()
    assert max(sizes) <= max(2**20, 100 * len(bomb)) + len(bomb)


def on_disk(folder):
    return sum(path.stat().st_size for path in folder.iterdir())


def test_a_bomb_that_nobody_wants_is_one_where_it_must_be_unpacked(take):
    files = {"train.en": EN, "bomb": BOMB}
    with pytest.raises(CorpusError, match="it may be a bomb"):
        take(MAKE["tgz"](files), "train.en")
    assert take(zipped(files), "train.en") == [EN], (
        "members of a zip archive are packed each by itself"
    )


def test_limits_are_those_that_are_given(take):
    for content in (MAKE["tgz"](FILES), zipped(FILES)):
        with pytest.raises(CorpusError, match="must unpack to at most 300 bytes, but does to more"):
            take(content, "corpus/train.en", limits=Limits(max_bytes=300))
        with pytest.raises(CorpusError, match="must unpack to at most 1 times its size"):
            take(content * 1, "corpus/train.en", limits=Limits(max_ratio=1, min_bytes=10))
        with pytest.raises(CorpusError, match="must have at most 2 members, but has more"):
            take(content, "corpus/train.en", limits=Limits(max_members=2))
        assert take(content, "corpus/train.en", limits=Limits(max_members=3)) == [EN]


def test_packed_text_is_no_bomb(take):
    """Even very regular text: here some 40 times smaller than it is."""
    text = b"".join(b"The clock strikes %d.\n" % (number % 5000) for number in range(200_000))
    content = MAKE["tgz"]({"train.en": text})
    assert len(tar({"a": text})) > 8 * len(content)
    assert take(content, "train.en") == [text]


def test_an_encrypted_member_is_refused(take):
    content = bytearray(zipped({"a": EN, "b": DE}))
    for magic, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(magic) + place] |= 1
    with pytest.raises(CorpusError, match=r"holds the member, but it is encrypted\. Unpack it by"):
        take(bytes(content), "a")
    assert take(bytes(content), "b") == [DE]


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_member_packed_in_a_rare_way_is_refused(take, method):
    with pytest.raises(CorpusError, match=rf"is packed in a rare way \(method {method}\)"):
        take(zipped(FILES, method), "corpus/train.en")


def test_the_directory_of_a_zip_archive_may_not_be_huge(take, monkeypatch):
    monkeypatch.setattr(zips, "_MAX_READ_BYTES", 1000)
    with pytest.raises(CorpusError, match="its directory has more than 1,000 bytes"):
        take(zipped({f"{number:0100}": b"" for number in range(10)}), "a")


@by_kind
def test_progress_counts_the_bytes_of_the_archive(take, kind):
    content = MAKE[kind]({"a": os.urandom(3_000_000), "b": b""})
    told = []
    take(content, "a", on_progress=lambda *progress: told.append(progress))
    done = [done for done, _ in told]
    assert {total for _, total in told} == {len(content)}
    assert done == sorted(done)
    assert len(set(done)) > 3
    assert 0.9 * len(content) < done[-1] <= 1.1 * len(content)


def test_a_full_disk_is_told_and_nothing_stays(take, monkeypatch):
    def refuse(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(TradukoError, match=r"could not be written: No space left on device\. Make"):
        take(tar(FILES), "corpus/train.en", "corpus/train.de")


names = st.one_of(
    st.sampled_from(
        ["a", "a/b", "./a", "../a", "/a", "a/../b", "a\nb", "-rf", "b!c", "C:\\a", "a/"]
    ),
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20),
)
archives = st.one_of(
    st.binary(max_size=300),
    st.tuples(
        st.sampled_from(sorted(MAKE)),
        st.lists(st.tuples(names, st.binary(max_size=900)), max_size=4),
    ),
)


@given(
    archive=archives, change=st.one_of(st.none(), st.tuples(st.integers(0), st.integers(1, 255)))
)
def test_any_archive_gives_exact_bytes_or_a_corpus_error_and_writes_nowhere_else(archive, change):
    content, files = archive, []
    if isinstance(archive, tuple):
        kind, files = archive
        content = MAKE[kind](files)
    if change and content:
        content = bytearray(content)
        content[change[0] % len(content)] ^= change[1]
    for wanted in {*(name for name, _ in files[:2]), "a"}:
        with tempfile.TemporaryDirectory() as name:
            archive, folder = Path(name, "x", "archive"), Path(name, "x", "y", "out")
            folder.mkdir(parents=True)
            archive.write_bytes(content)
            try:
                extract_all(archive, {wanted.replace("!", "?"): folder / "target"})
            except CorpusError:
                assert list(folder.iterdir()) == []
            else:
                assert list(folder.iterdir()) == [folder / "target"]
                taken = (folder / "target").read_bytes()
                assert change or taken in [data for path, data in files if same(path, wanted)]
            every = {path for path in Path(name).rglob("*") if path.is_file()}
            assert every - {archive, folder / "target"} == set()


def same(path, wanted):
    plain, pattern = (
        "/".join(part for part in text.split("/") if part not in ("", "."))
        for text in (path, wanted)
    )
    return plain == pattern or any(char in wanted for char in "[*?!")


CASES = {
    "46_tgz_clean": None,
    "47_tgz_dotdot": "the path `../evil.txt` leads out",
    "48_tgz_absolute": "the path `/tmp/hostile_evil.txt` leads out",
    "49_tgz_symlink": "its symbolic link `corpus/train.en` leads to `/etc/hostname`",
    "51_tgz_hardlink": "its hard link `corpus/pw` leads to `../../etc/hostname`",
    "53_tgz_duplicate": "must hold `corpus/train.de` once, but does twice",
    "54_tgz_odd_names": None,
    "55_zip_bomb": "must unpack to at most 100 times its size",
}


@pytest.fixture
def hostile(shared_data):
    """The folder of hostile archives, and what is said of each."""
    with (shared_data / "hostile" / "index.tsv").open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        cases = {row["case"]: row for row in rows if row["format"] in ("tgz", "zip")}
    return shared_data / "hostile" / "files", cases


def test_every_hostile_archive_has_its_stated_outcome(hostile, take):
    folder, cases = hostile
    assert cases.keys() == CASES.keys()
    for case, message in CASES.items():
        folder_in_it = "" if cases[case]["format"] == "zip" else "corpus/"
        members = [f"{folder_in_it}train.{side}" for side in ("en", "de")]
        content = (folder / cases[case]["files"]).read_bytes()
        assert cases[case]["verdict"] == ("reject" if message else "accept")
        if message:
            with pytest.raises(CorpusError, match=re.escape(message)):
                take(content, *members)
        else:
            assert [len(text.split(b"\n")) - 1 for text in take(content, *members)] == [10, 10]
