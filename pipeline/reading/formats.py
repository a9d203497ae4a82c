"""All formats of parallel text behind one reader; and the reader of what `download` stores.

Whatever the format, rows are `src`, `tgt` and `line`, in the file's order and bounded memory; what
is wrong with a row or a file is told in the same words, and the same policy decides about bad rows.
Each format has its module; nothing is guessed from content, and nothing dropped in silence.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from pipeline.reading.corpus import read_aligned, read_ted, two_files
from pipeline.reading.faults import Chunk, Faults
from pipeline.reading.gettext import read_mo, read_po
from pipeline.reading.jsonl import read_jsonl
from pipeline.reading.lines import BATCH_ROWS, File, checked
from pipeline.reading.parquet import read_parquet
from pipeline.reading.sgm import read_sgm
from pipeline.reading.tmx import read_tmx
from pipeline.reading.tsv import read_tsv
from pipeline.sources import Layout, Source

SIDES = ("src", "tgt")
"""In a stored corpus, the files of the two sides."""
PAIRS_FILE = "pairs"
"""In a stored corpus, the file of both sides, in place of the two."""
LAYOUT_FILE = "layout.json"
"""How to read them; without it they are text, line by line."""

_TEXT = Layout(format="text")
_OF_TWO_FILES: dict[str, Callable[[File, File, int], Iterator[Chunk]]] = {
    "text": read_aligned,
    "ted": read_ted,
    "sgm": read_sgm,
}
_OF_ONE_FILE: dict[str, Callable[[File, Layout, int], Iterator[Chunk]]] = {
    "tsv": read_tsv,
    "jsonl": read_jsonl,
    "parquet": read_parquet,
    "tmx": read_tmx,
    "po": lambda file, _layout, batch_rows: read_po(file, batch_rows),
    "mo": lambda file, _layout, batch_rows: read_mo(file, batch_rows),
}


def read_corpus(
    folder: Path, names: Sequence[str] | None = None, faults: Faults | None = None
) -> Iterator[pa.RecordBatch]:
    """Reads a corpus that `download` stored, in whatever format.

    Args:
        folder: Holds `src` and `tgt`, or `pairs`; and `layout.json`, where there is more to know.
        names: What messages call the two files, or the one.
        faults: Counts and takes what is left out; none = nobody wants to know.

    Returns:
        Batches as of `read_files`.

    Raises:
        CorpusError: as `read_files`.
    """
    layout = stored_layout(folder)
    places = SIDES if layout.format in _OF_TWO_FILES else (PAIRS_FILE,)
    return read_files([folder / place for place in places], layout, names, faults)


def read_files(
    paths: Sequence[Path],
    layout: Layout = _TEXT,
    names: Sequence[str] | None = None,
    faults: Faults | None = None,
    batch_rows: int = BATCH_ROWS,
) -> Iterator[pa.RecordBatch]:
    """Reads a corpus: the files of the two sides, or one of both, plain or packed.

    Returns:
        Batches of at most `batch_rows` good rows, none empty: `src` and `tgt` (string), `line`
        (int64, ascending; where a person finds the row: the line, or the number of the row, segment
        or translation unit, from 1).

    Raises:
        CorpusError: If a file cannot be opened, at once; while reading, perhaps after batches were
            given out, if it is not what it must be as a whole; at the end if rows are no pairs of
            texts and the policy is to stop, or no row is left.
    """
    assert batch_rows > 0
    faults = faults or Faults(layout.on_bad_rows)
    assert faults.policy == layout.on_bad_rows
    names = names or [str(path) for path in paths]
    if layout.format in _OF_TWO_FILES:
        src, tgt = paths
        files = two_files(src, tgt, (names[0], names[1]))
        return faults.sift(_OF_TWO_FILES[layout.format](*files, batch_rows))
    [path], [name] = paths, names
    return faults.sift(_OF_ONE_FILE[layout.format](checked(path, name), layout, batch_rows))


def read_source(source: Source) -> Iterator[pa.RecordBatch]:
    """Reads a source of local files in its place, as `read_files`."""
    files = (source.src, source.tgt, source.pairs)
    return read_files([Path(file.address) for file in files if file], source.layout or _TEXT)


def stored_layout(folder: Path) -> Layout:
    """How a stored corpus is to be read."""
    file = folder / LAYOUT_FILE
    if not file.exists():
        return _TEXT
    return Layout.model_validate_json(file.read_text(encoding="utf-8"))


def write_layout(folder: Path, layout: Layout) -> None:
    """Say how the folder's files are to be read."""
    # Fields that came later stay out at their default, so that files stay what they were.
    later = {"on_bad_rows"} - layout.model_dump(exclude_defaults=True).keys()
    text = layout.model_dump_json(indent=1, exclude=later)
    (folder / LAYOUT_FILE).write_text(f"{text}\n", encoding="utf-8", newline="\n")
