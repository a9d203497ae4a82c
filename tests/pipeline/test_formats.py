"""One file of both sides: every line is a pair as it stands, or the file is refused by line."""

import csv
import gzip
import json

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline import corpus, formats
from pipeline.config import Layout, Source
from pipeline.dag import nodes
from pipeline.download import download
from pipeline.errors import ConfigError, CorpusError
from pipeline.file_digests import FileDigests
from pipeline.formats import read_corpus, read_rows
from pipeline.recipe import read_recipe

TSV = Layout(format="tsv", columns=(0, 1))
JSONL = Layout(format="jsonl", columns=("src", "tgt"))
ENGLISH_GERMAN = Layout(format="jsonl", columns=("en", "de"))
PAIR = {"src": "a", "tgt": "b"}


@pytest.fixture
def write(tmp_path):
    def write(content, name="corpus"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


@pytest.fixture
def small_blocks(monkeypatch):
    """Every property must hold across the borders of blocks, and of what is read ahead."""
    monkeypatch.setattr(corpus, "_BLOCK_BYTES", 16)
    monkeypatch.setattr(corpus, "_PENDING_BYTES", 64)


def rows(path, layout=TSV, **options):
    table = pa.Table.from_batches(list(read_rows(path, layout, **options)))
    assert table.schema.types == [pa.string(), pa.string(), pa.int64()]
    assert table.column_names == ["src", "tgt", "line"]
    table.validate(full=True)
    return list(zip(*(table[name].to_pylist() for name in table.column_names), strict=True))


def pairs(path, layout=TSV, **options):
    found = rows(path, layout, **options)
    assert [row[2] for row in found] == list(range(1, len(found) + 1))
    return [row[:2] for row in found]


def jsonl(*objects, ascii_only=False):
    return "".join(json.dumps(row, ensure_ascii=ascii_only) + "\n" for row in objects)


@pytest.fixture
def hostile(shared_data):
    return lambda case, name: shared_data / "hostile" / "files" / case / name


def test_the_hostile_control_has_its_ten_pairs(hostile):
    found = pairs(hostile("57_tsv_clean", "corpus.tsv"))
    src, tgt = (
        hostile("00_clean", f"train.{side}").read_text().split("\n")[:-1] for side in ("en", "de")
    )
    assert found == list(zip(src, tgt, strict=True))


def test_hostile_rows_with_another_number_of_columns_are_named(hostile):
    path = hostile("58_tsv_extra_tabs", "corpus.tsv")
    with pytest.raises(CorpusError, match=r"2 columns .* but line 3 has 3; line 6 has 3\. Mend"):
        rows(path)
    path = hostile("59_tsv_missing_tab", "corpus.tsv")
    with pytest.raises(CorpusError, match=r"corpus.tsv` must have 2 columns.*but line 5 has 1\."):
        rows(path)


def test_the_hostile_header_is_a_pair_unless_the_recipe_says_so(hostile):
    path = hostile("61_tsv_header", "corpus.tsv")
    assert rows(path)[0] == ("en", "de", 1)
    without = rows(path, Layout(format="tsv", columns=(0, 1), header=True))
    assert without == rows(path)[1:]
    assert without[0][2] == 2, "lines are those of the file"


def test_the_hostile_json_is_refused_by_line(hostile):
    path = hostile("63_jsonl_lone_surrogate", "corpus.jsonl")
    with pytest.raises(CorpusError, match=r"but line 4 has half of a surrogate pair in `en`"):
        rows(path, ENGLISH_GERMAN)
    path = hostile("64_jsonl_bad", "corpus.jsonl")
    message = (
        r"line 2 is no JSON \(Unterminated string .*, character 8\); "
        r"line 5 has a `en` that is no text; line 7 has `en` twice\."
    )
    with pytest.raises(CorpusError, match=message):
        rows(path, ENGLISH_GERMAN)


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\t"), max_size=8)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(texts, texts), min_size=1, max_size=20), st.integers(1, 5))
def test_any_text_comes_back_whole(tmp_path_factory, made, batch_rows):
    folder = tmp_path_factory.mktemp("any")
    path = folder / "corpus"
    path.write_text("x\ty\n" + "".join(f"{a}\t{b}\n" for a, b in made), "utf-8", newline="")
    as_lines = [(src, tgt.removesuffix("\r")) for src, tgt in made]
    assert pairs(path, batch_rows=batch_rows)[1:] == as_lines
    for ascii_only in (True, False):
        content = jsonl(*({"src": a, "tgt": b} for a, b in made), ascii_only=ascii_only)
        path.write_text(content, encoding="utf-8", newline="")
        assert pairs(path, JSONL, batch_rows=batch_rows) == made


@pytest.mark.parametrize("packed", [False, True])
def test_plain_and_gzip_are_told_by_content(write, packed, small_blocks):
    for text, layout in (("ä\tö\nü\tß", TSV), (jsonl({"src": "ä", "tgt": "ö"}, PAIR), JSONL)):
        content = b"\xef\xbb\xbf" + text.encode()
        path = write(gzip.compress(content) if packed else content)
        assert len(pairs(path, layout)) == 2
        assert pairs(path, layout)[0] == ("ä", "ö")


def test_quotes_are_text_and_only_a_newline_ends_a_row(write, small_blocks):
    found = pairs(write('"a\t"b"\n\'c\u2028\x85\x0b\td\r\n"\t"\n'))
    assert found == [('"a', '"b"'), ("'c\u2028\x85\x0b", "d"), ('"', '"')]


def test_columns_are_taken_by_number_in_any_order(write):
    path = write("id\ta\tb\n1\tc\td\n2\t\tf\n")
    swapped = Layout(format="tsv", columns=(2, 1))
    assert pairs(path, swapped) == [("b", "a"), ("d", "c"), ("f", "")]


def test_keys_are_taken_by_name_and_others_left(write):
    path = write('{"id": [1, {"a": 2}], "de": "x", "en": "y"}\n {"en":"","de":"\\u00fc\\/"} \n')
    assert pairs(path, ENGLISH_GERMAN) == [("y", "x"), ("", "ü/")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a\n", r"column 1 \(from 0, between tabs\) in every line, but line 1 has 1 column\."),
        ("a\tb\n\nc\td\n", r"2 columns in every line, as in line 1, but line 2 has 1\."),
        ("a\tb\n" + "c\n" * 12, r"line 11 has 1; and 2 more, or still more further on\."),
        ("", r"is empty: there are no pairs"),
        (b"a\t\xfc\n", r"must be UTF-8, but is not: line 1, byte 2"),
        (b"PK\x03\x04", r"looks like a zip archive"),
    ],
)
def test_what_is_no_tsv_is_refused(write, content, message):
    with pytest.raises(CorpusError, match=message):
        rows(write(content))


