import hashlib
import os
import re
import subprocess
import sys

import pytest

from pipeline.builtin import lexicon, number_words, quickstart, verbs
from pipeline.builtin.quickstart import SPLITS, pairs
from pipeline.errors import ConfigError

QUICK = 2000
FULL = 50_000


def digest(rows):
    return hashlib.sha256("".join(f"{src}\t{tgt}\n" for src, tgt in rows).encode()).hexdigest()


# A change here is a change of the corpus: raise quickstart.VERSION with it.
GOLDEN_VERSION = 1
GOLDEN = {
    "train": "457498535db32da1ea202d0bb1f80de8ad6ba3de8152d4732caa9a3eba9377dd",
    "dev": "553c307d607554eb9773b83c8f01cf7319500c04905fd53affadf1607070c7f7",
    "test": "2c619c4c2cb67afba77dd91bf1d6108e43b4a78e69273c1300ceb52b88b43a3b",
    "test_comp": "35483ae10216f5344bb1cf6fba86b1a395331ce0b7f2d0290a12869f6fec6ff2",
    "test_num": "a8c9d8c6ea45ffcffb85ca8077b8935993be21dca5e46c6f880c8df92e92cb35",
    "test_long": "3b67b923c102f2a315a705b1295a132bd41516fa422e710999f77d4644f69085",
}
GOLDEN_FULL_TRAIN = "d6e7ee12afce7f8d66e2c02974cc54ab15127a443c6d845014458a337d1896c2"


def test_the_bytes_change_only_with_the_version():
    assert quickstart.VERSION == GOLDEN_VERSION
    assert {split: digest(pairs(split, QUICK, 1)) for split in SPLITS} == GOLDEN


@pytest.mark.slow
def test_the_full_training_split_changes_only_with_the_version():
    assert quickstart.VERSION == GOLDEN_VERSION
    assert digest(pairs("train", FULL, 1)) == GOLDEN_FULL_TRAIN


def test_every_split_is_complete():
    sizes = {split: len(pairs(split, QUICK)) for split in SPLITS}
    assert sizes == {**dict.fromkeys(SPLITS, 1000), "train": QUICK}


def test_evaluation_does_not_depend_on_the_size_and_training_grows():
    assert pairs("train", 300) == pairs("train", QUICK)[:300]
    for split in SPLITS[1:]:
        assert pairs(split, 300) == pairs(split, QUICK)


def test_seeds_differ():
    assert len(set(pairs("train", 300, 1)) & set(pairs("train", 300, 2))) < 30


def letters(text):
    return "".join(char for char in text.casefold() if char.isalnum())


@pytest.mark.parametrize("num_train", [QUICK, pytest.param(FULL, marks=pytest.mark.slow)])
def test_no_sentence_of_either_language_is_in_two_splits_or_twice(num_train):
    for side in (0, 1):
        rows = [letters(pair[side]) for split in SPLITS for pair in pairs(split, num_train)]
        assert len(set(rows)) == len(rows) == num_train + 5000


def test_only_expected_characters_occur():
    english, german = (
        {char for split in SPLITS for pair in pairs(split, QUICK) for char in pair[side]}
        for side in (0, 1)
    )
    expected = set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 .,:?€$£")
    assert english - expected == set("-")
    assert german - expected == set("äöüÄÖß")


@pytest.mark.parametrize(("split", "num_train"), [("valid", 10), ("", 10)])
def test_an_unknown_split_is_named_with_the_valid_ones(split, num_train):
    message = rf"must be one of train, dev, test, test_comp, test_num, test_long, but is '{split}'"
    with pytest.raises(ConfigError, match=message):
        pairs(split, num_train)


def test_a_negative_size_is_refused():
    with pytest.raises(ConfigError, match=r"`num_train` must be 0 or more, but is -1\."):
        pairs("train", -1)
    assert len(pairs("train", 0)) == 0


@pytest.mark.parametrize("hash_seed", ["0", "4321"])
def test_the_bytes_do_not_depend_on_hash_order(hash_seed):
    code = (
        "import hashlib; from pipeline.builtin.quickstart import SPLITS, pairs\n"
        "text = ''.join(f'{s}\\t{t}\\n' for n in SPLITS for s, t in pairs(n, 500))\n"
        "print(hashlib.sha256(text.encode()).hexdigest())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "LC_ALL": "C"},
        capture_output=True,
        check=True,
        text=True,
    )
    rows = [pair for split in SPLITS for pair in pairs(split, 500)]
    assert done.stdout.strip() == digest(rows)


# What the test slices hold back, read from the English text alone.

KINDS = ("being", "thing", "food", "place")
NOUNS = {
    form: noun.en
    for kind in KINDS
    for noun in lexicon.nouns(kind)
    for form in (noun.en, noun.en_plural)
}
ADJECTIVES = {
    form: adjective.en
    for kind in KINDS
    for adjective in lexicon.adjectives(kind)
    for form in (adjective.en, adjective.en_comparative)
    if form
}
TAKING = [*verbs.verbs("transitive"), *verbs.verbs("giving")]
ACTIVE = {
    f"{form} {verb.particle}".strip(): verb.name
    for verb in TAKING
    for form in (verb.en, verb.en_third, verb.en_past)
}
PARTICIPLES = {
    f"{verb.en_participle} {verb.particle}".strip(): verb.name for verb in verbs.passive_verbs()
}
SMALL = {number_words.english(number) for number in range(21)}
NUMBER_WORD = "|".join(
    sorted({*(number_words.english(n) for n in range(100)), "hundred", "thousand"}, key=len)[::-1]
)
NUMBER = rf"\b(?:{NUMBER_WORD})(?: (?:and )?(?:{NUMBER_WORD}))*\b"


