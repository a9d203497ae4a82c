"""Dev and test sets that `dedup` takes out of the training text: no side of theirs stays in it."""

import random

import pytest

from pipeline import dag, stages, tables
from pipeline.config import DedupConfig
from pipeline.dedup import dedup
from pipeline.errors import ConfigError, CorpusError
from pipeline.file_digests import FileDigests
from pipeline.reading.corpus import read_pairs
from pipeline.reading.formats import read_corpus
from pipeline.recipe import read_recipe
from pipeline.text import match_key


@pytest.fixture
def hold_out(publish):
    def run(*parts, given=None, dev=0, test=0, **config):
        section = DedupConfig(holdout={"dev": dev, "test": test}, **config)
        return publish(
            "dedup", lambda job: dedup(section, parts, given or {}, job), aside=("rejected/*",)
        )

    return run


def set_of(artifact, name):
    rows = []
    for batch in read_corpus(artifact.folder / "holdout" / name):
        rows += zip(batch["src"].to_pylist(), batch["tgt"].to_pylist(), strict=True)
    return rows


def keys(pairs):
    return {match_key(pair[0]) for pair in pairs}, {match_key(pair[1]) for pair in pairs}


def share_a_side(some, others):
    return any(one & other for one, other in zip(keys(some), keys(others), strict=True))


PAIRS = [(f"{word} {number}", f"{number} ist {word}") for word in "abcde" for number in range(20)]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("decontaminate", [True, False])
def test_no_side_of_a_held_out_pair_is_anywhere_else(
    hold_out, cleaned, downloaded, rows_of, seed, decontaminate
):
    draw = random.Random(seed)

    def text():
        return "".join(draw.choice("aAbB.") for _ in range(draw.randint(1, 4)))

    pairs = [(text(), text()) for _ in range(150)]
    given = {"given": downloaded(["ab", "x"], ["y", "ba"])}
    parts = cleaned(pairs[:70], "one"), cleaned(pairs[70:], "two")
    artifact = hold_out(*parts, given=given, dev=2, test=3, decontaminate=decontaminate)
    dev, test = set_of(artifact, "dev"), set_of(artifact, "test")
    kept = [row[:2] for row in rows_of(artifact)]
    assert (len(dev), len(test)) == (2, 3)
    assert {*dev, *test} <= {*pairs}
    for some, others in ((dev, kept), (test, kept), (dev, test)):
        assert not share_a_side(some, others)
    assert len(keys(dev)[0]) == 2, "one pair of a source sentence"
    if decontaminate:
        assert not share_a_side([*dev, *test], [("ab", "y"), ("x", "ba")])
    stats = artifact.stats
    assert stats["held_out"] == {"dev": 2, "test": 3}
    assert stats["rows_in"] == 150 == stats["rows_kept"] + sum(stats["rejected"].values()) + 5
    assert stats["rows_kept"] == len(kept)
    assert sum(stats["rejected"].values()) == len(rows_of(artifact, "rejected/*"))


@pytest.mark.parametrize("batch_rows", [1, 7])
@pytest.mark.parametrize("rows_per_file", [3, 1000])
def test_the_cut_of_the_rows_changes_nothing(
    hold_out, cleaned, monkeypatch, batch_rows, rows_per_file
):
    whole = hold_out(cleaned(PAIRS), dev=5, test=7).manifest.content
    monkeypatch.setattr(tables, "BATCH_ROWS", batch_rows)
    assert hold_out(cleaned(PAIRS, rows_per_file=rows_per_file), dev=5, test=7).manifest.content == whole  # fmt: skip


def test_the_sets_hardly_depend_on_other_rows_or_on_their_order(hold_out, cleaned):
    test = {*set_of(hold_out(cleaned(PAIRS), test=20), "test")}
    shuffled = random.Random(1).sample(PAIRS, len(PAIRS))
    assert {*set_of(hold_out(cleaned(shuffled), test=20), "test")} == test
    more = [*PAIRS, ("one", "eins"), ("two", "zwei"), ("three", "drei")]
    assert len(test & {*set_of(hold_out(cleaned(more), test=20), "test")}) >= 17


