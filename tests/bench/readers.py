"""The readers of all formats: rows a second of one core, and peak memory as files grow.

    python tests/bench/readers.py [--rows 1_000_000 8_000_000] [--formats text tsv …]

Writes made-up pairs (98 bytes a side on average) into a temporary folder, one format at a time, and
reads each in a fresh process: by itself, and with the drift detector as `download` does. Speed is
rows for each second of CPU time; memory is the most that was resident, imports included.
"""

import argparse
import gzip
import json
import random
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.reading.drift import Drift
from pipeline.reading.formats import read_files
from pipeline.sources import Layout

ROWS_PER_CHUNK = 10_000
ROWS_PER_GROUP = 2**20
TEXT = (
    "the clock strikes seven and a grey cat waits by door while rain falls on empty square "
    "she reads letter twice nobody answers zwei Boote sind am Steg schöne Tür größer"
)
MAX_ROWS = {"mo": 1_000_000}  # held whole
HEAD = ("format", "rows", "MiB", "M rows/s", "M rows/s with drift", "peak MiB")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 8_000_000])
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=list(FORMATS))
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measured(*options.measure)))
        return
    print(f"| {' | '.join(HEAD)} |\n|---{'|---:' * (len(HEAD) - 1)}|")
    for form in options.formats:
        for rows in options.rows:
            if rows <= MAX_ROWS.get(form, rows):
                print(f"| {' | '.join(line(form, rows))} |", flush=True)


def line(form, rows):
    with tempfile.TemporaryDirectory() as folder:
        FORMATS[form][0](Path(folder), rows)
        command = [sys.executable, __file__, "--measure", form, folder]
        found = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    assert found["rows"] == rows
    speeds = (f"{rows / found[key] / 1e6:.2f}" for key in ("read_s", "drift_s"))
    return form, f"{rows:,}", f"{found['mib']:.0f}", *speeds, f"{found['peak_mib']:.0f}"


def measured(form, folder):
    """In a process of its own."""
    paths = sorted(Path(folder).iterdir())
    layout = FORMATS[form][1]
    found = {"mib": sum(path.stat().st_size for path in paths) / 2**20}
    for key, drift in (("read_s", None), ("drift_s", Drift())):
        started, rows = time.process_time(), 0
        for batch in read_files(paths, layout):
            rows += batch.num_rows
            if drift:
                drift.update(batch["src"], batch["tgt"], batch["line"].to_numpy())
        if drift:
            drift.shifts()
        found |= {key: time.process_time() - started, "rows": rows}
    return found | {"peak_mib": peak_mib()}


def peak_mib():
    """Unlike `getrusage`, without the parent's."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    (kib,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(kib) / 1024


def made_pairs():
    """A chunk of rows, which the files repeat."""
    draw, vocabulary = random.Random(1), TEXT.split()

    def sentence(words):
        return " ".join(draw.choices(vocabulary, k=words)) + f" {draw.randint(0, 999)}."

    for _ in range(ROWS_PER_CHUNK):
        words = draw.randint(4, 32)
        yield sentence(words), sentence(max(1, words + draw.randint(-3, 3)))


def repeated(path, chunk, rows, head=b"", tail=b"", opened=Path.open):
    with opened(path, "wb") as file:
        file.write(head)
        for _ in range(rows // ROWS_PER_CHUNK):
            file.write(chunk)
        file.write(tail)


def write_text(folder, rows, opened=Path.open):
    for name, side in zip(("1", "2"), zip(*made_pairs(), strict=True), strict=True):
        chunk = "".join(f"{text}\n" for text in side).encode()
        repeated(folder / name, chunk, rows, opened=opened)


def write_gzip(folder, rows):
    write_text(folder, rows, opened=partial(gzip.open, compresslevel=1))


def write_tsv(folder, rows):
    chunk = "".join(f"{src}\t{tgt}\n" for src, tgt in made_pairs()).encode()
    repeated(folder / "pairs", chunk, rows)


def write_jsonl(folder, rows, more=None):
    objects = ({"src": src, "tgt": tgt, **(more or {})} for src, tgt in made_pairs())
    chunk = "".join(f"{json.dumps(each, ensure_ascii=False)}\n" for each in objects).encode()
    repeated(folder / "pairs", chunk, rows)


def write_jsonl_nested(folder, rows):
    write_jsonl(folder, rows, {"meta": {"id": 7, "from": {"url": "u", "tags": ["a"]}}, "ok": True})


def write_parquet(folder, rows):
    src, tgt = zip(*made_pairs(), strict=True)
    chunk = pa.table({"src": src, "tgt": tgt})
    group = pa.concat_tables([chunk] * (ROWS_PER_GROUP // ROWS_PER_CHUNK))
    with pq.ParquetWriter(folder / "pairs", chunk.schema) as writer:
        while rows:
            writer.write_table(group.slice(0, rows), row_group_size=ROWS_PER_GROUP)
            rows -= min(rows, group.num_rows)


def write_tmx(folder, rows):
    unit = '<tu><tuv xml:lang="en"><seg>{}</seg></tuv><tuv xml:lang="de"><seg>{}</seg></tuv></tu>\n'
    chunk = "".join(unit.format(*pair) for pair in made_pairs()).encode()
    head, tail = b'<tmx version="1.4"><body>', b"</body></tmx>"
    repeated(folder / "pairs", chunk, rows, head, tail)


def write_sgm(folder, rows):
    for name, side in zip(("1", "2"), zip(*made_pairs(), strict=True), strict=True):
        segments = "".join(f'<seg id="{n}">{text}</seg>\n' for n, text in enumerate(side, 1))
        chunk = f'<doc docid="d" genre="news">\n{segments}</doc>\n'.encode()
        repeated(folder / name, chunk, rows)


def write_po(folder, rows):
    entry = '#: main.c\nmsgid "{}"\nmsgstr "{}"\n\n'
    chunk = "".join(entry.format(*pair) for pair in made_pairs()).encode()
    repeated(folder / "pairs", chunk, rows)


def write_mo(folder, rows):
    texts = [text.encode() for pair in made_pairs() for text in pair]
    lengths = np.tile([len(text) for text in texts], rows // ROWS_PER_CHUNK)
    places = 28 + 16 * rows + np.cumsum(lengths + 1) - lengths - 1
    tables = np.stack([lengths, places], axis=1).astype("<u4").reshape(rows, 2, 2)
    head = np.array([0x950412DE, 0, rows, 28, 28 + 8 * rows, 0, 0], dtype="<u4").tobytes()
    head += tables[:, 0].tobytes() + tables[:, 1].tobytes()
    repeated(folder / "pairs", b"".join(text + b"\0" for text in texts), rows, head)


FORMATS = {
    "text": (write_text, Layout(format="text")),
    "gzip": (write_gzip, Layout(format="text")),
    "ted": (write_text, Layout(format="ted")),
    "tsv": (write_tsv, Layout(format="tsv", columns=(0, 1))),
    "jsonl": (write_jsonl, Layout(format="jsonl", columns=("src", "tgt"))),
    "jsonl nested": (write_jsonl_nested, Layout(format="jsonl", columns=("src", "tgt"))),
    "parquet": (write_parquet, Layout(format="parquet", columns=("src", "tgt"))),
    "tmx": (write_tmx, Layout(format="tmx", columns=("en", "de"))),
    "sgm": (write_sgm, Layout(format="sgm")),
    "po": (write_po, Layout(format="po")),
    "mo": (write_mo, Layout(format="mo")),
}

if __name__ == "__main__":
    main()
