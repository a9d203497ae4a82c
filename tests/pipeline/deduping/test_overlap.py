"""Nothing that a dev or test set holds is left in the training text, and what was there is told."""

import json
import random
import unicodedata

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline import dedup as module
from pipeline.config import DedupConfig
from pipeline.dedup import dedup
from pipeline.deduping.match_keys import hash_texts
from pipeline.deduping.overlap import Overlap, SideKeys, keys_as_bytes, unescaped

TEST = [
    ("The grey cat waits by the door.", "Die graue Katze wartet an der Tür."),
    ("We walk to the café at 7.", "Wir gehen um 7 ins Café."),
    ("It rains in Zürich!", "In Zürich regnet es!"),
]
DEV = [("Two boats are tied up.", "Zwei Boote sind fest."), ("OK", "Gut")]

LEAKS = {
    "exact": (TEST[0], "test", "both"),
    "case": (("THE GREY CAT WAITS BY THE DOOR.", "DIE GRAUE KATZE WARTET AN DER TÜR."), "test", "both"),
    "punctuation": (("The grey cat – waits by the door?", "Die graue Katze wartet, an der Tür"), "test", "both"),
    "white space": (("Two  boats are\ttied up.", " Zwei Boote sind fest. "), "dev", "both"),
    "source only": ((TEST[1][0], "Etwas anderes."), "test", "src"),
    "target only": (("Something else.", TEST[1][1]), "test", "tgt"),
    "source, NFD": (("We walk to the cafe\u0301 at 7.", "Noch etwas."), "test", "src"),
    "target, NFD": (("One thing more.", "In Zu\u0308rich regnet es!"), "test", "tgt"),
    "short": (("ok!", "in Ordnung"), "dev", "src"),
    "of two pairs": ((TEST[0][0], TEST[2][1]), "test", "both"),
}  # fmt: skip


@pytest.fixture(autouse=True)
def small_spans(monkeypatch):
    monkeypatch.setattr(module, "SPAN_ROWS", 48)


@pytest.fixture
def run_dedup(publish):
    def run(parts, held_out, **config):
        section = DedupConfig(**config)
        return publish("dedup", lambda job: dedup(section, parts, held_out, job))

    return run


@pytest.fixture
def held_out(downloaded):
    sets = {"test": TEST, "dev": DEV}
    return {name: downloaded(*zip(*pairs, strict=True)) for name, pairs in sets.items()}


def plain(text):
    """A form for comparison that shares no code with the pipeline."""
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    return "".join(char for char in decomposed if char.isalnum() or unicodedata.combining(char))


def count_overlap(artifact, pairs):
    """Rows of an artifact with a side of the pairs, counted one by one."""
    sides = [{plain(pair[side]) for pair in pairs} for side in (0, 1)]
    kept = [pq.read_table(path).to_pylist() for path in sorted(artifact.folder.glob("part-*"))]
    return sum(
        plain(row["src"]) in sides[0] or plain(row["tgt"]) in sides[1]
        for rows in kept
        for row in rows
    )


@pytest.mark.parametrize("place", ["first", "middle", "last shard"])
@pytest.mark.parametrize("leak", LEAKS)
def test_a_leak_is_gone_and_reported(run_dedup, cleaned, held_out, rows_of, leak, place):
    pair, name, kind = LEAKS[leak]
    pairs = [(f"Sentence {number}.", f"Satz {number}.") for number in range(100)]
    at = {"first": 0, "middle": 50, "last shard": 100}[place]
    pairs.insert(at, pair)
    parts = [cleaned(pairs[:60], "one", rows_per_file=9), cleaned(pairs[60:], "two")]
    assert count_overlap(parts[at > 60], [*TEST, *DEV]) == 1
    artifact = run_dedup(parts, held_out)
    assert count_overlap(artifact, [*TEST, *DEV]) == 0
    assert [row[:2] for row in rows_of(artifact)] == [each for each in pairs if each != pair]
    assert [(*row[:2], row[-1]) for row in rows_of(artifact, "rejected/*")] == [(*pair, "overlap")]
    nothing = {"both": 0, "src": 0, "tgt": 0}
    expected = {"dev": dict(nothing), "test": dict(nothing)}
    expected[name][kind] = 1
    assert artifact.stats["overlap"] == expected