def test_a_header_alone_is_no_corpus(write):
    with pytest.raises(CorpusError, match="has a header and nothing else"):
        rows(write("en\tde\n"), Layout(format="tsv", columns=(0, 1), header=True))


GOOD = json.dumps(PAIR)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", r"line 2 is no JSON \(Expecting value, character 1\)"),
        ("null", r"line 2 is no JSON object"),
        ("[1]", r"line 2 is no JSON object"),
        ('"src"', r"line 2 is no JSON object"),
        ("{}", r"line 2 has no `src` \(its keys: none\)"),
        ('{"src": "a", "de": "b"}', r"line 2 has no `tgt` \(its keys: `src`, `de`\)"),
        ('{"src": "a", "tgt": null}', r"line 2 has a `tgt` that is no text"),
        ('{"src": "a", "tgt": 5}', r"line 2 has a `tgt` that is no text"),
        ('{"src": "a", "tgt": ["b"]}', r"line 2 has a `tgt` that is no text"),
        ('{"src": "a", "tgt": "b", "src": "a"}', r"line 2 has `src` twice"),
        ('{"src": "a", "tgt": "\\ud83d"}', r"line 2 has half of a surrogate pair in `tgt`"),
        ('{"src": "a", "tgt": "b"', r"line 2 is no JSON \(Expecting ',' delimiter"),
        ('{"src": "a", "tgt": "b",}', r"line 2 is no JSON"),
        (f"{GOOD} {GOOD}", r"line 2 is no JSON \(Extra data"),
        (f"{GOOD},{GOOD}", r"line 2 is no JSON \(Extra data"),
        (f'{GOOD}, "z": {{"q": 1}}', r"line 2 is no JSON \(Extra data"),
        (f"{GOOD}]", r"line 2 is no JSON \(Extra data"),
        ('{"src": "a\tb", "tgt": "b"}', r"line 2 is no JSON \(Invalid control character"),
        ("[" * 100_000, r"line 2 is nested too deeply"),
    ],
)
def test_a_line_that_is_no_object_of_texts_is_refused(write, line, message):
    path = write(f"{GOOD}\n{line}\n{GOOD}\n")
    with pytest.raises(CorpusError, match=message):
        rows(path, JSONL)


