"""One vocabulary for both languages: the same bytes everywhere, and errors about the recipe."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import sentencepiece

from model.config import BOS, EOS, PAD, UNK
from pipeline.artifact import digest_file
from pipeline.builtin.quickstart import pairs
from pipeline.config import VocabConfig
from pipeline.errors import ConfigError
from pipeline.tokenizer import MODEL_FILE, SETTINGS_FILE
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
