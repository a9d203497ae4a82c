"""What tests share."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from pipeline.compute import Compute, InProcess
from pipeline.config import ComputeConfig
from pipeline.fetched import Files
from pipeline.job import Job
from pipeline.lock import LOCK_FILE, Lock

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
