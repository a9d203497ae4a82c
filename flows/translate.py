"""`traduko translate`: a line out for each text in, in order, in bounded memory."""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, NamedTuple
from uuid import uuid4

from flows.progress import Terminal
from pipeline.artifact import Json
from pipeline.errors import InputError
from pipeline.translating.translator import Translated, Translation

MAX_LINES_NAMED = 5


class Shape(NamedTuple):
    """What a line of output holds besides the translation."""

    as_json: bool = False
    num_best: int = 1
    scores: bool = False
    alignments: bool = False


def write_translations(
    translated: Iterable[Translated], shape: Shape, output: BinaryIO, show: Terminal
) -> None:
    """Write each result as soon as it is there.

    Raises:
        InputError: As reading raises it; what was finished before is written.
    """
    write = json_line if shape.as_json else text_lines
    overlong = Overlong(show.say)
    show.begin("translate")
    try:
        for line in translated:
            output.write(write(line, shape).encode())
            output.flush()
            overlong.note(line)
            show.progress(line.number, None, "sentences")
    finally:
        show.end()
        overlong.sum_up()


def text_lines(line: Translated, shape: Shape) -> str:
    """A line for each translation; columns are apart by tabs.

    With n-best the first is the number of the text; then the translation; then what is asked for.
    """
    return "".join(f"{_columns(line.number, one, shape)}\n" for one in line.translations)


def json_line(line: Translated, shape: Shape) -> str:
    """One JSON object for a text."""
    document: Json = {"line": line.number, "src": line.src}
    if line.num_parts > 1:
        document["parts"] = line.num_parts
    if line.is_cut:
        document["cut"] = True
    document["translations"] = [_translation(one, shape) for one in line.translations]
    return f"{json.dumps(document, ensure_ascii=False)}\n"


@contextmanager
def whole_file(path: Path, say: Callable[[str], None]) -> Iterator[BinaryIO]:
    """A file that gets its name when it is whole; broken off, it is `….partial`.

    Raises:
        InputError: If there can be no such file.
    """
    temporary = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        file = temporary.open("wb")
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}.") from None
    try:
        with file:
            yield file
    except BaseException:
        partial = path.with_name(f"{path.name}.partial")
        temporary.replace(partial)
        say(f"What was finished is in {partial}.")
        raise
    temporary.replace(path)


@dataclass
class Overlong:
    """Says which texts were too long for the model: the first at once, all at the end."""

    say: Callable[[str], None]
    num_split: int = 0
    num_cut: int = 0
    numbers: list[int] = field(default_factory=list)

    def note(self, line: Translated) -> None:
        """Look at one result."""
        if not (line.is_cut or line.num_parts > 1):
            return
        self.num_split += line.num_parts > 1
        self.num_cut += line.is_cut
        if not self.numbers:
            what = "its end is left out" if line.is_cut else f"taken in {line.num_parts} parts"
            self.say(f"warning: line {line.number:,} is too long for the model: {what}.")
        if len(self.numbers) <= MAX_LINES_NAMED:
            self.numbers.append(line.number)

    def sum_up(self) -> None:
        """Say how many there were, if there was more than one."""
        if len(self.numbers) < 2:
            return
        named = ", ".join(f"{number:,}" for number in self.numbers[:MAX_LINES_NAMED])
        more = ", …" if len(self.numbers) > MAX_LINES_NAMED else ""
        self.say(
            f"warning: {self.num_split + self.num_cut:,} lines were too long for the model "
            f"({self.num_split:,} taken in parts, {self.num_cut:,} cut): {named}{more}."
        )


def _columns(number: int, one: Translation, shape: Shape) -> str:
    columns = [str(number)] if shape.num_best > 1 else []
    columns.append(one.text)
    if shape.scores:
        columns.append(f"{one.score:.6f}")
    if shape.alignments:
        pairs = one.alignment.pairs if one.alignment else ()
        columns.append(" ".join(f"{src}-{tgt}" for src, tgt in pairs))
    return "\t".join(columns)


def _translation(one: Translation, shape: Shape) -> Json:
    document: Json = {"text": one.text}
    if shape.scores:
        document |= {"score": round(one.score, 6), "log_prob": round(one.log_prob, 6)}
    if shape.alignments and one.alignment:
        document |= {
            "src_units": one.alignment.src,
            "tgt_units": one.alignment.tgt,
            "alignment": one.alignment.pairs,
        }
    return document