def test_the_test_set_stays_whatever_the_size_of_the_dev_set(hold_out, cleaned):
    train = cleaned(PAIRS)
    alone = hold_out(train, test=10)
    both = hold_out(train, dev=30, test=10)
    assert set_of(both, "test") == set_of(alone, "test")
    assert alone.stats["held_out"] == {"test": 10}
    assert not alone.paths("holdout/dev/*")


def test_held_out_pairs_are_spread_over_the_text_and_in_its_order(hold_out, cleaned):
    places = [PAIRS.index(pair) for pair in set_of(hold_out(cleaned(PAIRS), dev=30), "dev")]
    assert places == sorted(places)
    assert min(places) < 20
    assert max(places) >= 80
    assert places != list(range(places[0], places[0] + 30))


def test_without_a_holdout_nothing_is_taken(hold_out, cleaned):
    artifact = hold_out(cleaned(PAIRS))
    assert artifact.stats["held_out"] == {}
    assert artifact.stats["overlap"] == {}
    assert not artifact.paths("holdout/*")


def test_training_pairs_that_share_a_side_are_counted_by_set(hold_out, cleaned, rows_of):
    pairs = [("a door", "eine Tür"), ("A door!", "ein Tor"), ("the gate", "Eine Tür."), *PAIRS]
    artifact = hold_out(cleaned(pairs), test=len(PAIRS))
    taken = set_of(artifact, "test")
    overlap = [row for row in rows_of(artifact, "rejected/*") if row[-1] == "overlap"]
    assert sum(artifact.stats["overlap"]["test"].values()) == len(overlap)
    assert len(overlap) == len(pairs) - len(taken) - artifact.stats["rows_kept"]


def test_one_line_stays_one_line(hold_out, cleaned):
    """Text from JSON may hold line ends, where `clean.normalise` is off."""
    taken = set_of(hold_out(cleaned([("a\nb", "c\rd\r"), ("x", "y")]), test=1, dev=0), "test")
    assert taken in ([("a b", "c d ")], [("x", "y")])
    pairs = [(f"a{number}\nb", f"c\r{number}\r") for number in range(4)]
    taken = set_of(hold_out(cleaned(pairs), test=3), "test")
    assert {*taken} <= {(f"a{number} b", f"c {number} ") for number in range(4)}


@pytest.mark.parametrize(
    ("pairs", "found"),
    [
        ([("a", "b")], 1),
        ([("a", "b"), ("A!", "c"), ("d", "B.")], 1),
        ([("a", "x")] * 9, 1),
        ([(str(number), "same") for number in range(9)], 1),
        ([("a", "b"), ("c", "d")], 2),
    ],
)
def test_too_few_pairs_are_refused(hold_out, cleaned, root, pairs, found):
    message = (
        rf"`dedup.holdout` asks for 3 pairs that share no side, but the training text has only "
        rf"{found}\. Lower it, give more text, or name dev and test sets\."
    )
    with pytest.raises(CorpusError, match=message):
        hold_out(cleaned(pairs), dev=1, test=2)
    assert not list(root.folder.glob("dedup/*/*"))


def test_nothing_left_to_train_on_says_why(hold_out, cleaned):
    message = r"of 2, `clean` dropped 0 and `dedup` 2 \(2 of them for `dedup.holdout`\)\. Look"
    with pytest.raises(CorpusError, match=message):
        hold_out(cleaned([("a", "b"), ("c", "d")]), dev=1, test=1)