def either(forms):
    return "|".join(sorted(forms, key=len, reverse=True))


DETERMINER = rf"(?:the|a|an|this|these|every|some|my|your|his|her|our|their|{NUMBER})"
PHRASE = re.compile(
    rf"\b{DETERMINER} (?:({either(ADJECTIVES)}) )?({either(NOUNS)})\b", re.IGNORECASE
)
BE = r"(?:am|are|is|was|were)"
PRONOUN = r"(?:me|you|him|her|us|them)"
DONE = re.compile(
    rf"\b({either(ACTIVE)}) (?:(?:<[a-z]+>|{PRONOUN}) )?<([a-z]+)>",
)
UNDERGONE = re.compile(rf"<([a-z]+)>(?: who| that)? {BE} (?:not )?({either(PARTICIPLES)})\b")
ASKED = re.compile(rf"\b{BE} <([a-z]+)> ({either(PARTICIPLES)})\b", re.IGNORECASE)
IS = re.compile(rf"<([a-z]+)>(?: who| that)? {BE} (?:not )?({either(ADJECTIVES)})\b")
IS_IT = re.compile(rf"\b{BE} <([a-z]+)> ({either(ADJECTIVES)})\b", re.IGNORECASE)


def joined(text):
    """Pairs of an adjective and its noun, of a verb and its object."""
    bare = PHRASE.sub(lambda match: f"<{NOUNS[match[2]]}>", text)
    described = [(noun, word.lower()) for word, noun in PHRASE.findall(text) if word]
    described = [(NOUNS[noun], word) for noun, word in described]
    described += IS.findall(bare) + IS_IT.findall(bare)
    undergone = UNDERGONE.findall(bare) + ASKED.findall(bare)
    done = re.findall(
        rf"(?={DONE.pattern})", bare
    )  # overlapping: "<man> sees <boy> who sees <dog>"
    return (
        {("adjective", ADJECTIVES[word], noun) for noun, word in described}
        | {("object", PARTICIPLES[word], noun) for noun, word in undergone}
        | {("object", ACTIVE[word], noun) for word, noun in done}
    )


def numbers(text):
    return {match.lower() for match in re.findall(NUMBER, text, re.IGNORECASE)}


SUBORDINATE = re.compile(
    r"\b(?:that|who|because|although|while|if|whether|in order)\b"
    r"|\b(?:tr(?:y|ies|ied)|promise[sd]?|plan(?:s|ned)?|decide[sd]?|forg[eo]ts?) (?:not )?to\b",
    re.IGNORECASE,
)
INDIRECT = re.compile(r"\b(?:why|when|where)\b")  # in small letters: not a direct question


def num_subordinate(text):
    return len(SUBORDINATE.findall(text)) + len(INDIRECT.findall(text))


def test_the_reading_of_the_text_finds_pairs():
    assert joined("The old dog picks up some red hats.") == {
        *(("adjective", "old", "dog"), ("adjective", "red", "hat"), ("object", "pick up", "hat"))
    }
    assert joined("I gave her two new rings.") == {
        *(("adjective", "new", "ring"), ("object", "give", "ring"))
    }
    assert joined("Was the apple eaten?") == {("object", "eat", "apple")}
    assert joined("A dog is bigger than a cat.") == {("adjective", "big", "dog")}
    assert numbers("Twenty-two dogs see one hundred and five cats.") == {
        *("twenty-two", "one hundred and five")
    }


@pytest.mark.slow
def test_test_comp_joins_words_that_training_never_joins():
    trained = {pair for src, _ in pairs("train", FULL) for pair in joined(src)}
    assert len(trained) > 5000
    for src, _ in pairs("test_comp", FULL):
        assert joined(src) - trained, src
    # The ordinary test set hardly ever does.
    assert sum(bool(joined(src) - trained) for src, _ in pairs("test", FULL)) < 100


@pytest.mark.slow
def test_test_num_has_numbers_that_training_never_has():
    trained = {number for src, _ in pairs("train", FULL) for number in numbers(src)}
    german = {word.lower() for _, tgt in pairs("train", FULL) for word in re.findall(r"\w+", tgt)}
    assert SMALL - {"zero", "one"} <= trained
    for src, tgt in pairs("test_num", FULL):
        assert numbers(src) - trained, src
        assert {word.lower() for word in re.findall(r"\w+", tgt)} - german, tgt


def test_held_pairs_and_numbers_are_not_in_a_small_training_split_either():
    trained = {pair for src, _ in pairs("train", QUICK) for pair in joined(src)}
    counted = {number for src, _ in pairs("train", QUICK) for number in numbers(src)}
    assert all(joined(src) - trained for src, _ in pairs("test_comp", QUICK))
    assert all(numbers(src) - counted for src, _ in pairs("test_num", QUICK))


def test_only_test_long_has_two_subordinate_clauses():
    for split in SPLITS[:-1]:
        counts = {num_subordinate(src) for src, _ in pairs(split, QUICK)}
        assert counts == {0, 1}
    assert {num_subordinate(src) for src, _ in pairs("test_long", QUICK)} == {2}


@pytest.mark.slow
def test_training_knows_every_word_of_the_other_splits_but_numbers():
    def vocabulary(split, side):
        rows = pairs(split, FULL)
        return {word.lower() for pair in rows for word in re.findall(r"[^\W\d]+", pair[side])}

    for split in ("dev", "test", "test_comp", "test_long"):
        assert vocabulary(split, 0) <= vocabulary("train", 0)
