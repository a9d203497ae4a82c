"""What translations are measured by: scores with their label, signature and 95 % interval.

A metric is sums of counts over sentences, and a score made of the sums. So counts are taken once,
anywhere, and every score, of all sentences, of some, or of a resample, is made from them.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np
from sacrebleu.metrics.base import Metric as SacreMetric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from pipeline.artifact import Json
from pipeline.errors import ConfigError
from pipeline.scoring.paper_bleu import Tokenised
from pipeline.scoring.significance import BOOTSTRAP_SAMPLES, SEED, Counts, ScoreOf, interval
from pipeline.scoring.ter import num_edits

TOKENIZERS = {"zh": "zh", "ja": "ja-mecab", "ko": "ko-mecab"}
"""sacreBLEU's tokenizer for BLEU by target language; 13a for all others."""
_PACKAGES = {"ja-mecab": ("MeCab", "ja"), "ko-mecab": ("mecab_ko", "ko")}

NEWSTEST2014_FULL, NEWSTEST2014_FILTERED = 3_003, 2_737
"""Sentences of the test set of Vaswani et al. (2017), and of the set that some papers score."""


class Measure(NamedTuple):
    """One metric."""

    name: str
    """Its key in `scores.json`."""
    label: str
    """For people: a score is never shown without."""
    counts_of: Callable[[Sequence[str], Sequence[str]], Counts]
    """What hypotheses and references have, [N, C] for N sentences."""
    score_of: ScoreOf
    signature: str


class Kind(NamedTuple):
    """Which metrics a test set is measured by."""

    tgt: str
    """Its target language."""
    tokenizer: str
    """sacreBLEU's, for BLEU."""
    paper: bool = False
    """Whether also by what Vaswani et al. (2017) and others report for newstest2014."""
    quick: bool = False
    """Whether only by BLEU and chrF2."""


def tokenizer_for(tgt: str, chosen: str = "auto") -> str:
    """The chosen tokenizer for BLEU, or what sacreBLEU prescribes for a language."""
    language = tgt.replace("_", "-").partition("-")[0]
    return TOKENIZERS.get(language, "13a") if chosen == "auto" else chosen


def check_tokenizer(tokenizer: str) -> None:
    """Refuse a tokenizer that cannot work here.

    Raises:
        ConfigError: If its packages are not installed.
    """
    module, extra = _PACKAGES.get(tokenizer, (None, None))
    if module and find_spec(module) is None:
        raise ConfigError(
            f"BLEU's tokenizer {tokenizer}, which sacreBLEU prescribes for this target language, "
            f"needs a package that is not installed: pip install 'traduko[{extra}]'. Or choose "
            "another one, as `evaluate.bleu_tokenizer` = char: its scores compare only with their "
            "like."
        )


@lru_cache(maxsize=16)
def measures(kind: Kind) -> tuple[Measure, ...]:
    """The metrics of a kind of test set, BLEU first."""
    check_tokenizer(kind.tokenizer)
    quick = (
        sacre("bleu", f"BLEU ({kind.tokenizer})", BLEU(tokenize=kind.tokenizer)),
        sacre("chrf2", "chrF2", CHRF()),
    )
    if kind.quick:
        return quick
    return (
        *quick,
        _ter(),
        exact_match(),
        *(_as_in_papers(kind.tgt) if kind.paper else ()),
    )


def sacre(name: str, label: str, metric: SacreMetric) -> Measure:
    """One of sacreBLEU's metrics.

    Its own bootstrap is not used: that one takes its seed from the environment, and memory that
    grows with the test set. So its parts are called, by names that are not public.
    """

    def counts_of(hypotheses: Sequence[str], references: Sequence[str]) -> Counts:
        counts = metric._extract_corpus_statistics(hypotheses, [references])
        return np.array(counts, dtype=np.float64)

    def score_of(sums: Sequence[float]) -> float:
        return float(metric._compute_score_from_stats(list(sums)).score)

    # What a signature says, and a metric knows only once it has been used.
    metric.num_refs, metric.n_bootstrap, metric.seed = 1, BOOTSTRAP_SAMPLES, str(SEED)
    return Measure(name, label, counts_of, score_of, str(metric.get_signature()))


