"""Stage 8: test sets translated and scored.

Out: `hypotheses/SET.txt`, one line per source line; `scores.json`.
"""

from collections.abc import Mapping, Sequence

from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from model.config import SearchConfig
from pipeline.artifact import Artifact, Json, write_json
from pipeline.bundle import load_bundle
from pipeline.config import EvaluateConfig
from pipeline.formats import read_corpus
from pipeline.job import Job

BOOTSTRAP_SAMPLES = 1_000


def evaluate(
    config: EvaluateConfig, average: Artifact, tests: Mapping[str, Artifact], job: Job
) -> Json:
    """Translate the source side of each test set and score it against the target side.

    References are read as they are: neither cleaned nor normalised.
    """
    bundle = load_bundle(average.folder)
    search = SearchConfig(config.beam_size, config.length_penalty, config.max_extra_tokens)
    (job.out / "hypotheses").mkdir()
    scores: Json = {}
    for name, test in tests.items():
        sources, references = _read(test)

        def show(done: float, total: float | None, unit: str, note: str = name) -> None:
            job.progress(done, total, unit, note)

        hypotheses = bundle.translate(sources, search, config.tokens_per_batch, show)
        hypotheses = [" ".join(text.split()) for text in hypotheses]
        text = "".join(f"{hypothesis}\n" for hypothesis in hypotheses)
        (job.out / "hypotheses" / f"{name}.txt").write_text(text, encoding="utf-8", newline="\n")
        scores[name] = score(hypotheses, references)
    write_json(job.out / "scores.json", scores)
    return {"scores": scores}


def score(hypotheses: Sequence[str], references: Sequence[str]) -> Json:
    """BLEU (13a, cased) and chrF2, each with its signature and 95 % bootstrap interval."""
    assert len(hypotheses) == len(references), "one hypothesis for each reference"
    return {
        "bleu": _score(BLEU(), hypotheses, references),
        "chrf2": _score(Chrf(), hypotheses, references),
        "ter": None,
    }


class Chrf(CHRF):
    """sacreBLEU's, whose bootstrap fails where some samples match nothing and others something.

    There it averages Python's zero with NumPy's 32-bit numbers, which Python refuses.
    """

    def _compute_f_score(self, statistics: list[int]) -> float:
        return float(super()._compute_f_score(statistics))


def _score(metric: Metric, hypotheses: Sequence[str], references: Sequence[str]) -> Json:
    result = metric.corpus_score(hypotheses, [references], n_bootstrap=BOOTSTRAP_SAMPLES)
    mean, half_width = float(result._mean), float(result._ci)
    return {
        "score": round(float(result.score), 2),
        "low": round(mean - half_width, 2),
        "high": round(mean + half_width, 2),
        "signature": str(metric.get_signature()),
    }


def _read(test: Artifact) -> tuple[list[str], list[str]]:
    batches = list(read_corpus(test.folder))
    src, tgt = (
        [text for batch in batches for text in batch[side].to_pylist()] for side in ("src", "tgt")
    )
    return src, tgt