def test_an_object_over_two_lines_is_refused(write):
    two_in_one = f"{GOOD}{GOOD}\n"
    path = write('{"src": "a",\n"tgt": "b"}\n' + two_in_one)
    with pytest.raises(CorpusError, match=r"line 1 is no JSON.*line 2 is.*line 3 is no JSON"):
        rows(path, JSONL)


FRAGMENTS = (
    GOOD, "{", "}", "[", "]", '"src"', '"x"', ":", ",", "null", "1", " ", "\\", "}\n{", "\n", "\x00",
    '"tgt":"b"', '{"src":"', '"}', "\\ud83d", "\\u00e4", '"', "NaN", "0", '},"z":{', "]}",
)  # fmt: skip
made_up = st.lists(st.sampled_from(FRAGMENTS), max_size=9).map("".join)
edited = st.tuples(
    st.integers(0, len(GOOD)), st.integers(0, 3), st.sampled_from(("", *FRAGMENTS))
).map(lambda edit: GOOD[: edit[0]] + edit[2] + GOOD[edit[0] + edit[1] :])


@settings(max_examples=400, deadline=None)
@given(st.lists(st.one_of(made_up, edited), min_size=1, max_size=2))
def test_the_fast_parser_takes_no_line_that_the_careful_one_refuses(texts):
    lines = pa.array([GOOD, *"\n".join(texts).split("\n"), GOOD], pa.string())
    fast = formats._parse_at_once(lines, ["src", "tgt"])
    if fast is not None:
        careful = [formats._json_pair(line, ["src", "tgt"]) for line in lines.to_pylist()]
        assert [(row["src"], row["tgt"]) for row in fast.to_pylist()] == careful


def test_the_fast_parser_takes_ordinary_lines():
    lines = pa.array([GOOD, '{"id": {"a": 1}, "tgt": "\\u00e4", "src": "x"}'])
    assert formats._parse_at_once(lines, ["src", "tgt"]) is None, "a key may follow a bracket"
    lines = pa.array([GOOD, '{"id": 7, "tgt": "\\u00e4\\ud83d\\ude00", "src": "x"}'])
    assert formats._parse_at_once(lines, ["src", "tgt"])[1].as_py() == {"src": "x", "tgt": "ä😀"}


