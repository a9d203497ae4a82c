"""Texts in, as many translations out, in order, whatever they hold and however they come."""

import dataclasses
import itertools
import json
import shutil

import pytest
import torch

from model.config import EOS, ModelConfig, SearchConfig
from model.search import beam_search, length_penalty
from model.transformer import pad_sequences
from pipeline.artifact import Identity, Root
from pipeline.errors import ConfigError, CorpusError, InputError
from pipeline.translating.bundle import load_bundle
from pipeline.translating.translator import Options, Translator, model_folder

SEARCH = SearchConfig(beam_size=3, max_extra_tokens=4)
TEXTS = ["a house in the wood", "", "the man sees the house", "   ", "wald", "a man"] * 3
LONG = "the man sees the house in the wood. " * 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory, make_bundle):
    shape = ModelConfig(dim=16, ff_dim=32, num_heads=2, num_encoder_layers=1, num_decoder_layers=2,
                        max_positions=40)  # fmt: skip
    return make_bundle(tmp_path_factory.mktemp("model"), shape)


@pytest.fixture
def bundle(folder):
    """In double precision, where results cannot tie by rounding."""
    loaded = load_bundle(folder)
    loaded.model.double()
    return loaded


@pytest.fixture
def translator(bundle):
    return Translator.of(bundle, threads=2)


def texts_of(translated):
    return [line.text for line in translated]


def test_each_text_has_its_translation_at_its_place(translator, bundle):
    found = list(translator.translate(TEXTS, Options(SEARCH)))
    assert [line.src for line in found] == TEXTS
    assert [line.number for line in found] == list(range(1, len(TEXTS) + 1))
    assert texts_of(found) == bundle.translate(TEXTS, SEARCH, 64)
    assert [line.text == "" for line in found] == [not text.strip() for text in TEXTS]


def test_no_texts_have_no_translations(translator):
    assert list(translator.translate([])) == []


@pytest.mark.parametrize("lines_at_once", [1, 2, 5, 512])
@pytest.mark.parametrize("threads", [1, 3])
def test_how_texts_are_read_and_who_translates_changes_nothing(bundle, lines_at_once, threads):
    options = Options(SEARCH, tokens_per_batch=20, lines_at_once=lines_at_once)
    found = Translator.of(bundle, threads).translate(iter(TEXTS), options)
    assert texts_of(found) == bundle.translate(TEXTS, SEARCH, 64)


def test_one_line_at_once_is_answered_before_the_next_is_read(translator):
    read = []
    texts = (read.append(text) or text for text in TEXTS)
    found = translator.translate(texts, Options(SEARCH, lines_at_once=1))
    for number in range(1, 4):
        next(found)
        assert len(read) == number


def test_an_endless_iterator_is_read_as_it_is_asked_for(translator):
    read = itertools.count()
    texts = (f"a man {next(read)}" for _ in itertools.count())
    options = Options(SEARCH, tokens_per_batch=50, lines_at_once=4)
    found = list(itertools.islice(translator.translate(texts, options), 10))
    assert len(found) == 10
    assert next(read) < 40


def test_the_n_best_are_sorted_and_their_scores_those_of_the_search(translator, bundle):
    search = dataclasses.replace(SEARCH, num_best=3)
    (line,) = translator.translate(["the man sees the house"], Options(search))
    ids = bundle.tokenizer.encode(["the man sees the house"])[0]
    (expected,) = beam_search(bundle.model, pad_sequences([[*ids, EOS]]), search)
    assert [t.score for t in line.translations] == pytest.approx([h.score for h in expected])
    assert [t.log_prob for t in line.translations] == pytest.approx([h.log_prob for h in expected])
    assert len(line.translations) == 3
    assert line.translations[0].alignment is None


def test_samples_depend_on_seed_and_number_and_not_on_batches(bundle):
    search = SearchConfig(sample=True, num_best=2, max_extra_tokens=4, seed=3)

    def sample(lines_at_once, **changes):
        options = Options(dataclasses.replace(search, **changes), lines_at_once=lines_at_once)
        found = Translator.of(bundle, 2).translate(["a man"] * 5, options)
        return [[translation.text for translation in line.translations] for line in found]

    assert sample(1) == sample(2) == sample(512)
    assert len(set(itertools.chain(*sample(1)))) > 5
    assert sample(1, seed=4) != sample(1)


def test_a_prefix_begins_every_translation_but_of_blank_texts(translator):
    found = list(translator.translate(TEXTS, Options(SEARCH, prefix="der wald")))
    for line in found:
        assert line.text.startswith("der wald") == bool(line.src.strip())