@pytest.mark.parametrize("seed", range(4))
def test_no_overlap_is_left_by_an_independent_count(run_dedup, cleaned, downloaded, seed):
    draw = random.Random(seed)

    def text():
        return "".join(draw.choice("aäAÄß7. -") for _ in range(draw.randint(1, 4))) + draw.choice(
            "xy"
        )

    sets = {name: [(text(), text()) for _ in range(10)] for name in ("dev", "test")}
    pairs = [(text(), text()) for _ in range(400)]
    train = [cleaned(pairs[:150], "one"), cleaned(pairs[150:], "two")]
    both = [*sets["dev"], *sets["test"]]
    assert sum(count_overlap(part, both) for part in train) > 0
    held_out = {name: downloaded(*zip(*rows, strict=True)) for name, rows in sets.items()}
    artifact = run_dedup(train, held_out, exact=False, near=False)
    assert count_overlap(artifact, both) == 0
    for name, rows in sets.items():
        found = sum(count_overlap(part, rows) for part in train)
        assert sum(artifact.stats["overlap"][name].values()) == found


@pytest.mark.parametrize(
    ("floor", "left"), [(0, ["C"]), (2, ["C"]), (3, ["OK!", "C"]), (7, ["OK!", "A cafe\u0301.", "C"])]
)  # fmt: skip
def test_only_sides_of_enough_letters_and_digits_are_looked_for(
    run_dedup, cleaned, downloaded, rows_of, floor, left
):
    held_out = {"test": downloaded(["ok", "a café", "A DOG 7"], ["1", "2", "3"])}
    train = [("OK!", "x"), ("A cafe\u0301.", "y"), ("a dog... 7", "z"), ("C", "w")]
    artifact = run_dedup([cleaned(train)], held_out, min_overlap_chars=floor)
    expected = left if floor < 7 else [*left[:2], "a dog... 7", "C"]
    assert [row[0] for row in rows_of(artifact)] == expected


def test_a_floor_above_all_sides_finds_nothing(run_dedup, cleaned, held_out):
    artifact = run_dedup([cleaned(TEST)], held_out, min_overlap_chars=1000)
    assert artifact.stats["rows_kept"] == len(TEST)


def test_the_floor_does_not_reach_sets_held_out_of_the_text(run_dedup, cleaned, rows_of):
    pairs = [("a", "b"), ("a", "c"), ("d", "b"), ("e", "f"), ("g", "h"), ("i", "j"), ("k", "j")]
    artifact = run_dedup([cleaned(pairs)], {}, min_overlap_chars=1000, holdout={"test": 3})
    test = list(zip(*[(artifact.folder / "holdout/test" / side).read_text().split() for side in ("src", "tgt")], strict=True))  # fmt: skip
    assert len(test) == 3
    assert count_overlap(artifact, test) == 0


def test_a_hostile_leak_is_removed_line_by_line(
    run_dedup, cleaned, downloaded, rows_of, shared_data
):
    folder = shared_data / "hostile" / "files" / "97_leak"
    train, test = (
        [(folder / f"{name}.{side}").read_text("utf-8").split("\n")[:-1] for side in ("en", "de")]
        for name in ("train", "test")
    )
    expected = json.loads((folder / "expected_leak.json").read_text())
    artifact = run_dedup([cleaned(list(zip(*train, strict=True)))], {"test": downloaded(*test)})
    removed = [row[3] for row in rows_of(artifact, "rejected/*")]
    assert removed == expected["removed_lines_1_based"]
    assert artifact.stats["rows_kept"] == expected["left"]
    assert count_overlap(artifact, list(zip(*test, strict=True))) == 0


def keys(*texts):
    return hash_texts(pa.array(texts, pa.string()))


def test_a_side_is_looked_for_on_its_own_side_and_by_all_of_its_key():
    overlap = Overlap()
    assert overlap.find(SideKeys(keys("a"), keys("b")))[1] == []
    [a], [b] = map(keys_as_bytes, (keys("a"), keys("b")))
    overlap.add("one", [a], [b])
    overlap.add("two", [a], [])
    assert overlap.holds(a, a)
    assert not overlap.holds(b, a)
    is_found, found = overlap.find(SideKeys(keys("b", "a", "x", "a"), keys("a", "x", "b", "b")))
    assert is_found.tolist() == [False, True, True, True]
    assert found == [
        {("one", "src"): 1, ("two", "src"): 1},
        {("one", "tgt"): 1},
        {("one", "both"): 1, ("two", "src"): 1},
    ]
    half = keys("a").copy()
    half["low"] += 1
    assert overlap.find(SideKeys(half, keys("x")))[1] == []


def test_entities_are_decoded_where_there_are_any():
    texts = pa.array(["a", "&amp;amp;", "b & c", "&lt;"], pa.string())
    assert unescaped(texts).to_pylist() == ["a", "&amp;", "b & c", "<"]
