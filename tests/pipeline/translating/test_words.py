"""Where long texts are cut, and which words are aligned."""

import pytest

from pipeline.translating.words import Alignment, align_units, cut_points


@pytest.mark.parametrize(
    ("text", "most", "parts"),
    [
        ("▁a", 1, ["▁a"]),
        ("▁a ▁b ▁c ▁d", 3, ["▁a ▁b ▁c", "▁d"]),
        ("▁a . ▁b ▁c . ▁d ▁e", 6, ["▁a . ▁b ▁c .", "▁d ▁e"]),
        ("▁a . ▁b ▁c ▁d e ▁f", 6, ["▁a . ▁b ▁c ▁d e", "▁f"]),  # a sentence that fills too little
        ("▁a ▁b ▁c d ▁e", 3, ["▁a ▁b", "▁c d ▁e"]),  # no word in two
        ("▁a b c d", 2, ["▁a b", "c d"]),  # but for one that fits nowhere
        ("▁3 . 1 4 ▁x", 3, ["▁3 . 1", "4 ▁x"]),  # no sentence ends within a number
        ("▁我 。 你 。 他 。", 4, ["▁我 。 你 。", "他 。"]),
        ("▁a ▁b ▁c ▁d", 2, ["▁a ▁b", "▁c ▁d"]),
    ],
)
def test_parts_end_with_sentences_else_with_words_else_when_full(text, most, parts):
    pieces = text.split()
    ends = cut_points(pieces, most)
    starts = [0, *ends[:-1]]
    found = [" ".join(pieces[start:end]) for start, end in zip(starts, ends, strict=True)]
    assert found == parts


def test_words_are_aligned_where_any_of_their_pieces_are():
    src, tgt = ["▁the", "▁h", "ouse"], ["▁das", "▁ha", "us", "."]
    alignment = align_units("words", [src], [tgt], [[0, 1, 2, 3]])
    assert alignment == Alignment(("the", "house"), ("das", "haus."), ((0, 0), (1, 1)))
    alignment = align_units("pieces", [src], [tgt], [[0, 1, 2, 3]])
    assert alignment == Alignment(tuple(src), tuple(tgt), ((0, 0), (1, 1), (2, 2)))


def test_parts_of_a_text_are_counted_on():
    alignment = align_units("words", [["▁a", "▁b"], ["▁c"]], [["▁x"], ["▁y", "▁z"]], [[1], [0, 0]])
    assert alignment == Alignment(("a", "b", "c"), ("x", "y", "z"), ((1, 0), (2, 1), (2, 2)))


def test_an_unknown_piece_is_a_word_of_a_translation_and_not_of_a_source():
    pieces = ["▁a", "<unk>", "b"]
    alignment = align_units("words", [pieces], [pieces], [[0, 1, 2]])
    assert alignment.src == ("a<unk>b",)
    assert alignment.tgt == ("a", "⁇", "b")
    assert alignment.pairs == ((0, 0), (0, 1), (0, 2))
