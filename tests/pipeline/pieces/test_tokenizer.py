"""Text to piece ids and back, the same way in training and in use."""

import json

import pytest
import sentencepiece

from model.config import BOS, EOS, PAD, UNK
from pipeline.builtin.quickstart import pairs
from pipeline.errors import TradukoError
from pipeline.pieces.tokenizer import MODEL_FILE, SETTINGS_FILE, Tokenizer

PAIRS = tuple(pairs("train", 300))
SPECIAL = ["<s>", "</s>", "<pad>", "<unk>", "a </s> door <s>", "</s></s>"]


@pytest.fixture
def make_tokenizer(deduped, vocabulary):
    def make(text=PAIRS, size=120, **settings):
        return Tokenizer(vocabulary(deduped(text), size, **settings).folder)

    return make


@pytest.fixture(params=["bpe", "unigram"])
def tokenizer(make_tokenizer, request):
    return make_tokenizer(kind=request.param)


def test_decoding_gives_the_text_back_and_no_id_is_a_mark(tokenizer):
    texts = [text for pair in PAIRS for text in pair]
    ids = tokenizer.encode(texts)
    assert tokenizer.decode(ids) == texts
    assert {piece for row in ids for piece in row}.isdisjoint({PAD, UNK, BOS, EOS})
    assert {piece for row in ids for piece in row} <= set(range(tokenizer.vocab_size))


def test_text_that_looks_like_a_mark_is_text(tokenizer):
    ids = tokenizer.encode([*SPECIAL, "\u2581", "a\u2581door"])
    assert {PAD, BOS, EOS}.isdisjoint(piece for row in ids for piece in row)
    assert tokenizer.decode(ids) == [*SPECIAL, "", "a door"]


def test_brackets_that_are_in_marks_alone_are_not_lost(make_tokenizer):
    text = [(f"<s> the {word} </s>", f"{word} <pad> <unk>") for word in ("sun", "park", "deed")]
    tokenizer = make_tokenizer(text, size=24)
    sides = [side for pair in text for side in pair]
    assert tokenizer.decode(tokenizer.encode(sides)) == sides


def test_encoding_normalises_as_training_did(make_tokenizer):
    raw, normal = " A&#32;cafe\u0301\u200b  door ", "A café door"
    [changed, expected] = make_tokenizer(normalised=True).encode([raw, normal])
    assert changed == expected
    [changed, expected] = make_tokenizer(normalised=False).encode([raw, normal])
    assert changed != expected


def test_nothing_gives_nothing(tokenizer):
    assert tokenizer.encode([]) == []
    assert tokenizer.encode(["", " "]) == [[], []]
    assert tokenizer.decode([]) == []
    assert tokenizer.decode([[]]) == [""]


def test_the_digest_is_of_the_pieces_and_the_settings(make_tokenizer, tmp_path):
    digests = {
        make_tokenizer().digest,
        make_tokenizer(size=121).digest,
        make_tokenizer(normalised=False).digest,
    }
    assert len(digests) == 3
    assert make_tokenizer().digest in digests


def test_another_order_of_the_marks_is_refused(tmp_path):
    with (tmp_path / MODEL_FILE).open("wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(["a b c d"] * 9), model_writer=file, vocab_size=9, minloglevel=2
        )
    (tmp_path / SETTINGS_FILE).write_text(json.dumps({"normalise": True}))
    with pytest.raises(TradukoError, match=r"must have the ids 0-3 .* but has \(-1, 0, 1, 2\)"):
        Tokenizer(tmp_path)