def test_a_prefix_longer_than_a_translation_may_be_is_refused(translator):
    options = Options(dataclasses.replace(SEARCH, max_extra_tokens=0), prefix="der wald " * 9)
    with pytest.raises(
        ConfigError, match="A prefix must have at most as many pieces as its translation may have"
    ):
        list(translator.translate(["a"], options))


@pytest.mark.parametrize("units", ["words", "pieces"])
def test_alignments_name_units_that_are_there(translator, units):
    for line in translator.translate([*TEXTS, LONG], Options(SEARCH, alignments=units)):
        (translation,) = line.translations
        if not line.src.strip():
            assert translation.alignment is None
            continue
        src, tgt = translation.alignment.src, translation.alignment.tgt
        assert all(0 <= i < len(src) and 0 <= j < len(tgt) for i, j in translation.alignment.pairs)
        if units == "words":
            assert list(src) == line.src.split()
            assert list(tgt) == translation.text.split()


# Texts that are too long


def test_a_text_that_is_too_long_is_split_at_the_ends_of_sentences(translator, bundle):
    (line,) = translator.translate([LONG], Options(SEARCH))
    assert line.num_parts > 1
    assert not line.is_cut
    sentence = "the man sees the house in the wood."
    per_part, rest = divmod(6, line.num_parts)
    assert rest == 0, "the test's text has parts of equal length"
    (part,) = bundle.translate([" ".join([sentence] * per_part)], SEARCH, 64)
    assert line.text == " ".join([part] * line.num_parts)


def test_the_score_of_parts_is_their_sum_by_the_penalty_of_their_length(translator, bundle):
    (line,) = translator.translate([LONG], Options(SEARCH))
    part = " ".join(LONG.split()[: len(LONG.split()) // line.num_parts])
    ids = bundle.tokenizer.encode([part])[0]
    ((best,),) = beam_search(bundle.model, pad_sequences([[*ids, EOS]]), SEARCH)
    length = line.num_parts * (len(best.ids) + 1)
    expected = line.num_parts * best.log_prob
    assert line.translations[0].log_prob == pytest.approx(expected)
    penalty = length_penalty(length, SEARCH.length_penalty)
    assert line.translations[0].score == pytest.approx(expected / penalty)


def test_or_it_is_cut(translator, bundle):
    (line,) = translator.translate([LONG], Options(SEARCH, overlong="cut"))
    assert line.is_cut
    assert [line.text] == bundle.translate([LONG], SEARCH, 64)


def test_or_it_stops_once_what_came_before_is_translated(translator, bundle):
    found = translator.translate([*TEXTS[:2], LONG, "a"], Options(SEARCH, overlong="stop"))
    assert texts_of(itertools.islice(found, 2)) == bundle.translate(TEXTS[:2], SEARCH, 64)
    with pytest.raises(CorpusError, match="at most 39 pieces, the model's longest, but text 3 has"):
        next(found)


def test_what_was_read_before_reading_fails_is_translated_first(translator, bundle):
    def texts():
        yield from TEXTS
        raise OSError("the disk is gone")

    options = Options(SEARCH, lines_at_once=4, tokens_per_batch=20)
    found = translator.translate(texts(), options)
    read = texts_of(itertools.islice(found, len(TEXTS)))
    assert read == bundle.translate(TEXTS, SEARCH, 64)
    with pytest.raises(OSError, match="the disk is gone"):
        next(found)


# Where models lie


def test_an_artifacts_folder_leads_to_its_model(folder, tmp_path):
    root = Root(tmp_path, print)

    def build(out, work):
        shutil.copytree(folder, out, dirs_exist_ok=True)
        return {}

    identity = Identity("average", 1, {}, ())
    artifact, _ = root.produce(identity, build)
    assert model_folder(root.place(identity)) == artifact.folder
    assert model_folder(folder) == folder
    (line,) = Translator.load(root.place(identity), device="cpu").translate(["a man"])
    assert line.number == 1


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(InputError, match="must be a model's folder, but holds no config"):
        Translator.load(tmp_path)
    (tmp_path / "manifest.json").write_text(json.dumps({"no": "manifest"}))
    with pytest.raises(InputError, match="is not a manifest"):
        Translator.load(tmp_path)


@pytest.mark.parametrize("name", ["tokens_per_batch", "lines_at_once"])
def test_options_out_of_range_are_refused(name):
    with pytest.raises(ValueError, match=f"`{name}` must be at least 1, but is 0"):
        Options(**{name: 0})


def test_torchs_threads_are_left_as_they_were(translator):
    before = torch.get_num_threads()
    found = translator.translate(TEXTS, Options(SEARCH))
    next(found)
    assert torch.get_num_threads() == before
    found.close()
    assert torch.get_num_threads() == before