def _ter() -> Measure:
    """SacreBLEU's, its edits counted faster."""
    metric = TER()

    def counts_of(hypotheses: Sequence[str], references: Sequence[str]) -> Counts:
        sides = zip(map(words, hypotheses), map(words, references), strict=True)
        return np.array([(num_edits(hyp, ref), len(ref)) for hyp, ref in sides], np.float64)

    def words(text: str) -> list[str]:
        return metric._preprocess_segment(text).split()

    return sacre("ter", "TER (lower is better)", metric)._replace(counts_of=counts_of)


def exact_match() -> Measure:
    """The share of hypotheses that are their reference, white space aside."""

    def counts_of(hypotheses: Sequence[str], references: Sequence[str]) -> Counts:
        pairs = zip(hypotheses, references, strict=True)
        return np.array([(left.split() == right.split(), 1) for left, right in pairs], np.float64)

    return Measure(
        "exact_match",
        "exact match, %",
        counts_of,
        lambda sums: 100 * sums[0] / sums[1],
        f"nrefs:1|bs:{BOOTSTRAP_SAMPLES}|seed:{SEED}|case:mixed|space:no",
    )


def _as_in_papers(tgt: str) -> tuple[Measure, Measure]:
    """The paper's own BLEU, and the lowercased one of some later reports."""
    tokenised = Tokenised(tgt)
    name = "tokenised_split" if tokenised.splits_compounds else "tokenised"
    split = ", compounds split" if tokenised.splits_compounds else ""
    bleu = sacre(name, "", BLEU(tokenize="none", smooth_method="none", force=True))

    def counts_of(hypotheses: Sequence[str], references: Sequence[str]) -> Counts:
        return bleu.counts_of([*map(tokenised, hypotheses)], [*map(tokenised, references)])

    return (
        Measure(
            f"bleu_{name}",
            f"BLEU of the paper (tokenised{split})",
            counts_of,
            bleu.score_of,
            bleu.signature.replace("tok:none", f"tok:{tokenised.signature}"),
        ),
        sacre("bleu_lowercased", "BLEU, lowercased (13a)", BLEU(lowercase=True)),
    )


def count_all(
    kind: Kind, hypotheses: Sequence[str], references: Sequence[str]
) -> dict[str, Counts]:
    """The counts of each metric, by its name."""
    assert len(hypotheses) == len(references), "one hypothesis for each reference"
    return {measure.name: measure.counts_of(hypotheses, references) for measure in measures(kind)}


def scores(kind: Kind, counts: Mapping[str, Counts]) -> dict[str, Json]:
    """Each metric's score of some sentences, by its name, from their counts."""
    return {measure.name: entry(measure, counts[measure.name]) for measure in measures(kind)}


def entry(measure: Measure, counts_NC: Counts) -> Json:
    """A score as `scores.json` holds it: rounded to two digits, with all that it needs to be told."""
    low, high = interval(counts_NC, measure.score_of)
    return {
        "score": round(measure.score_of(counts_NC.sum(0).tolist()), 2),
        "low": round(low, 2),
        "high": round(high, 2),
        "label": measure.label,
        "signature": measure.signature,
    }


def newstest2014_remark(num_sentences: int) -> str | None:
    """What is to be said of a set that is scored as newstest2014; none if it is the paper's."""
    if num_sentences == NEWSTEST2014_FULL:
        return None
    if num_sentences == NEWSTEST2014_FILTERED:
        return (
            "2,737 sentences: the filtered newstest2014, whose scores do not compare with those of "
            "the full 3,003"
        )
    return f"{num_sentences:,} sentences, where newstest2014 has 3,003"
