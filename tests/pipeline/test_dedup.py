"""The first of equal pairs stays, and nothing that a dev or test set holds."""

import gzip
import random
import re
from collections import Counter

import pytest
from pydantic import ValidationError

from pipeline import dedup as module
from pipeline import tables
from pipeline.config import DedupConfig
from pipeline.dedup import dedup
from pipeline.errors import CorpusError
from pipeline.text import normalise


@pytest.fixture
def run_dedup(publish):
    def run(*parts, held_out=None, **config):
        section = DedupConfig(**config)
        return publish(
            "dedup", lambda job: dedup(section, parts, held_out or {}, job), aside=("rejected/*",)
        )

    return run


A, B, C = ("a door", "eine Tür"), ("a lake", "ein See"), ("a cat", "eine Katze")


def test_the_first_of_equal_pairs_stays_by_source_and_then_line(run_dedup, cleaned, rows_of):
    artifact = run_dedup(cleaned([B, A, B], "first"), cleaned([A, C, B, C], "second"))
    assert rows_of(artifact) == [(*B, "first", 1), (*A, "first", 2), (*C, "second", 2)]
    assert rows_of(artifact, "rejected/*") == [
        (*B, "first", 3, "duplicate"),
        (*A, "second", 1, "duplicate"),
        (*B, "second", 3, "duplicate"),
        (*C, "second", 4, "duplicate"),
    ]
    assert artifact.stats["rejected"] == {"duplicate": 4}


def test_pairs_that_share_one_side_are_no_duplicates(run_dedup, cleaned):
    pairs = [A, (A[0], B[1]), (B[0], A[1]), ("a", "bc"), ("ab", "c")]
    assert run_dedup(cleaned(pairs)).stats["rows_kept"] == len(pairs)


@pytest.mark.parametrize("seed", range(5))
def test_the_result_is_that_of_a_plain_search(run_dedup, cleaned, rows_of, seed):
    draw = random.Random(seed)
    parts = {
        name: [(draw.choice("abcd"), draw.choice("wxyz")) for _ in range(draw.randint(1, 25))]
        for name in ("one", "two", "three")
    }
    expected, seen = [], set()
    for name, pairs in parts.items():
        for line, pair in enumerate(pairs, start=1):
            if pair not in seen:
                expected.append((*pair, name, line))
            seen.add(pair)
    artifact = run_dedup(*(cleaned(pairs, name) for name, pairs in parts.items()))
    assert rows_of(artifact) == expected


@pytest.mark.parametrize(
    ("batch_rows", "rows_per_file"), [(1, 1000), (3, 1000), (1000, 2), (1000, 5), (2, 3)]
)
def test_the_cut_of_the_rows_changes_nothing(
    run_dedup, cleaned, downloaded, monkeypatch, batch_rows, rows_per_file
):
    pairs = [A, B, A, C, B, ("seven", "sieben"), C, A, ("eight", "acht"), ("eight", "acht")]
    held_out = {"test": downloaded(["x"], ["Sieben!"])}

    def content(rows_per_file):
        parts = [cleaned(pairs, "one", rows_per_file), cleaned(pairs[3:], "two", rows_per_file)]
        return run_dedup(*parts, held_out=held_out).manifest.content

    whole = content(1000)
    monkeypatch.setattr(tables, "BATCH_ROWS", batch_rows)
    assert content(rows_per_file) == whole


@pytest.mark.parametrize(
    ("src", "tgt"),
    [
        ("A quiet cafe\u0301.", "unlike"),
        ("unlike", "Ein ruhiges Café."),
        ("A QUIET CAFÉ", "unlike"),
        (" a  quiet\tcafé ", "unlike"),
        ("A «quiet», café?!", "unlike"),
        ("unlike", "ein ruhiges cafe\u0301"),
        ("unlike", "EinRuhigesCafé"),
    ],
)
def test_a_side_that_a_test_set_holds_is_found_whatever_its_form(
    run_dedup, cleaned, downloaded, rows_of, src, tgt
):
    train = cleaned([A, ("A quiet café.", "Ein ruhiges Café.")])
    artifact = run_dedup(train, held_out={"test": downloaded(["x", src], ["y", tgt])})
    assert [row[:2] for row in rows_of(artifact)] == [A]
    assert artifact.stats["rejected"] == {"overlap": 1}


