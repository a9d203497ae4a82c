"""`traduko translate`: lines in, as many lines out, in order, in bounded memory."""

import itertools
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from flows.progress import Terminal
from flows.run import Run
from model.config import SearchConfig
from pipeline.bundle import Bundle, load_bundle
from pipeline.errors import CorpusError, InputError

LINES_AT_ONCE = 512
TOKENS_PER_BATCH = 4_096


def find_model(run: Run) -> Path:
    """The folder of a recipe's model.

    Raises:
        InputError: If it is not built.
    """
    for step in run.plan():
        if step.node.stage.name == "average" and step.artifact:
            return step.artifact.folder
    raise InputError(
        f"The model of recipe `{run.config.name}` is not built in {run.root.folder}: "
        "run `traduko run` first, or name a model folder with --model."
    )


def open_model(folder: Path) -> Bundle:
    """The model in a folder.

    Raises:
        InputError: If there is none.
    """
    if not (folder / "config.json").is_file():
        raise InputError(f"{folder} must be a model's folder, but holds no config.json.")
    return load_bundle(folder)


def translate(
    bundle: Bundle, files: Sequence[Path], output: BinaryIO, search: SearchConfig, show: Terminal
) -> None:
    """Translate lines of files, or of standard input where there are none.

    What is finished is written before an error is raised.

    Raises:
        CorpusError: If a file is missing, or a line is not UTF-8.
    """
    show.begin("translate")
    done = 0
    at_once = 1 if not files and sys.stdin.isatty() else LINES_AT_ONCE
    for texts in _chunks(_lines(files), at_once):
        translated = bundle.translate(texts, search, TOKENS_PER_BATCH)
        output.write("".join(f"{' '.join(text.split())}\n" for text in translated).encode())
        output.flush()
        done += len(texts)
        show.progress(done, None, "sentences")
    show.end()


def _lines(files: Sequence[Path]) -> Iterator[str]:
    """Text lines, cut at line feeds alone."""
    if not files:
        yield from _decoded("standard input", sys.stdin.buffer)
    for path in files:
        try:
            with path.open("rb") as file:
                yield from _decoded(str(path), file)
        except (FileNotFoundError, IsADirectoryError) as error:
            raise CorpusError(f"{path} cannot be read: {error.strerror}.") from None


def _decoded(name: str, lines: Iterable[bytes]) -> Iterator[str]:
    for number, line in enumerate(lines, 1):
        try:
            yield line.rstrip(b"\r\n").decode()
        except UnicodeDecodeError as error:
            raise CorpusError(
                f"{name} must be UTF-8, but line {number} is not, at byte {error.start} of the line."
            ) from None


def _chunks(lines: Iterator[str], size: int) -> Iterator[list[str]]:
    """Lists of up to `size` lines; those before an error come before the error."""
    while True:
        chunk: list[str] = []
        try:
            chunk.extend(itertools.islice(lines, size))
        except CorpusError:
            yield chunk
            raise
        if not chunk:
            return
        yield chunk
