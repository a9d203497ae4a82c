"""Parquet: both sides as columns of text, read batch by batch.

A column inside another one is named with a dot, as `translation.en`. Empty cells (null) and texts
that are not UTF-8 are faults; a column that holds no text is another file than was meant.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.errors import CorpusError
from pipeline.reading.faults import Chunk, Fault
from pipeline.reading.lines import MAX_LINE_BYTES, File, utf8_fault
from pipeline.sources import Layout
from pipeline.tables import open_parquet

_MAGIC = b"PAR1"
_MAX_NAMES = 12


def read_parquet(file: File, layout: Layout, batch_rows: int) -> Iterator[Chunk]:
    """The rows of a Parquet file; `line` is the number of the row, from 1.

    Raises:
        CorpusError: If it is no whole Parquet file, lacks the columns, or they are not of text.
    """
    names = [str(name) for name in layout.columns or ("src", "tgt")]
    with file.path.open("rb") as opened:
        if opened.read(len(_MAGIC)) != _MAGIC:
            raise CorpusError(
                f"`{file.name}` must be a Parquet file, not packed, but does not begin as one. "
                "Unpack it, or set `format`."
            )
    try:
        with open_parquet(file.path) as parquet:
            _check_columns(parquet.schema_arrow, names, file.name)
            line = 1
            for batch in parquet.iter_batches(batch_rows, columns=names, use_threads=False):
                yield _chunk(batch, names, line, file.name)
                line += batch.num_rows
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # the last: of names
        reason = str(error).split("\n", 1)[0][:200]
        raise CorpusError(
            f"`{file.name}` must be a whole Parquet file, but is damaged ({reason}). "
            "Copy or download it again."
        ) from None


def _check_columns(schema: pa.Schema, names: Sequence[str], file: str) -> None:
    for name in names:
        kind = _type_of(schema, name)
        if kind is None:
            there = ", ".join(f"`{other}`" for other in schema.names[:_MAX_NAMES]) or "none"
            raise CorpusError(
                f"`{file}` must have a column `{name}`, but has {there}. Set `columns`."
            )
        if not _is_text(kind):
            raise CorpusError(
                f"`{file}` must hold text in its column `{name}`, but that is {kind}. Set `columns`."
            )


def _type_of(schema: pa.Schema, name: str) -> pa.DataType | None:
    parts = name.split(".")
    fields: pa.Schema | pa.StructType = schema
    for part in parts[:-1]:
        index = fields.get_field_index(part)
        if index < 0 or not pa.types.is_struct(fields.field(index).type):
            return None
        fields = fields.field(index).type
    index = fields.get_field_index(parts[-1])
    return None if index < 0 else fields.field(index).type


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_text(kind.value_type)
    return any(
        is_kind(kind)
        for is_kind in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    )


def _chunk(batch: pa.RecordBatch, names: Sequence[str], line: int, file: str) -> Chunk:
    numbers = np.arange(line, line + batch.num_rows, dtype=np.int64)
    faults: list[Fault] = []
    src, tgt = (_texts(_column(batch, name), name, numbers, file, faults) for name in names)
    return Chunk(src, tgt, numbers, faults)


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    outer, *inner = name.split(".")
    column = batch.column(outer)
    for part in inner:
        column = pc.struct_field(column, part)  # null where what is around it is
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _texts(
    column: pa.Array, name: str, numbers: npt.NDArray[np.int64], file: str, faults: list[Fault]
) -> pa.StringArray:
    """The texts, empty where one is faulty."""
    if column.null_count:
        for row in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist():
            what = f"has no `{name}` (null)"
            faults.append(Fault(file, int(numbers[row]), None, "null", what, b"", "row"))
        column = column.fill_null("")
    column = column.cast(pa.binary())
    if pc.max(pc.binary_length(column)).as_py() > MAX_LINE_BYTES:
        raise CorpusError(
            f"`{file}` must have at most {MAX_LINE_BYTES:,} bytes in a text, but one of "
            f"`{name}` from row {numbers[0]} on is longer. Check that it holds sentences."
        )
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        return _good_texts(column, numbers, file, faults)


def _good_texts(
    column: pa.BinaryArray, numbers: npt.NDArray[np.int64], file: str, faults: list[Fault]
) -> pa.StringArray:
    texts = []
    for number, raw in zip(numbers.tolist(), column.to_pylist(), strict=True):
        fault = utf8_fault(raw, file, number, None, "row")
        if fault:
            faults.append(fault)
        texts.append(b"" if fault else raw)
    return pa.array(texts, pa.binary()).cast(pa.string())