@pytest.mark.parametrize("case", ["89_same_source", "90_same_target"])
def test_hostile_pairs_of_one_sentence_go_one_way(hold_out, cleaned, rows_of, shared_data, case):
    folder = shared_data / "hostile" / "files" / case
    [batch] = read_pairs(folder / "train.en", folder / "train.de")
    pairs = list(zip(batch["src"].to_pylist(), batch["tgt"].to_pylist(), strict=True))
    for size in (1, 2, 3):
        artifact = hold_out(cleaned(pairs), dev=size, test=size)
        kept = [row[:2] for row in rows_of(artifact)]
        dev, test = set_of(artifact, "dev"), set_of(artifact, "test")
        assert not share_a_side(dev, test)
        assert not share_a_side([*dev, *test], kept)


def test_a_hostile_single_pair_is_refused_clearly(hold_out, cleaned, shared_data):
    folder = shared_data / "hostile" / "files" / "32_one_pair"
    [batch] = read_pairs(folder / "train.en", folder / "train.de")
    pairs = list(zip(batch["src"].to_pylist(), batch["tgt"].to_pylist(), strict=True))
    with pytest.raises(CorpusError, match="the training text has only 1"):
        hold_out(cleaned(pairs), dev=1, test=1)


OWN = """
name = "own"
src = "en"
tgt = "de"
[[download.train]]
name = "mine"
builtin = { split = "train", num_train = 300 }
[dedup]
holdout = { dev = 20, test = 30 }
[vocab]
size = 300
"""


@pytest.fixture
def recipe(tmp_path):
    def read(**overrides):
        path = tmp_path / "own.toml"
        path.write_text(OWN)
        return read_recipe(str(path), {k.replace("__", "."): v for k, v in overrides.items()})

    return read


GIVEN = [{"name": "given", "builtin": {"split": "dev"}}]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"download__dev": GIVEN}, "`dedup.holdout.dev` must be 0 where `download.dev` names a"),
        ({"download__test": GIVEN}, "`dedup.holdout.test` must be 0 where `download.test` names"),
        ({"dedup__holdout__dev": -1}, "`dedup.holdout.dev` must be greater than or equal to 0"),
        ({"dedup__holdout__tets": 1}, "Did you mean `dedup.holdout.test`"),
        (
            {
                "dedup__holdout__dev": 0,
                "download__dev": [{"name": "test", "builtin": {"split": "dev"}}],
            },
            "must not be named test, for `dedup.holdout` makes a set of that name",
        ),
    ],
)
def test_a_holdout_that_does_not_fit_is_refused(recipe, overrides, message):
    with pytest.raises(ConfigError, match=message):
        recipe(**overrides)


def test_a_holdout_for_what_is_missing_is_fine(recipe):
    config = recipe(dedup__holdout__dev=0, download__dev=GIVEN)
    assert config.dedup.holdout.test == 30


def test_the_graph_takes_held_out_sets_from_dedup(recipe, tmp_path):
    def inputs(config):
        graph = dag.nodes(config, FileDigests(tmp_path / "digests.json"))
        return {node.name: node.inputs for node in graph}

    held_out = inputs(recipe())
    assert held_out["evaluate"] == ("average", "dedup")
    assert held_out["tokenize"] == ("dedup", "vocab")
    assert held_out["dedup"] == ("clean:mine",)
    mixed = inputs(recipe(dedup__holdout__test=0, download__test=GIVEN))
    assert mixed["evaluate"] == ("average", "download:given")
    assert "evaluate" not in inputs(recipe(dedup__holdout__test=0))


def test_later_stages_find_the_sets_under_their_names(recipe, tmp_path, build_stages, rows_of):
    config = recipe()
    done = build_stages(config, tmp_path / "root", "tokenize")
    assert done["dedup"].stats["held_out"] == {"dev": 20, "test": 30}
    assert done["tokenize"].stats["dev"]["dev"]["rows"] == 20
    assert len(rows_of(done["tokenize"], "dev/dev.arrow")) == 20
    [(name, test)] = stages._held_out(config, "test", done).items()
    assert name == "test"
    assert {path.name for path in test.paths("*")} == {"src", "tgt"}
    assert test.path("src").read_text().count("\n") == 30
    assert [batch.num_rows for batch in read_corpus(test.folder)] == [30]
