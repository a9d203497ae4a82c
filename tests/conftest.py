"""What tests share."""

import io
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from pipeline.compute import Compute, InProcess
from pipeline.config import ComputeConfig
from pipeline.fetching.fetched import Files
from pipeline.fetching.lock import LOCK_FILE, Lock
from pipeline.job import Job

if TYPE_CHECKING:
    from model.config import ModelConfig

settings.register_profile("shared-machine", deadline=None)  # an example's time says nothing here
settings.load_profile("shared-machine")

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(autouse=True)
def one_torch_thread() -> None:
    """Threads only wait for each other in examples this small."""
    torch = sys.modules.get("torch")
    if torch:
        torch.set_num_threads(1)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real corpora and hostile files, which is not part of the project."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"needs the real corpora in {SHARED_DATA}")
    return SHARED_DATA


@pytest.fixture
def make_files(tmp_path: Path) -> Callable[..., Files]:
    """Makes what gets the files that sources name."""

    def make(mirrors: Mapping[str, str] | None = None, **more: object) -> Files:
        lock = Lock(tmp_path / LOCK_FILE, lambda line: None)
        fields: dict[str, Any] = {"lock": lock, "say": lambda line: None, **more}
        return Files(tmp_path / "fetched", mirrors or {}, **fields)

    return make


@pytest.fixture
def make_job(tmp_path: Path, make_files: Callable[..., Files]) -> Callable[..., Job]:
    """Makes a stage's workplace in this process."""

    def make(name: str = "stage", compute: Compute | None = None, **settings: object) -> Job:
        out, work = tmp_path / name / "out", tmp_path / name / "work"
        out.mkdir(parents=True)
        work.mkdir()
        return Job(
            out=out,
            work=work,
            compute=compute or InProcess(),
            settings=ComputeConfig.model_validate(settings),
            files=make_files(),
            progress=lambda done, total, unit, note="": None,
            say=lambda line: None,
        )

    return make


BUNDLE_TEXT = [
    "the man sees the house in the wood.",
    "der mann sieht das haus im wald.",
    "a house, a wood: der mann",
]


@pytest.fixture(scope="session")
def make_bundle() -> Callable[..., Path]:
    """Fills a folder with an untrained model: what it says does not matter, how it says it does."""
    return fill_bundle


def fill_bundle(folder: Path, shape: "ModelConfig", seed: int = 5) -> Path:
    """Write an untrained model of this shape into a folder; return the folder."""
    import torch

    from model.transformer import Transformer
    from pipeline.translating.bundle import write_bundle

    vocab = folder / "vocab"
    vocab.mkdir()
    (vocab / "tokenizer.model").write_bytes(_learn_pieces(BUNDLE_TEXT))
    (vocab / "tokenizer.json").write_text('{"normalise": true}\n')
    torch.manual_seed(seed)
    weights = Transformer(shape, 48).state_dict()
    write_bundle(folder, weights, shape, ("en", "de"), vocab)
    return folder


def _learn_pieces(texts: list[str]) -> bytes:
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts * 3), model_writer=model, model_type="bpe", vocab_size=48,
        normalization_rule_name="identity", pad_id=0, unk_id=1, bos_id=2, eos_id=3, minloglevel=2,
    )  # fmt: skip
    return model.getvalue()
