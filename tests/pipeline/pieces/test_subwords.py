"""Columns of text as pieces: those of SentencePiece, a word at a time; no text becomes a mark."""

import io

import numpy as np
import pyarrow as pa
import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from model.config import BOS, EOS, PAD, UNK
from pipeline.builtin.quickstart import pairs
from pipeline.config import RunConfig
from pipeline.pieces.subwords import Subwords, id_type, split
from pipeline.pieces.tokenizer import MODEL_FILE
from pipeline.text import normalise

SYMBOLS = ["<ent>", "@@", "a,b", "/"]
MARKS = ["<s>", "</s>", "<pad>", "<unk>", "<0x41>", "<0xe4>", "\u2581", "s>", "<"]
TEXTS = st.lists(
    st.sampled_from(
        [*MARKS, *SYMBOLS, " ", "  ", "the", "The door", "Tür", "ß", "\u2585", "\u0416"]
    )
    | st.text(max_size=5),
    max_size=12,
).map("".join)


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def kind(request):
    return request.param


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "bytes and symbols"])
def model(request, kind, build_stages, tmp_path_factory):
    """As `vocab` makes it, of text in which marks stand."""
    folder = tmp_path_factory.mktemp("subwords")
    text = [*pairs("train", 200), ("<s> the </s>", "</s> Tür <pad>"), ("▁ it", "<unk> es \u2585")]
    for side, name in enumerate(("en", "de")):
        lines = "".join(f"{pair[side]}\n" for pair in text)
        (folder / name).write_text(lines, encoding="utf-8", newline="\n")
    source = {"name": "text", "src": str(folder / "en"), "tgt": str(folder / "de")}
    extras = {"byte_fallback": True, "user_symbols": SYMBOLS} if request.param else {}
    recipe = {
        "name": "subwords",
        "src": "en",
        "tgt": "de",
        "download": {"train": [source]},
        "clean": {"rules_off": ["letters", "language"]},
        "vocab": {"kind": kind, "size": 500 if extras else 200, **extras},
    }
    made = build_stages(RunConfig.model_validate(recipe), folder / "root", "vocab")
    return made["vocab"].path(MODEL_FILE).read_bytes()


@pytest.fixture(scope="module")
def subwords(model):
    return Subwords(model)


def has_bytes(subwords):
    return subwords.processor.piece_to_id("<0x41>") != UNK


@settings(deadline=None, max_examples=100)
@given(texts=st.lists(TEXTS, max_size=4))
def test_no_text_becomes_a_mark(subwords, texts):
    texts = [text.encode("utf-8", "ignore").decode() for text in texts]
    ids = {piece for row in subwords.encode(texts) for piece in row}
    assert ids.isdisjoint({PAD, BOS, EOS})
    if has_bytes(subwords):
        assert UNK not in ids


@settings(deadline=None, max_examples=100)
@given(texts=st.lists(TEXTS, max_size=4))
def test_pieces_are_those_of_sentencepiece(subwords, kind, texts):
    """Of equally likely cuts it may take another one (unigram).

    Its own sign for a space, which normalised text never holds, may be folded in another way.
    """
    texts = [text.encode("utf-8", "ignore").decode().replace("\u2581", "") for text in texts]
    whole = subwords.processor.encode(texts, num_threads=1)
    for row, other in zip(subwords.encode(texts), whole, strict=True):
        if row != other:
            assert kind == "unigram"
            assert subwords.decode([row]) == subwords.decode([other])
            scores = [sum(map(subwords.processor.get_score, ids)) for ids in (row, other)]
            assert scores[0] == pytest.approx(scores[1], abs=1e-3)


@settings(deadline=None, max_examples=100)
@given(texts=st.lists(TEXTS, max_size=4))
def test_it_is_told_which_texts_come_back(subwords, texts):
    texts = [text.encode("utf-8", "ignore").decode() for text in texts]
    encoded = subwords.encode_column(pa.array(texts, pa.string()))
    ids = encoded.ids.to_pylist()
    assert ids == subwords.encode(texts)
    back = subwords.decode(ids)
    assert encoded.returns.tolist() == [
        one == other for one, other in zip(back, texts, strict=True)
    ]


@settings(deadline=None, max_examples=100)
@given(text=TEXTS)
def test_with_bytes_all_normalised_text_comes_back(subwords, text):
    text = normalise(text)
    if has_bytes(subwords):
        assert subwords.decode(subwords.encode([text])) == [text]


def test_letters_that_are_in_marks_alone_have_pieces(subwords):
    assert UNK not in {piece for row in subwords.encode(["<pad>", "</s>"]) for piece in row}


def test_a_users_symbol_is_one_piece_wherever_it_stands(subwords):
    if not has_bytes(subwords):
        return
    processor = subwords.processor
    for symbol in SYMBOLS:
        piece = processor.piece_to_id(symbol)
        for text in (symbol, f"the{symbol}door", f"{symbol} {symbol}", f" {symbol}s"):
            [row] = subwords.encode([text])
            assert row.count(piece) == text.count(symbol)


def test_a_column_may_be_a_slice_of_another(subwords):
    texts = ["The door.", "", "  a  b ", "Tür"] * 3
    column = pa.array(["lost", *texts, "lost"]).slice(1, len(texts))
    assert subwords.encode_column(column).ids.to_pylist() == subwords.encode(texts)


@pytest.mark.parametrize("texts", [[], [""], ["", ""], [" "]])
def test_nothing_has_no_pieces(subwords, texts):
    encoded = subwords.encode_column(pa.array(texts, pa.string()))
    assert encoded.ids.to_pylist() == [[]] * len(texts)
    assert encoded.returns.tolist() == [not text for text in texts]


def test_texts_are_cut_before_each_space():
    words = split(pa.array(["a b", "", " b", "a  c "]))
    assert words.different == ["a", " b", " ", " c"]
    assert words.indices.tolist() == [0, 1, 1, 0, 2, 3, 2]
    assert words.edges.tolist() == [0, 2, 2, 3, 7]
    assert words.is_indented.tolist() == [False, False, True, False]


@pytest.mark.parametrize(("size", "kind"), [(65_536, pa.uint16()), (65_537, pa.int32())])
def test_ids_take_two_bytes_while_the_vocabulary_fits(size, kind):
    assert id_type(size) == kind


@pytest.mark.parametrize(
    "options",
    [
        {"split_by_whitespace": False, "normalization_rule_name": "identity"},
        {"normalization_rule_name": "nmt_nfkc"},
        {"normalization_rule_name": "identity", "add_dummy_prefix": False},
    ],
)
def test_a_model_of_another_kind_is_asked_sentence_by_sentence(options):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["of the door", "of the house", "in of the"] * 9),
        model_writer=model,
        model_type="bpe",
        vocab_size=40,
        hard_vocab_limit=False,
        minloglevel=2,
        **options,
    )
    subwords = Subwords(model.getvalue())
    texts = ["of the door", "\uff2f\uff46 the", "", " of  the"]
    expected = subwords.processor.encode(texts)
    assert subwords.encode(texts) == expected
    encoded = subwords.encode_column(pa.array(texts))
    assert encoded.ids.to_pylist() == expected
    back = [one == other for one, other in zip(subwords.decode(expected), texts, strict=True)]
    assert np.array_equal(encoded.returns, back)
