"""One SentencePiece model, and text as pieces of it, a column at a time.

A piece never holds a space but at its start. So a text's pieces are those of its words, and each
different word of a column is encoded once: two to four times as fast as sentence by sentence.
SentencePiece itself adds up scores over the whole sentence; where two cuts of a word are equally
likely (unigram only), its rounding, and with it the cut, may depend on the words before. Here a
word's pieces are the same in every sentence.
"""

import itertools
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import sentencepiece

SPACE = 0x20
SPACE_MARK = "\u2581"
"""SentencePiece's sign for a space in a piece."""


class Words(NamedTuple):
    """A column of texts, cut before each space."""

    different: list[str]
    """Each once, with the space before it; a second space in a row is a word without letters."""
    indices: np.ndarray
    """For each word of the column its place among the different ones."""
    edges: np.ndarray
    """The words of text i are those from edges[i] to edges[i + 1]."""
    is_indented: np.ndarray
    """By text: whether it begins with a space."""


class Encoded(NamedTuple):
    """A column of texts as pieces."""

    ids: pa.ListArray
    returns: np.ndarray
    """By text: whether decoding its pieces gives the same text back."""


class Subwords:
    """A SentencePiece model as `vocab` learns it: no normalisation, no piece across a space."""

    def __init__(self, model: bytes):
        self.processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        self.size = int(self.processor.get_piece_size())
        self.id_type = id_type(self.size)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Piece ids of each text, without begin and end marks."""
        if not self._has_pieces_of_words:
            return self._encode(list(texts))
        ids: list[list[int]] = self._ids(split(pa.array(texts, pa.string()))).to_pylist()
        return ids

    def encode_column(self, texts: pa.Array) -> Encoded:
        """Piece ids of each text of a column of strings, and whether they give it back."""
        if self._has_pieces_of_words:
            return self._encode_words(split(texts))
        written = texts.to_pylist()
        rows = self._encode(written)
        pairs = zip(self.decode(rows), written, strict=True)
        return Encoded(self._lists(rows), np.array([one == other for one, other in pairs], bool))

    def pieces_of(self, words: Sequence[str]) -> pa.ListArray:
        """Piece ids of each of some words."""
        return self._lists(self._encode(list(words)))

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """Text of each sequence of piece ids."""
        if not ids:
            return []  # SentencePiece would take it for one empty sequence
        texts: list[str] = self.processor.decode([list(row) for row in ids], num_threads=1)
        return texts

    @cached_property
    def _has_pieces_of_words(self) -> bool:
        """Whether this model is as described: a bundle may hold any."""
        pieces = [self.processor.id_to_piece(index) for index in range(self.size)]
        probe = "\uff21 a"
        return (
            SPACE_MARK in pieces
            and not any(SPACE_MARK in piece[1:] for piece in pieces)
            and self.processor.normalize(probe) == f"{SPACE_MARK}{probe}".replace(" ", SPACE_MARK)
        )

    def _encode_words(self, words: Words) -> Encoded:
        rows = self._encode(words.different)
        back = zip(self.decode(rows), words.different, strict=True)
        is_lost = np.array([not word or word != given.removeprefix(" ") for word, given in back])
        num_lost = np.append(0, np.cumsum(is_lost[words.indices]))[words.edges]
        returns = (np.diff(num_lost) == 0) & ~words.is_indented
        return Encoded(self._put_together(self._lists(rows), words), returns)

    def _ids(self, words: Words) -> pa.ListArray:
        return self._put_together(self._lists(self._encode(words.different)), words)

    def _encode(self, texts: list[str]) -> list[list[int]]:
        ids: list[list[int]] = self.processor.encode(texts, num_threads=1)
        return ids

    def _lists(self, rows: list[list[int]]) -> pa.ListArray:
        edges = np.zeros(len(rows) + 1, np.int32)
        np.cumsum(np.fromiter(map(len, rows), np.int32, len(rows)), out=edges[1:])
        flat = np.fromiter(
            itertools.chain.from_iterable(rows), self.id_type.to_pandas_dtype(), int(edges[-1])
        )
        return pa.ListArray.from_arrays(pa.array(edges), pa.array(flat))

    def _put_together(self, of_words: pa.ListArray, words: Words) -> pa.ListArray:
        """The pieces of texts from those of their words."""
        in_order = of_words.take(pa.array(words.indices))
        edges = in_order.offsets.to_numpy()[words.edges]
        return pa.ListArray.from_arrays(pa.array(edges, pa.int32()), in_order.values)


def id_type(vocab_size: int) -> pa.DataType:
    """What holds the ids of so many pieces."""
    return pa.uint16() if vocab_size <= 1 << 16 else pa.int32()


def split(texts: pa.Array) -> Words:
    """Cut each text of a column of strings before every space."""
    edges, data = string_buffers(texts)
    starts_word = data == SPACE
    is_indented = np.zeros(len(texts), bool)
    has_text = edges[:-1] < edges[1:]
    is_indented[has_text] = starts_word[edges[:-1][has_text]]
    starts_word[edges[:-1][has_text]] = True
    starts = np.flatnonzero(starts_word).astype(np.int32)
    ends = pa.py_buffer(np.append(starts, np.int32(len(data))))
    words = pa.StringArray.from_buffers(len(starts), ends, pa.py_buffer(data)).dictionary_encode()
    return Words(
        words.dictionary.to_pylist(),
        words.indices.to_numpy(),
        np.searchsorted(starts, edges),
        is_indented,
    )


def string_buffers(texts: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """The bytes of a column of strings, one after the other, and where each one begins and ends."""
    _, edges_buffer, data_buffer = texts.buffers()
    if not len(texts) or data_buffer is None:
        return np.zeros(len(texts) + 1, np.int32), np.zeros(0, np.uint8)
    edges = np.frombuffer(edges_buffer, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    data = np.frombuffer(data_buffer, np.uint8)[edges[0] : edges[-1]]
    return edges - edges[0], data
