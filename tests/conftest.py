"""What tests share."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.compute import Compute, InProcess
from pipeline.config import ComputeConfig
from pipeline.job import Job

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
def make_job(tmp_path: Path) -> Callable[..., Job]:
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
            mirrors={},
            progress=lambda done, total, unit, note="": None,
            say=lambda line: None,
        )

    return make
