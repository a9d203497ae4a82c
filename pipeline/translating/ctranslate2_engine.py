"""CTranslate2 behind the interface of our own search: the same beams, limits and length penalty.

CTranslate2 divides by length^alpha, we by ((5 + length) / 6)^alpha; neither searches by it, both rank
by it what their beams ended. So it is asked for these by log-probability, and they are ranked here;
where more have ended than there are beams, the least likely ones are lost. Its longest length holds for a
whole batch: where that let a sentence go on beyond its own, the sentence is searched again.
"""

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch

from model.config import SearchConfig
from model.search import Hypothesis, length_penalty
from pipeline.errors import ConfigError, InputError, TradukoError
from pipeline.pieces.tokenizer import Tokenizer
from pipeline.translating.decoding import (
    TOKENS_PER_BATCH,
    TOKENS_PER_GPU_BATCH,
    Batch,
    Pending,
)
from pipeline.translating.export import EXPORT_FILE, import_ctranslate2, token_names

NO_PENALTY = 1e-9
"""Changes no score; at 0 CTranslate2 would also wait for its best beam to end."""
POLL_S = 0.001
"""CTranslate2 waits without looking at signals; we look whether it is done."""


class Ctranslate2Engine:
    """A model that `export_ctranslate2` wrote. It may be used again and again."""

    align_layer = 0

    def __init__(self, folder: Path, device: str = "auto", num_workers: int | None = None) -> None:
        """Load the model.

        Args:
            folder: Of the export.
            device: `auto`, `cpu`, `cuda`, `cuda:1`, …
            num_workers: On a CPU: batches at once, a thread each. None: as torch is set.

        Raises:
            InputError: If it is not installed, has no such device, or the folder holds no export.
        """
        about = read_export(folder)
        self.max_positions = int(about["max_positions"])
        kind, _, index = device.partition(":")
        ctranslate2 = import_ctranslate2()
        if kind == "auto":
            kind = "cuda" if ctranslate2.get_cuda_device_count() else "cpu"
        is_cpu = kind == "cpu"
        self.num_workers = (num_workers or torch.get_num_threads()) if is_cpu else 1
        self.tokens_per_batch = TOKENS_PER_BATCH if is_cpu else TOKENS_PER_GPU_BATCH
        try:
            self._translator = ctranslate2.Translator(
                str(folder), kind, device_index=int(index or 0),
                inter_threads=self.num_workers, intra_threads=1,
            )  # fmt: skip
        except (RuntimeError, ValueError) as error:
            raise InputError(f"CTranslate2 cannot load {folder} on {device}: {error}") from None
        tokenizer = Tokenizer(folder)
        sizes = tokenizer.src_vocab_size or tokenizer.vocab_size, tokenizer.vocab_size
        self._src_names, self._tgt_names = map(token_names, sizes)
        self._ids = {name: number for number, name in enumerate(self._tgt_names)}

    def submit(self, batch: Batch, search: SearchConfig) -> Pending:
        """Begin with a batch as soon as a worker is free.

        Raises:
            ConfigError: If something else than beam search is asked for.
        """
        _check_supported(batch, search)
        limits = [
            min(max(1, len(ids) + 1 + search.max_extra_tokens), self.max_positions)
            for ids in batch.sources
        ]
        sources = [[*(self._src_names[n] for n in ids), "</s>"] for ids in batch.sources]
        running = self._begin(sources, max(limits, default=1), search)

        def wait() -> list[list[Hypothesis]]:
            found = []
            for source, limit, one in zip(sources, limits, running, strict=True):
                result = _result(one)
                num_steps = max(map(len, result.hypotheses)) + 1
                if num_steps >= limit < max(limits):
                    result = _result(self._begin([source], limit, search)[0])
                found.append(self._ranked(result, limit, search))
            return found

        return wait

    def _begin(self, sources: list[list[str]], limit: int, search: SearchConfig) -> Sequence[Any]:
        running: Sequence[Any] = self._translator.translate_batch(
            sources,
            beam_size=search.beam_size,
            num_hypotheses=search.beam_size,
            length_penalty=NO_PENALTY,
            return_scores=True,
            min_decoding_length=0,
            max_decoding_length=limit,
            max_input_length=0,
            asynchronous=True,
        )
        return running

    def _ranked(
        self,
        result: Any,  # noqa: ANN401 - their types are untyped
        limit: int,
        search: SearchConfig,
    ) -> list[Hypothesis]:
        found = []
        for tokens, log_prob in zip(result.hypotheses, result.scores, strict=True):
            length = min(len(tokens) + 1, limit)  # EOS counts, but where the limit cut it off
            score = log_prob / length_penalty(length, search.length_penalty)
            found.append(Hypothesis(tuple(self._ids[name] for name in tokens), score, log_prob))
        found.sort(key=lambda hypothesis: -hypothesis.score)
        return found[: search.num_best]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """What is under way ends by itself."""


def is_export(folder: Path) -> bool:
    """Whether a folder holds a model for CTranslate2."""
    return (folder / EXPORT_FILE).is_file()


def read_export(folder: Path) -> Mapping[str, Any]:
    """What an export says of itself.

    Raises:
        InputError: If the folder holds none.
        TradukoError: If its tokenizer is another one.
    """
    if not is_export(folder):
        raise InputError(f"{folder} must be an exported model, but holds no {EXPORT_FILE}.")
    about: Mapping[str, Any] = json.loads((folder / EXPORT_FILE).read_text(encoding="utf-8"))
    if Tokenizer(folder).digest != about["tokenizer"]:
        raise TradukoError(
            f"The model in {folder} was trained with tokenizer {about['tokenizer'][:16]}…, but the "
            "folder holds another one: its files do not belong together."
        )
    return about


def _check_supported(batch: Batch, search: SearchConfig) -> None:
    asked = {
        "samples": search.sample,
        "prefixes": batch.prefixes is not None,
        "alignments": search.align_layer > 0,
    }
    for what, is_asked in asked.items():
        if is_asked:
            raise ConfigError(f"The engine ctranslate2 gives no {what}: take the engine torch.")


def _result(running: Any) -> Any:  # noqa: ANN401
    while not running.done():
        time.sleep(POLL_S)
    return running.result()