@pytest.mark.parametrize(
    ("source", "layout"),
    [
        ({"pairs": "a.tsv"}, TSV),
        ({"pairs": "https://host/a.TSV.gz?key=1"}, TSV),
        ({"pairs": "a.jsonl"}, JSONL),
        ({"pairs": "a.ndjson.gz", "columns": ["en", "de"]}, ENGLISH_GERMAN),
        ({"pairs": "a.txt", "format": "tsv", "header": True, "columns": [3, 1]},
         Layout(format="tsv", columns=(3, 1), header=True)),
        ({"src": "a", "tgt": "b"}, None),
    ],
)  # fmt: skip
def test_a_source_says_its_layout(source, layout):
    assert Source.model_validate({"name": "x", **source}).layout == layout


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("pairs='a.txt'", r"`format` must be given, for the name of a.txt tells none of .tsv"),
        ("pairs='a.tsv', src='b'", "`builtin` and `pairs` each go without `src`, `tgt`"),
        ("pairs='a.tsv', builtin={split='dev'}", "`builtin` and `pairs` each go without"),
        ("src='a', tgt='b', header=true", "`format`, `columns` and `header` go with `pairs` only"),
        ("pairs='a.tsv', columns=['en', 'de']", r"`columns` of a tsv file must be like \[0, 1\]"),
        ("pairs='a.jsonl', columns=[0, 1]", r"must be like \[\"src\", \"tgt\"\], but is \[0, 1\]"),
        ("pairs='a.tsv', columns=[1, 1]", r"`columns` must be two, but is \[1, 1\]"),
        ("pairs='a.jsonl', header=true", "`header` goes with TSV files only"),
        ("pairs='a.tsv', columns=[0, -1]", "columns.1` must be greater than or equal to 0"),
    ],
)
def test_a_source_that_does_not_fit_together_is_refused(source, message):
    text = f"[{{name='a', {source}}}]"
    with pytest.raises(ConfigError, match=message):
        read_recipe(_recipe_of(text))


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def _recipe_of(train):
    with open("own.toml", "w", encoding="utf-8") as file:  # noqa: PTH123 - the current folder
        file.write(f'name = "own"\nsrc = "en"\ntgt = "de"\ndownload.train = {train}\n')
    return "own.toml"


def test_paths_are_relative_to_the_recipe(tmp_path):
    [source] = read_recipe(_recipe_of('[{name = "a", pairs = "sub/a.tsv"}]')).download.train
    assert source.pairs.path == str(tmp_path / "sub" / "a.tsv")


@pytest.mark.parametrize(
    ("name", "content", "fields"),
    [
        ("a.tsv", "a\tb\nc\td\n", {}),
        ("a.tsv.gz", gzip.compress(b"x\ta\tb\ny\tc\td\n"), {"columns": [1, 2]}),
        ("a.tsv", "en\tde\na\tb\nc\td\n", {"header": True}),
        ("a.jsonl", jsonl(PAIR, {"src": "c", "tgt": "d"}), {}),
    ],
)
def test_a_download_keeps_the_bytes_and_how_to_read_them(write, publish, name, content, fields):
    path = write(content, name)
    source = Source.model_validate({"name": "own", "pairs": str(path), **fields})
    artifact = publish("download", lambda job: download(source, job))
    assert artifact.path("pairs").read_bytes() == path.read_bytes()
    assert artifact.stats["rows"] == 2
    table = pa.Table.from_batches(list(read_corpus(artifact.folder)))
    assert table["src"].to_pylist() == ["a", "c"]
    assert table["tgt"].to_pylist() == ["b", "d"]


def test_a_bad_row_stops_the_download_and_names_the_users_file(write, publish, nothing_is_left):
    source = Source.model_validate({"name": "own", "pairs": str(write("a\tb\nc\n", "my.tsv"))})
    with pytest.raises(CorpusError, match=r"/my.tsv` must have 2 columns.* line 2 has 1"):
        publish("download", lambda job: download(source, job))
    assert nothing_is_left()


def test_the_layout_is_part_of_the_fingerprint(write, tmp_path):
    write("a\tb\tc\n", "a.tsv")

    def fingerprint(fields):
        recipe = read_recipe(_recipe_of(f"[{{name='a', pairs='a.tsv'{fields}}}]"))
        node = nodes(recipe, FileDigests(tmp_path / "digests.json"))[0]
        return node.identity({}).fingerprint

    same = {fingerprint(""), fingerprint(", columns=[0, 1]"), fingerprint(", format='tsv'")}
    assert len(same) == 1
    assert len({*same, fingerprint(", columns=[0, 2]"), fingerprint(", header=true")}) == 3
    write("a\tb\td\n", "a.tsv")
    assert fingerprint("") not in same


def test_the_hostile_cases_are_all_here(shared_data):
    with (shared_data / "hostile" / "index.tsv").open(encoding="utf-8", newline="") as file:
        index = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    known = [row["case"][:2] for row in index if row["format"] in {"tsv", "jsonl"}]
    assert known == ["57", "58", "59", "61", "63", "64"]
