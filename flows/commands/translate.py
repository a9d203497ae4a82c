"""`traduko translate`: lines in, as many lines out."""

import argparse
import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from flows.commands.options import Commands, command, open_run
from flows.commands.output import say
from flows.progress import Terminal

if TYPE_CHECKING:
    from model.config import SearchConfig
    from pipeline.translating.translator import Options, Translator


def add(commands: Commands) -> None:
    """Add the command."""
    parser = command(
        commands,
        "translate",
        _translate,
        "translate lines of files or of standard input",
        "traduko translate --recipe quickstart < english.txt > german.txt",
    )
    _model_options(parser)
    _input_options(parser)
    _search_options(parser)
    _speed_options(parser)


def _translate(arguments: argparse.Namespace) -> None:
    from flows.text_input import read_texts
    from flows.translate import Shape, write_translations

    options = _options(arguments)
    translator = _open(arguments)
    texts = read_texts([Path(name) for name in arguments.files], arguments.field)
    shape = Shape(
        arguments.json, arguments.n_best, arguments.scores, arguments.alignments is not None
    )
    with Terminal() as terminal, _output(arguments.output) as output:
        write_translations(translator.translate(texts, options), shape, output, terminal)


def _options(arguments: argparse.Namespace) -> "Options":
    from pipeline.errors import ConfigError
    from pipeline.translating.translator import Options

    if arguments.threads is not None and arguments.threads < 1:
        raise ConfigError(f"`threads` must be at least 1, but is {arguments.threads}.")
    is_typed = not arguments.files and sys.stdin.isatty()
    try:
        return Options(
            _search(arguments),
            alignments=arguments.alignments,
            overlong=arguments.overlong,
            prefix=arguments.prefix,
            tokens_per_batch=arguments.batch_tokens,
            lines_at_once=1 if is_typed else arguments.lines_at_once,
        )
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _search(arguments: argparse.Namespace) -> "SearchConfig":
    from model.config import SearchConfig

    return SearchConfig(
        beam_size=arguments.beam_size,
        length_penalty=arguments.length_penalty,
        max_extra_tokens=arguments.max_extra_tokens,
        num_best=arguments.n_best,
        sample=arguments.sampling,
        temperature=arguments.temperature,
        top_k=arguments.top_k,
        seed=arguments.seed,
    )


def _open(arguments: argparse.Namespace) -> "Translator":
    from flows.models import find_folder, recipe_folder
    from pipeline.translating.translator import Translator

    if arguments.model:
        folder = find_folder(arguments.model, Path(arguments.root) if arguments.root else None)
    else:
        folder = recipe_folder(open_run(arguments, say))
    return Translator.load(
        folder,
        device=arguments.device,
        precision=arguments.precision,
        threads=arguments.threads,
        engine=arguments.engine,
    )


def _output(path: Path | None) -> contextlib.AbstractContextManager[BinaryIO]:
    from flows.translate import whole_file

    return whole_file(path, say) if path else contextlib.nullcontext(sys.stdout.buffer)


def _model_options(parser: argparse.ArgumentParser) -> None:
    model = parser.add_mutually_exclusive_group(required=True)
    model.add_argument("--recipe", metavar="RECIPE", help="take the model that this recipe gave")
    model.add_argument("--model", metavar="MODEL", help="take the model in this folder, or one of MLflow: models:/NAME@ALIAS")  # fmt: skip
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help="an override that the recipe was run with")  # fmt: skip
    parser.add_argument("--root", metavar="FOLDER", help="where artifacts live")
    parser.set_defaults(mirror=[], only=None, start=None, force=False)
    parser.set_defaults(on_interrupt="What was finished is written.")


def _input_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="*", metavar="FILE", help="text, one sentence a line, packed or not; .jsonl; .parquet; none = standard input")  # fmt: skip
    parser.add_argument("--field", metavar="NAME", help="key or column of the text, default src; with it, standard input is JSONL")  # fmt: skip
    parser.add_argument("--output", type=Path, metavar="FILE", help="write here; the file is there once it is whole")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="a JSON object a line (JSONL), as translations come")  # fmt: skip
    parser.add_argument("--n-best", type=int, default=1, metavar="N", help="this many translations of each, a line each: number of the input line, tab, translation")  # fmt: skip
    parser.add_argument("--scores", action="store_true", help="a tab and the score after each translation")  # fmt: skip
    parser.add_argument("--alignments", choices=("words", "pieces"), help="a tab and the alignment (0-0 1-2 …: source-translation) after each translation")  # fmt: skip
    parser.add_argument("--overlong", choices=("split", "cut", "stop"), default="split", help="lines longer than the model can take: translate in parts, cut the end off, or stop")  # fmt: skip


def _search_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--beam-size", type=int, default=4, metavar="N", help="hypotheses followed at once; 1 is greedy; at least --n-best")  # fmt: skip
    parser.add_argument("--length-penalty", type=float, default=0.6, metavar="ALPHA", help="the higher, the longer the translations")  # fmt: skip
    parser.add_argument("--max-extra-tokens", type=int, default=50, metavar="N", help="pieces that a translation may have more than its source")  # fmt: skip
    parser.add_argument("--prefix", default="", metavar="TEXT", help="what every translation begins with")  # fmt: skip
    parser.add_argument("--sampling", action="store_true", help="draw translations instead of seeking the likeliest")  # fmt: skip
    parser.add_argument("--temperature", type=float, default=1.0, metavar="T", help="of --sampling: below 1 for likelier ones")  # fmt: skip
    parser.add_argument("--top-k", type=int, default=0, metavar="K", help="of --sampling: draw from the K likeliest pieces; 0 = all")  # fmt: skip
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of --sampling: the same seed draws the same")  # fmt: skip


def _speed_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--engine", choices=("torch", "ctranslate2"), help="what searches; default ctranslate2 for a model of `traduko export`, else torch")  # fmt: skip
    parser.add_argument("--device", default="auto", metavar="D", help="auto (a GPU where there is one), cpu, cuda, cuda:1")  # fmt: skip
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32", help="number format of weights and products")  # fmt: skip
    parser.add_argument("--threads", type=int, metavar="N", help="CPU threads, a batch each; default all")  # fmt: skip
    parser.add_argument("--batch-tokens", type=int, metavar="N", help="source pieces in a batch; default 2,000, on a GPU 16,000")  # fmt: skip
    parser.add_argument("--lines-at-once", type=int, metavar="N", help="lines read ahead; 1 answers each at once; default 512, on a GPU 4,000")  # fmt: skip
