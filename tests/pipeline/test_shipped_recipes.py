"""The shipped recipes whose corpora are too large to be here, on small archives of the same layout."""

import gzip
import io
import tarfile
import zlib
from pathlib import PurePosixPath

import pytest

from pipeline.download import download
from pipeline.errors import CorpusError
from pipeline.recipe import read_recipe

RECIPES = ["wmt14-en-de-base", "wmt14-en-fr-base", "iwslt17-de-en"]
TAGS = ["<url>http://talk</url>", "<title>A talk</title>"]


def sources(recipe):
    found = read_recipe(recipe).download
    return [*found.train, *found.dev, *found.test]


def packed(member, lines):
    """The bytes that a member of this name holds."""
    name = PurePosixPath(member).name
    if name.endswith((".sgm", ".xml")):
        segments = "".join(f'<seg id="{n}"> {line} </seg>\n' for n, line in enumerate(lines, 1))
        return f'<srcset><doc docid="a">\n{segments}</doc></srcset>\n'.encode()
    lines = [*TAGS, *lines] if name.startswith("train.tags") else lines
    text = "".join(f"{line}\n" for line in lines).encode()
    return gzip.compress(text) if name.endswith(".gz") else text


@pytest.fixture
def mirror(tmp_path):
    """Makes a folder with all archives that a recipe names, and gives the mirrors that lead to it."""

    def make(recipe, rename=lambda member: member):
        archives, mirrors = {}, {}
        for source in sources(recipe):
            lines = [f"{source.name} line {n}" for n in range(num_rows(source))]
            for file in (source.src, source.tgt):
                name = f"{zlib.crc32(file.url.encode()):08x}-{PurePosixPath(file.url).name}"
                mirrors[file.url] = str(tmp_path / name)
                archives.setdefault(name, {})[rename(file.member)] = packed(file.member, lines)
        for name, members in archives.items():
            with tarfile.open(tmp_path / name, "w:" if name.endswith(".tar") else "w:gz") as tar:
                for member, body in members.items():
                    info = tarfile.TarInfo(member)
                    info.size = len(body)
                    tar.addfile(info, io.BytesIO(body))
        return mirrors

    return make


def num_rows(source):
    """Small, and another one for each source."""
    return 3 + zlib.crc32(source.name.encode()) % 7


def unchecked(source):
    """The source without what only its real files can fulfil."""
    none = {"sha256": None, "md5": None, "bytes": None}
    files = {side: getattr(source, side).model_copy(update=none) for side in ("src", "tgt")}
    return source.model_copy(update={**files, "num_rows": num_rows(source)})


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_source_comes_out_of_its_archive(recipe, mirror, make_files, publish):
    files = make_files(mirror(recipe))
    for source in sources(recipe):
        made = publish("download", lambda job, s=source: download(unchecked(s), job), files=files)
        assert made.stats["rows"] == num_rows(source)
        assert made.stats["licence"] == source.licence
        assert made.stats["src"]["member"] == source.src.member


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_renamed_member_is_answered_with_what_is_there(recipe, mirror, make_files, publish):
    files = make_files(mirror(recipe, rename=lambda member: f"{member}.old"))
    source = unchecked(sources(recipe)[0])
    with pytest.raises(CorpusError, match=rf"{source.src.member}.*\.old"):
        publish("download", lambda job: download(source, job), files=files)


@pytest.mark.parametrize("recipe", RECIPES)
def test_another_archive_than_the_recipes_is_refused(recipe, mirror, make_files, publish):
    files = make_files(mirror(recipe))
    with pytest.raises(CorpusError, match=r"sha256|md5|bytes"):
        publish("download", lambda job: download(sources(recipe)[0], job), files=files)