def test_accents_and_digits_make_a_difference(run_dedup, cleaned, downloaded):
    held_out = {"test": downloaded(["a quiet cafe", "room 7"], ["x", "y"])}
    train = cleaned([("a quiet café", "ein Café"), ("room 8", "Zimmer 8")])
    assert run_dedup(train, held_out=held_out).stats["rejected"] == {}


def test_a_source_side_in_a_target_column_is_no_overlap(run_dedup, cleaned, downloaded):
    held_out = {"test": downloaded([A[1]], [A[0]])}
    assert run_dedup(cleaned([A]), held_out=held_out).stats["rows_kept"] == 1


def test_entities_in_a_test_set_hide_nothing(run_dedup, cleaned, downloaded):
    """`clean` has decoded those of the training text, and nobody cleans a test set."""
    held_out = {"test": downloaded(["salt &amp; pepper", "x"], ["y", "Q&amp;amp;A"])}
    train = [A, ("salt & pepper", "Salz und Pfeffer"), ("questions", "Q&amp;A")]
    written = [("salt &amp; pepper", "Salz und Pfeffer")]  # with `clean.normalise = false`
    artifact = run_dedup(cleaned(train), cleaned(written), held_out=held_out)
    assert artifact.stats["rejected"] == {"overlap": 3}


def test_overlap_is_counted_by_set(run_dedup, cleaned, downloaded):
    held_out = {
        "dev": downloaded([A[0], "x"], ["y", C[1]]),
        "test": downloaded([A[0]], ["z"]),
        "other": downloaded(["nothing"], ["nichts"]),
    }
    artifact = run_dedup(cleaned([A, B, C]), held_out=held_out)
    assert artifact.stats["overlap"] == {
        "dev": {"both": 0, "src": 1, "tgt": 1},
        "other": {"both": 0, "src": 0, "tgt": 0},
        "test": {"both": 0, "src": 1, "tgt": 0},
    }
    assert artifact.stats["rejected"] == {"overlap": 2}
    assert artifact.stats["rows_in"] == 3
    assert artifact.stats["rows_kept"] == 1


def test_counts_add_up_where_rows_are_both(run_dedup, cleaned, downloaded, rows_of):
    held_out = {"test": downloaded([A[0]], ["x"])}
    artifact = run_dedup(cleaned([A, A, B, B, C]), held_out=held_out)
    assert artifact.stats["rejected"] == {"duplicate": 2, "overlap": 1}
    assert artifact.stats["rejected"] == Counter(row[-1] for row in rows_of(artifact, "rejected/*"))
    assert artifact.stats["rows_in"] == artifact.stats["rows_kept"] + 3


def test_duplicates_stay_where_that_is_off(run_dedup, cleaned, downloaded):
    artifact = run_dedup(
        cleaned([A, B, B, A]), held_out={"test": downloaded([A[0]], ["x"])}, exact=False, near=False
    )
    assert artifact.stats["rejected"] == {"overlap": 2}


def test_overlap_stays_where_that_is_off(run_dedup, cleaned, downloaded):
    artifact = run_dedup(
        cleaned([A, B, B]), held_out={"test": downloaded([A[0]], ["x"])}, decontaminate=False
    )
    assert artifact.stats["rejected"] == {"duplicate": 1}
    assert artifact.stats["overlap"] == {}


def test_nothing_left_is_an_error_that_says_why(run_dedup, cleaned, downloaded, nothing_is_left):
    train, held_out = cleaned([A, A]), {"test": downloaded([A[0]], ["x"])}
    message = r"No training pair is left: of 2, `clean` dropped 0 and `dedup` 2\. Look at"
    with pytest.raises(CorpusError, match=message):
        run_dedup(train, held_out=held_out)


