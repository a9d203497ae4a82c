import io
import json
import re

import pytest
import sentencepiece
import torch

from model.config import BOS, EOS, PAD, ModelConfig, SearchConfig
from model.transformer import Transformer, pad_sequences
from pipeline.errors import InputError, TradukoError
from pipeline.translating.bundle import load_bundle, write_bundle

MODEL = ModelConfig(dim=16, ff_dim=32, num_heads=2, num_encoder_layers=1, num_decoder_layers=1,
                    dropout=0.5, max_positions=24)  # fmt: skip
SEARCH = SearchConfig(beam_size=3, max_extra_tokens=4)
TEXTS = [
    "a house in the wood",
    "ein haus",
    "",
    "the man sees the house in the wood",
    "wald",
    "der mann",
    "a man",
]
HOSTILE = [
    "",
    "<s> house </s>",
    "<pad><unk>",
    "wood 🏠👨‍👩‍👧 house",
    "house\u2028wood\u0085man",
    "house\r\nwood\nman",
    "   ",
    "▁house▁",
    "日本語",
    "house\x00wood",
    "n" * 500,
    "\t",
    "house",
]


def learn_pieces(texts):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts * 3),
        model_writer=model,
        model_type="bpe",
        vocab_size=48,
        normalization_rule_name="identity",
        hard_vocab_limit=False,
        pad_id=PAD,
        unk_id=1,
        bos_id=BOS,
        eos_id=EOS,
        minloglevel=2,
    )
    return model.getvalue()


@pytest.fixture(scope="module")
def pieces():
    return learn_pieces(TEXTS)


@pytest.fixture
def written(tmp_path, pieces):
    """A bundle's folder and the model that was written into it."""

    def make(normalise=True, config=MODEL):
        folder, vocab = tmp_path / "bundle", tmp_path / "vocab"
        folder.mkdir()
        vocab.mkdir()
        (vocab / "tokenizer.model").write_bytes(pieces)
        (vocab / "tokenizer.json").write_text(json.dumps({"normalise": normalise}) + "\n")
        size = sentencepiece.SentencePieceProcessor(model_proto=pieces).get_piece_size()
        torch.manual_seed(5)
        model = Transformer(config, size)
        write_bundle(folder, model.state_dict(), config, ("en", "de"), vocab)
        return folder, model

    return make


@pytest.fixture
def bundle(written):
    """A bundle in double precision, where results cannot tie by rounding."""
    loaded = load_bundle(written()[0])
    loaded.model.double()
    return loaded


def test_a_loaded_model_gives_the_written_models_logits(written):
    folder, model = written()
    loaded = load_bundle(folder)
    src_BS = pad_sequences([[*row, EOS] for row in loaded.tokenizer.encode(["ein haus", "wald"])])
    tgt_in_BT = torch.tensor([[BOS, 5, 6], [BOS, 7, PAD]])
    with torch.no_grad():
        expected, found = (m.logits(m(src_BS, tgt_in_BT)) for m in (model.eval(), loaded.model))
    assert torch.equal(found, expected)
    assert loaded.model.config == model.config
    assert (loaded.src, loaded.tgt) == ("en", "de")


def test_a_tokenizer_of_another_model_is_refused(written, pieces):
    folder, _ = written()
    digest = load_bundle(folder).tokenizer.digest
    (folder / "tokenizer.model").write_bytes(learn_pieces(["another text altogether", *TEXTS]))
    with pytest.raises(TradukoError, match=r"do not belong together") as refusal:
        load_bundle(folder)
    digests = re.findall(r"[0-9a-f]{16}(?=…)", str(refusal.value))
    assert digests[0] == digest[:16]
    assert len(set(digests)) == 2


def test_how_text_is_normalised_is_part_of_the_tokenizer(written):
    folder, _ = written()
    (folder / "tokenizer.json").write_text('{"normalise": false}\n')
    with pytest.raises(TradukoError, match="do not belong together"):
        load_bundle(folder)


@pytest.mark.parametrize("tokens_per_batch", [1, 64, 4096])
def test_each_translation_is_what_its_text_gets_alone_whatever_the_batches(
    bundle, tokens_per_batch
):
    alone = [bundle.translate([text], SEARCH, 1)[0] for text in TEXTS]
    assert bundle.translate(TEXTS, SEARCH, tokens_per_batch) == alone
    assert len(set(alone)) > 3, "the order of these translations shows"
    assert bundle.translate(TEXTS[::-1], SEARCH, tokens_per_batch) == alone[::-1]


@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize("tokens_per_batch", [1, 64])
def test_there_is_one_translation_for_each_text(written, normalise, tokens_per_batch):
    bundle = load_bundle(written(normalise=normalise)[0])
    translations = bundle.translate(HOSTILE, SEARCH, tokens_per_batch)
    assert len(translations) == len(HOSTILE)
    for text, translation in zip(HOSTILE, translations, strict=True):
        if not text.strip(" "):
            assert translation == ""


def test_no_texts_have_no_translations(bundle):
    assert bundle.translate([], SEARCH, 64) == []


def test_what_is_blank_once_normalised_stays_blank(bundle):
    blanks = ["", " ", "\u2028", "\u0085\t\r\n", "\u3000", "&nbsp;", "\u200b"]
    assert bundle.translate(blanks, SEARCH, 64) == [""] * len(blanks)


def test_text_that_looks_like_a_mark_is_text(bundle):
    for row in bundle.tokenizer.encode(HOSTILE):
        assert not {PAD, BOS, EOS} & set(row)


def test_a_text_longer_than_the_models_positions_is_translated_as_far_as_they_reach(bundle):
    longest = MODEL.max_positions - 1
    ids = bundle.tokenizer.encode(["n" * 500])[0]
    assert len(ids) > longest
    head = bundle.tokenizer.decode([ids[:longest]])[0]
    assert bundle.tokenizer.encode([head])[0] == ids[:longest]
    assert bundle.translate(["n" * 500], SEARCH, 64) == bundle.translate([head], SEARCH, 64)


def test_dropout_is_off(written):
    bundle = load_bundle(written()[0])
    assert not any(module.training for module in bundle.model.modules())
    once, again = (bundle.translate(TEXTS, SEARCH, 64) for _ in range(2))
    assert once == again


def test_progress_counts_blank_texts_and_ends_with_all(bundle):
    seen = []
    bundle.translate(TEXTS, SEARCH, 1, lambda *arguments: seen.append(arguments))
    assert seen == [(done, len(TEXTS), "sentences") for done in range(2, len(TEXTS) + 1)]


@pytest.mark.parametrize("num_threads", [1, 2, 3])
def test_the_number_of_threads_changes_no_translation(written, num_threads):
    bundle = load_bundle(written()[0])
    texts, before = TEXTS * 5, torch.get_num_threads()
    expected = bundle.translate(texts, SEARCH, 16)
    torch.set_num_threads(num_threads)
    try:
        assert bundle.translate(texts, SEARCH, 16) == expected
    finally:
        torch.set_num_threads(before)


def test_weights_can_be_bf16(written):
    bundle = load_bundle(written()[0], precision="bf16")
    assert {weight.dtype for weight in bundle.model.parameters()} == {torch.bfloat16}
    assert len(bundle.translate(TEXTS, SEARCH, 64)) == len(TEXTS)


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("gpu", "must be auto, cpu or cuda, but is `gpu`"),
        ("cuda:99", r"Device `cuda:99` is not there: torch sees \d+ GPUs"),
    ],
)
def test_a_device_that_is_not_there_is_refused(written, device, message):
    with pytest.raises(InputError, match=message):
        load_bundle(written()[0], device)
