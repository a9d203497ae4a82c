"""Damages valid corpora and archives at random: each must give rows, or an error that is a CorpusError.

    python tests/bench/fuzz.py --minutes 10 [--seed N]

Prints how often each kind was read and refused, and at the end each way to fail once: its seed, the
exception, and where the damaged files lie.
"""

import argparse
import bz2
import gzip
import io
import json
import lzma
import random
import shutil
import sys
import tarfile
import tempfile
import time
import traceback
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.errors import CorpusError
from pipeline.fetching.archives import extract_all
from pipeline.reading.formats import read_files
from pipeline.sources import Layout

PAIRS = [(f"The clock strikes {n}.", f"Die Uhr schlägt {n}.") for n in range(40)]
SIDES = ["".join(f"{pair[side]}\n" for pair in PAIRS).encode() for side in (0, 1)]
MARKS = [
    b"\0",
    b"\n",
    b"\r",
    b"\t",
    b'"',
    b"<",
    b"&",
    b"\xff",
    b"\xed\xa0\x80",
    b"PK\1\2",
    b"9" * 12,
]
MAX_MESSAGE_CHARS = 4000


class Case(NamedTuple):
    """Valid files, and how they are read."""

    files: list[bytes]
    read: Callable[[list[Path]], int]
    """Gives the number of rows."""


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--minutes", type=float, default=1.0)
    options.add_argument("--seed", type=int, default=1)
    chosen = options.parse_args()
    counts, failures = fuzz(chosen.seed, chosen.minutes * 60)
    for kind, outcome in sorted(counts):
        print(f"{kind:12} {outcome:8} {counts[kind, outcome]:8,}")
    print(f"{counts.total():,} files in all; the first seed was {chosen.seed}")
    print("\n".join(failures) or "no failure")
    sys.exit(bool(failures))


def fuzz(first_seed: int, limit_s: float) -> tuple[Counter, list[str]]:
    """How often each kind had which outcome, and what failed."""
    cases, counts, failures = valid_cases(), Counter(), {}
    start, seed = time.perf_counter(), first_seed
    while time.perf_counter() - start < limit_s:
        chance = random.Random(seed)
        kind = chance.choice(sorted(cases))
        with tempfile.TemporaryDirectory() as name:
            outcome = attempt(cases[kind], chance, Path(name))
            counts[kind, outcome.partition(":")[0]] += 1
            told = f"{kind}: {outcome.replace(name, '')}"
            if outcome not in ("rows", "refused") and told not in failures:
                kept = Path(tempfile.mkdtemp(prefix="fuzz-"))
                shutil.copytree(name, kept, dirs_exist_ok=True)
                failures[told] = f"seed {seed}, {told}, files in {kept}"
        seed += 1
    return counts, list(failures.values())


def attempt(case: Case, chance: random.Random, folder: Path) -> str:
    """Damages one of a case's files, and reads them."""
    paths = [folder / f"file{number}" for number in range(len(case.files))]
    damaged = chance.randrange(len(paths))
    for number, (path, content) in enumerate(zip(paths, case.files, strict=True)):
        path.write_bytes(damage(content, chance) if number == damaged else content)
    try:
        rows = case.read(paths)
    except CorpusError as error:
        is_told = str(error).isprintable() and len(str(error)) < MAX_MESSAGE_CHARS
        return "refused" if is_told else f"message: {str(error)[:300]!r}"
    except Exception as error:  # noqa: BLE001 - whatever comes is what is looked for
        return f"error: {error!r} at {traceback.extract_tb(error.__traceback__)[-1]}"
    return "rows" if rows >= 0 else "nothing: neither rows nor an error"


def damage(content: bytes, chance: random.Random) -> bytes:
    """One to four changes of the kinds that disks, networks, editors and attackers make."""
    made = bytearray(content)
    for _ in range(chance.randint(1, 4)):
        place = chance.randrange(len(made) + 1)
        end = min(len(made), place + chance.choice([1, 1, 4, 64, 1024]))
        how = chance.randrange(6)
        if how == 0:
            del made[place:]
        elif how == 1:
            del made[place:end]
        elif how == 2:
            made[place:place] = made[place:end]
        elif how == 3:
            made[place:end] = bytes(end - place)
        elif how == 4:
            made[place:place] = chance.choice(MARKS)
        elif place < len(made):
            made[place] ^= 1 << chance.randrange(8)
    return bytes(made)


def valid_cases() -> dict[str, Case]:
    """One of every kind."""
    packers = {
        "gzip": gzip.compress,
        "bzip2": bz2.compress,
        "xz": lzma.compress,
        "zstd": lambda data: pa.Codec("zstd").compress(data).to_pybytes(),
    }
    cases = {kind: Case(list(map(pack, SIDES)), reader("text")) for kind, pack in packers.items()}
    files = {"x/train.en": SIDES[0], "x/train.de": SIDES[1], "README": b"Read me.\n"}
    cases |= {
        f"tar-{kind}": Case([pack(tar(files))], from_archive) for kind, pack in packers.items()
    }
    cases |= {"tar": Case([tar(files)], from_archive), "zip": Case([zipped(files)], from_archive)}
    return cases | {
        form: Case(files, reader(form, columns)) for form, files, columns in of_formats()
    }


def of_formats() -> list[tuple[str, list[bytes], tuple | None]]:
    """Of every format: its name, files, and columns if it needs any."""
    src, tgt = zip(*PAIRS, strict=True)
    parquet = io.BytesIO()
    pq.write_table(pa.table({"src": src, "tgt": tgt}), parquet)
    rows = [json.dumps({"src": left, "tgt": right}) for left, right in PAIRS]
    units = [
        f'<tu><tuv xml:lang="en"><seg>{left}</seg></tuv><tuv xml:lang="de"><seg>{right}</seg></tuv></tu>'
        for left, right in PAIRS
    ]
    sgm = [
        f"<srcset><doc docid='a'>{''.join(f'<seg id={n}>{text}</seg>' for n, text in enumerate(side))}</doc>"
        for side in (src, tgt)
    ]
    return [
        ("text", SIDES, None),
        ("ted", SIDES, None),
        ("sgm", [side.encode() for side in sgm], None),
        ("tsv", ["".join(f"{left}\t{right}\n" for left, right in PAIRS).encode()], (0, 1)),
        ("jsonl", ["\n".join(rows).encode()], ("src", "tgt")),
        ("parquet", [parquet.getvalue()], ("src", "tgt")),
        ("tmx", [f"<tmx><body>{''.join(units)}</body></tmx>".encode()], ("en", "de")),
        ("po", ["".join(f'msgid "{a}"\nmsgstr "{b}"\n\n' for a, b in PAIRS).encode()], None),
    ]


def reader(form: str, columns: tuple | None = None) -> Callable[[list[Path]], int]:
    layout = Layout(format=form, columns=columns)
    return lambda paths: sum(batch.num_rows for batch in read_files(paths, layout))


def from_archive(paths: list[Path]) -> int:
    folder = paths[0].parent
    out = folder / "out"
    out.mkdir()
    try:
        extract_all(paths[0], {"x/train.en": out / "src", "x/train.de": out / "tgt"})
    except CorpusError:
        assert not list(out.iterdir()), "something is left"
        raise
    finally:
        assert {*folder.iterdir()} == {paths[0], out}, "something is written elsewhere"
    return reader("text")([out / "src", out / "tgt"])


def tar(files: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return made.getvalue()


def zipped(files: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return made.getvalue()


if __name__ == "__main__":
    main()