@pytest.mark.parametrize(
    "other",
    [
        ("A DOOR!", "eine Tür"),
        ("a door", "eine Tür."),
        (" a  door", "EINE TÜR"),
        ("«A door»", "Eine Tu\u0308r?"),
        ("adoor", "eineTür"),
    ],
)
def test_of_pairs_with_the_same_letters_the_first_stays(run_dedup, cleaned, rows_of, other):
    for first, second in ((A, other), (other, A)):
        parts = cleaned([B, first], "first"), cleaned([second, C, second], "second")
        artifact = run_dedup(*parts)
        assert [row[:2] for row in rows_of(artifact)] == [B, first, C]
        rules = [row[-2:] for row in rows_of(artifact, "rejected/*")]
        assert rules == [(1, "near_duplicate"), (3, "duplicate")]
        assert run_dedup(*parts, near=False).stats["rejected"] == {"duplicate": 1}


@pytest.mark.parametrize(
    "pairs",
    [
        [("room 7", "Zimmer 7"), ("room 8", "Zimmer 8")],
        [("12.30", "12.30"), ("12.31", "12.31"), ("12.30", "12.31")],
        [("!", "?"), ("?", "!"), ("...", "…")],
        [("a quiet cafe", "x"), ("a quiet café", "x")],
        [("a door", "eine Tür"), ("A door!", "ein Tor"), ("the door", "Eine Tür.")],
        [("a", "bc"), ("ab", "c")],
    ],
)
def test_other_digits_accents_or_letters_make_no_near_duplicate(run_dedup, cleaned, pairs):
    assert run_dedup(cleaned(pairs)).stats["rejected"] == {}


def test_near_without_exact_is_refused():
    message = (
        "`dedup.near` must be false where `dedup.exact` is false, for equal pairs are near-dup"
    )
    with pytest.raises(ValidationError, match=re.escape(message)):
        DedupConfig(exact=False)


def some_text(draw):
    return "".join(draw.choice("abAB.! ") for _ in range(draw.randint(1, 3)))


def cut(pairs, number, cleaned, **files):
    """The pairs as so many sources."""
    edges = [len(pairs) * index // number for index in range(number + 1)]
    parts = [pairs[edges[index] : edges[index + 1]] for index in range(number)]
    return [cleaned(part, f"part{index}", **files) for index, part in enumerate(parts)]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("sizes", [(1_000_000, 1_000_000), (37, 11), (7, 1_000_000)])
def test_one_three_and_eight_sources_give_the_same_rows(
    run_dedup, cleaned, downloaded, rows_of, seed, sizes
):
    draw = random.Random(seed)
    pairs = [(some_text(draw), some_text(draw)) for _ in range(120)]
    held_out = {"test": downloaded(["aab", "bba"], ["abb", "baa"])}
    expected = plain_search(pairs, [("aab", "abb"), ("bba", "baa")])
    for number in (1, 3, 8):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "SPAN_ROWS", sizes[0])
            patch.setattr(module, "PARTITION_ROWS", sizes[1])
            artifact = run_dedup(*cut(pairs, number, cleaned), held_out=held_out)
        assert [row[:2] for row in rows_of(artifact)] == expected["kept"]
        rejected = [(*row[:2], row[-1]) for row in rows_of(artifact, "rejected/*")]
        assert rejected == expected["rejected"]


def plain_search(pairs, held_out):
    """What is left of pairs of these letters, by a search that shares no code with the stage."""

    def plain(text):
        return "".join(filter(str.isalpha, text.lower())) or text

    sides = [{plain(pair[side]) for pair in held_out} for side in (0, 1)]
    found, exact, near = {"kept": [], "rejected": []}, set(), set()
    for pair in pairs:
        key = tuple(map(plain, pair))
        if pair in exact:
            found["rejected"].append((*pair, "duplicate"))
        elif key in near:
            found["rejected"].append((*pair, "near_duplicate"))
        elif key[0] in sides[0] or key[1] in sides[1]:
            found["rejected"].append((*pair, "overlap"))
        else:
            found["kept"].append(pair)
        exact.add(pair)
        near.add(key)
    return found


def test_the_number_of_ranges_changes_nothing(run_dedup, cleaned, monkeypatch):
    draw = random.Random(1)
    pairs = [(some_text(draw), some_text(draw)) for _ in range(200)]
    whole = run_dedup(cleaned(pairs), holdout={"dev": 3, "test": 2}).manifest.content
    for partition_rows in (100, 7, 1):
        monkeypatch.setattr(module, "PARTITION_ROWS", partition_rows)
        made = run_dedup(cleaned(pairs), holdout={"dev": 3, "test": 2})
        assert made.manifest.content == whole


