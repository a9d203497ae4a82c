"""The first of equal pairs stays, and nothing that a dev or test set holds."""

import random
from collections import Counter

import pytest

from pipeline import tables
from pipeline.config import DedupConfig
from pipeline.dedup import dedup
from pipeline.errors import CorpusError


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


def test_an_empty_source_is_no_trouble_but_nothing_else_is(run_dedup, cleaned, nothing_is_left):
    assert run_dedup(cleaned([], "empty"), cleaned([A])).stats["rows_kept"] == 1
    with pytest.raises(CorpusError, match="No training pair is left: of 0"):
        run_dedup(cleaned([]), cleaned([]))
