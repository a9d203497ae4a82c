"""Rows that are no pairs of texts: how they are told, and what becomes of them.

A reader gives its rows in chunks and says of each faulty one where it is and what is wrong. Here is
what the recipe wants done about it: `stop` reads on to name them all, `reject` leaves them out on
both sides and counts them. Whatever breaks a file as a whole never comes here; it ends the reading.

Rows that a format holds but that are meant to be no pairs (a line of metadata, a unit without one of
the two languages) are no faults. They are left out and counted under either policy.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.errors import CorpusError

OnBadRows = Literal["stop", "reject"]

MAX_RAW_BYTES = 200
"""Of a faulty row so much is shown."""

_MAX_NAMED = 20
_HINTS = {
    "encoding": " A file in another encoding can be converted (`iconv -f LATIN1 -t UTF-8`).",
    "columns": " A tab is never part of the text; `columns` says which columns are the two sides.",
    "json": " `columns` says which keys are the two sides.",
}
"""By kind of fault, what else might help."""


class Fault(NamedTuple):
    """Why one row is no pair."""

    file: str
    """As the user knows it."""
    line: int
    """From 1; whatever the format counts: lines, translation units, segments, rows."""
    byte: int | None
    """From 0, in the unpacked file; none where a format knows none."""
    kind: str
    """One of a few words, to count by."""
    what: str
    """What is wrong, to be read after "line 3"."""
    raw: bytes
    """The beginning of what is there."""
    unit: str = "line"
    """What `line` counts."""

    @property
    def told(self) -> str:
        """Place and reason, without the file."""
        byte = "" if self.byte is None else f", byte {self.byte}"
        return f"{self.unit} {self.line}{byte} {self.what}"


class Chunk(NamedTuple):
    """Some rows of a corpus, faulty ones among them."""

    src: pa.Array
    tgt: pa.Array
    line: npt.NDArray[np.int64]
    """Ascending."""
    faults: Sequence[Fault] = ()
    """Of rows of this chunk; of two of one row the first counts. What their `src` and `tgt` hold
    does not matter."""
    left_out: Mapping[str, int] = {}
    """Rows that are no pairs and not meant to be, by kind; they are not in the columns."""


class Faults:
    """Carries out a policy, and counts."""

    def __init__(
        self, policy: OnBadRows = "stop", on_reject: Callable[[Fault], None] | None = None
    ) -> None:
        """`on_reject` is told of each row that is left out for a fault."""
        self.policy = policy
        self.rejected: Counter[str] = Counter()
        """Rows left out for a fault, by kind of their first one."""
        self.left_out: Counter[str] = Counter()
        """Rows not meant to be pairs, by kind."""
        self._on_reject = on_reject
        self._named: list[Fault] = []

    def sift(self, chunks: Iterable[Chunk]) -> Iterator[pa.RecordBatch]:
        """The good rows of a whole corpus: `src`, `tgt` (string), `line` (int64). No empty batch.

        Raises:
            CorpusError: At the end, if a row was faulty and the policy is to stop, or none was good.
        """
        num_rows = 0
        for chunk in chunks:
            self.left_out.update(chunk.left_out)
            batch = self._good(chunk)
            num_rows += batch.num_rows
            if batch.num_rows:
                yield batch
        if self.policy == "stop" and self._named:
            raise CorpusError(_listed(self._named, self.rejected))
        if num_rows == 0:
            raise CorpusError(self._none_is_left())

    def _good(self, chunk: Chunk) -> pa.RecordBatch:
        columns = {"src": chunk.src, "tgt": chunk.tgt, "line": pa.array(chunk.line)}
        batch = pa.record_batch(columns)
        if not chunk.faults:
            return batch
        first: dict[int, Fault] = {}
        for fault in sorted(chunk.faults, key=lambda fault: fault.line):
            first.setdefault(fault.line, fault)
        for fault in first.values():
            self._add(fault)
        is_good = ~np.isin(chunk.line, np.fromiter(first, dtype=np.int64, count=len(first)))
        return batch.filter(pa.array(is_good))

    def _add(self, fault: Fault) -> None:
        self.rejected[fault.kind] += 1
        if len(self._named) < _MAX_NAMED:
            self._named.append(fault)
        if self._on_reject and self.policy == "reject":
            self._on_reject(fault)

    def _none_is_left(self) -> str:
        counts = ", ".join(
            f"{number:,} {kind}" for kind, number in sorted((self.rejected + self.left_out).items())
        )
        first = (
            f" The first: `{self._named[0].file}`, {self._named[0].told}." if self._named else ""
        )
        return f"A corpus must hold at least one pair, but none is left ({counts or 'no rows'}).{first}"


def _listed(named: Sequence[Fault], counts: Counter[str]) -> str:
    """What there is to mend, file by file."""
    total = counts.total()
    files = groupby(sorted(named, key=lambda fault: fault.file), key=lambda fault: fault.file)
    places = [f"`{file}`: {'; '.join(fault.told for fault in faults)}" for file, faults in files]
    more = f"; and {total - len(named):,} more" if total > len(named) else ""
    hints = "".join(_HINTS.get(kind, "") for kind in sorted(counts))
    return (
        f"Every row must be a pair of texts, but {total:,} {'is' if total == 1 else 'are'} not. "
        f"{'. '.join(places)}{more}. Mend or remove them, or leave such rows out with "
        f'`on_bad_rows = "reject"`.{hints}'
    )