def test_shards_are_cut_by_the_number_of_the_row_that_came_in(
    run_dedup, cleaned, rows_of, monkeypatch
):
    monkeypatch.setattr(module, "SPAN_ROWS", 4)
    artifact = run_dedup(cleaned([A, B, A, C, A, A, B, C, ("x", "y")]))
    kept = [rows_of(artifact, f"part-0000{index}*") for index in range(3)]
    assert [[row[3] for row in rows] for rows in kept] == [[1, 2, 4], [], [9]]
    assert len(artifact.paths("*.parquet")) == 6
    assert not list(artifact.folder.glob("scratch"))


def test_counts_add_up_for_every_source(run_dedup, cleaned, downloaded, rows_of, monkeypatch):
    monkeypatch.setattr(module, "SPAN_ROWS", 3)
    draw = random.Random(1)
    parts = {
        name: [(some_text(draw), some_text(draw)) for _ in range(rows)]
        for name, rows in (("one", 40), ("two", 1), ("three", 25))
    }
    artifact = run_dedup(
        *(cleaned(pairs, name) for name, pairs in parts.items()),
        held_out={"dev": downloaded(["ab"], ["ba"])},
        holdout={"test": 4},
    )
    stats = artifact.stats
    assert list(stats["sources"]) == list(parts)
    for name, counts in stats["sources"].items():
        assert counts["rows_in"] == len(parts[name])
        rejected = Counter(row[-1] for row in rows_of(artifact, "rejected/*") if row[2] == name)
        assert counts["rejected"] == rejected
        assert counts["rows_kept"] == sum(row[2] == name for row in rows_of(artifact))
        left = counts["rows_kept"] + counts["rows_held_out"] + sum(rejected.values())
        assert left == counts["rows_in"]
    for key in ("rows_in", "rows_kept", "rows_held_out"):
        assert stats[key] == sum(counts[key] for counts in stats["sources"].values())
    assert stats["rows_held_out"] == 4
    assert set(stats["rejected"]) == {"duplicate", "near_duplicate", "overlap"}


def test_text_may_hold_what_ends_a_line(run_dedup, cleaned):
    pairs = [("a\nb", "c"), ("a", "b\nc"), ("a\n", "b"), ("a", "\nb")]
    assert run_dedup(cleaned(pairs), near=False).stats["rejected"] == {}


def test_an_empty_source_is_no_trouble_but_nothing_else_is(run_dedup, cleaned, nothing_is_left):
    assert run_dedup(cleaned([], "empty"), cleaned([A])).stats["rows_kept"] == 1
    with pytest.raises(CorpusError, match="No training pair is left: of 0"):
        run_dedup(cleaned([]), cleaned([]))


@pytest.mark.parametrize(
    ("case", "near", "left"),
    [
        ("36_gz_clean", True, "10"),
        ("81_nfc_nfd", True, "10"),
        ("88_duplicates", True, "10"),  # where deduplication ignores case
        ("88_duplicates", False, None),
        ("89_same_source", True, None),
        ("90_same_target", True, None),
    ],
)
def test_of_hostile_corpora_is_left_what_the_index_says(
    run_dedup, cleaned, shared_data, case, near, left
):
    lines = (shared_data / "hostile" / "index.tsv").read_text("utf-8").split("\n")
    _, files, _, _, counts, *_ = next(
        line.split("\t") for line in lines if line.startswith(f"{case}\t")
    )
    sides = [lines_of(shared_data / "hostile" / "files" / name) for name in files.split()]
    pairs = [tuple(map(normalise, pair)) for pair in zip(*sides, strict=True)]
    rows_in, stated = counts.split("/")
    assert len(pairs) == int(rows_in)
    assert run_dedup(cleaned(pairs), near=near).stats["rows_kept"] == int(left or stated)


def lines_of(path):
    content = path.read_bytes()
    content = gzip.decompress(content) if path.suffix == ".gz" else content
    return content.decode().split("\n")[:-1]
