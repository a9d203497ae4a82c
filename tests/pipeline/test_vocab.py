"""One vocabulary for both languages: the same bytes everywhere, and errors about the recipe."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import sentencepiece
from pydantic import ValidationError

from model.config import BOS, EOS, PAD, UNK
from pipeline.artifact import digest_file
from pipeline.builtin.quickstart import pairs
from pipeline.config import VocabConfig
from pipeline.errors import ConfigError
from pipeline.pieces.tokenizer import MODEL_FILE, SETTINGS_FILE, Tokenizer
from pipeline.vocab import vocab

# Learns in a process with one CPU and one thread of OpenMP.
ON_ONE_CPU = """
import os, sys
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
os.environ["OMP_NUM_THREADS"] = "1"
from pathlib import Path
from pipeline.artifact import Artifact, Manifest
from pipeline.compute import InProcess
from pipeline.config import ComputeConfig, VocabConfig
from pipeline.job import Job
from pipeline.vocab import vocab
folder, out, kind = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
text = Artifact(folder, Manifest.read(folder.parent / "manifest.json"))
silent = lambda *_: None
job = Job(out, out, InProcess(), ComputeConfig(), None, silent, silent)
vocab(VocabConfig(size=120, kind=kind), True, text, job)
"""


@pytest.fixture
def text(deduped):
    return deduped(pairs("train", 300))


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_the_bytes_are_the_same_on_any_number_of_cpus(text, vocabulary, tmp_path, kind):
    out = tmp_path / "other"
    out.mkdir()
    subprocess.run(
        [sys.executable, "-c", ON_ONE_CPU, text.folder, out, kind],
        check=True,
        cwd=Path(__file__).parents[2],
        timeout=60,
    )
    here = vocabulary(text, kind=kind)
    assert digest_file(out / MODEL_FILE) == digest_file(here.path(MODEL_FILE))


def test_the_bytes_do_not_depend_on_how_the_rows_are_cut(deduped, vocabulary):
    cut = deduped(pairs("train", 300), rows_per_file=7)
    assert (
        vocabulary(cut, kind="unigram").manifest.content
        == vocabulary(deduped(pairs("train", 300)), kind="unigram").manifest.content
    )


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_the_first_ids_are_the_marks_and_the_size_is_as_asked(text, vocabulary, kind):
    artifact = vocabulary(text, size=100, kind=kind)
    model = sentencepiece.SentencePieceProcessor(model_file=str(artifact.path(MODEL_FILE)))
    marks = {PAD: "<pad>", UNK: "<unk>", BOS: "<s>", EOS: "</s>"}
    assert {piece: model.id_to_piece(piece) for piece in range(4)} == marks
    assert model.get_piece_size() == 100
    assert {name: artifact.stats[name] for name in ("rows", "sampled_rows", "size")} == {
        "rows": 300,
        "sampled_rows": 300,
        "size": 100,
    }


@pytest.mark.parametrize("normalised", [True, False])
def test_it_travels_with_how_text_was_normalised(text, vocabulary, normalised):
    settings = vocabulary(text, normalised=normalised).path(SETTINGS_FILE)
    assert json.loads(settings.read_text()) == {"normalise": normalised}


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_too_large_a_size_names_the_largest_which_then_works(text, vocabulary, kind):
    with pytest.raises(ConfigError, match=r"`vocab\.size` must be at most") as error:
        vocabulary(text, size=50_000, kind=kind)
    found = re.search(r"at most (\d+) for these 300 training pairs, but is 50000", str(error.value))
    largest = int(found[1])
    assert vocabulary(text, size=largest, kind=kind).stats["size"] == largest
    with pytest.raises(ConfigError, match=f"at most {largest} "):
        vocabulary(text, size=largest + 1, kind=kind)


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_too_small_a_size_names_the_smallest_which_then_works(text, vocabulary, kind):
    with pytest.raises(ConfigError, match=r"or lower `vocab\.character_coverage`") as error:
        vocabulary(text, size=20, kind=kind)
    smallest = int(re.search(r"at least (\d+) for the characters", str(error.value))[1])
    assert vocabulary(text, size=smallest, kind=kind).stats["size"] == smallest
    with pytest.raises(ConfigError, match=f"at least {smallest} "):
        vocabulary(text, size=smallest - 1, kind=kind)


def test_rare_characters_are_unknown_where_coverage_is_lowered(deduped, publish):
    artifact = deduped([*pairs("train", 300), ("a rare \u0416", "ein seltenes \u0416")])

    def unknown(coverage):
        config = VocabConfig(size=120, kind="bpe", character_coverage=coverage)
        made = publish("vocab", lambda job: vocab(config, True, artifact, job))
        model = sentencepiece.SentencePieceProcessor(model_file=str(made.path(MODEL_FILE)))
        return UNK in model.encode("\u0416")

    assert unknown(0.999)
    assert not unknown(1.0)


def plain_pairs(number):
    """Pairs without rare letters."""
    words = ["".join("abcdefghij"[int(digit)] for digit in str(each)) for each in range(number)]
    return [(f"{word} abcdefghij", f"jihgfedcba {word}") for word in words]


@pytest.fixture
def learn(publish):
    def run(text, **config):
        section = VocabConfig(**{"size": 120, "kind": "bpe", **config})
        return publish("vocab", lambda job: vocab(section, True, text, job))

    return run


def test_of_many_pairs_so_many_are_drawn_by_their_place(deduped, learn):
    many = list(pairs("train", 2_000))
    whole, cut = deduped(many), deduped(many, rows_per_file=333)
    sampled = learn(whole, max_sentences=1_000)
    assert sampled.stats["rows"] == 2_000
    assert 490 <= sampled.stats["sampled_rows"] <= 500
    assert learn(cut, max_sentences=1_000).manifest.content == sampled.manifest.content
    assert learn(whole).manifest.content != sampled.manifest.content
    assert learn(whole, max_sentences=4_000).manifest.content == learn(whole).manifest.content
    with pytest.raises(ConfigError, match=rf"for these {sampled.stats['sampled_rows']} training"):
        learn(whole, max_sentences=1_000, size=50_000)


def test_the_report_says_what_has_no_piece(deduped, learn):
    text = [*plain_pairs(300), ("a \u0416 \u2585", "da \u0416 \u0424")]
    stats = learn(deduped(text), size=60, character_coverage=0.999).stats
    zhe = {"character": "\u0416", "code": "U+0416", "count": 1}
    assert stats["src"]["uncovered"] == [zhe, {"character": "\u2585", "code": "U+2585", "count": 1}]
    assert stats["tgt"]["uncovered"] == [zhe, {"character": "\u0424", "code": "U+0424", "count": 1}]
    src = stats["src"]
    assert src["characters"] - src["characters_covered"] == 2
    assert 0.999 < src["text_covered"] < 1
    assert src["words"] == sum(len(pair[0].split()) for pair in text)
    assert src["unknown_share"] == pytest.approx(2 / src["pieces"], abs=1e-6)
    assert src["byte_share"] == 0
    assert src["pieces_per_word"] == pytest.approx(src["pieces"] / src["words"], abs=1e-6)


def test_the_report_counts_bytes_and_unused_pieces(deduped, learn):
    text = [*plain_pairs(300), ("a \u0416", "da \u0416")]
    made = learn(
        deduped(text), size=320, character_coverage=0.999, byte_fallback=True, user_symbols=["@@"]
    )
    stats = made.stats
    assert stats["src"]["unknown_share"] == stats["tgt"]["unknown_share"] == 0
    assert stats["src"]["byte_share"] == pytest.approx(2 / stats["src"]["pieces"], abs=1e-6)
    model = sentencepiece.SentencePieceProcessor(model_file=str(made.path(MODEL_FILE)))
    used = {piece for pair in text for row in model.encode(list(pair)) for piece in row}
    assert stats["unused_pieces"] == 320 - 4 - 256 - len([p for p in used if not model.is_byte(p)])


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_a_mark_in_the_text_loses_no_letter(deduped, learn, kind):
    text = [("<pad> xx", "</s> y"), ("x <unk>", "<s> yy"), ("\u2585 z", "\x00 w")] * 3
    made = learn(deduped(text), kind=kind, size=22 if kind == "unigram" else 30)
    model = sentencepiece.SentencePieceProcessor(model_file=str(made.path(MODEL_FILE)))
    pieces = {model.id_to_piece(piece) for piece in range(4, model.get_piece_size())}
    assert set("padunkszw</>xy") <= pieces
    assert pieces.isdisjoint({"<s>", "</s>", "<pad>", "<unk>"})


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_each_side_may_have_a_vocabulary_of_its_own(text, learn, kind):
    made = learn(text, kind=kind, joint=False, size=90, tgt_size=100)
    assert sorted(file.path for file in made.manifest.files) == [
        SETTINGS_FILE,
        "tokenizer.src.model",
        "tokenizer.tgt.model",
    ]
    assert (made.stats["size"], made.stats["tgt_size"]) == (90, 100)
    tokenizer = Tokenizer(made.folder)
    assert (tokenizer.src_vocab_size, tokenizer.vocab_size) == (90, 100)
    src, tgt = zip(*pairs("train", 300), strict=True)
    assert tokenizer.decode(tokenizer.encode(src), "src") == list(src)
    assert tokenizer.decode(tokenizer.encode(tgt, "tgt")) == list(tgt)
    assert any(UNK in row for row in tokenizer.encode(tgt, "src")), (
        "German letters are the target's"
    )
    assert learn(text, init_from=str(made.folder)).manifest.content == made.manifest.content


def test_the_side_whose_size_is_impossible_is_named(text, learn):
    with pytest.raises(ConfigError, match=r"`vocab\.tgt_size` must be at most \d+ for these 300"):
        learn(text, joint=False, size=90, tgt_size=50_000)
    with pytest.raises(ConfigError, match=r"`vocab\.size` must be at most \d+ for these 300"):
        learn(text, joint=False, size=50_000, tgt_size=90)


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"user_symbols": [""]}, r"symbol `` must hold no space, and not be empty"),
        ({"user_symbols": ["a b"]}, r"symbol `a b` must hold no space"),
        ({"user_symbols": ["\u2581x"]}, r"symbol `\u2581x` must be as normalised text is: ` ?x`"),
        ({"user_symbols": ["x", "y", "x"]}, r"symbol `x` is given twice"),
        (
            {"user_symbols": ["</s>"]},
            r"symbol `</s>` must not be one of the vocabulary's own marks",
        ),
        ({"user_symbols": ["<0x0A>"]}, r"must not be one of the vocabulary's own marks"),
        ({"user_symbols": ["e\u0301"]}, r"must be as normalised text is: `é`"),
        ({"tgt_size": 100}, r"`vocab\.tgt_size` must be left out unless `vocab\.joint` is false"),
        (
            {"size": 260, "byte_fallback": True},
            r"`vocab\.size` must be above 260, for so many pieces",
        ),
        ({"size": 16, "user_symbols": list("abcdefghijkl")}, r"`vocab\.size` must be above 16"),
        (
            {"joint": False, "size": 300, "tgt_size": 100, "byte_fallback": True},
            r"`vocab\.tgt_size` must be above 260",
        ),
    ],
)
def test_what_cannot_be_is_told_before_anything_runs(section, message):
    with pytest.raises(ValidationError, match=message):
        VocabConfig(**section)


@pytest.mark.parametrize("error", [OSError("the disk is gone"), KeyboardInterrupt()])
def test_what_breaks_the_reading_is_not_called_a_vocabulary_too_large(text, publish, error):
    def fail(*_):
        raise error

    with pytest.raises(type(error)) as raised:
        publish("vocab", lambda job: vocab(VocabConfig(size=120), True, text, job), progress=fail)
    assert raised.value is error


def test_the_vocabulary_of_another_model_is_taken_as_it_is(text, vocabulary, publish):
    own = vocabulary(text)
    config = VocabConfig(init_from=str(own.folder), size=999)
    taken = publish("vocab", lambda job: vocab(config, True, text, job))
    for name in (MODEL_FILE, SETTINGS_FILE):
        assert digest_file(taken.path(name)) == digest_file(own.path(name))
    assert taken.stats == own.stats
    with pytest.raises(
        ConfigError, match=r"`clean\.normalise` must be true, as for .* but is false"
    ):
        publish("vocab", lambda job: vocab(config, False, text, job))
