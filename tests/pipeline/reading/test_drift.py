"""The detector is silent on corpora that are in step, and speaks up about a single lost line."""

import gzip
import random

import numpy as np
import pyarrow as pa
import pytest

from pipeline.reading.drift import Drift, Shift, told

NEWS = "wmt/newstest/newstest"
CORPORA = {
    "multi30k": ("multi30k/train.en", "multi30k/train.de"),
    "multi30k de-fr": ("multi30k/train.de", "multi30k/train.fr"),
    "multi30k val": ("multi30k/val.en", "multi30k/val.de"),
    "multi30k 2016": ("multi30k/test_2016_flickr.en", "multi30k/test_2016_flickr.de"),
    "tatoeba": ("tatoeba_de_en/train.de", "tatoeba_de_en/train.en"),
    "tatoeba dev": ("tatoeba_de_en/dev.de", "tatoeba_de_en/dev.en"),
    "help": ("libreoffice_help/en", "libreoffice_help/de"),
    "help de-fr": ("libreoffice_help/de", "libreoffice_help/fr"),
    "news 2009": (f"{NEWS}2009.en-de.en", f"{NEWS}2009.en-de.de"),
    "news 2013": (f"{NEWS}2013.en-de.en", f"{NEWS}2013.en-de.de"),
    "news 2013 fr": (f"{NEWS}2013.en-fr.en", f"{NEWS}2013.en-fr.fr"),
    "news 2014": (f"{NEWS}2014.en-de.en", f"{NEWS}2014.en-de.de"),
    "news 2014 fr": (f"{NEWS}2014.en-fr.en", f"{NEWS}2014.en-fr.fr"),
}


@pytest.fixture(scope="module")
def sides(shared_data):
    def read(corpus):
        packed = (shared_data / f"{name}.gz" for name in CORPORA[corpus])
        return [gzip.decompress(path.read_bytes()).decode().split("\n")[:-1] for path in packed]

    return read


def shifts(src, tgt, batch_rows=5000, first_line=1):
    drift = Drift()
    for start in range(0, len(src), batch_rows):
        columns = [pa.array(side[start : start + batch_rows], pa.string()) for side in (src, tgt)]
        lines = np.arange(start, start + len(columns[0]), dtype=np.int64) + first_line
        drift.update(*columns, lines)
    return drift.shifts()


@pytest.mark.parametrize("corpus", CORPORA)
def test_real_corpora_are_in_step(sides, corpus):
    assert shifts(*sides(corpus)) == []


@pytest.mark.parametrize("offset", [1, -1, 2, -3])
@pytest.mark.parametrize("corpus", CORPORA)
def test_one_lost_line_is_found_and_placed(sides, corpus, offset):
    src, tgt = sides(corpus)
    place = len(src) * 2 // 5
    if offset > 0:
        tgt = [*tgt[:place], *["Nur eine Zeile."] * offset, *tgt[place:]]
    else:
        tgt = [*tgt[:place], *tgt[place - offset :]]
    size = min(len(src), len(tgt))
    [shift] = shifts(src[:size], tgt[:size])
    assert shift.offset == offset
    near = 4096 if corpus == "tatoeba" else 256  # sorted by length: numbers alone tell
    assert abs(shift.first_line - place) <= near
    assert shift.last_line >= size - 256


def test_a_shift_may_end_and_lines_are_those_of_the_file(sides):
    src, tgt = sides("help")
    tgt = [*tgt[:8000], *tgt[8001:20_000], "x", *tgt[20_000:]]
    [shift] = shifts(src, tgt, first_line=1001)
    assert shift.offset == -1
    assert abs(shift.first_line - 9001) <= 256
    assert abs(shift.last_line - 21_001) <= 256


def test_a_corpus_may_be_shifted_from_its_first_line_on(sides):
    src, tgt = sides("multi30k val")
    assert shifts(src[:-1], tgt[1:]) == [Shift(1, 1013, -1)]


def test_a_stretch_that_fits_nowhere_is_out_of_step(sides):
    src, tgt = sides("multi30k")
    mixed = tgt[9000:12_000]
    random.Random(1).shuffle(mixed)
    [shift] = shifts(src, [*tgt[:9000], *mixed, *tgt[12_000:]])
    assert shift.offset is None
    assert abs(shift.first_line - 9000) <= 256
    assert abs(shift.last_line - 12_000) <= 256


@pytest.mark.parametrize("batch_rows", [1, 100, 256, 257, 1000])
def test_what_is_found_does_not_depend_on_batches(sides, batch_rows):
    src, tgt = sides("multi30k val")
    src, tgt = src[:-1], [*tgt[:300], *tgt[301:]]
    assert shifts(src, tgt, batch_rows) == shifts(src, tgt, len(src))


@pytest.mark.parametrize("rows", [0, 1, 255, 256, 600])
@pytest.mark.parametrize("text", ["", "same", "7"])
def test_lines_without_anything_to_compare_say_nothing(rows, text):
    assert shifts([text] * rows, [text] * rows) == []


def test_numbers_can_say_that_lengths_mislead():
    """Lengths that go nowhere together, in a corpus where they do, but the same numbers."""
    draw = random.Random(1)
    src = [
        f"{'x' * draw.randint(1, 90)} {draw.randint(0, 9)}{draw.randint(0, 10**6)}"
        for _ in range(9000)
    ]
    numbers = [text.split()[1] for text in src]
    tgt = list(src)
    tgt[4000:7000] = [f"{'y' * draw.randint(1, 90)} {n}" for n in numbers[4000:7000]]
    assert shifts(src, tgt) == []
    tgt[4000:7000] = [f"{'y' * draw.randint(1, 90)}" for _ in numbers[4000:7000]]
    assert [shift.offset for shift in shifts(src, tgt)] == [None]


def test_what_is_found_is_told_in_words():
    found = [Shift(41_001, 90_000, 1), Shift(1, 600, -2), Shift(7, 8, None), Shift(9, 10, 3)]
    assert told(found, "`news.en`", "`news.de`") == [
        "`news.de` looks shifted against `news.en` from about line 41,001 to 90,000: it comes 1 line "
        "late. Look whether a line is missing or doubled there.",
        "`news.de` looks shifted against `news.en` from about line 1 to 600: it comes 2 lines early. "
        "Look whether a line is missing or doubled there.",
        "`news.de` looks out of step with `news.en` from about line 7 to 8: lengths do not go "
        "together. Look whether a line is missing or doubled there.",
        "1 more stretches of `news.de` look out of step.",
    ]
    assert told([], "a", "b") == []
